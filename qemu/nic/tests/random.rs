// SPDX-License-Identifier: GPL-2.0

//! The fuzzer's target without a fuzzer: its seeds, and strings of them with a few bytes changed.

use proptest::prelude::*;

use crate::fuzz;

#[test]
fn seeds() {
    fuzz::seeds()
        .iter()
        .chain([&fuzz::seeds().concat()])
        .for_each(|seed| {
            fuzz::run(seed);
        });
    // Each of these does what it is to do, so that those near it get far.
    for (number, seed) in fuzz::commands().iter().enumerate() {
        assert_eq!(fuzz::run(seed), 0, "{number}");
    }
}

#[test]
fn seeds_of_frames() {
    let packets = |seed: &Vec<u8>| fuzz::frames::run(seed);
    let seeds = fuzz::frames::seeds();
    let found: usize = seeds.iter().map(packets).sum();
    assert_eq!(found, seeds.len() - 3);
}

/// How many scripts are tried: `FERRULE_SCRIPTS`, or so many as take a few seconds.
fn scripts() -> u32 {
    std::env::var("FERRULE_SCRIPTS").map_or(20_000, |number| number.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: scripts(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn scripts_near_the_seeds(
        seeds in prop::collection::vec(prop::sample::select(fuzz::seeds()), 1..8),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let mut script = seeds.concat();
        for (index, byte) in changes {
            let index = index.index(script.len());
            script[index] = byte;
        }
        fuzz::run(&script);
    }

    #[test]
    fn frames_near_the_seeds(
        seeds in prop::collection::vec(prop::sample::select(fuzz::frames::seeds()), 1..6),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let mut script = seeds.concat();
        for (index, byte) in changes {
            let index = index.index(script.len());
            script[index] = byte;
        }
        fuzz::frames::run(&script);
    }
}

proptest! {
    // Each is many messages.
    #![proptest_config(ProptestConfig { cases: scripts() / 10, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn scripts_near_commands(
        seeds in prop::collection::vec(prop::sample::select(fuzz::commands()), 1..4),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut script = seeds.concat();
        for (index, byte) in changes {
            let index = index.index(script.len());
            script[index] = byte;
        }
        fuzz::run(&script);
    }
}
