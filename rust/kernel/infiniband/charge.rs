// SPDX-License-Identifier: GPL-2.0

//! Control groups of RDMA, for what the core does not know of.
//!
//! C header: `include/linux/cgroup_rdma.h`.

use core::ptr::{
    null_mut,
    NonNull, //
};

use kernel::{
    error::to_result,
    prelude::*, //
};

use crate::{
    bindings,
    device::Held,
    Device,
    Driver, //
};

/// A handle of a device, which a program's control group is charged with until this is dropped, in
/// process context. It keeps the device from going.
///
/// # Invariants
///
/// `group` is charged with a handle of `device`, or null in a kernel without such groups.
pub struct HandleCharge<D: Driver> {
    device: Held<D>,
    group: *mut bindings::rdma_cgroup,
}

// SAFETY: Any thread may give the charge back.
unsafe impl<D: Driver> Send for HandleCharge<D> {}

// SAFETY: A shared reference opens nothing.
unsafe impl<D: Driver> Sync for HandleCharge<D> {}

impl<D: Driver> HandleCharge<D> {
    /// Charges the group of the calling process. Process context.
    ///
    /// # Errors
    ///
    /// `EAGAIN` where the group may not have another one; `ENODEV` if the device goes; `ENOMEM`.
    pub fn new(device: &Device<D>) -> Result<Self> {
        // SAFETY: The device is borrowed, and is of the driver.
        let held = NonNull::new(device.as_raw()).and_then(|raw| unsafe { Held::<D>::try_new(raw) });
        let device = held.ok_or(ENODEV)?;
        let mut group = null_mut();
        // SAFETY: The device is registered, and stays so as long as it is held.
        to_result(unsafe { bindings::charge_handle(device.as_raw(), &mut group) })?;
        // INVARIANT: It was just charged.
        Ok(Self { device, group })
    }
}

impl<D: Driver> Drop for HandleCharge<D> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, there is a charge to give back, and the device is
        // registered.
        unsafe { bindings::uncharge_handle(self.device.as_raw(), self.group) };
    }
}
