// SPDX-License-Identifier: GPL-2.0

//! Regions of kernel users: all memory, and fast registration.

use kernel::{
    error::from_result,
    prelude::*, //
};
use kernel_ext::error::code::EOPNOTSUPP;

use super::{
    make,
    Mr,
    Operations as _, //
};
use crate::{
    bindings,
    device::has_parent,
    mapped::Mapped,
    Access,
    Driver,
    Memory, //
};

/// `get_dma_mr` of `struct ib_device_ops`.
///
/// # Safety
///
/// `pd` is a domain of a device of the driver `D`, alive, and a kernel user's.
pub(crate) unsafe extern "C" fn get_dma_callback<D: Driver>(
    pd: *mut bindings::ib_pd,
    access: c_int,
) -> *mut bindings::ib_mr {
    // SAFETY: By the requirements of this function, the domain has a device.
    let memory = if unsafe { has_parent((*pd).device) } {
        Ok(Memory::of_parent())
    } else {
        Memory::of_kernel()
    };
    let made = memory.and_then(|memory| {
        // SAFETY: By the requirements of this function.
        unsafe {
            make::<D>(pd, memory.start(), memory.len(), None, |new| {
                D::Mr::get_dma(new, memory, Access::from_bits(access as u32))
            })
        }
    });
    match made {
        Ok(mr) => mr,
        Err(error) => error.to_ptr(),
    }
}

/// `alloc_mr` of `struct ib_device_ops`.
///
/// # Safety
///
/// `pd` is a domain of a device of the driver `D`, alive, and a kernel user's.
pub(crate) unsafe extern "C" fn alloc_callback<D: Driver>(
    pd: *mut bindings::ib_pd,
    kind: bindings::ib_mr_type,
    max_pages: u32,
) -> *mut bindings::ib_mr {
    // SAFETY: By the requirements of this function.
    match unsafe { alloc::<D>(pd, kind, max_pages) } {
        Ok(mr) => mr,
        Err(error) => error.to_ptr(),
    }
}

/// # Safety
///
/// As for [`alloc_callback`].
unsafe fn alloc<D: Driver>(
    pd: *mut bindings::ib_pd,
    kind: bindings::ib_mr_type,
    max_pages: u32,
) -> Result<*mut bindings::ib_mr> {
    if kind != bindings::ib_mr_type_IB_MR_TYPE_MEM_REG {
        return Err(EOPNOTSUPP);
    }
    if max_pages == 0 || max_pages > D::Mr::MAX_PAGES {
        return Err(EINVAL);
    }
    let mapped = Mapped::new(max_pages)?;
    // SAFETY: By the requirements of this function, the domain has a device.
    let memory = if unsafe { has_parent((*pd).device) } {
        if !D::Mr::HAS_MAPPED {
            return Err(EOPNOTSUPP);
        }
        Memory::of_parent()
    } else {
        Memory::of_mapped(mapped.clone())?
    };
    // SAFETY: By the requirements of this function.
    unsafe { make::<D>(pd, 0, 0, Some(mapped), |new| D::Mr::alloc(new, memory)) }
}

/// `map_mr_sg` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a region of [`alloc_callback`] of the driver `D`, alive, `entries` is a list of `count`
/// entries, mapped for the device, and `offset` is valid or null.
pub(crate) unsafe extern "C" fn map_callback<D: Driver>(
    raw: *mut bindings::ib_mr,
    entries: *mut bindings::scatterlist,
    count: c_int,
    offset: *mut c_uint,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function; regions come from `make`.
        let mr = unsafe { &*raw.cast::<Mr<D>>() };
        // SAFETY: By the requirements of this function, the region is alive, so it is in stage 2 or
        // 3.
        let mapped = unsafe { mr.0.extra() }.as_ref().ok_or(EINVAL)?;
        // SAFETY: A region has a device.
        let has_parent = unsafe { has_parent((*raw).device) };
        mapped.begin();
        if has_parent {
            D::Mr::mapped(mr, core::iter::empty())?;
        }
        // SAFETY: By the requirements of this function. The function sets address and length.
        let done =
            unsafe { bindings::ib_sg_to_pages(raw, entries, count, offset, Some(add_page::<D>)) };
        // SAFETY: The region is alive, and its page size a power of two.
        let (iova, length, page) =
            unsafe { ((*raw).iova, (*raw).length, u64::from((*raw).page_size)) };
        // Of the first entry, part may have been mapped: then none is done, and `offset` tells how
        // much.
        if done >= 0 && length != 0 {
            mapped.end(iova & page.wrapping_sub(1), length)?;
            if has_parent {
                mapped.visit(|extents| D::Mr::mapped(mr, extents))?;
            }
        }
        Ok(done)
    })
}

/// Adds a page to the memory that is mapped to a region.
///
/// # Safety
///
/// As for [`map_callback`], which leads here; `addr` is the device's address of a page of one of
/// the entries.
unsafe extern "C" fn add_page<D: Driver>(raw: *mut bindings::ib_mr, addr: u64) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function, the region is alive and one of `make`, and
        // nobody changes the size of its pages.
        let (mapped, size) = unsafe { ((*raw.cast::<Mr<D>>()).0.extra(), (*raw).page_size) };
        mapped.as_ref().ok_or(EINVAL)?.add(addr, size)?;
        Ok(0)
    })
}
