// SPDX-License-Identifier: GPL-2.0

//! The numbers by which contexts and queue pairs are named.

/// The number of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextId(pub(crate) u32);

impl ContextId {
    /// Numbers are below this: the most contexts that may be open at a time.
    pub const LIMIT: u32 = 1 << 16;

    /// The context of a number, if there is one.
    pub fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// The number, below [`LIMIT`](Self::LIMIT).
    pub fn number(self) -> u32 {
        self.0
    }
}

/// What names a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpId {
    /// The number: the index in the low 16 bits, above them how often the index was used.
    pub number: u32,
    /// Which queue pair of that number: `qp_gen` of a completion.
    pub generation: u32,
}
