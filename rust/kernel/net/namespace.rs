// SPDX-License-Identifier: GPL-2.0

//! Network namespaces.
//!
//! C header: `include/net/net_namespace.h`.

use core::{
    ops::Deref,
    ptr::NonNull, //
};

use kernel::types::Opaque;

use crate::bindings;

/// A network namespace: `struct net`.
///
/// Borrowed, it is known to be there but may be coming to its end; a [`HeldNamespace`] is not.
///
/// Two references are equal if they are to the same one.
///
/// # Invariants
///
/// The namespace is a valid one and stays so while this is borrowed.
#[repr(transparent)]
pub struct Namespace(Opaque<bindings::net>);

// SAFETY: References may be taken and given back by any thread.
unsafe impl Send for Namespace {}

// SAFETY: The fields that the methods read do not change.
unsafe impl Sync for Namespace {}

impl PartialEq for Namespace {
    fn eq(&self, other: &Self) -> bool {
        core::ptr::eq(self, other)
    }
}

impl Eq for Namespace {}

impl Namespace {
    /// Borrows a namespace that C code has handed in.
    ///
    /// # Safety
    ///
    /// `ptr` points to a valid namespace, which stays valid for the lifetime `'a`.
    pub unsafe fn from_raw<'a>(ptr: *mut bindings::net) -> &'a Self {
        // SAFETY: By the requirements of this function; the type is transparent over `Opaque`.
        unsafe { &*ptr.cast() }
    }

    /// The first one, which never ends.
    pub fn init() -> &'static Self {
        // SAFETY: It is a static of the kernel's.
        unsafe { Self::from_raw(&raw mut bindings::init_net) }
    }

    /// The C object.
    pub fn as_raw(&self) -> *mut bindings::net {
        self.0.get()
    }

    /// The number that no other namespace has had since the machine was started.
    pub fn cookie(&self) -> u64 {
        // SAFETY: `self` is valid by the type invariants.
        unsafe { bindings::net_cookie(self.as_raw()) }
    }

    /// Takes a reference, unless the namespace is on its way out. Any context.
    pub fn try_hold(&self) -> Option<HeldNamespace> {
        // SAFETY: `self` is valid by the type invariants.
        let net = unsafe { bindings::maybe_get_net(self.as_raw()) };
        // INVARIANT: The function has taken a reference if it returns the namespace.
        NonNull::new(net).map(HeldNamespace)
    }
}

/// A reference to a [`Namespace`], which keeps it from ending.
///
/// A namespace with references goes on even if nobody can reach it any more. So references are for
/// the time of a call: data that lasts as long as its namespace is kept in
/// [`pernet`](crate::pernet).
///
/// # Invariants
///
/// The namespace is valid, and we own a reference to it.
pub struct HeldNamespace(NonNull<bindings::net>);

// SAFETY: References may be given back by any thread.
unsafe impl Send for HeldNamespace {}

// SAFETY: `Namespace` is `Sync`.
unsafe impl Sync for HeldNamespace {}

impl Deref for HeldNamespace {
    type Target = Namespace;

    #[inline]
    fn deref(&self) -> &Namespace {
        // SAFETY: By the type invariants, the namespace is valid as long as `self` is.
        unsafe { Namespace::from_raw(self.0.as_ptr()) }
    }
}

impl Clone for HeldNamespace {
    fn clone(&self) -> Self {
        // SAFETY: By the type invariants, there is a reference, so there may be another.
        unsafe { bindings::get_net(self.0.as_ptr()) };
        // INVARIANT: As just done.
        HeldNamespace(self.0)
    }
}

impl Drop for HeldNamespace {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, we own a reference, which is given up.
        unsafe { bindings::put_net(self.0.as_ptr()) };
    }
}
