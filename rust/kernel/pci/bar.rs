// SPDX-License-Identifier: GPL-2.0

//! Registers of functions.

use kernel::{
    device::Bound,
    devres::Devres,
    pci,
    prelude::*,
    sync::aref::ARef, //
};

use super::as_raw;
use crate::bindings;

/// The mapping of a BAR.
///
/// # Invariants
///
/// The BAR is requested and mapped, from `start` on and at least as long as the `Bar` says. The
/// function is bound.
struct Mapping {
    function: ARef<pci::Device>,
    index: c_int,
    start: *mut c_void,
}

// SAFETY: A mapping belongs to no thread.
unsafe impl Send for Mapping {}

// SAFETY: Registers may be read and written by any thread at any time.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: By the type invariants.
        unsafe {
            bindings::pci_iounmap(as_raw(&self.function), self.start);
            bindings::pci_release_region(as_raw(&self.function), self.index);
        }
    }
}

/// The registers in a BAR of a function, of 32 bits each, until this is dropped or the function is
/// unbound.
///
/// Reads and writes are for any context. A function that has gone answers all ones.
pub struct Bar {
    mapping: Devres<Mapping>,
    len: usize,
}

impl Bar {
    /// Maps the first `len` bytes of a BAR, of which nobody else has any.
    ///
    /// # Errors
    ///
    /// `ENODEV` if there are not so many, `EINVAL` if there is no such BAR, `EBUSY` if somebody has
    /// it; `ENOMEM`.
    pub fn map(
        function: &pci::Device<Bound>,
        index: u32,
        len: usize,
        name: &'static CStr,
    ) -> Result<Self> {
        if function.resource_len(index)? < len as u64 {
            return Err(ENODEV);
        }
        let (raw, index) = (as_raw(function), index as c_int);
        // SAFETY: The function is bound, so it is valid. It has a BAR of this index, for
        // `resource_len()` found its length.
        if unsafe { bindings::pci_request_region(raw, index, name.as_char_ptr()) } != 0 {
            return Err(EBUSY);
        }
        // SAFETY: The function is valid as long as it is bound, and the region of this BAR was
        // requested just before.
        let start = unsafe { bindings::pci_iomap(raw, index, 0) };
        if start.is_null() {
            // SAFETY: The region was requested above, and without a mapping nobody uses it.
            unsafe { bindings::pci_release_region(raw, index) };
            return Err(ENOMEM);
        }
        // INVARIANT: The region is requested and mapped. `Devres` drops it before the function is
        // unbound, and so does an error.
        let mapping = Mapping {
            function: function.into(),
            index,
            start,
        };
        Ok(Bar {
            mapping: Devres::new(function.as_ref(), mapping)?,
            len,
        })
    }

    /// Calls `access` with the address of a register.
    #[inline]
    fn with<R>(&self, offset: usize, access: impl FnOnce(*mut c_void) -> R) -> Result<R> {
        const REGISTER: usize = size_of::<u32>();

        if offset % REGISTER != 0 || offset >= self.len || self.len - offset < REGISTER {
            return Err(EINVAL);
        }
        // RCU keeps the mapping meanwhile.
        self.mapping
            .try_access_with(|mapping| access(mapping.start.wrapping_byte_add(offset)))
            .ok_or(ENODEV)
    }

    /// Reads a register. Later accesses to memory are done after it.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the function has been unbound, `EINVAL` if there is no such register.
    #[inline]
    pub fn read32(&self, offset: usize) -> Result<u32> {
        // SAFETY: The register is inside of the mapping, by its invariants, and aligned.
        self.with(offset, |register| unsafe { bindings::readl(register) })
    }

    /// Writes a register. Earlier accesses to memory are done before it.
    ///
    /// # Errors
    ///
    /// As for [`Bar::read32`].
    #[inline]
    pub fn write32(&self, offset: usize, value: u32) -> Result {
        // SAFETY: The register is inside of the mapping, by its invariants, and aligned.
        self.with(offset, |register| unsafe {
            bindings::writel(value, register)
        })
    }
}
