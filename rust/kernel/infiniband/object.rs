// SPDX-License-Identifier: GPL-2.0

//! Objects that the core allocates, with the driver's part behind the core's.
//!
//! The core takes the size of the whole from `ib_device_ops` (`size_ib_x`), allocates and zeroes
//! it, fills in its own part and calls the verb that creates the object. If that fails, or when the
//! verb that destroys the object has returned, the core frees the memory.

use core::mem::MaybeUninit;

use kernel::{
    prelude::*,
    types::Opaque, //
};
use pin_init::{
    InPlaceWrite,
    PinInit, //
};

/// An object of the core (`R`), what this crate needs beside it (`X`), and the driver's value
/// (`T`).
///
/// The object is one of three stages, which follow each other:
///
/// 1. allocated: only `raw` may be used;
/// 2. being created, or being destroyed: `extra` may be used, too;
/// 3. alive, between these: all may be used.
///
/// # Invariants
///
/// `raw` is at offset 0 and valid. `extra` is initialised in stages 2 and 3, and `data` in stage 3.
#[repr(C)]
pub(crate) struct Object<R, X, T> {
    raw: Opaque<R>,
    extra: MaybeUninit<X>,
    data: MaybeUninit<T>,
}

impl<R, X, T> Object<R, X, T> {
    /// The size to be told to the core.
    pub(crate) const SIZE: usize = {
        assert!(core::mem::offset_of!(Self, raw) == 0);
        // `kzalloc()` promises no more for sizes that are no power of two.
        assert!(align_of::<Self>() <= align_of::<u64>());
        size_of::<Self>()
    };

    /// The core's part.
    #[inline]
    pub(crate) fn raw(&self) -> *mut R {
        self.raw.get()
    }

    /// This crate's part.
    ///
    /// # Safety
    ///
    /// The object is in stage 2 or 3 for as long as the reference lives.
    #[inline]
    pub(crate) unsafe fn extra(&self) -> &X {
        // SAFETY: By the type invariants, `extra` is initialised.
        unsafe { self.extra.assume_init_ref() }
    }

    /// The driver's value.
    ///
    /// # Safety
    ///
    /// The object is in stage 3 for as long as the reference lives.
    #[inline]
    pub(crate) unsafe fn data(&self) -> &T {
        // SAFETY: By the type invariants, `data` is initialised.
        unsafe { self.data.assume_init_ref() }
    }

    /// Goes from stage 1 to 2.
    ///
    /// # Safety
    ///
    /// `this` is in stage 1, and nobody else uses it.
    pub(crate) unsafe fn begin(this: *mut Self, extra: X) {
        // SAFETY: By the requirements of this function.
        unsafe { (&raw mut (*this).extra).cast::<X>().write(extra) };
    }

    /// Goes from stage 2 to 3.
    ///
    /// # Safety
    ///
    /// `this` is in stage 2, and nobody else uses it.
    pub(crate) unsafe fn complete(this: *mut Self, data: T) {
        // SAFETY: By the requirements of this function.
        unsafe { (&raw mut (*this).data).cast::<T>().write(data) };
    }

    /// Goes from stage 2 to 3 if the driver has made its value; else back to 1, and nobody calls on
    /// the object any more once `close` has returned.
    ///
    /// # Errors
    ///
    /// The driver's.
    ///
    /// # Safety
    ///
    /// `this` is in stage 2. Nobody else uses it, but for those whom `close` keeps out.
    pub(crate) unsafe fn settle(
        this: *mut Self,
        made: Result<T>,
        close: impl FnOnce(&X),
    ) -> Result {
        match made {
            Ok(data) => {
                // SAFETY: By the requirements of this function.
                unsafe { Self::complete(this, data) };
                Ok(())
            }
            Err(error) => {
                // SAFETY: By the requirements of this function, and those that `close` keeps out
                // are gone before the end.
                unsafe {
                    close((*this).extra());
                    Self::end(this);
                }
                Err(error)
            }
        }
    }

