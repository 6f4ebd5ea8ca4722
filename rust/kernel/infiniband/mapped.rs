// SPDX-License-Identifier: GPL-2.0

//! Memory that kernel users map for fast registration.
//!
//! A user maps memory to a region (`ib_map_mr_sg()`) while the region opens nothing, and then posts
//! the request that registers it. The request carries no addresses: the mapping waits here until
//! the driver carries the request out ([`Memory::renew`](crate::memory::Memory::renew)). For a
//! device with a parent the addresses are that one's, and the driver tells them to the device
//! ([`mapped`](crate::mr::Operations::mapped)).

use core::ptr::{
    self,
    NonNull, //
};

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    new_spinlock_irq,
    sync::SpinLockIrq, //
};

use crate::extent::Extent;

/// How far a mapping has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// It has begun, and may have failed.
    Begun,
    /// All that the user has mapped is here.
    Whole,
    /// It was, and has been taken. It stays mapped: the user may register it again.
    Taken,
}

/// Memory that was mapped.
///
/// # Invariants
///
/// Extents follow each other by their offsets without gaps, none is empty, and when the mapping is
/// whole, they have `len` bytes together. When it was taken, those that were have.
pub(crate) struct Mapping {
    extents: KVVec<Extent>,
    /// The bytes of all pages so far.
    len: u64,
    /// How many pages there may be, and how many there are.
    max_pages: u32,
    pages: u32,
    progress: Progress,
}

// SAFETY: Addresses belong to no thread, and nothing here reaches the memory.
unsafe impl Send for Mapping {}

/// Extents: of each the address and the length.
pub(crate) struct ExtentIter<'a>(core::slice::Iter<'a, Extent>);

impl Iterator for ExtentIter<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        let extent = self.0.next()?;
        Some((extent.addr.as_ptr().addr() as u64, extent.len))
    }
}

/// The memory that a user maps to a region next.
#[pin_data]
pub(crate) struct Mapped {
    #[pin]
    next: SpinLockIrq<Mapping>,
}

impl Mapped {
    /// Nothing is mapped. Up to `max_pages` pages can be.
    pub(crate) fn new(max_pages: u32) -> Result<Arc<Self>> {
        let mapping = Mapping {
            extents: KVVec::with_capacity(max_pages as usize, GFP_KERNEL_ACCOUNT)?,
            len: 0,
            max_pages,
            pages: 0,
            progress: Progress::Begun,
        };
        Arc::pin_init(
            pin_init!(Self {
                next <- new_spinlock_irq!(mapping, "rdma::Mapped::next"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// How many pages there can be.
    pub(crate) fn max_pages(&self) -> u32 {
        self.next.with(|next| next.max_pages)
    }

    /// Begins anew. Any context.
    pub(crate) fn begin(&self) {
        self.next.with(|next| {
            next.extents.clear();
            next.len = 0;
            next.pages = 0;
            next.progress = Progress::Begun;
        })
    }

    /// Adds a page of `size` bytes at `addr`. Any context.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there are as many as there can be.
    pub(crate) fn add(&self, addr: u64, size: u32) -> Result {
        self.next.with(|next| {
            if next.pages >= next.max_pages {
                return Err(ENOMEM);
            }
            let (offset, size) = (next.len, u64::from(size));
            // INVARIANT: The page is behind all others: as more of the last extent, or as the next
            // one.
            match next.extents.last_mut() {
                // An extent may go up to the last address that there is.
                Some(last) if (last.addr.as_ptr().addr() as u64).wrapping_add(last.len) == addr => {
                    last.len += size;
                }
                _ => {
                    let addr = ptr::with_exposed_provenance_mut(usize::try_from(addr)?);
                    let extent = Extent {
                        offset,
                        addr: NonNull::new(addr).ok_or(EFAULT)?,
                        len: size,
                    };
                    next.extents
                        .push_within_capacity(extent)
                        .map_err(|_| ENOMEM)?;
                }
            }
            next.len += size;
            next.pages += 1;
            Ok(())
        })
    }

    /// Ends with the pages that there are: of them, `len` bytes from `skip` on were mapped. Any
    /// context.
    ///
    /// # Errors
    ///
    /// `EINVAL` if they have fewer.
    pub(crate) fn end(&self, skip: u64, len: u64) -> Result {
        self.next.with(|next| {
            if len == 0 || skip.checked_add(len).is_none_or(|end| end > next.len) {
                return Err(EINVAL);
            }
            let mut skip = skip;
            let mut done = 0;
            let mut used = 0;
            for extent in next.extents.iter_mut() {
                if done == len || skip >= extent.len {
                    break;
                }
                extent.addr = NonNull::new(extent.at(skip)).ok_or(EINVAL)?;
                extent.len = (extent.len - skip).min(len - done);
                extent.offset = done;
                skip = 0;
                done += extent.len;
                used += 1;
            }
            if done != len {
                return Err(EINVAL);
            }
            // INVARIANT: Offsets were counted up by the lengths.
            next.extents.truncate(used);
            next.len = len;
            next.progress = Progress::Whole;
            Ok(())
        })
    }

    /// Lends what is mapped to `visit`, which must not sleep: of each extent the address and the
    /// length. Any context.
    ///
    /// # Errors
    ///
    /// `EINVAL` if not all has been mapped; those of `visit`.
    pub(crate) fn visit(&self, visit: impl FnOnce(ExtentIter<'_>) -> Result) -> Result {
        self.next.with(|next| match next.progress {
            Progress::Whole => visit(ExtentIter(next.extents.iter())),
            Progress::Begun | Progress::Taken => Err(EINVAL),
        })
    }

    /// Takes what was mapped into `extents`, and answers its length in bytes. The previous extents
    /// become memory for the next mapping. Any context.
    ///
    /// `extents` are those of the last call: if nothing was mapped since, they are left as they
    /// are.
    pub(crate) fn take(&self, extents: &mut KVVec<Extent>) -> Option<u64> {
        self.next.with(|next| {
            match next.progress {
                Progress::Begun => return None,
                Progress::Whole => core::mem::swap(&mut next.extents, extents),
                Progress::Taken => (),
            }
            next.progress = Progress::Taken;
            Some(next.len)
        })
    }
}
