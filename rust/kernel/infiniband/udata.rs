// SPDX-License-Identifier: GPL-2.0

//! The request of a program in a call, and the response to it: `struct ib_udata`.

use core::{
    cell::Cell,
    mem::MaybeUninit, //
};

use kernel::{
    error::to_result,
    prelude::*, //
};
use zerocopy::{
    FromBytes,
    Immutable,
    IntoBytes, //
};

use crate::bindings;

/// One call of a verb.
///
/// # Invariants
///
/// `raw` is null, which is a call from inside of the kernel, or valid as long as this lives.
pub(crate) struct Call {
    pub(crate) raw: *mut bindings::ib_udata,
    taken: Cell<bool>,
    answered: Cell<bool>,
}

impl Call {
    /// # Safety
    ///
    /// `raw` is null or an `ib_udata` that the core has given to a verb of this driver, and the
    /// verb does not return before the result is dropped.
    pub(crate) unsafe fn new(raw: *mut bindings::ib_udata) -> Self {
        // INVARIANT: By the requirements of this function.
        Call {
            raw,
            taken: Cell::new(false),
            answered: Cell::new(false),
        }
    }

    /// The call that `attrs` belong to; null is a call from inside of the kernel.
    ///
    /// # Safety
    ///
    /// As for [`Call::new`], with the `ib_udata` that is part of `attrs`.
    pub(crate) unsafe fn of_attrs(attrs: *mut bindings::uverbs_attr_bundle) -> Self {
        let raw = if attrs.is_null() {
            core::ptr::null_mut()
        } else {
            // SAFETY: By the requirements of this function, `attrs` is valid.
            unsafe { &raw mut (*attrs).__bindgen_anon_1.hdr.driver_udata }
        };
        // SAFETY: By the requirements of this function.
        unsafe { Self::new(raw) }
    }

    /// The program's side of the call. Only for calls that have one.
    pub(crate) fn udata(&self) -> Udata<'_> {
        Udata { call: self }
    }

    /// Refuses a call that brings a request, for a verb whose driver reads none.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the program asks for what the driver does not know.
    pub(crate) fn refuse_request(&self) -> Result {
        self.taken.set(true);
        // SAFETY: By the type invariants, `raw` is null, which the function takes for an empty
        // request, or valid.
        to_result(unsafe { bindings::ib_is_udata_in_empty(self.raw) })
    }

    /// Does what the driver has not done: a request that nobody has read must be empty, and a
    /// response that nobody has written is filled with zeroes.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the program asks for what the driver does not know.
    pub(crate) fn finish(&self) -> Result {
        if !self.taken.get() {
            self.refuse_request()?;
        }
        if !self.answered.get() {
            // SAFETY: By the type invariants, `raw` is null, which takes no response, or valid.
            to_result(unsafe { bindings::ib_respond_empty_udata(self.raw) })?;
        }
        Ok(())
    }
}

/// For verbs that take nothing and give nothing back, but for those that end an object.
///
/// If the core cannot tell the program of an object that it has just made, it ends the object with
/// the request of the creation, and warns where that is refused. A program chooses that request,
/// and may take the memory of the response away meanwhile.
///
/// # Safety
///
/// As for [`Call::new`].
pub(crate) unsafe fn no_udata(raw: *mut bindings::ib_udata) -> Result {
    // SAFETY: By the requirements of this function; null is fine.
    to_result(unsafe { bindings::ib_no_udata_io(raw) })
}

/// The request of a program in a call, and space for the driver's response.
#[derive(Clone, Copy)]
pub struct Udata<'a> {
    call: &'a Call,
}

impl Udata<'_> {
    /// Reads the request.
    ///
    /// It may be shorter than `T`, if it has at least `min_len` bytes: missing bytes are zero. It
    /// may be longer, if the rest is zero.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is too short, `EOPNOTSUPP` if it is longer and the rest is not zero, `EFAULT`
    /// if it cannot be read.
    pub fn copy_in<T: FromBytes>(&self, min_len: usize) -> Result<T> {
        let mut request = MaybeUninit::<T>::zeroed();
        self.call.taken.set(true);
        // SAFETY: By the type invariants of `Call`, and since `request` has as many bytes as told.
        to_result(unsafe {
            bindings::_ib_copy_validate_udata_in(
                self.call.raw,
                request.as_mut_ptr().cast(),
                size_of::<T>(),
                min_len,
            )
        })?;
        // SAFETY: All bytes were initialised, and any bytes are a valid `T`.
        Ok(unsafe { request.assume_init() })
    }

    /// Writes the response. A program with a shorter one gets the start of it, and one with a
    /// longer one gets zeroes behind it.
    ///
    /// # Errors
    ///
    /// `EFAULT` if it cannot be written.
    pub fn respond<T: IntoBytes + Immutable>(&self, response: &T) -> Result {
        self.call.answered.set(true);
        let bytes = response.as_bytes();
        // SAFETY: By the type invariants of `Call`, and since `bytes` has as many bytes as told.
        to_result(unsafe {
            bindings::_ib_respond_udata(self.call.raw, bytes.as_ptr().cast(), bytes.len())
        })
    }
}
