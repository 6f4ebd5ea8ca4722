// SPDX-License-Identifier: GPL-2.0

//! A driver's details of its objects, which `rdma resource show -dd` shows.
//!
//! C header: `include/rdma/restrack.h`.

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

use kernel::{
    error::{
        from_result,
        to_result, //
    },
    prelude::*, //
};

use crate::{
    bindings,
    Cq,
    Driver,
    Mr,
    Qp,
    Srq, //
};

/// The functions by which a driver tells details of its objects, in process context. An object
/// lives as long as its function runs. One that cannot be asked has no details.
pub struct Functions<D: Driver> {
    /// Of a queue pair.
    pub qp: fn(&Qp<D>, &mut Details<'_>) -> Result,
    /// Of a completion queue.
    pub cq: fn(&Cq<D>, &mut Details<'_>) -> Result,
    /// Of a memory region.
    pub mr: fn(&Mr<D>, &mut Details<'_>) -> Result,
    /// Of a shared receive queue.
    pub srq: fn(&Srq<D>, &mut Details<'_>) -> Result,
}

/// The message that details are written to. Anybody may ask for details, and the reply to a list of
/// objects may go on in the name of another process than the one that asked: so there are no
/// addresses.
///
/// # Invariants
///
/// `message` is valid, and nobody else writes to it.
pub struct Details<'a> {
    message: NonNull<bindings::sk_buff>,
    _message: PhantomData<&'a mut bindings::sk_buff>,
}

macro_rules! put {
    ($($(#[$doc:meta])* $name:ident($type:ty) = $function:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        ///
        /// `EMSGSIZE` if the message is full: then the driver is asked once more, for another one.
        pub fn $name(&mut self, name: &CStr, value: $type) -> Result {
            // SAFETY: By the type invariants; the function copies the name.
            to_result(unsafe {
                bindings::$function(self.message.as_ptr(), name.as_char_ptr(), value)
            })
        }
    )*};
}

impl Details<'_> {
    put! {
        /// Tells a number.
        number(u32) = rdma_nl_put_driver_u32;
        /// Tells bits, in hexadecimal.
        bits(u32) = rdma_nl_put_driver_u32_hex;
    }

    /// Writes the details of an object to a message: all that `tell` tells, or nothing.
    ///
    /// # Safety
    ///
    /// `message` is valid during the call, and nobody else writes to it.
    unsafe fn write(
        message: *mut bindings::sk_buff,
        tell: impl FnOnce(&mut Details<'_>) -> Result,
    ) -> Result {
        let message = NonNull::new(message).ok_or(EINVAL)?;
        let kind = bindings::rdma_nldev_attr_RDMA_NLDEV_ATTR_DRIVER as c_int;
        // SAFETY: By the requirements of this function.
        let nest = unsafe { bindings::nla_nest_start(message.as_ptr(), kind) };
        let nest = NonNull::new(nest).ok_or(EMSGSIZE)?;
        // INVARIANT: By the requirements of this function.
        let told = tell(&mut Details {
            message,
            _message: PhantomData,
        });
        // SAFETY: By the requirements of this function; the nest was begun in this message.
        unsafe {
            match told {
                Ok(()) => bindings::nla_nest_end(message.as_ptr(), nest.as_ptr()),
                Err(_) => bindings::nla_nest_cancel(message.as_ptr(), nest.as_ptr()),
            }
        }
        match told {
            Err(error) if error == EMSGSIZE => Err(error),
            // An error would end the list of all objects.
            _ => Ok(()),
        }
    }
}

macro_rules! callbacks {
    ($($name:ident($object:ident: $raw:ident) = $field:ident, $operation:literal;)*) => {$(
        #[doc = concat!("`", $operation, "` of `struct ib_device_ops`.")]
        ///
        /// # Safety
        ///
        /// `raw` is an object of a device of the driver `D`, and the core keeps it alive during the
        /// call. `message` is valid, and nobody else writes to it.
        pub(crate) unsafe extern "C" fn $name<D: Driver>(
            message: *mut bindings::sk_buff,
            raw: *mut bindings::$raw,
        ) -> c_int {
            from_result(|| {
                let Some(functions) = D::DETAILS else {
                    return Ok(0);
                };
                // SAFETY: By the requirements of this function. The core knows objects that are
                // complete.
                let object = unsafe { &*raw.cast::<$object<D>>() };
                // SAFETY: By the requirements of this function.
                unsafe { Details::write(message, |details| (functions.$field)(object, details)) }?;
                Ok(0)
            })
        }
    )*};
}

callbacks! {
    qp(Qp: ib_qp) = qp, "fill_res_qp_entry";
    cq(Cq: ib_cq) = cq, "fill_res_cq_entry";
    mr(Mr: ib_mr) = mr, "fill_res_mr_entry";
    srq(Srq: ib_srq) = srq, "fill_res_srq_entry";
}
