// SPDX-License-Identifier: GPL-2.0

//! Memory windows.
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

/// What a driver does with memory windows.
pub trait Operations: Sized + Send + Sync + 'static {
    /// The driver.
    type Driver: Driver<Mw = Self>;
}

/// A memory window: `struct ib_mw`.
#[repr(transparent)]
pub struct Mw<D: Driver>(pub(crate) Object<bindings::ib_mw, (), D::Mw>);

impl_object!(Mw, bindings::ib_mw, Mw);
