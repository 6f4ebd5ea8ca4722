// SPDX-License-Identifier: GPL-2.0

//! Sets of counters that queue pairs are bound to: `rdma statistic qp`.
//!
//! The core adds what the sets of a port count to the counters of that port, also of sets that are
//! gone. So a set has all of a port's counters ([`Driver::COUNTERS`]), and what a queue pair counts
//! in a set it must not count at the port.
//!
//! C header: `include/rdma/rdma_counter.h`.

use core::num::NonZeroU32;

use kernel::{
    error::from_result,
    prelude::*, //
};
use kernel_ext::error::code::EOPNOTSUPP;

use crate::{
    bindings,
    stats,
    Device,
    Driver,
    Qp, //
};

/// The functions by which a driver counts in sets, in process context. The core calls those of one
/// set one at a time.
pub struct Functions<D: Driver> {
    /// Makes a set, which no queue pair is bound to, and returns its number.
    pub add: fn(&Device<D>) -> Result<NonZeroU32>,
    /// Takes back a set to which no queue pair is bound any more.
    pub remove: fn(&Device<D>, NonZeroU32),
    /// Binds a queue pair to a set, or to none, as each is at first. The core binds none that is
    /// bound.
    pub bind: fn(&Qp<D>, Option<NonZeroU32>) -> Result,
    /// Tells what a set has counted, in the order of [`Driver::COUNTERS`].
    pub read: fn(&Device<D>, NonZeroU32, &mut [u64]) -> Result,
}

/// The driver's functions; the core calls for them only if there are some.
fn functions<D: Driver>() -> Result<Functions<D>> {
    D::QP_COUNTERS.ok_or(EOPNOTSUPP)
}

/// `counter_init`. There is nothing of the driver's in a counter.
///
/// # Safety
///
/// None beyond that the core calls it.
pub(crate) unsafe extern "C" fn init(_counter: *mut bindings::rdma_counter) {}

/// `counter_alloc_stats`.
///
/// # Safety
///
/// `counter` is of a device of the driver `D`.
pub(crate) unsafe extern "C" fn alloc_stats<D: Driver>(
    _counter: *mut bindings::rdma_counter,
) -> *mut bindings::rdma_hw_stats {
    stats::alloc::<D>()
}

/// `counter_bind_qp`.
///
/// # Safety
///
/// `counter` and `raw` are of one device of the driver `D`; the core keeps both alive during the
/// call, and has locked the counter.
pub(crate) unsafe extern "C" fn bind<D: Driver>(
    counter: *mut bindings::rdma_counter,
    raw: *mut bindings::ib_qp,
    _port: u32,
) -> c_int {
    from_result(|| {
        let functions = functions::<D>()?;
        // SAFETY: By the requirements of this function. The core binds queue pairs that are
        // complete.
        let qp = unsafe { &*raw.cast::<Qp<D>>() };
        // SAFETY: By the requirements of this function; the lock covers the number.
        let known = NonZeroU32::new(unsafe { (*counter).id });
        let set = match known {
            Some(set) => set,
            None => (functions.add)(qp.device())?,
        };
        if let Err(error) = (functions.bind)(qp, Some(set)) {
            if known.is_none() {
                (functions.remove)(qp.device(), set);
            }
            return Err(error);
        }
        // SAFETY: By the requirements of this function. The core leaves both fields to the driver:
        // the number under the lock, and that of the queue pair to whoever binds it, which is not
        // bound.
        unsafe {
            (*counter).id = set.get();
            (*raw).counter = counter;
        }
        Ok(0)
    })
}

/// `counter_unbind_qp`.
///
/// # Safety
///
/// `raw` is of a device of the driver `D`, and bound to a counter, which the core has locked. It
/// keeps both alive during the call.
pub(crate) unsafe extern "C" fn unbind<D: Driver>(raw: *mut bindings::ib_qp, _port: u32) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function. The core knows queue pairs that are
        // complete.
        let qp = unsafe { &*raw.cast::<Qp<D>>() };
        (functions::<D>()?.bind)(qp, None)?;
        // SAFETY: By the requirements of this function; the core leaves the field to the driver.
        unsafe { (*raw).counter = core::ptr::null_mut() };
        Ok(0)
    })
}

/// `counter_dealloc`.
///
/// # Safety
///
/// `counter` is of a device of the driver `D`, and nobody else uses it.
pub(crate) unsafe extern "C" fn dealloc<D: Driver>(counter: *mut bindings::rdma_counter) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function; a counter has a device.
        let (dev, number) = unsafe { (Device::<D>::from_raw((*counter).device), (*counter).id) };
        if let Some(set) = NonZeroU32::new(number) {
            (functions::<D>()?.remove)(dev, set);
        }
        Ok(0)
    })
}

/// `counter_update_stats`.
///
/// # Safety
///
/// `counter` is of a device of the driver `D`, with values of `counter_alloc_stats`. The core has
/// locked it, or nobody else uses it.
pub(crate) unsafe extern "C" fn update_stats<D: Driver>(
    counter: *mut bindings::rdma_counter,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function; there are as many values as counters.
        let (dev, number, values) = unsafe {
            (
                Device::<D>::from_raw((*counter).device),
                (*counter).id,
                stats::values::<D>((*counter).stats),
            )
        };
        if let Some(set) = NonZeroU32::new(number) {
            (functions::<D>()?.read)(dev, set, values)?;
        }
        Ok(0)
    })
}
