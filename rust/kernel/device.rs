// SPDX-License-Identifier: GPL-2.0

//! Devices of the driver model.
//!
//! C header: `include/linux/device.h`.

use kernel::device::{
    Device,
    DeviceContext, //
};

use crate::bindings;

/// The C object of a device, which the kernel crate keeps to itself.
pub fn as_raw<Ctx: DeviceContext>(device: &Device<Ctx>) -> *mut bindings::device {
    // CAST: The type is transparent over the C object, in an `Opaque`.
    core::ptr::from_ref(device).cast_mut().cast()
}
