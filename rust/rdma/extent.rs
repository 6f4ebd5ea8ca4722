// SPDX-License-Identifier: GPL-2.0

//! What memory consists of: pieces that the processor sees in one.

use core::ptr::NonNull;

/// Bytes with contiguous kernel addresses.
#[derive(Clone, Copy)]
pub struct Extent {
    /// The first byte's offset in the memory.
    pub(crate) offset: u64,
    /// The address of the first byte.
    pub(crate) addr: NonNull<u8>,
    /// The length in bytes.
    pub(crate) len: u64,
}

impl Extent {
    /// The first byte's offset in the memory.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "an extent is never empty")]
    pub fn len(&self) -> u64 {
        self.len
    }
}
