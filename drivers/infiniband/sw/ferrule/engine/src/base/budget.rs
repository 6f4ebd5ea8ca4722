// SPDX-License-Identifier: GPL-2.0

//! How much may be done at a time.

/// How much may be done: by a run of the engine, or by a queue pair in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Requests that may be begun or flushed.
    pub requests: u32,
    /// Bytes that may be copied. Exceeded by at most one path MTU, or by one fast registration.
    pub bytes: u64,
}

impl Budget {
    /// The shortest packet counts for so many bytes of a turn, and so does each piece of memory of
    /// a fast registration.
    pub(crate) const PACKET: u32 = 64;

    /// The budget of one turn: enough to be worth the change, little enough for the others.
    pub(crate) const TURN: Budget = Budget {
        requests: 32,
        bytes: 64 * 1024,
    };

    /// A look reads whether something is rung: at a context, at a word of doorbells, or at a
    /// doorbell. So many looks take as long as a request.
    pub const LOOKS: u32 = 4;

    /// The way to a context counts for so many looks, beside those at its doorbells.
    pub(crate) const CONTEXT: u32 = 1;

    /// A turn counts for so many requests at least, since to begin and to end it takes about as
    /// long as a request.
    pub(crate) const LEAST: u32 = 2;

    /// The budget that is spent.
    pub(crate) const SPENT: Budget = Budget {
        requests: 0,
        bytes: 0,
    };

    /// How many looks this is, if nothing else is done.
    #[inline]
    pub fn looks(self) -> u32 {
        self.requests.saturating_mul(Self::LOOKS)
    }

    /// The budget that remains after so many looks. Less than a request does not count.
    #[inline]
    pub fn less_looks(self, looks: u32) -> Budget {
        Budget {
            requests: self.requests.saturating_sub(looks / Self::LOOKS),
            ..self
        }
    }

    /// Whether nothing is left.
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.requests == 0 || self.bytes == 0
    }

    /// The smaller of two budgets.
    #[inline]
    pub fn min(self, other: Budget) -> Budget {
        Budget {
            requests: self.requests.min(other.requests),
            bytes: self.bytes.min(other.bytes),
        }
    }

    /// The budget that remains after `used`.
    #[inline]
    pub fn less(self, used: Budget) -> Budget {
        Budget {
            requests: self.requests.saturating_sub(used.requests),
            bytes: self.bytes.saturating_sub(used.bytes),
        }
    }

    /// Takes one request off.
    #[inline]
    pub(crate) fn take_request(&mut self) {
        self.requests = self.requests.saturating_sub(1);
    }

    /// Takes bytes off.
    #[inline]
    pub(crate) fn take_bytes(&mut self, bytes: u32) {
        self.bytes = self.bytes.saturating_sub(u64::from(bytes));
    }
}
