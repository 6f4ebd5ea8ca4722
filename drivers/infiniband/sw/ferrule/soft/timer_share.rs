// SPDX-License-Identifier: GPL-2.0

//! The limit of the timers of all shards together: a ninth of each processor.
//!
//! Programs can have as many timers as queue pairs, each due every ten microseconds, and a shard
//! for each time that they open the device, and a softirq is not preempted by their threads. So
//! after a timer has worked, all timers of that processor rest for [`REST`] times as long, though
//! not for more than [`MAX_REST_NS`]: they have a ninth of it, in which nobody could be scheduled.
//! Deadlines that come meanwhile are the workers', which are scheduled as other threads are.
//! Requests of kernel users and packets do not wait for the end of a rest.
//!
//! Time is that of the clock. A timer whose virtual processor was taken away, or that was preempted
//! on PREEMPT_RT, seems to have worked for long.

use kernel::{
    cpu::CpuId,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

/// How many times as long as they have worked the timers rest.
const REST: u64 = 8;

/// The longest rest, in nanoseconds.
const MAX_REST_NS: u64 = 8_000_000;

/// Processors whose numbers are equal modulo this share an account.
const ACCOUNTS: usize = 256;

/// Until when the timers of a processor rest, in nanoseconds of
/// [`monotonic_ns`](kernel_ext::time::monotonic_ns).
static RESTS_UNTIL: [Atomic<u64>; ACCOUNTS] = [const { Atomic::new(0) }; ACCOUNTS];

/// The account of this processor.
fn account() -> &'static Atomic<u64> {
    &RESTS_UNTIL[CpuId::current().as_u32() as usize % ACCOUNTS]
}

/// Until when the timers of this processor rest, by the same clock.
#[inline]
pub(super) fn rests_until() -> u64 {
    account().load(Relaxed)
}

/// A timer of this processor has worked from `begin` to `end`.
pub(super) fn has_worked(begin: u64, end: u64) {
    let account = account();
    let from = account.load(Relaxed).max(end);
    let rest = end.saturating_sub(begin).saturating_mul(REST);
    let until = from
        .saturating_add(rest)
        .min(end.saturating_add(MAX_REST_NS));
    account.store(until, Relaxed);
}
