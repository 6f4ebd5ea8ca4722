// SPDX-License-Identifier: GPL-2.0

//! Devices.

use core::{
    any::TypeId,
    marker::PhantomData,
    ops::{
        BitOr,
        Deref, //
    },
    ptr::NonNull, //
};

use kernel::{
    device,
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    }, //
};
use net_ext::{
    Namespace,
    NetDevice,
    Rtnl, //
};

use crate::{
    bindings,
    gate::Gate,
    gid::{
        GidType,
        HeldGidAttr, //
    },
    module::this_module,
    object::{
        impl_object,
        Object, //
    },
    port::PORT,
    uapi::Tree,
    Driver,
    Gid,
    GidAttr, //
};

pub(crate) mod verbs;

/// This crate's part of a device.
pub(crate) struct Extra {
    /// The driver.
    driver: TypeId,
    /// The cookie of the namespace that the device was made for, where its network device is.
    pub(crate) net_cookie: u64,
    /// The description of the driver's methods.
    pub(crate) methods: Tree,
    /// For a device that has a parent: those who use the parent pass it, and when it is closed, the
    /// parent may be unbound.
    pub(crate) parent: Option<Arc<Gate>>,
}

impl Extra {
    /// For a device of the driver `D`, made for `net`.
    pub(crate) fn new<D: Driver>(net: &Namespace) -> Self {
        Extra {
            driver: TypeId::of::<D>(),
            net_cookie: net.cookie(),
            methods: Tree::empty(),
            parent: None,
        }
    }

    /// Whether a device is one of the driver `D`.
    ///
    /// # Safety
    ///
    /// `raw` is a device of any driver's, and stays registered during the call.
    pub(crate) unsafe fn is_of<D: Driver>(raw: *mut bindings::ib_device) -> bool {
        // SAFETY: By the requirements of this function.
        if unsafe { (*raw).ops.owner } != this_module() {
            return false;
        }
        // SAFETY: The devices whose operations are this module's are made by
        // `UnregisteredDevice::new`, for one driver or another. The last field of an `Object` does
        // not move those before it.
        let object = unsafe { &*raw.cast::<Object<bindings::ib_device, Extra, ()>>() };
        // SAFETY: The device is registered, so it is in stage 3.
        unsafe { object.extra() }.driver == TypeId::of::<D>()
    }
}

/// A device: `struct ib_device`.
#[repr(transparent)]
pub struct Device<D: Driver>(pub(crate) Object<bindings::ib_device, Extra, D::Data>);

impl_object!(Device, bindings::ib_device, Data);

impl<D: Driver> Device<D> {
    /// The device of the driver model. Its name cannot be lent: it is freed when it is changed.
    pub(crate) fn as_device(&self) -> &device::Device {
        // SAFETY: The device is valid, and so is its part.
        unsafe { device::Device::from_raw((*self.as_raw()).__bindgen_anon_1.dev.as_mut()) }
    }

    /// The gate to the device's parent, if it has one.
    pub(crate) fn parent_users(&self) -> Option<Arc<Gate>> {
        // SAFETY: Drivers get references to this type for devices that are alive, so in stage 3.
        unsafe { self.0.extra() }.parent.clone()
    }

    /// The device that this one was registered on
    /// ([`UnregisteredDevice::register_on`](crate::UnregisteredDevice::register_on)), if it was. It
    /// is bound, for this one is unregistered before that ends.
    pub fn parent(&self) -> Option<&device::Device<device::Bound>> {
        // SAFETY: The device is valid, and its parent does not change.
        let parent = unsafe { (*self.as_raw()).__bindgen_anon_1.dev.as_ref().parent };
        let parent = NonNull::new(parent)?;
        // SAFETY: A registered device keeps its parent. Drivers get references to this type only
        // for devices that are registered, and stay so meanwhile; that ends before the parent is
        // unbound.
        Some(unsafe { device::Device::from_raw(parent.as_ptr()) })
    }

    /// The network device, unless it is gone.
    pub fn netdev(&self) -> Option<ARef<NetDevice>> {
        // SAFETY: The device is valid. The function returns a reference that the caller owns.
        let netdev = unsafe { bindings::ib_device_get_netdev(self.as_raw(), PORT) };
        let netdev = NonNull::new(netdev.cast::<NetDevice>())?;
        // SAFETY: The function has returned a valid device with a reference that is ours, which
        // `dev_put` gives up.
        Some(unsafe { ARef::from_raw(netdev) })
    }

