// SPDX-License-Identifier: GPL-2.0

//! When a stream of kicks is offered to the worker.
//!
//! A program that kicks again and again pays a system call a message, though another processor may
//! be idle. So a stream of kicks is offered to the worker: if it gets a processor to itself,
//! programs post without system calls. An offer that comes to nothing costs those programs time, so
//! after one there is a pause, which doubles each time.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};
use kernel_ext::time::monotonic_ns;

/// So many kicks within [`STREAM_NS`] are a stream: more than 16,000 a second.
///
/// As few as can be told from a burst: the worker sleeps again whenever somebody else has had its
/// processor, and so many system calls it costs a program until the next offer.
const STREAM: u64 = 16;
const STREAM_NS: u64 = 1_000_000;

/// A kick counts once more for each so many bytes that it has copied. A program with a backlog
/// kicks once for many messages, and to copy them takes far longer than the call.
const BYTES: u64 = 64 << 10;

/// An offer that brings the worker fewer requests has come to nothing.
const WORTH: u64 = 64;

/// How long no offer is made after one that came to nothing: the first time, and at most. A futile
/// offer costs a program about 10 microseconds, so less than a part in a hundred.
const PAUSE_NS: u64 = 4_000_000;
const MAX_PAUSE_NS: u64 = 250_000_000;

/// When the worker is offered a stream of kicks.
pub(super) struct Offers {
    /// The kicks so far, and more for those that copied much.
    counted: Atomic<u64>,
    /// When the kicks that are being counted began.
    began: Atomic<u64>,
    /// No offer before this time.
    not_before: Atomic<u64>,
    /// The pause after the next offer that comes to nothing.
    pause: Atomic<u64>,
}

impl Offers {
    pub(super) fn new() -> Self {
        Self {
            counted: Atomic::new(0),
            began: Atomic::new(0),
            not_before: Atomic::new(0),
            pause: Atomic::new(PAUSE_NS),
        }
    }

    /// Counts a kick that has copied so many bytes, and says whether it is one of a stream that
    /// should be offered.
    #[inline]
    pub(super) fn is_due(&self, bytes: u64) -> bool {
        let counts = 1 + bytes / BYTES;
        if self.counted.fetch_add(counts, Relaxed) % STREAM + counts < STREAM {
            return false;
        }
        let now = monotonic_ns();
        let began = self.began.xchg(now, Relaxed);
        now.wrapping_sub(began) <= STREAM_NS && now >= self.not_before.load(Relaxed)
    }

    /// Whether no offer has come to nothing just now.
    pub(super) fn are_welcome(&self) -> bool {
        monotonic_ns() >= self.not_before.load(Relaxed)
    }

    /// The worker went to sleep after it had found so many requests.
    pub(super) fn ended(&self, found: u64) {
        if found >= WORTH {
            self.pause.store(PAUSE_NS, Relaxed);
        } else {
            let pause = self.pause.load(Relaxed);
            self.not_before.store(monotonic_ns() + pause, Relaxed);
            self.pause.store((pause * 2).min(MAX_PAUSE_NS), Relaxed);
        }
    }
}
