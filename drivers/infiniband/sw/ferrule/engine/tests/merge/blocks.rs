// SPDX-License-Identifier: GPL-2.0

//! Blocks of numbers, which engines of one device share.

use ferrule_engine::{Ah, Block, Error, Mw, MwType, NeedChunk, PathKind, Status, TableKind};

use super::{worlds, write};
use crate::sim::*;

#[test]
fn free_numbers_go_over() {
    let [mut w, mut other] = worlds();
    let ours: Vec<_> = (0..10).map(|_| w.mw(1, MwType::Type1)).collect();
    let theirs: Vec<_> = (0..20).map(|_| other.mw(1, MwType::Type1)).collect();
    w.merge(&mut other).unwrap();
    let free = 64 - ours.len() + 64 - theirs.len();
    let new = || Box::new(Mw::new(1, MwType::Type1));
    let keys: Vec<_> = (0..free)
        .map(|_| w.engine.add_mw(new()).ok().unwrap())
        .collect();
    let refused = w.engine.add_mw(new()).err().unwrap();
    assert!(matches!(refused.error, Error::NeedChunk(_)));
    let mut all = [ours, theirs, keys].concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 128);
    // The other engine has none, and gets others.
    let refused = other.engine.add_mw(new()).err().unwrap();
    assert!(matches!(refused.error, Error::NeedChunk(_)));
    drop(w.engine.remove_mw(all[0]).unwrap());
    assert!(w.engine.add_mw(new()).is_ok());
}

/// A table is full when it has all blocks, of which none is left for others then.
#[test]
fn a_table_of_all_blocks_is_full() {
    let [mut w, mut other] = worlds();
    let kind = TableKind::Ahs;
    let new = || Box::new(Ah::new(1, path(PathKind::Remote), None));
    let error = |w: &mut World| w.engine.add_ah(new()).err().map(|refused| refused.error);
    // Each block is taken when there is no other number.
    let mut blocks = (0..kind.blocks()).filter(|&number| number != 4);
    let mut count = 0;
    loop {
        match error(&mut w) {
            None => count += 1,
            Some(error) => {
                assert!(matches!(error, Error::NeedChunk(need) if need.kind() == kind));
                let Some(number) = blocks.next() else {
                    break;
                };
                let mut chunk = NeedChunk::from(kind).allocate().unwrap();
                chunk.set_block(number);
                assert!(w.engine.add_chunk(chunk).is_none());
            }
        }
    }
    // No handle has the index 0.
    assert_eq!(count, 64 * (kind.blocks() - 1) - 1);
    w.merge(&mut other).unwrap();
    for _ in 0..64 {
        assert_eq!(error(&mut w), None);
    }
    assert_eq!(error(&mut w), Some(Error::Full));
}

/// Gives a block of one engine to the other one, and returns its number.
fn give(from: &mut World, to: &mut World, kind: TableKind) -> Option<u32> {
    let mut chunk = NeedChunk::from(kind).allocate().unwrap();
    let block = from.engine.give_block(&mut chunk)?;
    assert_eq!(block.kind, kind);
    assert!(to.engine.add_chunk(chunk).is_none());
    Some(block.number)
}

/// An engine gives away blocks in which there are no objects, and their numbers go on where they
/// were.
#[test]
fn blocks_without_objects_are_given_away() {
    let [mut w, mut other] = worlds();
    let keep = w.mw(1, MwType::Type1);
    // The block 0 stays, and so do the last free numbers.
    assert_eq!(give(&mut w, &mut other, TableKind::Mws), None);
    let first = other.mw(1, MwType::Type1);
    assert_eq!(give(&mut other, &mut w, TableKind::Mws), None);
    drop(other.engine.remove_mw(first).unwrap());
    assert_eq!(give(&mut other, &mut w, TableKind::Mws), None);
    w.merge(&mut other).unwrap();
    assert_eq!(give(&mut w, &mut other, TableKind::Mws), Some(4));
    let keys: Vec<_> = (0..64).map(|_| other.mw(1, MwType::Type1)).collect();
    assert!(keys.iter().all(|&key| Block::of_key(key).number == 4));
    // The first one has had a generation more.
    assert!(!keys.contains(&first));
    assert!(keys.contains(&(first + 1)));
    assert!(Block::of_key(keep).number == 0);
    // All other free numbers of the first engine are those of its block 0.
    let ours: Vec<_> = (0..63).map(|_| w.mw(1, MwType::Type1)).collect();
    assert!(ours.iter().all(|&key| Block::of_key(key).number == 0));
    let refused = w.engine.add_mw(Box::new(Mw::new(1, MwType::Type1))).err();
    assert!(matches!(refused.unwrap().error, Error::NeedChunk(_)));
    // With an object there, none is given; without a context, each may go.
    assert_eq!(give(&mut other, &mut w, TableKind::Mws), None);
    for key in keys {
        drop(other.engine.remove_mw(key).unwrap());
    }
    assert_eq!(give(&mut other, &mut w, TableKind::Mws), Some(4));
    assert_eq!(give(&mut other, &mut w, TableKind::Mws), None);
    w.mw(1, MwType::Type1);
}