    /// The number that no other device has as long as this one is registered.
    pub fn index(&self) -> u32 {
        // SAFETY: The device is valid, and the number does not change.
        unsafe { (*self.as_raw()).index }
    }

    /// Whether it belongs to the first network namespace, as all do that are seen in all of them
    /// (`rdma system set netns`). No other one there has its name. Any context.
    pub fn is_in_first_namespace(&self) -> bool {
        // SAFETY: The device is valid.
        unsafe { bindings::ib_device_in_init_net(self.as_raw()) }
    }

    /// Whether `netdev`, which was the port's, has gone or left the namespace that the device was
    /// made for. The RTNL is held, so that no move is half done.
    pub(crate) fn has_lost(&self, netdev: &NetDevice, _rtnl: &Rtnl) -> bool {
        // SAFETY: Drivers get references to this type for devices that are alive, so in stage 3.
        let cookie = unsafe { self.0.extra() }.net_cookie;
        !netdev.is_registered() || netdev.namespace().is_none_or(|net| net.cookie() != cookie)
    }

    /// Has the device unregistered, some time later. Any context.
    pub fn unregister_later(&self) {
        // SAFETY: Drivers get references to this type only for devices that are registered, and
        // stay so meanwhile. The work is waited for when the module goes
        // (`ib_unregister_driver()`); if the device is not registered by then, it calls no driver.
        unsafe { bindings::ib_unregister_device_queued(self.as_raw()) };
    }

    /// The GUID of the node, in CPU order.
    pub fn node_guid(&self) -> u64 {
        // SAFETY: The device is valid, and the GUID does not change.
        u64::from_be(unsafe { (*self.as_raw()).node_guid })
    }

    /// The entry of the port's GID table with this GID.
    ///
    /// # Errors
    ///
    /// `ENOENT` if there is none.
    pub fn find_gid(&self, gid: &Gid, kind: GidType) -> Result<HeldGidAttr<'_>> {
        // SAFETY: The device is valid while it is borrowed, and so is the result.
        unsafe { GidAttr::find(self.as_raw(), gid, kind) }
    }

    /// Tells all users of the state of the port, if it has changed and its network device is a bond
    /// or a part of one: the core leaves that to drivers. `netdev` is the port's. The RTNL is held.
    pub(crate) fn tell_bond_state(&self, netdev: &NetDevice) {
        // SAFETY: Both devices are valid, and the RDMA device is registered.
        unsafe { bindings::bond_port_state(self.as_raw(), netdev.as_raw()) };
    }

    /// The device of this driver that belongs to `netdev`. Until the result is dropped, the device
    /// cannot go, and its removal waits.
    pub fn lookup(netdev: &NetDevice) -> Option<Held<D>> {
        // SAFETY: The network device is valid.
        let raw = unsafe { bindings::ib_device_get_by_netdev(netdev.as_raw(), D::ID) };
        let raw = NonNull::new(raw)?;
        // Drivers choose their numbers themselves. A device of another driver is given back, and
        // nothing else is done with it.
        //
        // SAFETY: The function has returned a device with a reference that keeps it registered.
        if !unsafe { Extra::is_of::<D>(raw.as_ptr()) } {
            // SAFETY: The reference is ours to give up.
            unsafe { bindings::ib_device_put(raw.as_ptr()) };
            return None;
        }
        // INVARIANT: The device is of `D`, and the reference is handed over.
        Some(Held(raw, PhantomData))
    }
}

/// A device that is kept from going.
///
/// # Invariants
///
/// The device is one of the driver `D` and registered, and this owns a reference that keeps it so.
pub struct Held<D: Driver>(NonNull<bindings::ib_device>, PhantomData<D>);

impl<D: Driver> Held<D> {
    /// Keeps a device from going, if it is registered. Any context.
    ///
    /// # Safety
    ///
    /// `raw` is a device of the driver `D`, and the memory is there during the call.
    pub(crate) unsafe fn try_new(raw: NonNull<bindings::ib_device>) -> Option<Self> {
        // SAFETY: By the requirements of this function.
        if !unsafe { bindings::ib_device_try_get(raw.as_ptr()) } {
            return None;
        }
        // INVARIANT: By the requirements of this function, the device is of `D`. The reference was
        // just taken.
        Some(Held(raw, PhantomData))
    }
}

