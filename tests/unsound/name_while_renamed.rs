// SPDX-License-Identifier: GPL-2.0

//! The name of a device, lent while somebody renames it.

#![forbid(unsafe_code)]

use kernel::{
    prelude::*,
    str::CString, //
};
use net_ext::NetDevice;
use rdma::{
    Device,
    Driver, //
};

/// A copy of the name.
pub fn copy(netdev: &NetDevice) -> Result<CString> {
    Ok(CString::try_from_fmt(fmt!("{}", netdev.name()))?)
}

/// That of the port of a device.
pub fn of_port<D: Driver>(device: &Device<D>) -> Result<CString> {
    copy(&*device.netdev().ok_or(ENODEV)?)
}

#[cfg(unsound)]
pub fn of_netdev(netdev: &NetDevice) -> &CStr {
    //~ E0308
    netdev.name()
}

#[cfg(unsound)]
pub fn of_device<D: Driver>(device: &Device<D>) -> &CStr {
    //~ E0624
    device.as_device().name()
}