    /// Goes from stage 3 to 1: the driver's value is dropped, then nobody calls on the object any
    /// more once `close` has returned.
    ///
    /// # Safety
    ///
    /// As for [`Object::settle`], but `this` is in stage 3.
    pub(crate) unsafe fn dismiss(this: *mut Self, close: impl FnOnce(&X)) {
        // SAFETY: By the requirements of this function, each stage is left once, in order.
        unsafe {
            Self::drop_data(this);
            close((*this).extra());
            Self::end(this);
        }
    }

    /// Goes from stage 2 to 3, with a value that is made in place.
    ///
    /// # Safety
    ///
    /// `this` is in stage 2, nobody else uses it, and it stays in place.
    pub(crate) unsafe fn init_data<E>(this: *mut Self, data: impl PinInit<T, E>) -> Result<(), E>
    where
        T: 'static,
    {
        // SAFETY: By the requirements of this function, the memory is valid until the object is
        // freed, and that is later than the reference is used.
        let slot: &'static mut MaybeUninit<T> = unsafe { &mut (*this).data };
        slot.write_pin_init(data)?;
        Ok(())
    }

    /// This crate's part.
    ///
    /// # Safety
    ///
    /// `this` is valid.
    pub(crate) unsafe fn extra_ptr(this: *mut Self) -> *mut X {
        // SAFETY: By the requirements of this function.
        unsafe { (&raw mut (*this).extra).cast() }
    }

    /// Goes from stage 3 to 2.
    ///
    /// # Safety
    ///
    /// `this` is in stage 3, and nobody else uses the driver's value any more.
    pub(crate) unsafe fn drop_data(this: *mut Self) {
        // SAFETY: By the requirements of this function, the value is initialised and ours.
        unsafe { (&raw mut (*this).data).cast::<T>().drop_in_place() };
    }

    /// Goes from stage 2 to 1.
    ///
    /// # Safety
    ///
    /// `this` is in stage 2, and nobody else uses it.
    pub(crate) unsafe fn end(this: *mut Self) {
        // SAFETY: By the requirements of this function, the value is initialised and ours.
        unsafe { (&raw mut (*this).extra).cast::<X>().drop_in_place() };
    }
}

/// Implements what the wrappers of core-allocated objects have in common.
///
/// The wrapper is a transparent tuple structure around an [`Object`], generic over the driver.
macro_rules! impl_object {
    ($name:ident, $raw:ty, $data:ident) => {
        #[allow(dead_code, reason = "not every kind of object needs all of it")]
        impl<D: $crate::Driver> $name<D> {
            /// Borrows the object of which C code has handed in the core's part.
            ///
            /// # Safety
            ///
            /// `raw` belongs to a device of the driver `D`, and the object is in the stages that
            /// the methods used with the reference ask for, for the lifetime `'a`.
            #[inline]
            pub(crate) unsafe fn from_raw<'a>(raw: *mut $raw) -> &'a Self {
                // SAFETY: By the requirements of this function, and since the core's part is at
                // offset 0 of an object that the core has allocated with our size.
                unsafe { &*raw.cast::<Self>() }
            }

            /// The C object.
            #[inline]
            pub(crate) fn as_raw(&self) -> *mut $raw {
                self.0.raw()
            }
        }

        impl<D: $crate::Driver> core::ops::Deref for $name<D> {
            type Target = D::$data;

            #[inline]
            fn deref(&self) -> &D::$data {
                // SAFETY: Drivers get references to this type only for objects that are alive: the
                // verbs that create them lend other types (`New`).
                unsafe { self.0.data() }
            }
        }

        // SAFETY: The driver's value is `Send`, the core's part belongs to no thread.
        unsafe impl<D: $crate::Driver> Send for $name<D> {}

        // SAFETY: The driver's value is `Sync`, and of the core's part only what does not change
        // is read without the core's locks.
        unsafe impl<D: $crate::Driver> Sync for $name<D> {}
    };
}

pub(crate) use impl_object;
