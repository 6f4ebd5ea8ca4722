// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use core::ptr::NonNull;

use kernel::{
    error::{
        from_result,
        VTABLE_DEFAULT_ERROR, //
    },
    prelude::*, //
};
use kernel_ext::error::code::EOPNOTSUPP;

use crate::{
    advice::Advice,
    bindings,
    object::{
        impl_object,
        Object, //
    },
    page_requests::Purpose,
    udata::Call,
    Device,
    Driver,
    UserCall, //
};

/// A driver's verbs of protection domains. The value is dropped when the domain goes, after all
/// that is in it.
#[vtable]
pub trait Operations: Sized + Send + Sync + 'static {
    /// The driver.
    type Driver: Driver<Pd = Self>;

    /// Makes a protection domain. `user` is none if the kernel asks.
    ///
    /// # Errors
    ///
    /// Any error is the caller's answer.
    fn alloc(new: &New<'_, Self::Driver>, user: Option<UserCall<'_, Self::Driver>>)
        -> Result<Self>;

    /// Brings memory in before it is used, of regions in this domain. Only called for a program.
    /// The device's removal waits for it: `Advice::check_wanted()` tells when to give up.
    ///
    /// # Errors
    ///
    /// Any error is the program's answer. The manual page has `EFAULT` for a key that names no such
    /// region, or a range that is not all inside or not all there.
    fn prefetch(_pd: &Pd<Self::Driver>, _advice: Advice<'_>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// A protection domain: `struct ib_pd`.
#[repr(transparent)]
pub struct Pd<D: Driver>(pub(crate) Object<bindings::ib_pd, (), D::Pd>);

impl_object!(Pd, bindings::ib_pd, Pd);

impl<D: Driver> Pd<D> {
    /// The device of the domain.
    #[inline]
    pub fn device(&self) -> &Device<D> {
        // SAFETY: A domain has a device, which does not change and outlives it.
        unsafe { Device::from_raw((*self.as_raw()).device) }
    }
}

/// A protection domain that is being made.
pub struct New<'a, D: Driver>(&'a Pd<D>);

impl<D: Driver> New<'_, D> {
    /// The device of the domain.
    pub fn device(&self) -> &Device<D> {
        self.0.device()
    }
}

/// `alloc_pd` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a domain of a device of the driver `D` in stage 1, and `udata` is null or belongs to
/// the call.
pub(crate) unsafe extern "C" fn alloc_callback<D: Driver>(
    raw: *mut bindings::ib_pd,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        let this = raw.cast::<Object<bindings::ib_pd, (), D::Pd>>();
        // SAFETY: By the requirements of this function.
        let call = unsafe { Call::new(udata) };
        // SAFETY: The object is in stage 1 and not known to anybody. There is nothing to be dropped
        // in stage 2, so errors need not end it.
        unsafe { Object::begin(this, ()) };

        // SAFETY: The object is in stage 2, which is all that `New` uses.
        let new = New::<D>(unsafe { Pd::from_raw(raw) });
        // SAFETY: `D` is the driver of the device.
        let value = D::Pd::alloc(&new, unsafe { call.user() })?;
        call.finish()?;
        // SAFETY: The object is in stage 2, and `new` is not used any more.
        unsafe { Object::complete(this, value) };
        Ok(0)
    })
}

/// `dealloc_pd` of `struct ib_device_ops`. It takes [any request](crate::udata::no_udata).
///
/// # Safety
///
/// `raw` is a domain of a device of the driver `D`, alive, and nobody uses it any more.
pub(crate) unsafe extern "C" fn dealloc_callback<D: Driver>(
    raw: *mut bindings::ib_pd,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    let this = raw.cast::<Pd<D>>();
    // SAFETY: By the requirements of this function; `Pd` is transparent over `Object`.
    unsafe { Object::drop_data(&raw mut (*this).0) };
    0
}

/// `advise_mr` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a domain of a device of the driver `D`, alive, and `sges` is a list of `count` entries.
/// `attrs` belongs to a command for the device, whose `disassociate_srcu` the core holds.
pub(crate) unsafe extern "C" fn advise_callback<D: Driver>(
    raw: *mut bindings::ib_pd,
    advice: bindings::ib_uverbs_advise_mr_advice,
    flags: u32,
    sges: *mut bindings::ib_sge,
    count: u32,
    attrs: *mut bindings::uverbs_attr_bundle,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function.
        let file = unsafe { (*attrs).__bindgen_anon_1.hdr.ufile };
        let purpose = match advice {
            bindings::ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH => {
                Purpose::Read
            }
            bindings::ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE => {
                Purpose::Write
            }
            bindings::ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => {
                Purpose::Present
            }
            _ => return Err(EOPNOTSUPP),
        };
        let flush = bindings::ib_uverbs_advise_mr_flag_IB_UVERBS_ADVISE_MR_FLAG_FLUSH;
        // INVARIANT: By the requirements of this function.
        let advice = Advice {
            purpose,
            now: flags & flush != 0,
            // SAFETY: By the requirements of this function; the core has copied the list, which is
            // not empty.
            ranges: unsafe { core::slice::from_raw_parts(sges, count as usize) },
            file: NonNull::new(file).ok_or(EINVAL)?,
        };
        // SAFETY: By the requirements of this function.
        D::Pd::prefetch(unsafe { Pd::from_raw(raw) }, advice)?;
        Ok(0)
    })
}
