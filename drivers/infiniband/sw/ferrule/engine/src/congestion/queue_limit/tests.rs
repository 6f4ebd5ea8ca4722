// SPDX-License-Identifier: GPL-2.0

//! Tests of the limit of the queue, on a path whose packets cost least in long bursts, and on a
//! link.

use super::*;

/// Rounds of a trial, or of the measurement before it.
const TRIAL: u32 = (SETTLE + MEASURED) as u32;

/// The limit after so many rounds of a path, by the time in which it delivers a packet.
fn run(limit: &mut QueueLimit, rounds: u32, time: impl Fn(u32) -> u64) -> u32 {
    for _ in 0..rounds {
        limit.end_round(100 * time(limit.packets()), 100);
    }
    limit.packets()
}

/// Two ends to which each burst costs much.
fn bursts(packets: u32) -> u64 {
    10_000 + 1_000_000 / u64::from(packets)
}

fn link(_packets: u32) -> u64 {
    10_000
}

#[test]
fn a_queue_is_longer_if_the_path_is_faster() {
    let mut limit = QueueLimit::default();
    assert_eq!(
        run(&mut limit, 5 * TRIAL + u32::from(MIN_PAUSE), bursts),
        MAX
    );
}

#[test]
fn a_link_has_a_short_queue() {
    let mut limit = QueueLimit::default();
    assert_eq!(run(&mut limit, 4 * TRIAL, link), MIN);
    let mut longer = 0;
    for _ in 0..100_000 {
        longer += u32::from(run(&mut limit, 1, link) != MIN);
    }
    assert!((1000..3000).contains(&longer), "{longer}");
}

#[test]
fn a_queue_that_has_become_useless_goes() {
    let mut limit = QueueLimit::default();
    run(&mut limit, 1000, bursts);
    assert_eq!(limit.packets(), MAX);
    assert_eq!(run(&mut limit, u32::from(2 * MAX_PAUSE), link), MIN);
}

#[test]
fn a_loss_ends_a_trial_and_the_next_one_comes_late() {
    let mut limit = QueueLimit::default();
    assert_ne!(run(&mut limit, TRIAL, bursts), INITIAL);
    limit.on_loss();
    for _ in 1..u32::from(MAX_PAUSE) + TRIAL {
        assert_eq!(run(&mut limit, 1, bursts), MIN);
    }
    assert_eq!(run(&mut limit, 1, bursts), 2 * MIN);
}
