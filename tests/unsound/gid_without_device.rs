// SPDX-License-Identifier: GPL-2.0

//! An entry of the GID table that is kept when the device, and the table with it, has gone.

#![forbid(unsafe_code)]

use kernel::prelude::*;
use rdma::{
    gid::GidType,
    Device,
    Driver,
    Gid,
    GidAttr,
    HeldGidAttr, //
};

/// Looked at as long as the device is lent.
pub fn index<D: Driver>(device: &Device<D>, gid: &Gid) -> Result<u16> {
    Ok(device.find_gid(gid, GidType::RoceV2)?.index())
}

#[cfg(unsound)]
pub fn keep<D: Driver>(device: &Device<D>, gid: &Gid) -> Result<HeldGidAttr<'static>> {
    //~ lifetime
    device.find_gid(gid, GidType::RoceV2)
}

#[cfg(unsound)]
//~ E0277
pub fn take(attr: &GidAttr) -> kernel::sync::aref::ARef<GidAttr> {
    //~ E0277
    attr.into()
}

#[cfg(unsound)]
pub fn lend(held: HeldGidAttr<'_>) -> &GidAttr {
    //~ E0515
    &held
}
