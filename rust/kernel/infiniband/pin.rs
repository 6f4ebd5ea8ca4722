// SPDX-License-Identifier: GPL-2.0

//! Pinned pages of programs: `struct ib_umem`.
//!
//! C header: `include/rdma/ib_umem.h`.

use core::ptr::{
    self,
    NonNull, //
};

use kernel::{
    device,
    error::from_err_ptr,
    page::PAGE_SIZE,
    prelude::*,
    scatterlist::SGTable,
    sync::aref::ARef, //
};

use crate::{
    bindings,
    extent::Extent,
    Access,
    Device,
    Driver, //
};

/// Pages of a program, which stay pinned until this is dropped.
///
/// # Invariants
///
/// `raw` is valid and ours, and `_device` keeps the device that it refers to.
pub(crate) struct Pin {
    raw: NonNull<bindings::ib_umem>,
    _device: ARef<device::Device>,
}

impl Pin {
    /// Pins `length` bytes at `start` in the address space of the calling process.
    ///
    /// # Errors
    ///
    /// Those of [`Umem::pin`](crate::umem::Umem::pin).
    pub(crate) fn new<D: Driver>(
        dev: &Device<D>,
        start: u64,
        length: u64,
        access: Access,
    ) -> Result<Self> {
        // The core takes for granted that there is an address space.
        if current!().mm().is_none() {
            return Err(EINVAL);
        }
        let len = usize::try_from(length)?;
        // SAFETY: The device is valid, and without attributes the address says where the memory is.
        let raw = from_err_ptr(unsafe {
            bindings::ib_umem_get_attr_or_va(
                dev.as_raw(),
                ptr::null(),
                0,
                start,
                len,
                access.bits() as c_int,
            )
        })?;
        // INVARIANT: The function has returned the object that it has made, which refers to the device.
        Ok(Pin {
            raw: NonNull::new(raw).ok_or(EINVAL)?,
            _device: dev.as_device().into(),
        })
    }

    /// Whether the pages were pinned to be written to.
    pub(crate) fn writable(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { (*self.raw.as_ptr()).writable() != 0 }
    }

    /// The pieces of the `len` bytes at `start` in the program, for which this was made: they follow each
    /// other by their offsets without gaps, none is empty, and they have `len` bytes together.
    pub(crate) fn extents(&self, start: u64, len: u64) -> Result<KVVec<Extent>> {
        // SAFETY: By the type invariants; the table was filled and mapped when it was made.
        let table = unsafe { SGTable::from_raw(&raw mut (*self.raw.as_ptr()).sgt_append.sgt) };
        let mut extents = KVVec::new();
        // The first page starts before the memory does.
        let mut skip = start % PAGE_SIZE as u64;
        let mut offset = 0;
        for entry in table.iter() {
            let addr = (entry.dma_address() + skip) as usize;
            let part = (entry.dma_len() - skip).min(len - offset);
            skip = 0;
            if part == 0 {
                continue;
            }
            let extent = Extent {
                offset,
                addr: NonNull::new(ptr::with_exposed_provenance_mut(addr)).ok_or(EFAULT)?,
                len: part,
            };
            offset += part;
            extents.push(extent, GFP_KERNEL_ACCOUNT)?;
        }
        if offset != len {
            return Err(EFAULT);
        }
        Ok(extents)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // SAFETY: By the type invariants; the owner that drops this uses the pages no more. The
        // device is dropped after this.
        unsafe { bindings::ib_umem_release(self.raw.as_ptr()) };
    }
}
