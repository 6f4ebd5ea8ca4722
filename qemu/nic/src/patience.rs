// SPDX-License-Identifier: GPL-2.0

//! Whether the engine's thread stays awake for programs that have kicked.
//!
//! It pays while the thread has a processor: then programs ring without an access to a register.
//! Where there are fewer processors than programs that poll, the scheduler gives the thread its
//! turn only after theirs, which takes milliseconds, while a kick is served at once. So after the
//! thread has lost its processor for little work, kicks leave it asleep for a time, which doubles
//! whenever that happens again.

use ferrule_engine::Budget;

/// An interrupt takes less. A thread that is away for longer has lost its processor to another. In
/// nanoseconds.
const AWAY: u64 = 500_000;

/// So much work between two losses of the processor is worth being awake.
const WORTH: Budget = Budget {
    requests: 64,
    bytes: 1 << 20,
};

/// How long kicks leave the thread asleep: the first time, and at most, in nanoseconds.
const PAUSE: u64 = 4_000_000;
/// See [`PAUSE`].
const PAUSE_MOST: u64 = 250_000_000;

/// How the thread has fared lately.
#[derive(Debug)]
pub(crate) struct Patience {
    /// Kicks leave the thread asleep until then.
    not_before: u64,
    /// The pause after the next loss.
    pause: u64,
    /// The work done since the last one.
    done: Budget,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            not_before: 0,
            pause: PAUSE,
            done: NONE,
        }
    }
}

const NONE: Budget = Budget {
    requests: 0,
    bytes: 0,
};

impl Patience {
    /// Whether a kick is to wake the thread.
    pub(crate) fn allows(&self, now: u64) -> bool {
        now >= self.not_before
    }

    /// The thread has done some work.
    pub(crate) fn done(&mut self, requests: u32, bytes: u64) {
        self.done.requests = self.done.requests.saturating_add(requests);
        self.done.bytes = self.done.bytes.saturating_add(bytes);
    }

    /// The thread has let others run, for so long. Returns whether it is to sleep.
    pub(crate) fn rested(&mut self, before: u64, now: u64) -> bool {
        if now.saturating_sub(before) < AWAY {
            return false;
        }
        let done = std::mem::replace(&mut self.done, NONE);
        if done.requests >= WORTH.requests || done.bytes >= WORTH.bytes {
            self.pause = PAUSE;
            return false;
        }
        self.not_before = now.saturating_add(self.pause);
        self.pause = self.pause.saturating_mul(2).min(PAUSE_MOST);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_for_little_work_pauses() {
        let mut patience = Patience::default();
        assert!(patience.allows(0));
        assert!(!patience.rested(0, AWAY - 1));
        patience.done(WORTH.requests - 1, WORTH.bytes - 1);
        assert!(patience.rested(0, AWAY));
        assert!(!patience.allows(AWAY + PAUSE - 1) && patience.allows(AWAY + PAUSE));
        // The next pause is twice as long, up to the longest.
        assert!(patience.rested(0, AWAY));
        assert!(!patience.allows(AWAY + PAUSE) && patience.allows(AWAY + 2 * PAUSE));
        (0..64).for_each(|_| assert!(patience.rested(0, AWAY)));
        assert!(patience.allows(AWAY + PAUSE_MOST));
    }

    #[test]
    fn much_work_is_worth_it() {
        for (requests, bytes) in [(WORTH.requests, 0), (1, WORTH.bytes)] {
            let mut patience = Patience::default();
            assert!(patience.rested(0, AWAY));
            patience.done(requests, bytes);
            assert!(!patience.rested(0, AWAY));
            // The work counts once, and the pause begins anew.
            assert!(patience.rested(0, AWAY));
            assert!(patience.allows(AWAY + PAUSE));
        }
    }
}
