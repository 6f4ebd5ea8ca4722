// SPDX-License-Identifier: GPL-2.0

//! Device memory: memory of a device's own, which programs allocate there, register, and copy to
//! and from.

use core::mem::MaybeUninit;

use kernel::prelude::*;

use crate::{
    bindings,
    method,
    mr,
    object::{
        impl_object,
        Object, //
    },
    Access,
    Device,
    Driver,
    Ucontext, //
};

/// A part of a device memory that is to be registered. It lies inside, and its first byte has the
/// address 0 in work requests.
pub struct Part {
    /// The first byte, from the start of the device memory.
    pub offset: u64,
    /// The length in bytes.
    pub length: u64,
    /// The access rights; [`Access::ZERO_BASED`] is one of them.
    pub access: Access,
}

/// A driver's verbs of device memory. The value is dropped when the memory is freed; then no region
/// is left that was registered of it.
pub trait Operations: Sized + Send + Sync + 'static {
    /// The driver.
    type Driver: Driver<Dm = Self>;

    /// Whether there is any. See [`Unsupported`](crate::Unsupported).
    const SUPPORTED: bool = true;

    /// Allocates device memory for a program: `length` bytes, at a multiple of 2 to the power of
    /// `log_align` bytes.
    ///
    /// # Errors
    ///
    /// Any error is the program's answer.
    fn alloc(context: &Ucontext<Self::Driver>, length: u64, log_align: u32) -> Result<Self>;

    /// Registers a part of it. The keys must be set ([`mr::New::set_keys`]).
    ///
    /// # Errors
    ///
    /// Any error is the program's answer.
    fn reg(
        dm: &Dm<Self::Driver>,
        new: &mut mr::New<'_, Self::Driver>,
        part: &Part,
    ) -> Result<<Self::Driver as Driver>::Mr>;
}

/// Device memory: `struct ib_dm`.
///
/// Other than most objects, the driver allocates these, so this crate does.
#[repr(transparent)]
pub struct Dm<D: Driver>(Object<bindings::ib_dm, (), D::Dm>);

impl_object!(Dm, bindings::ib_dm, Dm);

impl<D: Driver> Dm<D> {
    /// The device of the memory.
    pub fn device(&self) -> &Device<D> {
        // SAFETY: The core has set the device, which does not change and outlives the memory.
        unsafe { Device::from_raw((*self.as_raw()).device) }
    }

    /// The length that the program has asked for, in bytes.
    #[allow(clippy::len_without_is_empty, reason = "drivers refuse a length of 0")]
    pub fn len(&self) -> u64 {
        // SAFETY: The core has set the length, which does not change.
        unsafe { (*self.as_raw()).length }.into()
    }
}

// SAFETY: Each object of this type on a device of the driver `D` comes from `alloc_callback`.
unsafe impl<D: Driver> method::Object for Dm<D> {
    type Driver = D;

    const TYPE: u16 = bindings::uverbs_default_objects_UVERBS_OBJECT_DM as u16;

    unsafe fn from_object<'a>(object: *mut c_void) -> &'a Self {
        // SAFETY: By the requirements of this function; memory that a program can name is alive.
        unsafe { Self::from_raw(object.cast()) }
    }
}

/// `alloc_dm` of `struct ib_device_ops`.
///
/// # Safety
///
/// `context` is a context of a device of the driver `D`, alive, and `attr` is valid.
pub(crate) unsafe extern "C" fn alloc_callback<D: Driver>(
    _dev: *mut bindings::ib_device,
    context: *mut bindings::ib_ucontext,
    attr: *mut bindings::ib_dm_alloc_attr,
    _attrs: *mut bindings::uverbs_attr_bundle,
) -> *mut bindings::ib_dm {
    // SAFETY: By the requirements of this function.
    let (context, attr) = unsafe { (Ucontext::from_raw(context), &*attr) };
    match alloc::<D>(context, attr) {
        Ok(dm) => KBox::into_raw(dm).cast(),
        Err(error) => error.to_ptr(),
    }
}

/// Allocates the object, and has the driver make its value.
fn alloc<D: Driver>(
    context: &Ucontext<D>,
    attr: &bindings::ib_dm_alloc_attr,
) -> Result<KBox<Dm<D>>> {
    // The core keeps the length in 32 bits.
    if u32::try_from(attr.length).is_err() {
        return Err(ENOMEM);
    }
    let value = D::Dm::alloc(context, attr.length, attr.alignment)?;
    let mut place = KBox::<Dm<D>>::new_uninit(GFP_KERNEL_ACCOUNT)?;
    let this = place.as_mut_ptr();
    // SAFETY: The memory is ours, and all zeroes are a valid `struct ib_dm`, of which the core sets
    // each field. The object is in stage 1 and then in stage 2, each left once.
    unsafe {
        this.cast::<bindings::ib_dm>().write_bytes(0, 1);
        Object::begin(&raw mut (*this).0, ());
        Object::complete(&raw mut (*this).0, value);
    }
    // SAFETY: The object is in stage 3: each part of it is initialised.
    Ok(unsafe { place.assume_init() })
}

/// `dealloc_dm` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` was made by [`alloc_callback`] for the driver `D`, and nobody uses it any more.
pub(crate) unsafe extern "C" fn dealloc_callback<D: Driver>(
    raw: *mut bindings::ib_dm,
    _attrs: *mut bindings::uverbs_attr_bundle,
) -> c_int {
    let this = raw.cast::<Dm<D>>();
    // SAFETY: By the requirements of this function. `Dm` is transparent over `Object`, which has
    // nothing to drop but the driver's value.
    unsafe {
        Object::dismiss(&raw mut (*this).0, |()| ());
        drop(KBox::from_raw(this.cast::<MaybeUninit<Dm<D>>>()));
    }
    0
}

/// `reg_dm_mr` of `struct ib_device_ops`.
///
/// # Safety
///
/// `pd` is a domain of a device of the driver `D`, alive, `raw` was made by [`alloc_callback`] for
/// the driver and is alive, and `attr` is valid: the core has compared it with the length of the
/// memory.
pub(crate) unsafe extern "C" fn reg_callback<D: Driver>(
    pd: *mut bindings::ib_pd,
    raw: *mut bindings::ib_dm,
    attr: *mut bindings::ib_dm_mr_attr,
    _attrs: *mut bindings::uverbs_attr_bundle,
) -> *mut bindings::ib_mr {
    // SAFETY: By the requirements of this function.
    let (dm, attr) = unsafe { (Dm::<D>::from_raw(raw), &*attr) };
    let part = Part {
        offset: attr.offset,
        length: attr.length,
        access: Access::from_bits(attr.access_flags),
    };
    // SAFETY: By the requirements of this function.
    let made = unsafe { mr::make::<D>(pd, 0, part.length, None, |new| D::Dm::reg(dm, new, &part)) };
    match made {
        Ok(mr) => mr,
        Err(error) => error.to_ptr(),
    }
}
