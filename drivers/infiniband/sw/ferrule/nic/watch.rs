// SPDX-License-Identifier: GPL-2.0

//! How the driver learns that its function is gone when nobody gives it commands.
//!
//! Nothing tells a guest that the process behind the function has ended, or that somebody has reset
//! the function behind the PCI core's back: no interrupt comes, and programs write to memory that
//! nobody reads. So a timer reads a register.

use kernel_ext::time::{
    monotonic_ns,
    TimerCallback,
    WithTimer, //
};
use rdma::Handle;

use super::Nic;
use crate::verbs::Ferrule;

/// How often the register is read. The access traps, so an idle function costs tens of microseconds
/// a second.
const INTERVAL_NS: u64 = 1_000_000_000;

/// The timer of a device. It goes on while the device is unregistered, since users in the kernel
/// wait for the end of their work then.
pub(super) struct Watch(Handle<Ferrule<Nic>>);

impl Watch {
    pub(super) fn new(device: Handle<Ferrule<Nic>>) -> Self {
        Watch(device)
    }

    /// Begins to look.
    pub(super) fn start(this: &WithTimer<Self>) {
        this.arm_at(monotonic_ns() + INTERVAL_NS);
    }
}

impl TimerCallback for Watch {
    fn expired(this: &WithTimer<Self>) {
        // A device that is not found may just be on its way to another network namespace. If it has
        // gone, the timer soon does.
        let Some(device) = this.0.device() else {
            return Self::start(this);
        };
        if device.function.look() {
            return Self::start(this);
        }
        device.function.fail();
        device.unregister_later();
    }
}
