// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues.
//!
//! The verbs for them are not here yet: a driver says [`Unsupported`](crate::Unsupported).

use crate::{
    bindings,
    object::{
        impl_object,
        Object, //
    },
    Driver, //
};

/// What a driver does with shared receive queues.
pub trait Operations: Sized + Send + Sync + 'static {
    /// The driver.
    type Driver: Driver<Srq = Self>;
}

/// A shared receive queue: `struct ib_srq`.
#[repr(transparent)]
pub struct Srq<D: Driver>(pub(crate) Object<bindings::ib_srq, (), D::Srq>);

impl_object!(Srq, bindings::ib_srq, Srq);
