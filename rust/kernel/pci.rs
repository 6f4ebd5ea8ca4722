// SPDX-License-Identifier: GPL-2.0

//! Drivers of PCI functions.
//!
//! The kernel crate has these as well, but by signatures that are others in each release, and in
//! Linux 7.2 without a way to name more than two vectors. Its [`pci::Device`] is the function's
//! type here, too.
//!
//! C header: `include/linux/pci.h`.

mod bar;
mod interrupts;

use core::{
    marker::PhantomData,
    ptr::null_mut, //
};

use kernel::{
    device::{
        Bound,
        DeviceContext, //
    },
    error::{
        from_result,
        to_result, //
    },
    pci,
    prelude::*,
    types::{
        ForeignOwnable,
        Opaque, //
    }, //
};

pub use self::{
    bar::Bar,
    interrupts::{
        Handler,
        Interrupts, //
    }, //
};
use crate::bindings;

/// A driver, of which there is one value for each function that is bound to it.
///
/// The value is dropped when the function is unbound from the driver, or has gone. The function is
/// bound until that has been done: it can be told to stop, and the value's mappings end in order.
///
/// The core tells before it resets a function (`/sys/bus/pci/devices/*/reset`, or its bridge's).
/// Then the value is dropped as well, and after the reset the function is probed anew. A reset
/// behind the core's back, and a function that stops to answer, are the driver's to find.
pub trait Driver: Sized + Send + 'static {
    /// The name, as in `/sys/bus/pci/drivers/`.
    const NAME: &'static CStr;
    /// The vendor of the functions.
    const VENDOR: u16;
    /// The device of the functions.
    const DEVICE: u16;

    /// Takes a function. Its memory space is enabled, it is bus master, and it may use 64 bits of
    /// DMA addresses.
    ///
    /// # Errors
    ///
    /// `EPROBE_DEFER` if it is to be tried again when other devices have come. With any other error
    /// the function stays without a driver.
    fn probe(function: &pci::Device<Bound>) -> Result<Pin<KBox<Self>>>;
}

/// The C object of a function, which the kernel crate keeps to itself.
fn as_raw<Ctx: DeviceContext>(function: &pci::Device<Ctx>) -> *mut bindings::pci_dev {
    // CAST: The type is transparent over the C object, in an `Opaque`.
    core::ptr::from_ref(function).cast_mut().cast()
}

/// A driver that is there for the functions that it knows. Dropping it unbinds all of them.
///
/// # Invariants
///
/// `driver` is registered.
#[pin_data(PinnedDrop)]
pub struct Registration<T: Driver> {
    /// The function that the driver knows, and the end of the list.
    ids: [bindings::pci_device_id; 2],
    /// The callbacks around a reset.
    handlers: bindings::pci_error_handlers,
    #[pin]
    driver: Opaque<bindings::pci_driver>,
    _driver: PhantomData<fn() -> T>,
}

// SAFETY: It may be unregistered by any thread.
unsafe impl<T: Driver> Send for Registration<T> {}

// SAFETY: Nothing of it can be reached by a shared reference.
unsafe impl<T: Driver> Sync for Registration<T> {}

impl<T: Driver> Registration<T> {
    /// Registers the driver of `module`, and binds it to the functions that there are.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or `EBUSY` if there is a driver of this name. A function that the driver refuses
    /// is none.
    pub fn new(module: &'static ThisModule) -> impl PinInit<Self, Error> {
        const ANY: u32 = !0;

        try_pin_init!(&this in Self {
            // It comes first, for functions are matched before the registration is done.
            ids: [
                bindings::pci_device_id {
                    vendor: T::VENDOR.into(),
                    device: T::DEVICE.into(),
                    subvendor: ANY,
                    subdevice: ANY,
                    ..pin_init::zeroed()
                },
                pin_init::zeroed(),
            ],
            handlers: bindings::pci_error_handlers {
                reset_prepare: Some(Self::reset_prepare),
                reset_done: Some(Self::reset_done),
                ..pin_init::zeroed()
            },
            driver <- Opaque::try_ffi_init(|slot: *mut bindings::pci_driver| {
                // SAFETY: `slot` is valid for writing and stays in place, as `this` does, and
                // `PinnedDrop` unregisters it. Zeroes are a driver without operations.
                unsafe {
                    slot.write_bytes(0, 1);
                    (*slot).name = T::NAME.as_char_ptr();
                    (*slot).id_table = (&raw const (*this.as_ptr()).ids).cast();
                    (*slot).probe = Some(Self::probe);
                    (*slot).remove = Some(Self::remove);
                    (*slot).err_handler = &raw const (*this.as_ptr()).handlers;
                    to_result(bindings::__pci_register_driver(
                        slot,
                        module.as_ptr(),
                        T::NAME.as_char_ptr(),
                    ))
                }
            }),
            _driver: PhantomData,
        })
    }

