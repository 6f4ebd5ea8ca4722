// SPDX-License-Identifier: GPL-2.0

//! The verbs: the answers to the RDMA core and to user space.
//!
//! One file an object. Each verb judges its arguments, hands the engine what it needs through
//! [`crate::backend`], and answers; an object's destruction is its value's `Drop`.

mod abi;
mod address;
mod ah;
mod context;
mod counter;
mod cq;
mod details;
mod device;
mod dm;
mod doorbells;
mod flow;
mod layout;
mod mr;
pub(crate) mod mtu;
mod mw;
mod pd;
mod qp;
mod srq;
mod threads;
mod xrcd;

use core::marker::PhantomData;

use kernel::{
    cpu::nr_cpu_ids,
    fmt,
    prelude::*,
    str::CString,
    sync::aref::ARef, //
};
use net_ext::{
    eui64_from_mac,
    HeldNamespace,
    NetDevice, //
};
use rdma::{
    method,
    pma::PortCounters,
    port,
    stats::Counter,
    Device,
    GidAttr,
    Offered,
    UnregisteredDevice, //
};

use crate::backend::{
    Backend,
    Linked, //
};

/// The driver of devices with one backend.
pub(crate) struct Ferrule<B>(PhantomData<fn() -> B>);

#[vtable]
impl<B: Backend> rdma::Driver for Ferrule<B> {
    const ID: u32 = abi::DRIVER_ID;
    const NAME: &'static CStr = c"ferrule";
    const ABI_VERSION: u32 = abi::ABI_VERSION;
    const METHODS: &'static [&'static method::Definition<Self>] = &[
        &method::Definition::of::<context::Kick<B>>(),
        &method::Definition::of::<context::Import<B>>(),
        &method::Definition::of::<context::Unimport<B>>(),
        &method::Definition::of::<context::KickDoorbells<B>>(),
        &method::Definition::of::<dm::Query<B>>(),
        &method::Definition::of::<context::QueryClock<B>>(),
        &method::Definition::of::<context::AddThread<B>>(),
    ];
    const COUNTERS: &'static [Counter] = B::COUNTERS;
    const QP_COUNTERS: Option<rdma::counter::Functions<Self>> = counter::functions();
    const PORT_COUNTERS: Option<fn(&B) -> PortCounters> = B::PORT_COUNTERS;
    const DETAILS: Option<rdma::details::Functions<Self>> = Some(details::functions());

    type Data = B;
    type Ucontext = context::Context<B>;
    type Pd = pd::Pd<B>;
    type Mr = mr::Mr<B>;
    type Cq = cq::Cq<B>;
    type Qp = qp::Qp<B>;
    type Ah = ah::Ah<B>;
    type Srq = srq::Srq<B>;
    type Mw = mw::Mw<B>;
    type Dm = dm::Dm<B>;
    type Xrcd = xrcd::Xrcd<B>;
    type Flow = flow::Flow<B>;

    fn query_device(dev: &Device<Self>) -> Result<rdma::device::Attr> {
        device::query(dev)
    }

    fn query_port(_dev: &Device<Self>, attr: &mut port::Attr) -> Result {
        device::query_port(attr);
        Ok(())
    }

    fn read_counters(dev: &Device<Self>, values: &mut [u64]) -> Result {
        dev.read_counters(values);
        Ok(())
    }

    fn fw_version(_dev: &Device<Self>, f: &mut dyn fmt::Write) -> fmt::Result {
        let version = crate::VERSION;
        write!(
            f,
            "{}.{}.{}",
            version >> 32,
            (version >> 16) & 0xffff,
            version & 0xffff
        )
    }

    fn add_gid(dev: &Device<Self>, attr: &GidAttr) -> Result {
        dev.set_gid(attr.index(), Some(&attr.gid()))
    }

    fn del_gid(dev: &Device<Self>, attr: &GidAttr) -> Result {
        dev.set_gid(attr.index(), None)
    }

    fn indexed(dev: &Device<Self>) {
        dev.indexed(dev.index());
    }

    fn named(dev: &Device<Self>, name: Option<&CStr>) {
        match name {
            // Others may have the name, too.
            Some(name) if !dev.is_in_first_namespace() => {
                let unique = CString::try_from_fmt(fmt!("{}@{}", name, dev.index()));
                dev.named(unique.ok().as_deref());
            }
            _ => dev.named(name),
        }
    }

    fn wants_netdev(dev: &Device<Self>, netdev: &NetDevice) -> bool {
        dev.wants_netdev(netdev)
    }

    fn find_netdev(dev: &Device<Self>) -> Option<ARef<NetDevice>> {
        dev.find_netdev()
    }

    fn netdev_mtu_changed(dev: &Device<Self>, netdev: &NetDevice) {
        dev.set_port_mtu(mtu::port_mtu(netdev));
    }

    fn netdev_lost(dev: &Device<Self>) {
        dev.netdev_lost();
    }
}

#[vtable]
impl<B: Linked> rdma::Link for Ferrule<B> {
    fn new_link(offered: &Offered<'_, Self>, name: &CStr, netdev: &NetDevice) -> Result {
        if rdma::device::is_taken::<Self>(netdev) {
            pr_err!("{}: has a ferrule device already\n", netdev.name());
            return Err(EEXIST);
        }
        // rdma_cm and the core's GID table know Ethernet addresses only.
        if !netdev.is_ethernet() || !netdev.has_address() {
            pr_err!("{}: is not an Ethernet device\n", netdev.name());
            return Err(EINVAL);
        }
        // The core's table has the addresses of VLANs for the device below them only.
        if netdev.is_vlan() {
            pr_err!(
                "{}: is the device of a VLAN; a link to the one below has its addresses, too\n",
                netdev.name()
            );
            return Err(EINVAL);
        }
        let net = netdev.namespace().ok_or(ENODEV)?;
        let backend = B::new(name, netdev, mtu::port_mtu(netdev))?;
        new_device(net, netdev.address(), Some(netdev), nr_cpu_ids(), backend)?
            .register(offered, name)
            .map_err(|error| {
                // The core answers so for a name that is taken, as for a full table.
                if error == ENFILE {
                    pr_err!("{}: there is an RDMA device of this name\n", name);
                    EEXIST
                } else {
                    error
                }
            })
    }
}

/// Makes a device with so many completion vectors, that is not registered yet. Its GUID comes from
/// the address of its network device, which may have yet to come.
///
/// By itself, since it takes kilobytes of stack, which users in the kernel need when they set
/// themselves up: that is done inside of registering.
#[inline(never)]
pub(crate) fn new_device<B: Backend>(
    net: HeldNamespace,
    address: [u8; 6],
    netdev: Option<&NetDevice>,
    vectors: u32,
    backend: impl PinInit<B, Error>,
) -> Result<UnregisteredDevice<Ferrule<B>>> {
    let info = rdma::device::Info {
        node_guid: eui64_from_mac(address),
        num_comp_vectors: vectors,
    };
    let mut dev = UnregisteredDevice::new(net, info, backend)?;
    if let Some(netdev) = netdev {
        dev.set_netdev(netdev)?;
    }
    Ok(dev)
}
