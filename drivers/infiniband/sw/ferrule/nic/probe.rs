// SPDX-License-Identifier: GPL-2.0

//! The PCI driver.

use kernel::{
    cpu::nr_cpu_ids,
    device::Bound,
    error::code::EPROBE_DEFER,
    pci,
    prelude::*,
    sync::Arc, //
};
use kernel_ext::pci::{
    Driver,
    Interrupts, //
};
use net_ext::{
    Namespace,
    NetDevice, //
};
use rdma::{
    device::is_taken,
    Registered, //
};

use super::{
    events::Events,
    function::Function,
    interface::{
        id,
        register, //
    },
    registers::Registers,
    Nic, //
};
use crate::{
    backend::Backend,
    verbs::{
        mtu::port_mtu,
        new_device,
        Ferrule, //
    }, //
};

/// A function that this driver has. Dropping it ends the device, and then gives back what the function has had.
pub(crate) struct Probed {
    /// Dropped first: the core, programs and kernel users do not use the function any more then.
    _device: Registered<Ferrule<Nic>>,
    /// Dropped last: an event queue is in memory as long as its interrupt may come.
    _interrupts: Interrupts<Events>,
}

impl Driver for Probed {
    const NAME: &'static CStr = c"ferrule";
    const VENDOR: u16 = id::VENDOR;
    const DEVICE: u16 = id::DEVICE;

    fn probe(function: &pci::Device<Bound>) -> Result<Pin<KBox<Self>>> {
        // Anyone may use the device's number.
        if function.subsystem_vendor_id() != id::SUBSYSTEM_VENDOR
            || function.subsystem_device_id() != id::SUBSYSTEM
        {
            return Err(ENODEV);
        }
        let registers = Registers::map(function)?;
        let Some(mac) = registers.mac()? else {
            dev_err!(
                function,
                "it belongs to no network device: its MAC address is 0\n"
            );
            return Err(ENODEV);
        };
        let netdev = NetDevice::by_address(Namespace::init(), mac).ok_or(EPROBE_DEFER)?;
        if is_taken::<Ferrule<Nic>>(&netdev) {
            dev_err!(
                function,
                "{}: has a ferrule device already\n",
                netdev.name()
            );
            return Err(EEXIST);
        }
        // One for the events that are no completions, and one a processor.
        let wanted = registers.read(register::VECTORS)?.min(1 + nr_cpu_ids());
        let mut events = None;
        let interrupts = Interrupts::new(function, wanted, c"ferrule", |count| {
            let made = Events::new(function.as_ref(), count)?;
            events = Some(made.clone());
            Ok(made)
        })?;
        let events = events.ok_or(EINVAL)?;
        // SAFETY: The device that is registered below is the only user, and has gone before the function is
        // unbound: `Registered` is dropped then, and no verb runs afterwards.
        let shared = unsafe { Function::new(function, registers, events) }?;
        let device = register(function, shared, &netdev, interrupts.count())?;
        Ok(KBox::pin(
            Probed {
                _device: device,
                _interrupts: interrupts,
            },
            GFP_KERNEL,
        )?)
    }
}

/// Makes the device of a function.
fn register(
    function: &pci::Device<Bound>,
    shared: Arc<Function>,
    netdev: &NetDevice,
    vectors: u32,
) -> Result<Registered<Ferrule<Nic>>> {
    let nic = Nic { function: shared };
    nic.set_port_mtu(port_mtu(netdev));
    let net = netdev.namespace().ok_or(ENODEV)?;
    // That of the other events has no completions, unless it is the only one.
    let vectors = (vectors - 1).max(1);
    new_device(net, netdev, vectors, Ok::<_, Error>(nic))?
        .register_on(function.as_ref(), c"ferrule%d")
}