    /// `probe` of `struct pci_driver`.
    ///
    /// # Safety
    ///
    /// `function` is valid, is being bound to this driver, and stays bound if this answers 0.
    unsafe extern "C" fn probe(
        function: *mut bindings::pci_dev,
        _id: *const bindings::pci_device_id,
    ) -> c_int {
        from_result(|| {
            // Unbinding disables the function after all of the driver's mappings have gone, for it
            // undoes the last step first.
            //
            // SAFETY: By the requirements of this function. Nobody maps memory for the function
            // yet.
            unsafe {
                to_result(bindings::pcim_enable_device(function))?;
                let device = &raw mut (*function).dev;
                to_result(bindings::dma_set_mask_and_coherent(device, u64::MAX))?;
                bindings::pci_set_master(function);
            }
            // SAFETY: By the requirements of this function, and the function has no value yet.
            unsafe { Self::give(function) }?;
            Ok(0)
        })
    }

    /// Gives a function its value.
    ///
    /// # Safety
    ///
    /// `function` is valid, bound to this driver or being bound, stays so, and has no value.
    unsafe fn give(function: *mut bindings::pci_dev) -> Result {
        // SAFETY: By the requirements of this function. The type is transparent over the C object.
        let value = T::probe(unsafe { &*function.cast::<pci::Device<Bound>>() })?;
        // SAFETY: The function is this driver's, and so are the data.
        unsafe { bindings::dev_set_drvdata(&raw mut (*function).dev, value.into_foreign()) };
        Ok(())
    }

    /// Drops the value of a function, if it has one.
    ///
    /// # Safety
    ///
    /// `function` was bound by [`Self::probe`], is bound until this returns, and nobody else takes
    /// the value.
    unsafe fn take(function: *mut bindings::pci_dev) {
        // SAFETY: By the requirements of this function, the data are those that `give` has set, or
        // null: the core sets none, and they are null again once the value is dropped.
        unsafe {
            let device = &raw mut (*function).dev;
            let value = bindings::dev_get_drvdata(device);
            if !value.is_null() {
                drop(Pin::<KBox<T>>::from_foreign(value));
                bindings::dev_set_drvdata(device, null_mut());
            }
        }
    }

    /// `remove` of `struct pci_driver`.
    ///
    /// # Safety
    ///
    /// `function` was bound by [`Self::probe`], and is being unbound.
    unsafe extern "C" fn remove(function: *mut bindings::pci_dev) {
        // SAFETY: By the requirements of this function. The core holds the device's lock around all
        // that take.
        unsafe { Self::take(function) };
    }

    /// `reset_prepare` of `struct pci_error_handlers`.
    ///
    /// # Safety
    ///
    /// `function` was bound by [`Self::probe`]. The caller holds the device's lock, so it stays
    /// bound.
    unsafe extern "C" fn reset_prepare(function: *mut bindings::pci_dev) {
        // SAFETY: By the requirements of this function. The core holds the device's lock around all
        // that take.
        unsafe { Self::take(function) };
    }

    /// `reset_done` of `struct pci_error_handlers`.
    ///
    /// # Safety
    ///
    /// As for [`Self::reset_prepare`], which was called before. The core has restored the
    /// configuration space.
    unsafe extern "C" fn reset_done(function: *mut bindings::pci_dev) {
        // SAFETY: By the requirements of this function; `reset_prepare` has taken the value, and
        // only this gives another.
        if let Err(error) = unsafe { Self::give(function) } {
            // SAFETY: By the requirements of this function. The type is transparent over the C
            // object.
            let function = unsafe { &*function.cast::<pci::Device<Bound>>() };
            dev_err!(
                function,
                "after the reset the driver could not take it: {:?}\n",
                error
            );
        }
    }
}

#[pinned_drop]
impl<T: Driver> PinnedDrop for Registration<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: It is registered by the type invariants.
        unsafe { bindings::pci_unregister_driver(self.driver.get()) };
    }
}
