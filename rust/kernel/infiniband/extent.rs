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

    /// The index of the extent in which `offset` is, if it is in one of these, which follow each
    /// other.
    #[inline]
    pub(crate) fn find(extents: &[Self], offset: u64) -> usize {
        // Most memory has few extents, and an access is mostly near to the start of one.
        extents.partition_point(|extent| extent.offset + extent.len <= offset)
    }

    /// The address of `len` bytes at `offset`, if one of these extents has them all. Not inlined:
    /// most accesses find the first extent without a search.
    #[inline(never)]
    pub(crate) fn search(extents: &[Self], offset: u64, len: u64) -> Option<*mut u8> {
        let extent = extents.get(Self::find(extents, offset))?;
        let skip = offset - extent.offset;
        (len <= extent.len - skip).then(|| extent.at(skip))
    }
}
