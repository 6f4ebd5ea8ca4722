// SPDX-License-Identifier: GPL-2.0

//! User contexts: device files that programs have opened.

use core::ptr::NonNull;

use kernel::{
    error::{
        from_result,
        VTABLE_DEFAULT_ERROR, //
    },
    prelude::*,
    sync::Arc, //
};
use kernel_ext::mm::SharedArea;

use crate::{
    bindings,
    mmap::{
        Entries,
        Entry,
        Protection, //
    },
    object::{
        impl_object,
        Object, //
    },
    udata::Call,
    Device,
    Driver,
    Udata, //
};

/// A driver's verbs of user contexts. The value is dropped when the context goes, after all its
/// objects.
#[vtable]
pub trait Operations: Sized + Send + Sync + 'static {
    /// The driver.
    type Driver: Driver<Ucontext = Self>;

    /// Whether programs may import an open file of another one (`ibv_import_device`). The driver
    /// has a [method](crate::method::Method) by which its provider learns what it needs for that.
    const IMPORTABLE: bool = false;

    /// Opens a context.
    ///
    /// # Errors
    ///
    /// Any error is the program's answer.
    fn alloc(new: &New<'_, Self::Driver>, udata: Udata<'_>) -> Result<Self>;

    /// The context's objects are about to be destroyed, because its file is closed or the device
    /// goes. No other command of the context runs, and none will. It may be told more than once.
    fn quiesce(_context: &Ucontext<Self::Driver>) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// The device goes while the program lives on. The context's objects are gone already.
    fn disassociate(_context: &Ucontext<Self::Driver>) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// A user context: `struct ib_ucontext`.
#[repr(transparent)]
pub struct Ucontext<D: Driver>(pub(crate) Object<bindings::ib_ucontext, Arc<Entries>, D::Ucontext>);

impl_object!(Ucontext, bindings::ib_ucontext, Ucontext);

impl<D: Driver> Ucontext<D> {
    /// The device of the context.
    #[inline]
    pub fn device(&self) -> &Device<D> {
        // SAFETY: A context has a device, which does not change and outlives it.
        unsafe { Device::from_raw((*self.as_raw()).device) }
    }

    /// Makes memory mappable by the context's program.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no memory, or no space in the context's table.
    pub fn map(&self, area: Arc<SharedArea>, protection: Protection) -> Result<Entry> {
        // SAFETY: The reference is not null.
        let raw = unsafe { NonNull::new_unchecked(self.as_raw()) };
        // SAFETY: The context is borrowed, so it is alive, at least while it is being made.
        unsafe { Entry::new(raw, self.0.extra(), area, protection) }
    }
}

/// A context that is being opened.
pub struct New<'a, D: Driver>(&'a Ucontext<D>);

impl<D: Driver> New<'_, D> {
    /// The device of the context.
    pub fn device(&self) -> &Device<D> {
        self.0.device()
    }

    /// Makes memory mappable by the context's program, as [`Ucontext::map`] does.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no memory, or no space in the context's table.
    pub fn map(&self, area: Arc<SharedArea>, protection: Protection) -> Result<Entry> {
        self.0.map(area, protection)
    }
}

/// `alloc_ucontext` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a context of a device of the driver `D` in stage 1, and `udata` belongs to the call.
pub(crate) unsafe extern "C" fn alloc_callback<D: Driver>(
    raw: *mut bindings::ib_ucontext,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        let this = raw.cast::<Object<bindings::ib_ucontext, Arc<Entries>, D::Ucontext>>();
        let entries = Arc::pin_init(
            Entries::new(NonNull::new(raw).ok_or(EINVAL)?),
            GFP_KERNEL_ACCOUNT,
        )?;
        // SAFETY: By the requirements of this function.
        let call = unsafe { Call::new(udata) };
        // SAFETY: The object is in stage 1 and not known to anybody.
        unsafe { Object::begin(this, entries.clone()) };

        // SAFETY: The object is in stage 2, which is all that `New` uses.
        let new = New::<D>(unsafe { Ucontext::from_raw(raw) });
        let made =
            D::Ucontext::alloc(&new, call.udata()).and_then(|value| call.finish().map(|()| value));
        match made {
            Ok(value) => {
                // SAFETY: The object is in stage 2, and `new` is not used any more.
                unsafe { Object::complete(this, value) };
                Ok(0)
            }
            Err(error) => {
                entries.close();
                // SAFETY: The object is in stage 2, and `new` is not used any more. The core frees
                // the memory when it has the error.
                unsafe { Object::end(this) };
                Err(error)
            }
        }
    })
}

/// `query_ucontext` of `struct ib_device_ops`: the core has told what it knows, and the driver has
/// methods of its own for the rest.
///
/// # Safety
///
/// None: the arguments are not used.
pub(crate) unsafe extern "C" fn query_callback(
    _raw: *mut bindings::ib_ucontext,
    _attrs: *mut bindings::uverbs_attr_bundle,
) -> c_int {
    0
}

/// `dealloc_ucontext` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a context of a device of the driver `D`, alive, and nobody uses it any more.
pub(crate) unsafe extern "C" fn dealloc_callback<D: Driver>(raw: *mut bindings::ib_ucontext) {
    let this = raw.cast::<Ucontext<D>>();
    // SAFETY: By the requirements of this function, each stage is left once, in order. `Ucontext`
    // is transparent over `Object`.
    unsafe {
        Object::drop_data(&raw mut (*this).0);
        (*this).0.extra().close();
        Object::end(&raw mut (*this).0);
    }
}

/// `ufile_hw_cleanup` of `struct ib_device_ops`: the core calls it before each round in which it
/// destroys the objects of a file's context, if there are any, and holds the file's
/// `hw_destroy_rwsem` for writing.
///
/// # Safety
///
/// `file` has a context of a device of the driver `D`, which is alive.
pub(crate) unsafe extern "C" fn quiesce_callback<D: Driver>(file: *mut bindings::ib_uverbs_file) {
    // SAFETY: By the requirements of this function.
    D::Ucontext::quiesce(unsafe { Ucontext::from_raw((*file).ucontext) });
}

/// `disassociate_ucontext` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a context of a device of the driver `D`, alive.
pub(crate) unsafe extern "C" fn disassociate_callback<D: Driver>(raw: *mut bindings::ib_ucontext) {
    // SAFETY: By the requirements of this function.
    let context = unsafe { Ucontext::<D>::from_raw(raw) };
    // A context without objects was not quiesced by `ufile_hw_cleanup`.
    if D::Ucontext::HAS_QUIESCE {
        D::Ucontext::quiesce(context);
    }
    if D::Ucontext::HAS_DISASSOCIATE {
        D::Ucontext::disassociate(context);
    }
}
