// SPDX-License-Identifier: GPL-2.0

//! The use of a key, and why it may be refused.

use crate::base::{
    attr::Access,
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
