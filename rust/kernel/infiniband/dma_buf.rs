// SPDX-License-Identifier: GPL-2.0

//! Buffers that other drivers export to programs as files: `struct dma_buf`.
//!
//! The processor reaches a buffer by kernel addresses that the exporter makes (`dma_buf_vmap()`),
//! which a device without a parent does. The parent of a device reaches it by DMA addresses
//! (`Pin`).
//!
//! C header: `include/linux/dma-buf.h`.

use core::ptr::NonNull;

use kernel::{
    dma::DataDirection,
    error::{
        from_err_ptr,
        to_result, //
    },
    prelude::*, //
};
use kernel_ext::error::code::EOPNOTSUPP;

use crate::{
    bindings,
    extent::Extent,
    Access, //
};

/// A part of a buffer that a program has as a file.
#[derive(Clone, Copy)]
pub struct Part {
    /// The program's number of the file.
    pub fd: i32,
    /// The offset of the first byte in the buffer.
    pub offset: u64,
    /// The length in bytes.
    pub length: u64,
}

/// A reference to a buffer.
///
/// # Invariants
///
/// The pointer is valid, and a reference is ours.
pub(crate) struct DmaBuf(NonNull<bindings::dma_buf>);

// SAFETY: A buffer belongs to no thread.
unsafe impl Send for DmaBuf {}

// SAFETY: Nothing here changes it but by functions of the kernel, which lock it.
unsafe impl Sync for DmaBuf {}

impl DmaBuf {
    /// The buffer of a file of the calling program, in which the part is, for the access that is
    /// meant.
    ///
    /// # Errors
    ///
    /// `EBADF` if there is no such file; `EINVAL` if it is no buffer, if the part is empty, or not
    /// all inside; `EACCES` if it would be written to, but the file is not for writing.
    pub(crate) fn new(part: &Part, access: Access) -> Result<Self> {
        // SAFETY: The function has no preconditions.
        let raw = from_err_ptr(unsafe { bindings::dma_buf_get(part.fd) })?;
        // INVARIANT: The function has returned a reference.
        let buf = DmaBuf(NonNull::new(raw).ok_or(EINVAL)?);
        // SAFETY: The buffer is valid, and its size does not change.
        let size = unsafe { (*raw).size } as u64;
        let end = part.offset.checked_add(part.length).ok_or(EINVAL)?;
        if part.length == 0 || end > size {
            return Err(EINVAL);
        }
        // SAFETY: The buffer is valid, and has a file as long as there are references.
        if access.writes() && !unsafe { bindings::dma_buf_may_write(raw) } {
            return Err(EACCES);
        }
        Ok(buf)
    }

    pub(crate) fn as_raw(&self) -> *mut bindings::dma_buf {
        self.0.as_ptr()
    }
}

impl Drop for DmaBuf {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, the reference is ours.
        unsafe { bindings::dma_buf_put(self.as_raw()) };
    }
}

/// A buffer at kernel addresses.
///
/// # Invariants
///
/// `map` was made for the buffer, is no device's memory, and is ours to take back. The processor's
/// access was begun.
pub(crate) struct VmappedBuf {
    buf: DmaBuf,
    map: bindings::iosys_map,
}

// SAFETY: Addresses of the kernel belong to no thread.
unsafe impl Send for VmappedBuf {}

// SAFETY: Nothing here reaches the bytes.
unsafe impl Sync for VmappedBuf {}

impl VmappedBuf {
    /// Maps the buffer, and answers where the part is: its bytes stay there until this is dropped.
    /// Exporters keep a buffer in its place while it is mapped.
    ///
    /// # Errors
    ///
    /// Those of [`DmaBuf::new`]; `EOPNOTSUPP` if the buffer has no addresses, or is memory of a
    /// device; `ENOMEM`; the exporter's.
    pub(crate) fn new(part: &Part, access: Access) -> Result<(Self, Extent)> {
        let buf = DmaBuf::new(part, access)?;
        let mut map: bindings::iosys_map = pin_init::zeroed();
        // SAFETY: The buffer is valid, and `map` is ours. The caller holds no lock of the buffer.
        let error = unsafe { bindings::dma_buf_vmap_unlocked(buf.as_raw(), &raw mut map) };
        // An exporter without the operation answers EINVAL, as for a mistake of the program.
        to_result(error).map_err(|error| if error == EINVAL { EOPNOTSUPP } else { error })?;
        let unmap = |map: &mut bindings::iosys_map| {
            // SAFETY: The map was made for the buffer, and nobody uses it any more.
            unsafe { bindings::dma_buf_vunmap_unlocked(buf.as_raw(), map) }
        };
        // SAFETY: Both fields of the union are addresses.
        let start = unsafe { map.__bindgen_anon_1.vaddr }.cast::<u8>();
        // The buffer is mapped, so each of its bytes has an address behind the first, and
        // `DmaBuf::new` has compared the part with its size.
        let addr = NonNull::new(start.wrapping_add(part.offset as usize));
        let (Some(addr), false) = (addr, map.is_iomem) else {
            unmap(&mut map);
            return Err(EOPNOTSUPP);
        };
        // SAFETY: The buffer is valid.
        let begun = to_result(unsafe {
            bindings::dma_buf_begin_cpu_access(buf.as_raw(), DataDirection::Bidirectional.into())
        });
        if let Err(error) = begun {
            unmap(&mut map);
            return Err(error);
        }
        let extent = Extent {
            offset: 0,
            addr,
            len: part.length,
        };
        // INVARIANT: The map was made above, is memory, and the access was begun.
        Ok((VmappedBuf { buf, map }, extent))
    }
}

impl Drop for VmappedBuf {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, the access was begun, and the map is ours to take back.
        // The owner that drops this uses the bytes no more.
        unsafe {
            bindings::dma_buf_end_cpu_access(
                self.buf.as_raw(),
                DataDirection::Bidirectional.into(),
            );
            bindings::dma_buf_vunmap_unlocked(self.buf.as_raw(), &raw mut self.map);
        }
    }
}
