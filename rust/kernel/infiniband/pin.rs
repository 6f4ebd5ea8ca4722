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
    scatterlist::{
        SGTable,
        SGTableIter, //
    },
    sync::{
        aref::ARef,
        Arc, //
    }, //
};
use kernel_ext::{
    dma::DMA_PAGE,
    error::code::EOPNOTSUPP, //
};

use crate::{
    bindings,
    dma_buf::{
        self,
        DmaBuf, //
    },
    extent::Extent,
    gate::Gate,
    Access,
    Device,
    Driver, //
};

/// Pages of a program, or of a buffer that it has, which stay pinned until this is dropped.
///
/// # Invariants
///
/// `raw` is valid and ours, and `_device` keeps the device that it refers to. If that one has a
/// parent, `parent` is the gate to it.
pub(crate) struct Pin {
    raw: NonNull<bindings::ib_umem>,
    parent: Option<Arc<Gate>>,
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
        // INVARIANT: The function has returned the object that it has made, which refers to the
        // device.
        Ok(Pin {
            raw: NonNull::new(raw).ok_or(EINVAL)?,
            parent: dev.parent_users(),
            _device: dev.as_device().into(),
        })
    }

    /// Pins a part of a buffer for the parent of the device. Nobody but that one reaches it by
    /// this: the pages are the exporter's, and need not be any.
    ///
    /// # Errors
    ///
    /// Those of [`DmaBuf::new`]; `EOPNOTSUPP` without a parent; `EBADF` if the descriptor is
    /// another buffer's meanwhile; the exporter's.
    pub(crate) fn of_dma_buf<D: Driver>(
        dev: &Device<D>,
        part: &dma_buf::Part,
        access: Access,
    ) -> Result<Self> {
        let parent = dev.parent_users().ok_or(EOPNOTSUPP)?;
        let judged = DmaBuf::new(part, access)?;
        // SAFETY: The device is valid, and has a parent.
        let raw = from_err_ptr(unsafe {
            bindings::ib_umem_dmabuf_get_pinned(
                dev.as_raw(),
                usize::try_from(part.offset)?,
                usize::try_from(part.length)?,
                part.fd,
                access.bits() as c_int,
            )
        })?;
        let raw = NonNull::new(raw).ok_or(EINVAL)?;
        // INVARIANT: The function has returned the object that it has made, of which the other is
        // the first part, and which refers to the device.
        let pin = Pin {
            raw: raw.cast(),
            parent: Some(parent),
            _device: dev.as_device().into(),
        };
        // The core has looked the descriptor up by itself, and compares the size alone. A buffer
        // that came to the descriptor in between may be one that is not to be written.
        //
        // SAFETY: The object is alive, and refers to its attachment, which does not change.
        let pinned = unsafe { (*(*raw.as_ptr()).attach).dmabuf };
        if pinned != judged.as_raw() {
            return Err(EBADF);
        }
        Ok(pin)
    }

    /// Whether the pages were pinned to be written to.
    pub(crate) fn writable(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { (*self.raw.as_ptr()).writable() != 0 }
    }

    /// The table of the pages, which was filled and mapped when this was made.
    fn table(&self) -> *mut bindings::sg_table {
        // SAFETY: By the type invariants.
        unsafe { &raw mut (*self.raw.as_ptr()).sgt_append.sgt }
    }

    /// The pieces of the `len` bytes at `start` in the program, for which [`Pin::new`] made this:
    /// they follow each other by their offsets without gaps, none is empty, and they have `len`
    /// bytes together.
    ///
    /// They are where the processor sees them, which has nothing to do with where a DMA device
    /// does.
    pub(crate) fn extents(&self, start: u64, len: u64) -> Result<KVVec<Extent>> {
        let table = self.table();
        // SAFETY: By the type invariants.
        let (mut entry, count) = unsafe { ((*table).sgl, (*table).orig_nents) };
        let mut extents = KVVec::new();
        // The first page starts before the memory does.
        let mut skip = start % PAGE_SIZE as u64;
        let mut offset = 0;
        for _ in 0..count {
            let mut entry_len = 0;
            // SAFETY: The table has so many entries. All memory has kernel addresses, since
            // `CONFIG_INFINIBAND_VIRT_DMA` excludes high memory.
            let addr = unsafe { bindings::sg_virt(entry, &mut entry_len) };
            let part = (u64::from(entry_len) - skip).min(len - offset);
            let addr = addr.cast::<u8>().wrapping_add(skip as usize);
            skip = 0;
            if part == 0 {
                break;
            }
            let extent = Extent {
                offset,
                addr: NonNull::new(addr).ok_or(EFAULT)?,
                len: part,
            };
            offset += part;
            extents.push(extent, GFP_KERNEL_ACCOUNT)?;
            // SAFETY: The entry is one of the table.
            entry = unsafe { bindings::sg_next(entry) };
        }
        if offset != len {
            return Err(EFAULT);
        }
        Ok(extents)
    }

    /// The addresses by which the parent of the device reaches the pages of the `len` bytes at
    /// `start`, in the program or the buffer, for which this was made, one for each [`DMA_PAGE`]
    /// bytes.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if there is no parent; `EFAULT` if the pages are not mapped as such pages.
    pub(crate) fn dma_pages(&self, start: u64, len: u64) -> Result<DmaPages<'_>> {
        const PAGE: u64 = DMA_PAGE as u64;

        if self.parent.is_none() {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: By the type invariants; the table lives as long as `self`.
        let table = unsafe { SGTable::from_raw(self.table()) };
        // Pages of the kernel may be longer, and the memory may begin in any of the parts of the
        // first.
        let skip = start % PAGE_SIZE as u64 / PAGE * PAGE;
        let count = (start % PAGE + len).div_ceil(PAGE);
        let mut mapped = 0;
        for entry in table.iter() {
            if (entry.dma_address() | entry.dma_len()) % PAGE != 0 {
                return Err(EFAULT);
            }
            mapped += entry.dma_len() / PAGE;
        }
        if mapped < skip / PAGE + count {
            return Err(EFAULT);
        }
        Ok(DmaPages {
            entries: table.iter(),
            next: 0,
            rest: 0,
            skip,
            left: usize::try_from(count)?,
        })
    }
}

/// The DMA addresses of pages, one after the other.
pub(crate) struct DmaPages<'a> {
    entries: SGTableIter<'a>,
    /// The next page of the entry, and the bytes that are left of it from there on.
    next: u64,
    rest: u64,
    /// The bytes of the first entry that come before the first page.
    skip: u64,
    /// The pages that are left.
    left: usize,
}

impl Iterator for DmaPages<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.left == 0 {
            return None;
        }
        while self.rest == 0 {
            let entry = self.entries.next()?;
            let skip = core::mem::take(&mut self.skip);
            self.next = entry.dma_address() + skip;
            self.rest = entry.dma_len() - skip;
        }
        let page = self.next;
        self.next = page.wrapping_add(DMA_PAGE as u64);
        self.rest -= DMA_PAGE as u64;
        self.left -= 1;
        Some(page)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for DmaPages<'_> {}

impl Drop for Pin {
    fn drop(&mut self) {
        let release = || {
            // SAFETY: By the type invariants; the owner that drops this uses the pages no more. The
            // device is dropped after this.
            unsafe { bindings::ib_umem_release(self.raw.as_ptr()) };
        };
        match &self.parent {
            None => release(),
            // Behind the gate the parent may be unbound, and cannot unmap the pages any more. Those
            // of a driver that has kept them for so long stay pinned for ever.
            Some(parent) => parent.pass(release),
        }
    }
}
