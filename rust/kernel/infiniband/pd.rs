// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use kernel::{
    error::from_result,
    prelude::*, //
};

use crate::{
    bindings,
    object::{
        impl_object,
        Object, //
    },
    udata::{
        no_udata,
        Call, //
    },
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
/// `raw` is a domain of a device of the driver `D` in stage 1, and `udata` is null or belongs to the
/// call.
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

/// `dealloc_pd` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a domain of a device of the driver `D`, alive, and nobody uses it any more. `udata` is
/// null or belongs to the call.
pub(crate) unsafe extern "C" fn dealloc_callback<D: Driver>(
    raw: *mut bindings::ib_pd,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function.
        unsafe { no_udata(udata) }?;
        let this = raw.cast::<Pd<D>>();
        // SAFETY: By the requirements of this function; `Pd` is transparent over `Object`.
        unsafe { Object::drop_data(&raw mut (*this).0) };
        Ok(0)
    })
}
