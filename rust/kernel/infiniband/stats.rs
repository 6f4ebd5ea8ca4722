// SPDX-License-Identifier: GPL-2.0

//! Counters of a port: `rdma statistic`, and `ports/1/hw_counters` in sysfs.
//!
//! C header: `include/rdma/ib_verbs.h`.

use kernel::{
    error::from_result,
    prelude::*, //
};

use crate::{
    bindings,
    port::PORT,
    Device,
    Driver, //
};

/// For so many milliseconds the core answers with the counters that it has read.
const LIFESPAN: c_ulong = bindings::RDMA_HW_STATS_DEFAULT_LIFESPAN as c_ulong;

/// A counter: `struct rdma_stat_desc`.
#[repr(transparent)]
pub struct Counter(bindings::rdma_stat_desc);

// SAFETY: A description is a pointer to a `'static` name and numbers, which belong to no thread.
unsafe impl Send for Counter {}

// SAFETY: Nothing writes a description after `new()`, and the name that it points to is constant.
unsafe impl Sync for Counter {}

impl Counter {
    /// A counter of this name.
    pub const fn new(name: &'static CStr) -> Self {
        Counter(bindings::rdma_stat_desc {
            name: kernel::str::as_char_ptr_in_const_context(name),
            ..pin_init::zeroed()
        })
    }
}

/// Space for a value of each of the driver's counters; null if there is no memory.
pub(crate) fn alloc<D: Driver>() -> *mut bindings::rdma_hw_stats {
    let Ok(count) = c_int::try_from(D::COUNTERS.len()) else {
        return core::ptr::null_mut();
    };
    // SAFETY: The descriptions are as many, live for ever, and are transparent over the C type.
    unsafe { bindings::rdma_alloc_hw_stats_struct(D::COUNTERS.as_ptr().cast(), count, LIFESPAN) }
}

/// The values.
///
/// # Safety
///
/// `stats` are of [`alloc`], and nobody else uses them as long as the reference lives.
pub(crate) unsafe fn values<'a, D: Driver>(stats: *mut bindings::rdma_hw_stats) -> &'a mut [u64] {
    // SAFETY: By the requirements of this function: there are as many values as counters.
    unsafe {
        let values = (&raw mut (*stats).value).cast::<u64>();
        core::slice::from_raw_parts_mut(values, D::COUNTERS.len())
    }
}

/// `alloc_hw_port_stats`.
///
/// # Safety
///
/// `dev` is a device of the driver `D`.
pub(crate) unsafe extern "C" fn alloc_hw_port_stats<D: Driver>(
    _dev: *mut bindings::ib_device,
    _port: u32,
) -> *mut bindings::rdma_hw_stats {
    alloc::<D>()
}

/// `get_hw_stats`. All counters are read, whichever is asked for.
///
/// # Safety
///
/// `dev` is a device of the driver `D`, and `stats` are of `alloc_hw_port_stats`, locked.
pub(crate) unsafe extern "C" fn get_hw_stats<D: Driver>(
    dev: *mut bindings::ib_device,
    stats: *mut bindings::rdma_hw_stats,
    port: u32,
    _index: c_int,
) -> c_int {
    from_result(|| {
        if port != PORT || stats.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: By the requirements of this function, and nobody else uses the values meanwhile.
        let (dev, values) = unsafe { (Device::<D>::from_raw(dev), values::<D>(stats)) };
        D::read_counters(dev, values)?;
        Ok(values.len() as c_int)
    })
}
