// SPDX-License-Identifier: GPL-2.0

//! Memory of programs: pinned pages, as the processor sees them.
//!
//! Pages that are no memory, or not for the kernel to look at, are never pinned.
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
    memory::Memory,
    Access,
    Device,
    Driver, //
};

/// Memory of a program, pinned.
///
/// The program, and any peer that it lets in, may write to it at any time: what is read from it may
/// be read only once, and judged only after.
///
/// # Invariants
///
/// The memory is pinned.
pub struct Umem(Memory);

impl Umem {
    /// Pins `length` bytes at `start` in the address space of the calling process, which are counted
    /// against its `RLIMIT_MEMLOCK`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a length of 0, if the end is beyond that of addresses, or if the caller is a thread
    /// of the kernel; `ENOMEM` if there is no memory, or if the limit is reached; `EFAULT` if there are
    /// no such pages, or if they are not writable but would be written to; `EOPNOTSUPP` for on-demand
    /// paging.
    pub fn pin<D: Driver>(
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
        // From here on, an error unpins the pages.
        //
        // INVARIANT: The function has returned what it has made, which refers to the device.
        let pin = Pin {
            raw: NonNull::new(raw).ok_or(EINVAL)?,
            _device: dev.as_device().into(),
        };
        let extents = pin.extents(start, length)?;
        // SAFETY: The object is valid by the invariants of `Pin`.
        let writable = unsafe { (*raw).writable() != 0 };
        // INVARIANT: It is.
        //
        // SAFETY: These are the extents of the object, which was made to be written to if it says so.
        Ok(Umem(unsafe {
            Memory::pinned(pin, start, extents, length, writable)
        }))
    }

    /// Reads bytes at `offset`.
    ///
    /// # Errors
    ///
    /// `EFAULT` if they are not all inside; then nothing is read.
    #[inline]
    pub fn read(&self, offset: u64, dst: &mut [u8]) -> Result {
        // SAFETY: By the type invariants, the memory is no kernel user's.
        unsafe { self.0.read(offset, dst) }
    }

    /// Writes bytes at `offset`.
    ///
    /// # Errors
    ///
    /// `EACCES` if it may not be written to, `EFAULT` if they are not all inside; then nothing is
    /// written.
    #[inline]
    pub fn write(&self, offset: u64, src: &[u8]) -> Result {
        // SAFETY: By the type invariants, the memory is no kernel user's.
        unsafe { self.0.write(offset, src) }
    }

    /// Copies `len` bytes from one memory to another, or inside of one. Where they overlap, each
    /// contiguous piece is copied as if it were done at once.
    ///
    /// # Errors
    ///
    /// `EACCES` if the destination may not be written to, `EFAULT` if the bytes are not all inside;
    /// then nothing is copied.
    #[inline]
    pub fn copy(dst: &Umem, dst_off: u64, src: &Umem, src_off: u64, len: u64) -> Result {
        // SAFETY: By the type invariants, neither memory is a kernel user's.
        unsafe { Memory::copy(&dst.0, dst_off, &src.0, src_off, len) }
    }

    /// Gives up that it is known to be a program's.
    pub(crate) fn into_memory(self) -> Memory {
        self.0
    }
}

/// That pages of a program are pinned.
///
/// # Invariants
///
/// `raw` is valid and ours, and `_device` keeps the device that it refers to.
pub(crate) struct Pin {
    raw: NonNull<bindings::ib_umem>,
    _device: ARef<device::Device>,
}

impl Pin {
    /// The pieces of the `len` bytes at `start` in the program, for which this was made: they follow each
    /// other by their offsets without gaps, none is empty, and they have `len` bytes together.
    fn extents(&self, start: u64, len: u64) -> Result<KVVec<Extent>> {
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
        // SAFETY: By the type invariants; who drops this uses the pages no more. The device is dropped
        // after this.
        unsafe { bindings::ib_umem_release(self.raw.as_ptr()) };
    }
}
