// SPDX-License-Identifier: GPL-2.0

//! The driver's parts of objects, by the numbers that the device gave them.

use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode,
        RBTreeNodeReservation, //
    },
    str::CStr,
    sync::LockClassKey, //
};
use kernel_ext::sync::SpinLockIrq;

/// Values by number. Any context may look.
#[pin_data]
pub(super) struct Table<T> {
    #[pin]
    values: SpinLockIrq<RBTree<u32, T>>,
}

/// Memory for a value. It is taken before the device is asked for a number, so that nothing can
/// fail after.
pub(super) struct Reservation<T>(RBTreeNodeReservation<u32, T>);

/// A value that was taken out. It is dropped without the lock.
pub(super) struct Taken<T>(#[allow(dead_code, reason = "to be dropped")] RBTreeNode<u32, T>);

impl<T> Reservation<T> {
    pub(super) fn new() -> Result<Self> {
        Ok(Reservation(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?))
    }
}

impl<T> Table<T> {
    /// An empty table; `name` and `key` are those of its lock.
    pub(super) fn new(name: &'static CStr, key: Pin<&'static LockClassKey>) -> impl PinInit<Self> {
        pin_init!(Table {
            values <- SpinLockIrq::new(RBTree::new(), name, key),
        })
    }

    /// Keeps a value.
    pub(super) fn insert(
        &self,
        reservation: Reservation<T>,
        number: u32,
        value: T,
    ) -> Option<Taken<T>> {
        let node = reservation.0.into_node(number, value);
        self.values.with(|values| values.insert(node)).map(Taken)
    }

    /// Takes a value out.
    pub(super) fn take(&self, number: u32) -> Option<Taken<T>> {
        self.values
            .with(|values| values.remove_node(&number))
            .map(Taken)
    }

    /// Lends the first value from a number on to `visit`, which must not sleep, and answers its
    /// number, too.
    pub(super) fn first_from<R>(
        &self,
        number: u32,
        visit: impl FnOnce(&mut T) -> R,
    ) -> Option<(u32, R)> {
        self.values.with(|values| {
            let mut cursor = values.cursor_lower_bound_mut(&number)?;
            let (&number, value) = cursor.current_mut();
            Some((number, visit(value)))
        })
    }

    /// Lends a value to `visit`, which must not sleep.
    pub(super) fn with<R>(&self, number: u32, visit: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.values
            .with(|values| values.get_mut(&number).map(visit))
    }

    /// Replaces a part of a value and returns what it was, which is to be dropped without the lock;
    /// the new part if there is no such value.
    pub(super) fn swap<P>(&self, number: u32, mut part: P, of: impl FnOnce(&mut T) -> &mut P) -> P {
        self.with(number, |value| core::mem::swap(of(value), &mut part));
        part
    }
}
