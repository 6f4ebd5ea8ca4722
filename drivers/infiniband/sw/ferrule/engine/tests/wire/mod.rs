// SPDX-License-Identifier: GPL-2.0

//! Reliable connections over a bad network.
//!
//! Every message arrives once, in order, byte for byte, and every request ends, in order.

mod limits;
mod messages;
mod order;
mod retries;
mod strange;

use ferrule_engine::Modify;

use crate::sim::network::Link;
use crate::sim::{TestCq, TestMr, TestQp};

/// `FERRULE_MESSAGES` says how many, and `FERRULE_SEED` by which seed.
fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

/// Two connected ends over a network.
fn pair(link: &mut Link, change: impl Fn(&mut Modify)) -> [(TestQp, TestCq, TestMr); 2] {
    let mut memory = link
        .worlds
        .each_mut()
        .map(|world| world.mr(8192))
        .into_iter();
    link.pair(|world, cq| world.qp(cq, cq), change)
        .map(|end| (end.qp, end.cq, memory.next().unwrap()))
}
