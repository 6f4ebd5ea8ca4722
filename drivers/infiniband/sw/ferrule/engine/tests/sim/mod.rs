// SPDX-License-Identifier: GPL-2.0

//! A simulated host with virtual time, and programs that post and poll as the provider does.

// The tests, the benchmark, the fuzzers and the unit tests use a part of this each.
#![allow(dead_code, unreachable_pub, unused_imports)]

pub mod bottleneck;
pub mod connect;
pub mod host;
#[path = "../local.rs"]
mod local;
pub mod memory;
pub mod network;
pub mod packet;
pub mod post;
pub mod program;
pub mod refused;
pub mod scene;
pub mod world;

use ferrule_engine::Budget;
use proptest::test_runner::{Config as ProptestConfig, RngSeed};

pub use connect::*;
pub use host::*;
pub(crate) use local::add;

pub use packet::*;
pub use post::*;
pub use program::*;
pub use world::*;

/// How often a property is tried, with which numbers: always the same ones, unless
/// `PROPTEST_RNG_SEED` gives others. `PROPTEST_CASES` can lower the count.
pub fn cases(cases: u32) -> ProptestConfig {
    let config = ProptestConfig::default();
    let is_lowered = std::env::var_os("PROPTEST_CASES").is_some() && config.cases < cases;
    let config = ProptestConfig {
        cases: if is_lowered { config.cases } else { cases },
        failure_persistence: None,
        ..config
    };
    match config.rng_seed {
        RngSeed::Random => ProptestConfig {
            rng_seed: RngSeed::Fixed(0x0fe5_501e),
            ..config
        },
        RngSeed::Fixed(_) => config,
    }
}

/// Nanoseconds.
pub const US: u64 = 1000;
pub const MS: u64 = 1000 * US;

/// Nanoseconds until a silent peer is lost, after so many `retries`. The first two of them double
/// the timeout.
pub fn silence(retries: u8, timeout: u8) -> u64 {
    let tries = 0..=u32::from(retries);
    tries.map(|retry| (4096 << timeout) << retry.min(2)).sum()
}

/// More than any test needs.
pub const PLENTY: Budget = Budget {
    requests: 1 << 20,
    bytes: 1 << 40,
};

/// Enough for all doorbells, and for no request.
pub const LOOKS_ALONE: Budget = Budget {
    requests: 1 << 20,
    bytes: 0,
};
