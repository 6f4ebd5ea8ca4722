// SPDX-License-Identifier: GPL-2.0

//! Domains of extended reliable connections (XRC): target queue pairs take for the shared receive
//! queues of their domain.
//!
//! The core lets programs share a domain through a file, and keeps it until the last has closed it.

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
    udata::Call,
    Device,
    Driver, //
};

/// A driver's verbs of XRC domains. The value is dropped when the domain goes, after all that is in
/// it.
pub trait Operations: Sized + Send + Sync + 'static {
    /// The driver.
    type Driver: Driver<Xrcd = Self>;

    /// Whether there are any. See [`Unsupported`](crate::Unsupported).
    const SUPPORTED: bool = true;

    /// Makes a domain for a program, which sends nothing along.
    ///
    /// # Errors
    ///
    /// Any error is the program's answer.
    fn alloc(new: &New<'_, Self::Driver>) -> Result<Self>;
}

/// A domain: `struct ib_xrcd`.
#[repr(transparent)]
pub struct Xrcd<D: Driver>(pub(crate) Object<bindings::ib_xrcd, (), D::Xrcd>);

impl_object!(Xrcd, bindings::ib_xrcd, Xrcd);

/// A domain that is being made.
pub struct New<'a, D: Driver>(&'a Xrcd<D>);

impl<D: Driver> New<'_, D> {
    /// The device of the domain.
    pub fn device(&self) -> &Device<D> {
        // SAFETY: A domain has a device, which does not change and outlives it.
        unsafe { Device::from_raw((*self.0.as_raw()).device) }
    }
}

/// `alloc_xrcd` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a domain of a device of the driver `D` in stage 1, and `udata` is null or belongs to
/// the call.
pub(crate) unsafe extern "C" fn alloc_callback<D: Driver>(
    raw: *mut bindings::ib_xrcd,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        let this = raw.cast::<Object<bindings::ib_xrcd, (), D::Xrcd>>();
        // SAFETY: By the requirements of this function.
        let call = unsafe { Call::new(udata) };
        call.refuse_request()?;
        // SAFETY: The object is in stage 1 and not known to anybody. There is nothing to be dropped
        // in stage 2, so errors need not end it.
        unsafe { Object::begin(this, ()) };

        // SAFETY: The object is in stage 2, which is all that `New` uses.
        let new = New::<D>(unsafe { Xrcd::from_raw(raw) });
        let value = <D::Xrcd as Operations>::alloc(&new)?;
        call.finish()?;
        // SAFETY: The object is in stage 2, and `new` is not used any more.
        unsafe { Object::complete(this, value) };
        Ok(0)
    })
}

/// `dealloc_xrcd` of `struct ib_device_ops`. It takes [any request](crate::udata::no_udata).
///
/// # Safety
///
/// `raw` is a domain of a device of the driver `D`, alive, and nobody uses it any more.
pub(crate) unsafe extern "C" fn dealloc_callback<D: Driver>(
    raw: *mut bindings::ib_xrcd,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    let this = raw.cast::<Xrcd<D>>();
    // SAFETY: By the requirements of this function; `Xrcd` is transparent over `Object`.
    unsafe { Object::drop_data(&raw mut (*this).0) };
    0
}