impl<D: Driver> Deref for Held<D> {
    type Target = Device<D>;

    fn deref(&self) -> &Device<D> {
        // SAFETY: By the type invariants, it is a device of the driver `D`, and registered.
        unsafe { Device::from_raw(self.0.as_ptr()) }
    }
}

impl<D: Driver> Drop for Held<D> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, there is a reference to give up.
        unsafe { bindings::ib_device_put(self.0.as_ptr()) };
    }
}

/// The attributes of a device that are fixed when it is made.
pub struct Info {
    /// The GUID of the node, in CPU order.
    pub node_guid: u64,
    /// The number of completion vectors, at least 1.
    pub num_comp_vectors: u32,
}

/// Whether a device belongs to `netdev` that has the number of the driver `D`, or of another with
/// the same number: several drivers of a module may have one. [`Device::lookup`] finds one device
/// of a number at most, so a network device should not get a second one.
pub fn is_taken<D: Driver>(netdev: &NetDevice) -> bool {
    // SAFETY: The network device is valid. The function returns a device with a reference that is
    // given back, and nothing else is done with it.
    unsafe {
        let raw = bindings::ib_device_get_by_netdev(netdev.as_raw(), D::ID);
        if !raw.is_null() {
            bindings::ib_device_put(raw);
        }
        !raw.is_null()
    }
}

/// The limits and abilities of a device: `struct ib_device_attr`.
#[derive(Clone, Debug, Default)]
#[allow(
    missing_docs,
    reason = "the names are those of the C structure and of the verbs' manual"
)]
pub struct Attr {
    pub fw_ver: u64,
    /// In CPU order.
    pub sys_image_guid: u64,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: u32,
    pub max_qp_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_sge_rd: u32,
    pub max_cq: u32,
    pub max_cqe: u32,
    pub max_mr: u32,
    pub max_pd: u32,
    pub max_qp_rd_atom: u32,
    pub max_res_rd_atom: u32,
    pub max_qp_init_rd_atom: u32,
    pub max_mcast_grp: u32,
    pub max_mcast_qp_attach: u32,
    pub max_total_mcast_qp_attach: u32,
    pub max_ah: u32,
    pub max_mw: u32,
    pub max_srq: u32,
    pub max_srq_wr: u32,
    pub max_srq_sge: u32,
    pub max_fast_reg_page_list_len: u32,
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub atomic_cap: AtomicCap,
    pub caps: Caps,
    /// The most completions that an event may wait for; 0: events never wait.
    pub max_cq_moderation_count: u16,
    /// The most microseconds that an event may wait.
    pub max_cq_moderation_period: u16,
    /// The bits of completions' timestamps.
    pub timestamp_mask: u64,
    /// The clock of completions' timestamps, in kHz.
    pub hca_core_clock: u64,
    /// The bytes of device memory that may be allocated; 0 if there is none.
    pub max_dm_size: u64,
    /// Queue pairs for raw packets; 0 if there are none.
    pub max_raw_ethy_qp: u32,
    /// The device pages memory on demand, if this is not empty.
    pub on_demand: OnDemand,
}

/// The operations that reach memory which is paged on demand: bits of `enum
/// ib_odp_transport_cap_bits` for each service. No service has any if no memory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnDemand {
    /// All of a program's addresses may be registered at once.
    pub implicit: bool,
    /// Of reliable connections.
    pub rc: OnDemandOperations,
    /// Of unreliable connections.
    pub uc: OnDemandOperations,
    /// Of datagrams.
    pub ud: OnDemandOperations,
    /// Of reliable connections of XRC.
    pub xrc: OnDemandOperations,
}

impl OnDemand {
    /// No memory is paged on demand.
    pub const NONE: Self = Self {
        implicit: false,
        rc: OnDemandOperations(0),
        uc: OnDemandOperations(0),
        ud: OnDemandOperations(0),
        xrc: OnDemandOperations(0),
    };
}

/// Operations that reach memory which is paged on demand: bits of `enum ib_odp_transport_cap_bits`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnDemandOperations(pub(crate) u32);

