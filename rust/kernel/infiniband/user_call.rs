// SPDX-License-Identifier: GPL-2.0

//! A call of a verb by a program.

use core::ops::Deref;

use crate::{
    bindings,
    udata::{
        Call,
        Udata, //
    },
    Driver,
    Ucontext, //
};

/// A call from user space: its [`Udata`] and the context that it belongs to.
pub struct UserCall<'a, D: Driver> {
    udata: Udata<'a>,
    context: &'a Ucontext<D>,
}

impl<'a, D: Driver> UserCall<'a, D> {
    /// The program's context.
    pub fn ucontext(&self) -> &'a Ucontext<D> {
        self.context
    }
}

impl<D: Driver> Clone for UserCall<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Driver> Copy for UserCall<'_, D> {}

impl<'a, D: Driver> Deref for UserCall<'a, D> {
    type Target = Udata<'a>;

    fn deref(&self) -> &Udata<'a> {
        &self.udata
    }
}

impl Call {
    /// The program's side of the call, with its context; none if the kernel calls.
    ///
    /// # Safety
    ///
    /// The driver of the device is `D`, and the call is none that creates a context.
    pub(crate) unsafe fn user<D: Driver>(&self) -> Option<UserCall<'_, D>> {
        if self.raw.is_null() {
            return None;
        }
        // SAFETY: By the type invariants; the udata of verbs is in a `uverbs_attr_bundle`.
        let context = unsafe { bindings::rdma_udata_to_ucontext(self.raw) };
        if context.is_null() {
            return None;
        }
        Some(UserCall {
            udata: self.udata(),
            // SAFETY: The context is alive: the core destroys none while a call of it runs.
            context: unsafe { Ucontext::from_raw(context) },
        })
    }
}
