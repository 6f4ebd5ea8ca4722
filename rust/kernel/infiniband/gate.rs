// SPDX-License-Identifier: GPL-2.0

//! A gate in front of an object that may go while others still call on it.

use core::ptr::NonNull;

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        Completion, //
    },
};

/// Each user adds this to the state; the lowest bit says that the gate is closed.
const USER: i32 = 2;

/// The gate: users may pass until it is closed, and closing it waits for those inside.
///
/// # Invariants
///
/// `state` is [`USER`] times the users, plus one if the gate is closed.
#[pin_data]
pub(crate) struct Gate {
    state: Atomic<i32>,
    #[pin]
    empty: Completion,
}

impl Gate {
    /// An open gate.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            state: Atomic::new(0),
            empty <- Completion::new(),
        })
    }

    /// Runs `visit` unless the gate is closed. Any context.
    #[inline]
    pub(crate) fn pass(&self, visit: impl FnOnce()) {
        if self.state.fetch_add(USER, Full) & 1 == 0 {
            visit();
        }
        if self.state.fetch_sub(USER, Full) == USER + 1 {
            self.empty.complete_all();
        }
    }

    /// Closes the gate, which must be done once, and waits for the users inside. The context must
    /// be one that may sleep.
    pub(crate) fn close(&self) {
        if self.state.fetch_add(1, Full) != 0 {
            self.empty.wait_for_completion();
        }
    }
}

/// An object of the core behind a gate.
///
/// # Invariants
///
/// `object` is valid until the gate is closed.
#[pin_data]
pub(crate) struct Gated<T> {
    object: NonNull<T>,
    #[pin]
    gate: Gate,
}

// SAFETY: Only users reach the object, who do with it what any thread may do.
unsafe impl<T> Send for Gated<T> {}

// SAFETY: Any number of users may be inside at once: they only do what any thread may do at any
// time.
unsafe impl<T> Sync for Gated<T> {}

impl<T> Gated<T> {
    /// An open gate before `object`.
    ///
    /// # Safety
    ///
    /// `object` is valid until the gate is closed.
    pub(crate) unsafe fn new(object: NonNull<T>) -> impl PinInit<Self> {
        // INVARIANT: By the requirements of this function.
        pin_init!(Self {
            object,
            gate <- Gate::new(),
        })
    }

    /// Lends the object, which is valid then, to `visit` unless the gate is closed. `visit` does
    /// what any thread may do. Any context.
    #[inline]
    pub(crate) fn pass(&self, visit: impl FnOnce(*mut T)) {
        self.gate.pass(|| visit(self.object.as_ptr()));
    }

    /// As [`Gate::close`].
    pub(crate) fn close(&self) {
        self.gate.close();
    }
}