impl OnDemandOperations {
    /// The sender of a SEND.
    pub const SEND: Self = Self(bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_SEND);
    /// The receiver of a SEND, by a receive queue of its own.
    pub const RECV: Self = Self(bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_RECV);
    /// The receiver of a SEND, by a shared receive queue.
    pub const SRQ_RECV: Self = Self(bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_SRQ_RECV);
    /// Both sides of a WRITE.
    pub const WRITE: Self = Self(bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_WRITE);
    /// Both sides of a READ.
    pub const READ: Self = Self(bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_READ);
    /// Both sides of a compare-and-swap or fetch-and-add.
    pub const ATOMIC: Self = Self(bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_ATOMIC);
    /// The responder of a FLUSH.
    pub const FLUSH: Self = Self(bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_FLUSH);
    /// The responder of an ATOMIC WRITE.
    pub const ATOMIC_WRITE: Self =
        Self(bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_ATOMIC_WRITE);

    /// These and `other`.
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A set of abilities: `enum ib_device_cap_flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caps(u64);

macro_rules! caps {
    ($($(#[$doc:meta])* $name:ident = $raw:ident;)*) => {
        impl Caps {
            $($(#[$doc])* pub const $name: Self = Self(bindings::$raw as u64);)*
        }
    };
}

caps! {
    /// P_Keys that do not fit are counted.
    BAD_PKEY_CNTR = ib_device_cap_flags_IB_DEVICE_BAD_PKEY_CNTR;
    /// Q_Keys that do not fit are counted.
    BAD_QKEY_CNTR = ib_device_cap_flags_IB_DEVICE_BAD_QKEY_CNTR;
    /// Address handles are checked for their port.
    UD_AV_PORT_ENFORCE = ib_device_cap_flags_IB_DEVICE_UD_AV_PORT_ENFORCE;
    /// A change of state may say which state it takes for the current one.
    CURR_QP_STATE_MOD = ib_device_cap_flags_IB_DEVICE_CURR_QP_STATE_MOD;
    /// The port being active is an event.
    PORT_ACTIVE_EVENT = ib_device_cap_flags_IB_DEVICE_PORT_ACTIVE_EVENT;
    /// The GUID of the system is told.
    SYS_IMAGE_GUID = ib_device_cap_flags_IB_DEVICE_SYS_IMAGE_GUID;
    /// Shared receive queues can be resized.
    SRQ_RESIZE = ib_device_cap_flags_IB_DEVICE_SRQ_RESIZE;
    /// A receiver that is not ready says so.
    RNR_NAK = ib_device_cap_flags_IB_DEVICE_RC_RNR_NAK_GEN;
    /// Queue pairs get frames by rules.
    MANAGED_FLOW_STEERING = ib_device_cap_flags_IB_DEVICE_MANAGED_FLOW_STEERING;
    /// There are memory windows of type 1.
    MEM_WINDOW = ib_device_cap_flags_IB_DEVICE_MEM_WINDOW;
    /// There are memory windows of type 2B.
    MEM_WINDOW_TYPE_2B = ib_device_cap_flags_IB_DEVICE_MEM_WINDOW_TYPE_2B;
    /// There are the base memory management extensions.
    MEM_MGT_EXTENSIONS = ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS;
    /// There are extended reliable connections.
    XRC = ib_device_cap_flags_IB_DEVICE_XRC;
    /// There are atomic writes.
    ATOMIC_WRITE = ib_device_cap_flags_IB_DEVICE_ATOMIC_WRITE;
    /// Writes can be flushed until all see them.
    FLUSH_GLOBAL = ib_device_cap_flags_IB_DEVICE_FLUSH_GLOBAL;
    /// Writes can be flushed until they persist.
    FLUSH_PERSISTENT = ib_device_cap_flags_IB_DEVICE_FLUSH_PERSISTENT;
}

impl BitOr for Caps {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// With whom atomic operations are atomic: `enum ib_atomic_cap`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtomicCap {
    /// There are none.
    #[default]
    None,
    /// With those of this device.
    Hca,
    /// With those of processors, too.
    Glob,
}

/// Whether users map memory for a parent of the device, and not for the processor.
///
/// # Safety
///
/// The device is alive, and is registered or being registered.
pub(crate) unsafe fn has_parent(device: *const bindings::ib_device) -> bool {
    // SAFETY: By the requirements of this function; what it maps for does not change.
    unsafe { !(*device).dma_device.is_null() }
}
