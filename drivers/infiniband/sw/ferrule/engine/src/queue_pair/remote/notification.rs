// SPDX-License-Identifier: GPL-2.0

//! When a queue pair is to send a congestion notification packet.

/// Nanoseconds from one CNP of a queue pair to the next, as notification points of DCQCN have it.
const INTERVAL: u64 = 50_000;

/// The CNPs that a queue pair is to send.
#[derive(Clone, Copy, Default)]
pub(crate) struct Notification {
    /// One is to be sent.
    is_due: bool,
    /// But none before this time.
    not_before: u64,
}

impl Notification {
    /// A request has come with a mark.
    #[cold]
    pub(crate) fn marked(&mut self, now: u64) {
        self.is_due |= now >= self.not_before;
    }

    /// Whether one is to be sent.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.is_due
    }

    /// It has been sent.
    pub(crate) fn sent(&mut self, now: u64) {
        self.is_due = false;
        self.not_before = now.saturating_add(INTERVAL);
    }
}
