// SPDX-License-Identifier: GPL-2.0

//! Extents: pieces of memory with contiguous kernel addresses.

use core::ptr::NonNull;

/// Bytes with contiguous kernel addresses.
///
/// They are whole or parts of several allocations, so places in them are reached by wrapping
/// arithmetic.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    /// The first byte's offset in the memory.
    pub(crate) offset: u64,
    /// The address of the first byte.
    pub(crate) addr: NonNull<u8>,
    /// The length in bytes.
    pub(crate) len: u64,
}

impl Extent {
    /// The address of the byte that is `skip` bytes behind the first one.
    #[inline(always)]
    pub(crate) fn at(&self, skip: u64) -> *mut u8 {
        self.addr.as_ptr().wrapping_add(skip as usize)
    }
}
