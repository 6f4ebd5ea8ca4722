// SPDX-License-Identifier: GPL-2.0

//! The PCI driver.

use kernel::{
    cpu::nr_cpu_ids,
    device::Bound,
    fmt,
    pci,
    prelude::*, //
};
use kernel_ext::{
    pci::{
        Driver,
        Interrupts, //
    },
    time::WithTimer, //
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
    watch::Watch,
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

/// A function that this driver has. Dropping it ends the device, and then gives back what the
/// function has had.
pub(crate) struct Probed {
    /// Dropped first: the core, programs and kernel users do not use the function any more then.
    _device: Registered<Ferrule<Nic>>,
    _watch: Pin<KBox<WithTimer<Watch>>>,
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
        let netdev = NetDevice::by_address(Namespace::init(), mac);
        match &netdev {
            None => dev_info!(
                function,
                "no network device has its address {}: its port is down until one comes\n",
                Mac(mac)
            ),
            Some(netdev) if is_taken::<Ferrule<Nic>>(netdev) => {
                dev_err!(
                    function,
                    "{}: has a ferrule device already\n",
                    netdev.name()
                );
                return Err(ENODEV);
            }
            Some(_) => (),
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
        // SAFETY: The device that is registered below is the only user, and has gone before the
        // function is unbound: `Registered` is dropped then, and no verb runs afterwards.
        let shared = unsafe { Function::new(function, registers, events) }?;
        let nic = Nic {
            function: shared,
            mac,
        };
        let device = register(function, nic, netdev.as_deref(), interrupts.count())?;
        let watch = Watch::new(device.handle().ok_or(ENODEV)?);
        let watch = KBox::pin_init(WithTimer::new(watch), GFP_KERNEL)?;
        Watch::start(&watch);
        Ok(KBox::pin(
            Probed {
                _device: device,
                _watch: watch,
                _interrupts: interrupts,
            },
            GFP_KERNEL,
        )?)
    }
}

/// Makes the device of a function.
fn register(
    function: &pci::Device<Bound>,
    nic: Nic,
    netdev: Option<&NetDevice>,
    vectors: u32,
) -> Result<Registered<Ferrule<Nic>>> {
    let mac = nic.mac;
    if let Some(netdev) = netdev {
        nic.set_port_mtu(port_mtu(netdev));
    }
    let net = Namespace::init().try_hold().ok_or(ENODEV)?;
    // That of the other events has no completions, unless it is the only one.
    let vectors = (vectors - 1).max(1);
    new_device(net, mac, netdev, vectors, Ok::<_, Error>(nic))?
        .register_on(function.as_ref(), c"ferrule%d")
}

/// An address, for people.
pub(super) struct Mac(pub(super) [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}
