// SPDX-License-Identifier: GPL-2.0

//! The fuzzers' targets without a fuzzer: with the inputs that are kept, and with random ones.
//!
//! `make fuzz` looks for more inputs; those that reach something new, or broke something, are kept
//! in `fuzz/corpus/`.

use std::path::Path;

use proptest::prelude::*;

use crate::{fuzz, sim};

/// Runs every input that is kept for a target.
fn replay(target: &str, run: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let mut inputs: Vec<_> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    inputs.sort();
    assert!(!inputs.is_empty(), "{} is empty", directory.display());
    for input in inputs {
        // The last line that is printed names the input of a failure.
        println!("{}", input.display());
        run(&std::fs::read(&input).unwrap());
    }
}

#[test]
fn requests_corpus() {
    replay("requests", fuzz::requests::run);
}

#[test]
fn queues_corpus() {
    replay("queues", fuzz::queues::run);
}

#[test]
fn packets_corpus() {
    replay("packets", fuzz::packets::run);
}

#[test]
fn requests_seeds() {
    fuzz::requests::seeds()
        .iter()
        .for_each(|seed| fuzz::requests::run(seed));
}

#[test]
fn queues_seeds() {
    fuzz::queues::seeds()
        .iter()
        .for_each(|seed| fuzz::queues::run(seed));
}

#[test]
fn packets_seeds() {
    fuzz::packets::seeds()
        .iter()
        .for_each(|seed| fuzz::packets::run(seed));
}

/// The seeds with a few bytes changed: most random bytes would end at the first check.
fn near(seeds: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let seeds = prop::collection::vec(prop::sample::select(seeds), 1..6);
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
    (seeds, changes).prop_map(|(seeds, changes)| {
        let mut bytes = seeds.concat();
        for (index, byte) in changes {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        bytes
    })
}

proptest! {
    #![proptest_config(sim::cases(1000))]

    #[test]
    fn requests_random(bytes in near(fuzz::requests::seeds())) {
        fuzz::requests::run(&bytes);
    }

    #[test]
    fn packets_random(bytes in near(fuzz::packets::seeds())) {
        fuzz::packets::run(&bytes);
    }

    #[test]
    fn queues_random(bytes in near(fuzz::queues::seeds())) {
        fuzz::queues::run(&bytes);
    }
}
