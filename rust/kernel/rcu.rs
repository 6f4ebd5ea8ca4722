// SPDX-License-Identifier: GPL-2.0

//! Values that readers find without a lock and without counting: RCU.
//!
//! C header: `include/linux/rcupdate.h`.

use core::{
    marker::PhantomData,
    mem::ManuallyDrop,
    ptr::null_mut, //
};

use kernel::sync::{
    atomic::{
        Acquire,
        Atomic,
        Full, //
    },
    rcu,
    Arc, //
};

use crate::bindings;

/// A place for an [`Arc`], or none, that is read under RCU and seldom replaced.
///
/// # Examples
///
/// ```
/// use kernel::{prelude::*, sync::{rcu, Arc}};
/// use kernel_ext::rcu::RcuArc;
///
/// let place = RcuArc::new(Some(Arc::new(1, GFP_KERNEL)?));
/// assert_eq!(place.read(&rcu::read_lock()), Some(&1));
/// drop(place.replace(None));
/// # Ok::<(), Error>(())
/// ```
///
/// # Invariants
///
/// `ptr` is null, or of `Arc::into_raw`: that reference is ours, until a grace period after the
/// pointer was replaced.
pub struct RcuArc<T> {
    ptr: Atomic<*mut T>,
    _value: PhantomData<Arc<T>>,
}

// SAFETY: It is an `Arc<T>`, which may be sent and shared if `T` may be both.
unsafe impl<T: Send + Sync> Send for RcuArc<T> {}

// SAFETY: By a shared reference the value is shared and, since `replace` returns it, sent; `T` may
// be both. The pointer is atomic.
unsafe impl<T: Send + Sync> Sync for RcuArc<T> {}

impl<T> RcuArc<T> {
    /// A place without a value, for statics.
    pub const fn empty() -> Self {
        // INVARIANT: The pointer is null.
        RcuArc {
            ptr: Atomic::new(null_mut()),
            _value: PhantomData,
        }
    }

    /// A place for `value`.
    pub fn new(value: Option<Arc<T>>) -> Self {
        // INVARIANT: The reference is handed to the place.
        RcuArc {
            ptr: Atomic::new(into_raw(value)),
            _value: PhantomData,
        }
    }

    /// The current value. Any context.
    #[inline]
    pub fn read<'a>(&'a self, _guard: &'a rcu::Guard) -> Option<&'a T> {
        let ptr = self.ptr.load(Acquire);
        // SAFETY: By the type invariants, there is a reference if the pointer is not null; it is
        // given up only after a grace period, which the guard keeps from ending.
        unsafe { ptr.as_ref() }
    }

    /// Another reference to what is there now. Any context.
    pub fn get(&self) -> Option<Arc<T>> {
        let _guard = rcu::read_lock();
        // Not by a reference to the value, which the count of references is no part of.
        let ptr = self.ptr.load(Acquire);
        if ptr.is_null() {
            return None;
        }
        // SAFETY: By the type invariants, the pointer is that of `Arc::into_raw`, and its reference
        // is given up only after a grace period, which the guard keeps from ending. That reference
        // is not dropped here.
        let arc = ManuallyDrop::new(unsafe { Arc::from_raw(ptr) });
        Some(Arc::clone(&arc))
    }

    /// Puts `value` there, and returns what was there, once nobody reads that any more. Process
    /// context, not under RCU.
    pub fn replace(&self, value: Option<Arc<T>>) -> Option<Arc<T>> {
        // INVARIANT: The new reference is handed to the place. The old one is taken back after the
        // grace period.
        let old = self.ptr.xchg(into_raw(value), Full);
        if old.is_null() {
            return None;
        }
        // SAFETY: The function has no preconditions but the context.
        unsafe { bindings::synchronize_rcu() };
        // SAFETY: By the type invariants, it is of `into_raw`, and the reference is ours.
        Some(unsafe { Arc::from_raw(old) })
    }
}

fn into_raw<T>(value: Option<Arc<T>>) -> *mut T {
    value.map_or(null_mut(), |value| Arc::into_raw(value).cast_mut())
}

impl<T> Drop for RcuArc<T> {
    fn drop(&mut self) {
        let ptr = self.ptr.load(Acquire);
        if !ptr.is_null() {
            // SAFETY: By the type invariants. Nobody reads, for that borrows the place.
            drop(unsafe { Arc::from_raw(ptr) });
        }
    }
}
