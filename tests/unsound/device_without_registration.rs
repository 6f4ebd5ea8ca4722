// SPDX-License-Identifier: GPL-2.0

//! A device that is registered when its driver is not: nothing would remove it when the module
//! goes.

#![forbid(unsafe_code)]

use kernel::prelude::*;
use rdma::{
    Driver,
    Link,
    Offered,
    Registration,
    UnregisteredDevice, //
};

/// As long as the registration is borrowed, it does not go.
pub fn register<D: Link>(registration: &Registration<D>, device: UnregisteredDevice<D>) -> Result {
    device.register(&registration.offered(), c"mine%d")
}

#[cfg(unsound)]
pub fn make<D: Driver>() -> Offered<'static, D> {
    //~ E0423
    Offered(core::marker::PhantomData)
}

#[cfg(unsound)]
pub fn keep<D: Link>(registration: &Registration<D>) -> Offered<'static, D> {
    //~ lifetime
    registration.offered()
}
