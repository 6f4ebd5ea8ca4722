// SPDX-License-Identifier: GPL-2.0

//! Memory windows.
//!
//! They are bound by work requests, which the core has no part in.

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
    Driver,
    Pd,
    UserCall, //
};

/// The types of windows: `enum ib_mw_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Opens to a protection domain.
    Type1,
    /// Opens to a queue pair, and can be invalidated.
    Type2,
}

/// A driver's verbs of memory windows. The value is dropped when the window goes, whether it is
/// bound or not.
pub trait Operations: Sized + Send + Sync + 'static {
    /// The driver.
    type Driver: Driver<Mw = Self>;

    /// Whether there are memory windows.
    const SUPPORTED: bool = true;

    /// Makes a memory window. The key must be set ([`New::set_rkey`]).
    ///
    /// # Errors
    ///
    /// Any error is the caller's answer.
    fn alloc(
        new: &mut New<'_, Self::Driver>,
        kind: Type,
        user: Option<UserCall<'_, Self::Driver>>,
    ) -> Result<Self>;
}

/// A memory window: `struct ib_mw`.
#[repr(transparent)]
pub struct Mw<D: Driver>(pub(crate) Object<bindings::ib_mw, (), D::Mw>);

impl_object!(Mw, bindings::ib_mw, Mw);

/// A memory window that is being made.
pub struct New<'a, D: Driver>(&'a Mw<D>);

impl<D: Driver> New<'_, D> {
    /// The device of the window.
    pub fn device(&self) -> &Device<D> {
        // SAFETY: A window has a device, which does not change and outlives it.
        unsafe { Device::from_raw((*self.0.as_raw()).device) }
    }

    /// The protection domain of the window.
    pub fn pd(&self) -> &Pd<D> {
        // SAFETY: The core has set the domain, and keeps it during the call.
        unsafe { Pd::from_raw((*self.0.as_raw()).pd) }
    }

    /// Sets the key.
    pub fn set_rkey(&mut self, rkey: u32) {
        // SAFETY: Nobody but this call knows of the window.
        unsafe { (*self.0.as_raw()).rkey = rkey };
    }
}

/// `alloc_mw` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a window of a device of the driver `D` in stage 1, and `udata` is null or belongs to
/// the call.
pub(crate) unsafe extern "C" fn alloc_callback<D: Driver>(
    raw: *mut bindings::ib_mw,
    udata: *mut bindings::ib_udata,
) -> c_int {
    use crate::mw::Operations as _;

    from_result(|| {
        let this = raw.cast::<Object<bindings::ib_mw, (), D::Mw>>();
        // SAFETY: By the requirements of this function.
        let (call, kind) = unsafe { (Call::new(udata), (*raw).type_) };
        let kind = match kind {
            bindings::ib_mw_type_IB_MW_TYPE_1 => Type::Type1,
            bindings::ib_mw_type_IB_MW_TYPE_2 => Type::Type2,
            _ => return Err(EINVAL),
        };
        // SAFETY: The object is in stage 1 and not known to anybody. There is nothing to be dropped
        // in stage 2, so errors need not end it.
        unsafe { Object::begin(this, ()) };

        // SAFETY: The object is in stage 2, which is all that `New` uses.
        let mut new = New::<D>(unsafe { Mw::from_raw(raw) });
        // SAFETY: `D` is the driver of the device.
        let value = D::Mw::alloc(&mut new, kind, unsafe { call.user() })?;
        call.finish()?;
        // SAFETY: The object is in stage 2, and `new` is not used any more.
        unsafe { Object::complete(this, value) };
        Ok(0)
    })
}

/// `dealloc_mw` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a window of a device of the driver `D`, alive, and nobody uses it any more.
pub(crate) unsafe extern "C" fn dealloc_callback<D: Driver>(raw: *mut bindings::ib_mw) -> c_int {
    let this = raw.cast::<Mw<D>>();
    // SAFETY: By the requirements of this function; `Mw` is transparent over `Object`.
    unsafe { Object::drop_data(&raw mut (*this).0) };
    0
}