/// A queue pair may be destroyed while it waits for a turn. Its block stays until that turn has
/// come, or the list of those that wait would be broken in both engines.
#[test]
fn a_number_that_waits_for_a_turn_keeps_its_block() {
    let [mut w, mut other] = worlds();
    // So many queue pairs that a block may be given away.
    let kept: Vec<_> = (0..100).map(|_| other.pair()).collect();
    let block = Block::of_qp(kept[50].0.qp.id.number);
    let (stays, goes): (Vec<_>, Vec<_>) = kept
        .into_iter()
        .flat_map(|(a, b)| [a, b])
        .partition(|end| Block::of_qp(end.qp.id.number) != block);
    let waits = goes.last().unwrap().qp.id;
    let works = &stays[0];
    write(&works.qp, 1);
    other.engine.ring_qp(works.qp.id.number);
    other.engine.ring_qp(waits.number);
    for end in &goes {
        drop(other.engine.remove_qp(end.qp.id.number).unwrap());
    }
    assert_eq!(give(&mut other, &mut w, TableKind::Qps), None);
    other.run();
    works.cq.expect(1, Status::Success);
    assert!(!other.engine.has_work());
    assert_eq!(give(&mut other, &mut w, TableKind::Qps), Some(block.number));
    // All numbers of that block work in the other engine, and none of their names returns.
    let mut found = false;
    for _ in 0..64 {
        let (a, b) = w.pair();
        found |= [a.qp.id, b.qp.id].iter().any(|id| {
            assert!(id != &waits);
            id.number & 0xffff == waits.number & 0xffff
        });
        for end in [a, b] {
            write(&end.qp, 2);
            w.run();
            end.cq.expect(2, Status::Success);
        }
    }
    assert!(found);
    write(&works.qp, 3);
    other.run();
    works.cq.expect(3, Status::Success);
}

/// The first engine of a device has all reserved numbers, and others may give their last block
/// away.
#[test]
fn an_engine_that_is_not_in_use_gives_its_last_block() {
    for kind in TableKind::ALL {
        let [mut w, mut other] = worlds();
        let pd = other.pd();
        let cq = other.cq(4).cqn;
        let mut ways = [0, 1, 2];
        ways.rotate_left(kind as usize % 3);
        for way in ways {
            assert_eq!(give(&mut other, &mut w, kind), None, "{kind:?}");
            match way {
                0 => drop(other.engine.remove_context(other.context.id).unwrap()),
                1 => drop(other.engine.remove_pd(pd).unwrap()),
                _ => drop(other.engine.remove_cq(cq).unwrap()),
            }
        }
        assert_eq!(other.engine.parents(), 0);
        let given = give(&mut other, &mut w, kind);
        assert_eq!(given, (kind != TableKind::Groups).then_some(4), "{kind:?}");
    }
}

/// Engines take blocks from each other in any order, and no two objects have one number.
#[test]
fn blocks_go_round() {
    let mut worlds = [0, 4, 8].map(World::of_blocks);
    for number in 12..24 {
        let mut chunk = NeedChunk::from(TableKind::Mws).allocate().unwrap();
        chunk.set_block(number);
        let added = worlds[number as usize % 3].engine.add_chunk(chunk);
        assert!(added.is_none());
    }
    let mut keys = std::collections::BTreeMap::new();
    for step in 0..4000u32 {
        let random = step.wrapping_mul(0x9e37_79b1);
        let (from, to) = ((random >> 8) as usize % 3, (random >> 12) as usize % 3);
        if step % 5 == 0 && from != to {
            let mut other = std::mem::replace(&mut worlds[to], World::new());
            if random % 64 == 0 {
                other.merge(&mut worlds[from]).unwrap();
                keys.values_mut()
                    .filter(|place| **place == from)
                    .for_each(|place| *place = to);
            } else {
                give(&mut worlds[from], &mut other, TableKind::Mws);
            }
            worlds[to] = other;
        }
        let new = Box::new(Mw::new(1, MwType::Type1));
        if random % 7 < 5 {
            if let Ok(key) = worlds[from].engine.add_mw(new) {
                assert_eq!(keys.insert(key, from), None);
            }
        } else if let Some((&key, &place)) = keys.iter().nth(random as usize % 100) {
            drop(worlds[place].engine.remove_mw(key).unwrap());
            keys.remove(&key);
        }
    }
    assert!(keys.len() > 100, "{}", keys.len());
    for (key, place) in keys {
        drop(worlds[place].engine.remove_mw(key).unwrap());
    }
}
