// SPDX-License-Identifier: GPL-2.0

//! The kicks in progress, and which of them does the work that nobody has come for.
//!
//! Several programs may kick at once. One of them owns the shard, and the others wait for their
//! turns, each to do its own work. So a kick that is done with its own leaves theirs to them. If it
//! did their work, their processors would wait, and its own program would post nothing. There may
//! be other work, such as answers to packets. Two programs that kick without a pause would leave
//! that for ever, so one kick in four does it.
//!
//! The last kick in progress sees to it that what is left is done. Owners of the shard note whether
//! work is left, each before its kick ends, so the last one sees what the last owner has noted. A
//! kick that leaves a missed call notes that, too. If another owner has taken the call before, the
//! note is for nothing.

use kernel::sync::atomic::{
    Atomic,
    Full,
    Relaxed, //
};

/// One of so many kicks that might leave work to others does it.
const DOES: u32 = 4;

/// The kicks of a device.
pub(super) struct Kicks {
    in_progress: Atomic<u32>,
    /// Not 0: work was left at the end of the last turn.
    left: Atomic<u32>,
    /// How many kicks might have left work to others.
    might_leave: Atomic<u32>,
    /// All so far, for the report.
    total: Atomic<u64>,
}

impl Kicks {
    pub(super) fn new() -> Self {
        Self {
            in_progress: Atomic::new(0),
            left: Atomic::new(0),
            might_leave: Atomic::new(0),
            total: Atomic::new(0),
        }
    }

    /// How many there were so far.
    pub(super) fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }

    /// A kick begins.
    #[inline]
    pub(super) fn begin(&self) {
        self.in_progress.fetch_add(1, Relaxed);
        self.total.fetch_add(1, Relaxed);
    }

    /// Whether there are others in progress beside the caller's.
    #[inline]
    pub(super) fn has_others(&self) -> bool {
        self.in_progress.load(Relaxed) > 1
    }

    /// Whether the caller's kick, which is done with its own work, leaves the rest to others.
    #[inline]
    pub(super) fn leaves_work(&self) -> bool {
        self.has_others() && self.might_leave.fetch_add(1, Relaxed) % DOES != 0
    }

    /// Notes whether work is left at the end of a turn, for the owner of the shard; or that a call
    /// was missed.
    #[inline]
    pub(super) fn note_left(&self, left: bool) {
        // Mostly it is as before, and the cache line stays shared.
        if self.left.load(Relaxed) != u32::from(left) {
            self.left.store(left.into(), Relaxed);
        }
    }

    /// A kick ends. Returns whether it was the last one in progress, and work is left.
    #[inline]
    pub(super) fn end(&self) -> bool {
        self.in_progress.fetch_sub(1, Full) == 1 && self.left.load(Relaxed) != 0
    }
}
