// SPDX-License-Identifier: GPL-2.0

//! The use of a key, and why it may be refused.

use crate::base::{
    attr::Access,
    host::Host,
    id::QpId, //
};

/// A use of a key, to be checked.
#[derive(Clone, Copy)]
pub(crate) struct KeyUse {
    /// The protection domain of the queue pair that uses the key.
    pub(crate) pd: u32,
    pub(crate) key: u32,
    /// The rights that the use needs.
    pub(crate) need: Access,
    /// The first byte.
    pub(crate) addr: u64,
    /// The number of bytes.
    pub(crate) length: u64,
    /// The queue pair whose peer uses the key; none if the program itself does.
    pub(crate) peer_of: Option<QpId>,
}

/// A use of a region's key that was checked. It holds as long as nobody else has the keys, so at
/// most for a turn.
#[derive(Clone, Copy)]
pub(crate) struct CheckedUse {
    /// 0, which is no key, if there is none.
    pub(super) key: u32,
    /// Where the first byte is in the region.
    pub(super) offset: u64,
}

impl CheckedUse {
    pub(crate) const NONE: Self = Self { key: 0, offset: 0 };

    pub(crate) fn is_none(self) -> bool {
        self.key == 0
    }
}

/// Bytes that lie in one region, and how they are reached there.
pub(crate) struct Piece<'a, H: Host> {
    pub(crate) region: &'a H::Region,
    /// Where the first byte is in it.
    pub(crate) offset: u64,
    /// The key that has opened it.
    pub(crate) key: u32,
}

/// Why the use of a key was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyError {
    /// No region has this key, or not any more.
    Stale,
    /// The region belongs to another protection domain.
    Domain,
    /// The region does not give the right.
    Right,
    /// The bytes are not all within the region.
    Range,
}
