// SPDX-License-Identifier: GPL-2.0

//! Connections that share a narrow place: how much of it is of use, who gets how much, and what is dropped.
//!
//! `CONGESTION_SECONDS=60` measures for so many simulated seconds instead of a fraction of one.

use crate::sim::bottleneck::{share, Outcome, Shared, Verb};
use crate::sim::MS;

/// How long is measured, if not for `time`.
fn time(time: u64) -> u64 {
    std::env::var("CONGESTION_SECONDS")
        .map_or(time, |seconds| seconds.parse::<u64>().unwrap() * 1000 * MS)
}

fn alone(verb: Verb, connections: usize) -> Outcome {
    share(Shared {
        verb,
        connections,
        time: time(400 * MS),
        ..Shared::default()
    })
}

#[test]
fn a_narrow_place_is_full() {
    for verb in [Verb::Write, Verb::Read] {
        for connections in [1, 8, 32] {
            let outcome = alone(verb, connections);
            assert!(outcome.goodput >= 0.5 && outcome.longest <= 64);
        }
    }
}

#[test]
fn one_beside_reno_has_its_share() {
    let outcome = share(Shared {
        with_reno: true,
        time: time(3000 * MS),
        ..Shared::default()
    });
    assert!(!outcome.is_broken);
    assert!(outcome.goodput >= 1.0 / 6.0 && outcome.reno >= 1.0 / 6.0);
}
