// SPDX-License-Identifier: GPL-2.0

//! Devices that belong to a PCI function, whose engine copies for them.

use kernel::{
    device::Bound,
    pci,
    prelude::*,
    sync::Arc, //
};
use kernel_ext::pci::{
    Bar,
    Driver,
    Interrupts, //
};
use net_ext::{
    eui64_from_mac,
    Namespace,
    NetDevice, //
};
use rdma::{
    device,
    Registered,
    UnregisteredDevice, //
};

use super::{
    driver::Loop,
    edu::{
        Edu,
        REGISTERS, //
    },
    queue::Table, //
};

/// The address of the network device that the function is paired with.
const ADDRESS: [u8; 6] = [2, 0, 0, 0, 0x0e, 0xd0];

/// A function in use.
pub(super) struct Function {
    _registered: Registered<Loop>,
    /// Dropped after the device, which waits for interrupts.
    _interrupts: Interrupts<Edu>,
}

impl Driver for Function {
    const NAME: &'static CStr = c"rdma_loop";
    const VENDOR: u16 = 0x1234;
    const DEVICE: u16 = 0x11e8;

    fn probe(function: &pci::Device<Bound>) -> Result<Pin<KBox<Self>>> {
        let netdev = NetDevice::by_address(Namespace::init(), ADDRESS).ok_or(EPROBE_DEFER)?;
        if device::is_taken::<Loop>(&netdev) {
            return Err(EBUSY);
        }
        let bar = Bar::map(function, 0, REGISTERS, Self::NAME)?;
        let mut edu = None;
        let interrupts = Interrupts::new(function, 1, Self::NAME, |_count| {
            let made = Edu::new(bar)?;
            edu = Some(Arc::clone(&made));
            Ok(made)
        })?;
        let edu = edu.ok_or(ENODEV)?;
        edu.check(function.as_ref())?;

        let info = device::Info {
            node_guid: eui64_from_mac(netdev.address()),
            num_comp_vectors: interrupts.count(),
        };
        let net = netdev.namespace().ok_or(ENODEV)?;
        let mut dev = UnregisteredDevice::<Loop>::new(net, info, Table::new(Some(edu))?)?;
        dev.set_netdev(&netdev)?;
        let function = Function {
            _registered: dev.register_on(function.as_ref(), c"loop_test%d")?,
            _interrupts: interrupts,
        };
        Ok(KBox::pin(function, GFP_KERNEL)?)
    }
}
