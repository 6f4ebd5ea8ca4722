// SPDX-License-Identifier: GPL-2.0

//! Provider drivers.

use core::{
    convert::Infallible,
    marker::PhantomData, //
};

use kernel::{
    error::VTABLE_DEFAULT_ERROR,
    fmt,
    prelude::*,
    sync::aref::ARef, //
};
use kernel_ext::error::code::EOPNOTSUPP;
use net_ext::NetDevice;

use crate::{
    ah,
    counter,
    cq,
    details,
    device,
    dm,
    flow,
    method,
    mr,
    mw,
    pd,
    pma,
    port,
    qp,
    srq,
    stats,
    ucontext,
    wr::RecvRequests,
    xrcd,
    Ah,
    AhAttr,
    Device,
    Dm,
    GidAttr,
    Qp,
    Srq,
    Ucontext,
    UserCall, //
};

/// A provider driver, whose devices have one port each, which is that of a network device.
///
/// # Examples
///
/// The parts of a driver that make its devices. `tests/rdma_loop/` is a whole one.
///
/// ```ignore
/// struct Loop;
///
/// #[vtable]
/// impl rdma::Driver for Loop {
///     const ID: u32 = 0x4c4f_4f50;
///     const NAME: &'static CStr = c"loop";
///     const ABI_VERSION: u32 = 1;
///
///     type Data = Mutex<KVec<Region>>;
///     type Ucontext = Context;
///     type Pd = Pd;
///     type Mr = Mr;
///     type Cq = Cq;
///     type Qp = Qp;
///     type Ah = rdma::Unsupported<Self>;
///     type Srq = rdma::Unsupported<Self>;
///     type Mw = rdma::Unsupported<Self>;
///     type Dm = rdma::Unsupported<Self>;
///     type Xrcd = rdma::Unsupported<Self>;
///     type Flow = rdma::Unsupported<Self>;
///
///     fn query_device(_dev: &rdma::Device<Self>) -> Result<rdma::device::Attr> {
///         Ok(rdma::device::Attr { max_qp: 1024, max_qp_wr: 64, ..Default::default() })
///     }
///
///     fn query_port(_dev: &rdma::Device<Self>, attr: &mut rdma::port::Attr) -> Result {
///         attr.gid_tbl_len = 16;
///         attr.max_msg_sz = 1 << 20;
///         Ok(())
///     }
/// }
///
/// #[vtable]
/// impl rdma::Link for Loop {
///     fn new_link(
///         offered: &rdma::Offered<'_, Self>,
///         name: &CStr,
///         netdev: &NetDevice,
///     ) -> Result {
///         let net = netdev.namespace().ok_or(ENODEV)?;
///         let info = rdma::device::Info {
///             node_guid: eui64_from_mac(netdev.address()),
///             num_comp_vectors: 1,
///         };
///         let data = new_mutex!(KVec::new(), "regions");
///         let mut dev = rdma::UnregisteredDevice::<Self>::new(net, info, data)?;
///         dev.set_netdev(netdev)?;
///         dev.register(offered, name)
///     }
/// }
///
/// #[vtable]
/// impl rdma::pd::Operations for Pd {
///     type Driver = Loop;
///
///     fn alloc(
///         _new: &rdma::pd::New<'_, Loop>,
///         _user: Option<rdma::UserCall<'_, Loop>>,
///     ) -> Result<Self> {
///         Ok(Pd)
///     }
/// }
///
/// #[pin_data]
/// struct Module {
///     // The link type is there as long as this is; dropping it removes the devices.
///     #[pin]
///     registration: rdma::Registration<Loop>,
/// }
/// ```
#[vtable]
pub trait Driver: Sized + Send + Sync + 'static {
    /// The number by which programs and the core tell drivers apart (`enum rdma_driver_id`).
    /// Drivers that are one to programs may share it, but no others should: [`Device::lookup`]
    /// finds none of another driver, but [`Registration`](crate::Registration) at its end removes
    /// the devices of all that have it. Not 0, which the core takes for any.
    const ID: u32;
    /// The type of links (`rdma link add … type NAME`), and the description of nodes.
    const NAME: &'static CStr;
    /// The version of what the driver and its library in user space say to each other.
    const ABI_VERSION: u32;
    /// Methods of the device file beside the core's own.
    const METHODS: &'static [&'static method::Definition<Self>] = &[];
    /// The counters of a port, of which [`read_counters`](Self::read_counters) tells the values.
    const COUNTERS: &'static [stats::Counter] = &[];
    /// The functions that count in sets for some of a port's queue pairs, if there are any. Those
    /// of no set count at the port, and [`read_counters`](Self::read_counters) tells of these
    /// alone.
    const QP_COUNTERS: Option<counter::Functions<Self>> = None;
    /// Tells what a port has sent and received, in process context; `None` if a device does not
    /// count it. Then there is no performance management agent.
    const PORT_COUNTERS: Option<fn(&Self::Data) -> pma::PortCounters> = None;
    /// The functions that tell details of objects to `rdma resource show -dd`, if there are any.
    const DETAILS: Option<details::Functions<Self>> = None;

    /// The driver's part of a device. It is dropped when the device goes and no verb runs any more.
    type Data: Send + Sync + 'static;
    /// User contexts.
    type Ucontext: ucontext::Operations<Driver = Self>;
    /// Protection domains.
    type Pd: pd::Operations<Driver = Self>;
    /// Memory regions.
    type Mr: mr::Operations<Driver = Self>;
    /// Completion queues.
    type Cq: cq::Operations<Driver = Self>;
    /// Queue pairs.
    type Qp: qp::Operations<Driver = Self>;
    /// Address handles.
    type Ah: ah::Operations<Driver = Self>;
    /// Shared receive queues.
    type Srq: srq::Operations<Driver = Self>;
    /// Memory windows.
    type Mw: mw::Operations<Driver = Self>;
    /// Device memory.
    type Dm: dm::Operations<Driver = Self>;
    /// Domains of extended reliable connections.
    type Xrcd: xrcd::Operations<Driver = Self>;
    /// Rules of flow steering.
    type Flow: flow::Operations<Driver = Self>;

    /// Tells the limits and abilities of a device.
    ///
    /// # Errors
    ///
    /// Any error is the caller's answer.
    fn query_device(dev: &Device<Self>) -> Result<device::Attr>;

    /// Tells of the port. `attr` comes with what the network device says: the states, the speed,
    /// the MTU; one P_Key; and that there is a communication manager. At least the length of the
    /// GID table and the longest message are to be set.
    ///
    /// # Errors
    ///
    /// Any error is the caller's answer.
    fn query_port(dev: &Device<Self>, attr: &mut port::Attr) -> Result;

    /// Tells an entry of the P_Key table. If it is not implemented, there is the default P_Key
    /// only.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such entry.
    fn query_pkey(_dev: &Device<Self>, _index: u16) -> Result<u16> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Tells the values of the counters, in the order of [`COUNTERS`](Self::COUNTERS).
    ///
    /// # Errors
    ///
    /// Any error is the caller's answer.
    fn read_counters(_dev: &Device<Self>, _values: &mut [u64]) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Writes the version of the firmware.
    ///
    /// # Errors
    ///
    /// Those of `f`; text that does not fit is cut off.
    fn fw_version(_dev: &Device<Self>, _f: &mut dyn fmt::Write) -> fmt::Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// An entry of the GID table is about to be filled.
    ///
    /// # Errors
    ///
    /// With any error the entry stays empty.
    fn add_gid(_dev: &Device<Self>, _attr: &GidAttr) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// An entry of the GID table is about to be emptied.
    ///
    /// # Errors
    ///
    /// The entry is emptied all the same.
    fn del_gid(_dev: &Device<Self>, _attr: &GidAttr) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// The device has its [index](Device::index), and is about to be made known: nobody uses it
    /// yet. Process context.
    fn indexed(_dev: &Device<Self>) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// The device is registered, or has another name or another network namespace; with `None` it
    /// goes, or leaves its namespace. The core renames no device meanwhile. Process context. Told
    /// as long as there is a [`Registration`](crate::Registration) of the driver.
    ///
    /// Devices of several network namespaces may have one name: see
    /// [`Device::is_in_first_namespace`].
    fn named(_dev: &Device<Self>, _name: Option<&CStr>) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Whether a network device is to be that of the port, which has none. The RTNL is held, and
    /// the network device is being registered or set up, or was found by
    /// [`find_netdev`](Self::find_netdev). Only asked for devices that belong to another device,
    /// such as a PCI function.
    fn wants_netdev(_dev: &Device<Self>, _netdev: &NetDevice) -> bool {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// The network device that is to be that of the port, which has none, if there is such a one.
    /// The RTNL is held, and the device is being enabled: after that,
    /// [`wants_netdev`](Self::wants_netdev) is asked about all that come.
    fn find_netdev(_dev: &Device<Self>) -> Option<ARef<NetDevice>> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// The network device's MTU has changed, there is another network device, or one of the two may
    /// have happened while the device was not enabled. The RTNL is held.
    fn netdev_mtu_changed(_dev: &Device<Self>, _netdev: &NetDevice) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// The network device goes, or leaves its network namespace, and the device is unregistered
    /// some time later. The RTNL is held. Only told to devices of `rdma link`.
    fn netdev_lost(_dev: &Device<Self>) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// A kind of object that a driver does not have. No value of it exists.
pub struct Unsupported<D>(Infallible, PhantomData<fn() -> D>);

impl<D: Driver<Ah = Self>> ah::Operations for Unsupported<D> {
    type Driver = D;

    const SUPPORTED: bool = false;

    fn create(
        _new: &ah::New<'_, D>,
        _attr: &ah::InitAttr<'_>,
        _user: Option<UserCall<'_, D>>,
    ) -> Result<Self> {
        Err(EOPNOTSUPP)
    }

    fn query(ah: &Ah<D>) -> Result<AhAttr> {
        match (**ah).0 {}
    }
}

impl<D: Driver<Srq = Self>> srq::Operations for Unsupported<D> {
    type Driver = D;

    const SUPPORTED: bool = false;

    fn create(
        _new: &mut srq::New<'_, D>,
        _attr: &srq::Attr,
        _user: Option<UserCall<'_, D>>,
    ) -> Result<Self> {
        Err(EOPNOTSUPP)
    }

    fn modify(srq: &Srq<D>, _attr: &srq::ModifyAttr, _user: Option<UserCall<'_, D>>) -> Result {
        match (**srq).0 {}
    }

    fn query(srq: &Srq<D>) -> Result<srq::Attr> {
        match (**srq).0 {}
    }

    fn post_recv(srq: &Srq<D>, _requests: &mut RecvRequests<'_>) -> Result {
        match (**srq).0 {}
    }
}

impl<D: Driver<Mw = Self>> mw::Operations for Unsupported<D> {
    type Driver = D;

    const SUPPORTED: bool = false;

    fn alloc(
        _new: &mut mw::New<'_, D>,
        _kind: mw::Type,
        _user: Option<UserCall<'_, D>>,
    ) -> Result<Self> {
        Err(EOPNOTSUPP)
    }
}

impl<D: Driver<Dm = Self>> dm::Operations for Unsupported<D> {
    type Driver = D;

    const SUPPORTED: bool = false;

    fn alloc(_context: &Ucontext<D>, _length: u64, _log_align: u32) -> Result<Self> {
        Err(EOPNOTSUPP)
    }

    fn reg(dm: &Dm<D>, _new: &mut mr::New<'_, D>, _part: &dm::Part) -> Result<D::Mr> {
        match (**dm).0 {}
    }
}

impl<D: Driver<Xrcd = Self>> xrcd::Operations for Unsupported<D> {
    type Driver = D;

    const SUPPORTED: bool = false;

    fn alloc(_new: &xrcd::New<'_, D>) -> Result<Self> {
        Err(EOPNOTSUPP)
    }
}

impl<D: Driver<Flow = Self>> flow::Operations for Unsupported<D> {
    type Driver = D;

    const SUPPORTED: bool = false;

    fn create(_qp: &Qp<D>, _attr: &flow::Attr<'_>) -> Result<Self> {
        Err(EOPNOTSUPP)
    }
}
