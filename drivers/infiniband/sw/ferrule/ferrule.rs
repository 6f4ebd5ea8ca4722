// SPDX-License-Identifier: GPL-2.0

//! `ferrule`: an RDMA provider driver whose hardware is software.
//!
//! The layers, from the top: `verbs` answers the RDMA core, `backend` is the interface by which it
//! knows the hardware, `soft` implements it with the engine in the kernel, `nic` with a PCI
//! function behind which a process of the host has the engine, and the crate `ferrule_engine` is
//! the engine: it takes work requests from rings, moves bytes between registered memory and writes
//! completions. Calls go down only; events come up, through the notifiers that completion queues
//! and queue pairs hand to the engine.

use kernel::prelude::*;

mod backend;
mod nic;
mod soft;
mod trace;
mod verbs;

/// Major, minor and patch level of the driver, of 32, 16 and 16 bits: the device's firmware
/// version.
const VERSION: u64 = 0x0000_0000_0001_0000;

/// The module: it offers the link type `ferrule`, and drives PCI functions, as long as it is
/// loaded.
#[pin_data]
struct Module {
    #[pin]
    _functions: kernel_ext::pci::Registration<nic::Probed>,
    #[pin]
    _registration: rdma::Registration<verbs::Ferrule<soft::Soft>>,
    /// Dropped after the devices, which use them, and before the rest: this waits for faults under
    /// way, and such a fault may keep the last reference to a device.
    _workqueues: rdma::Workqueues,
    /// Dropped after the devices, whose ports belong to it.
    _ports: soft::net::ports::Service,
    /// Dropped after the devices, whose directories are in it.
    _debugfs: soft::debugfs::Root,
}

impl kernel::InPlaceModule for Module {
    fn init(module: &'static ThisModule) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            // SAFETY: The kernel calls `init` once, when it loads the module, so the directory is
            // made once.
            _debugfs: unsafe { soft::debugfs::Root::new() },
            _ports: soft::net::ports::Service::start()?,
            // SAFETY: `init` runs once in a module's life, so the queues are started once. Both
            // registrations are declared before this field, so they are dropped before it, and the
            // queues outlive their devices.
            _workqueues: unsafe { rdma::Workqueues::start()? },
            _registration <- rdma::Registration::new(),
            _functions <- kernel_ext::pci::Registration::new(module),
        })
    }
}

module! {
    type: Module,
    name: "ferrule",
    authors: ["The ferrule authors"],
    description: "RDMA provider with a software engine",
    license: "GPL",
    alias: ["rdma-link-ferrule", "pci:v00001AF4d000010F1sv00001AF4sd00004645bc*sc*i*"],
}
