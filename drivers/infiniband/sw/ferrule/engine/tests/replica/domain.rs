// SPDX-License-Identifier: GPL-2.0

//! The regions of a protection domain, of which another engine is to have replicas.

use ferrule_engine::TableKind;

use super::{chunk_of, replicate, worlds};
use crate::sim::*;

/// A region of 8 bytes.
fn region(w: &mut World, pd: u32) -> TestMr {
    w.mr_with(pd, ALL, memory::shared(8), 0, 8)
}

/// The keys of all regions of a domain, in the order in which they are found, and how many steps
/// that took.
fn keys_of(w: &World, pd: u32) -> (Vec<u32>, usize) {
    let (mut keys, mut steps, mut next) = (Vec::new(), 0, Some(0));
    while let Some(from) = next {
        let (key, behind) = w.engine.next_of_domain(pd, from);
        assert!(behind.is_none_or(|behind| behind > from), "no progress");
        keys.extend(key);
        next = behind;
        steps += 1;
    }
    (keys, steps)
}

#[track_caller]
fn expect_keys(w: &World, pd: u32, mut keys: Vec<u32>) {
    keys.sort_unstable();
    let (found, steps) = keys_of(w, pd);
    assert_eq!(found, keys);
    // A step per region, and one per 64 blocks or per 64 regions of other domains.
    assert!(steps <= keys.len() + 4096 / 64 + 8, "{steps}");
}

#[test]
fn all_regions_of_a_domain_are_found_and_no_other() {
    for blocks in [&[0][..], &[4], &[0, 1, 3], &[4, 5, 63, 64, 1000, 4095]] {
        let mut w = match blocks[0] {
            0 => World::new(),
            first => World::of_blocks(first),
        };
        for pd in [0, 1] {
            assert_eq!(w.engine.next_of_domain(pd, 0).0, None);
            expect_keys(&w, pd, Vec::new());
        }
        let mut keys = [const { Vec::new() }; 3];
        for &block in blocks {
            if block != blocks[0] {
                let chunk = chunk_of(TableKind::Keys, block);
                assert!(w.engine.add_chunk(chunk).is_none());
            }
            // The block 0 has one number less.
            let count = if block == 0 { 63 } else { 64 };
            for number in 0..count {
                // The third domain has few, and the last one of all.
                let pd = match number {
                    0 | 7 => 2,
                    _ if number == count - 1 => 2,
                    _ => number % 2,
                };
                keys[pd as usize].push(region(&mut w, pd).key);
            }
        }
        for (pd, keys) in (0..).zip(&keys) {
            expect_keys(&w, pd, keys.clone());
        }
        expect_keys(&w, 3, Vec::new());
        // Those that are gone are found no more, and a search may begin behind the end.
        let gone = keys[1].remove(5);
        drop(w.engine.remove_mr(gone).unwrap());
        expect_keys(&w, 1, keys[1].clone());
        for behind in [1 << 18, u32::MAX] {
            assert_eq!(w.engine.next_of_domain(1, behind), (None, None));
        }
    }
}

/// They are those of the engine itself, which may have got them from others.
#[test]
fn replicas_are_no_regions_of_the_domain() {
    let [mut home, mut other] = worlds();
    let mut all: Vec<_> = (0..3).map(|_| region(&mut home, 1)).collect();
    for mr in &all {
        replicate(&home, mr.key, &mut other).unwrap();
    }
    let own = region(&mut other, 1);
    expect_keys(&other, 1, vec![own.key]);
    other.merge(&mut home).unwrap();
    all.push(own);
    expect_keys(&other, 1, all.iter().map(|mr| mr.key).collect());
    expect_keys(&home, 1, Vec::new());
}
