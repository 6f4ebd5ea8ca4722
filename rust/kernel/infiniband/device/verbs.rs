// SPDX-License-Identifier: GPL-2.0

//! The core's operations on devices and ports.

use kernel::{
    error::{
        from_result,
        to_result, //
    },
    fmt,
    prelude::*, //
};
use net_ext::{
    NetDevice,
    Rtnl, //
};

use super::{
    AtomicCap,
    Attr,
    Device,
    OnDemand, //
};
use crate::{
    bindings,
    object::Object,
    port::{
        self,
        PORT, //
    },
    registered::{
        unregister_lost,
        Follow, //
    },
    udata::no_udata,
    Driver,
    GidAttr, //
};

/// The default P_Key, which is that of full members (IBA volume 1, 10.9.2).
const DEFAULT_PKEY: u16 = 0xffff;

/// The length of `str` of [`get_dev_fw_str`], with its end: `IB_FW_VERSION_NAME_MAX`.
const FW_VERSION_LEN: usize = bindings::ETHTOOL_FWVERS_LEN as usize;

impl Attr {
    /// Copies this to where the core reads it.
    ///
    /// `is_link` says that the device was made by `rdma link add`: then it is removed in the same
    /// way.
    fn write_to(&self, raw: &mut bindings::ib_device_attr, is_link: bool) {
        /// Most limits are signed before Linux 7.3, though none of them is meant to be negative.
        fn int<T: TryFrom<u32> + Default>(limit: u32) -> T {
            T::try_from(limit.min(c_int::MAX as u32)).unwrap_or_default()
        }

        raw.fw_ver = self.fw_ver;
        raw.sys_image_guid = self.sys_image_guid.to_be();
        raw.max_mr_size = self.max_mr_size;
        raw.page_size_cap = self.page_size_cap;
        raw.vendor_id = self.vendor_id;
        raw.vendor_part_id = self.vendor_part_id;
        raw.hw_ver = self.hw_ver;
        raw.max_qp = int(self.max_qp);
        raw.max_qp_wr = int(self.max_qp_wr);
        raw.device_cap_flags = self.caps.0;
        if is_link {
            raw.kernel_cap_flags = bindings::ib_kernel_cap_flags_IBK_ALLOW_USER_UNREG.into();
        }
        raw.max_send_sge = int(self.max_send_sge);
        raw.max_recv_sge = int(self.max_recv_sge);
        raw.max_sge_rd = int(self.max_sge_rd);
        raw.max_cq = int(self.max_cq);
        raw.max_cqe = int(self.max_cqe);
        raw.max_mr = int(self.max_mr);
        raw.max_pd = int(self.max_pd);
        raw.max_qp_rd_atom = int(self.max_qp_rd_atom);
        raw.max_res_rd_atom = int(self.max_res_rd_atom);
        raw.max_qp_init_rd_atom = int(self.max_qp_init_rd_atom);
        raw.max_mcast_grp = int(self.max_mcast_grp);
        raw.max_mcast_qp_attach = int(self.max_mcast_qp_attach);
        raw.max_total_mcast_qp_attach = int(self.max_total_mcast_qp_attach);
        raw.max_ah = int(self.max_ah);
        raw.max_mw = int(self.max_mw);
        raw.max_srq = int(self.max_srq);
        raw.max_srq_wr = int(self.max_srq_wr);
        raw.max_srq_sge = int(self.max_srq_sge);
        raw.max_fast_reg_page_list_len = self.max_fast_reg_page_list_len;
        raw.max_pkeys = self.max_pkeys;
        raw.local_ca_ack_delay = self.local_ca_ack_delay;
        raw.atomic_cap = match self.atomic_cap {
            AtomicCap::None => bindings::ib_atomic_cap_IB_ATOMIC_NONE,
            AtomicCap::Hca => bindings::ib_atomic_cap_IB_ATOMIC_HCA,
            AtomicCap::Glob => bindings::ib_atomic_cap_IB_ATOMIC_GLOB,
        };
        raw.cq_caps.max_cq_moderation_count = self.max_cq_moderation_count;
        raw.cq_caps.max_cq_moderation_period = self.max_cq_moderation_period;
        raw.timestamp_mask = self.timestamp_mask;
        raw.hca_core_clock = self.hca_core_clock;
        raw.max_dm_size = self.max_dm_size;
        raw.max_raw_ethy_qp = int(self.max_raw_ethy_qp);
        if self.on_demand != OnDemand::NONE {
            raw.kernel_cap_flags |= u64::from(bindings::ib_kernel_cap_flags_IBK_ON_DEMAND_PAGING);
            let caps = &mut raw.odp_caps;
            caps.general_caps = bindings::ib_odp_general_cap_bits_IB_ODP_SUPPORT.into();
            if self.on_demand.implicit {
                caps.general_caps |=
                    u64::from(bindings::ib_odp_general_cap_bits_IB_ODP_SUPPORT_IMPLICIT);
            }
            caps.per_transport_caps.rc_odp_caps = self.on_demand.rc.0;
            caps.per_transport_caps.uc_odp_caps = self.on_demand.uc.0;
            caps.per_transport_caps.ud_odp_caps = self.on_demand.ud.0;
            caps.per_transport_caps.xrc_odp_caps = self.on_demand.xrc.0;
        }
    }
}

/// `query_device`.
///
/// # Safety
///
/// `dev` is a device of the driver `D`, `attr` is valid and zeroed, and `udata` is null or belongs
/// to the call.
pub(crate) unsafe extern "C" fn query_device<D: Driver>(
    dev: *mut bindings::ib_device,
    attr: *mut bindings::ib_device_attr,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function.
        unsafe { no_udata(udata) }?;
        // SAFETY: By the requirements of this function.
        let (dev, attr) = unsafe { (Device::<D>::from_raw(dev), &mut *attr) };
        // SAFETY: The device is valid, and these operations were set before it was known.
        let is_link = unsafe { !(*dev.as_raw()).link_ops.is_null() };
        D::query_device(dev)?.write_to(attr, is_link);
        Ok(0)
    })
}

/// The speed of a lane and the number of lanes, coded as `enum ib_port_speed` and `ib_port_width`.
///
/// The RTNL must not be held.
fn speed<D: Driver>(dev: &Device<D>, netdev: Option<&NetDevice>) -> Result<(u16, u8)> {
    // 100 Gb/s, as `ib_get_eth_speed` codes them: an adapter's speed, and about that at which a
    // processor copies. By the speed programs choose whether they copy themselves. For a network
    // device that does not know its own, the function takes the slowest there is, which such
    // programs avoid, and may say so in the log.
    let mut speed = bindings::ib_port_speed_IB_SPEED_EDR as u16;
    let mut width = bindings::ib_port_width_IB_WIDTH_4X as u8;
    // SAFETY: Both devices are valid.
    unsafe {
        if netdev.is_some_and(|netdev| bindings::netdev_knows_speed(netdev.as_raw())) {
            to_result(bindings::ib_get_eth_speed(
                dev.as_raw(),
                PORT,
                &mut speed,
                &mut width,
            ))?;
        }
    }
    Ok((speed, width))
}

/// The attributes of the port.
fn port_attr<D: Driver>(dev: &Device<D>, port: u32) -> Result<port::Attr> {
    if port != PORT {
        return Err(EINVAL);
    }
    let netdev = dev.netdev();
    let (active_speed, active_width) = speed(dev, netdev.as_deref())?;
    // SAFETY: The network device is valid.
    let active = netdev.as_ref().is_some_and(|netdev| unsafe {
        bindings::ib_get_curr_port_state(netdev.as_raw()) == bindings::ib_port_state_IB_PORT_ACTIVE
    });

    let mut attr = port::Attr {
        state: if active {
            port::State::Active
        } else {
            port::State::Down
        },
        phys_state: if active {
            port::PhysState::LinkUp
        } else if netdev.as_ref().is_some_and(|netdev| netdev.is_up()) {
            port::PhysState::Polling
        } else {
            port::PhysState::Disabled
        },
        max_mtu: port::Mtu::B4096,
        active_mtu: netdev.as_ref().map_or(port::Mtu::B1024, |netdev| {
            port::Mtu::for_ethernet(netdev.mtu())
        }),
        gid_tbl_len: 0,
        pkey_tbl_len: 1,
        // Ethernet has no virtual lanes; the code for the one that every port has is the lowest.
        max_vl_num: 1,
        max_msg_sz: 0,
        bad_pkey_cntr: 0,
        qkey_viol_cntr: 0,
        active_width,
        active_speed,
        port_cap_flags: bindings::ib_port_capability_mask_bits_IB_PORT_CM_SUP,
        ip_gids: true,
    };
    D::query_port(dev, &mut attr)?;
    Ok(attr)
}

/// `query_port`.
///
/// # Safety
///
/// `dev` is a device of the driver `D`, and `attr` is valid and zeroed.
pub(crate) unsafe extern "C" fn query_port<D: Driver>(
    dev: *mut bindings::ib_device,
    port: u32,
    attr: *mut bindings::ib_port_attr,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function.
        let (dev, attr) = unsafe { (Device::<D>::from_raw(dev), &mut *attr) };
        port_attr(dev, port)?.write_to(attr);
        Ok(0)
    })
}

/// `get_port_immutable`, which the core calls once, while it registers a device.
///
/// # Safety
///
/// `dev` is a device of the driver `D`, and `immutable` is valid.
pub(crate) unsafe extern "C" fn get_port_immutable<D: Driver>(
    dev: *mut bindings::ib_device,
    port: u32,
    immutable: *mut bindings::ib_port_immutable,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function.
        let (dev, immutable) = unsafe { (Device::<D>::from_raw(dev), &mut *immutable) };
        // The link layer is asked for when the speed is told, so this has to be there before.
        immutable.core_cap_flags = bindings::RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP;
        immutable.max_mad_size = bindings::IB_MGMT_MAD_SIZE;
        let attr = port_attr(dev, port)?;
        immutable.pkey_tbl_len = attr.pkey_tbl_len.into();
        immutable.gid_tbl_len = attr.gid_tbl_len;
        if D::HAS_INDEXED {
            D::indexed(dev);
        }
        Ok(0)
    })
}

/// `get_link_layer`.
///
/// # Safety
///
/// None.
pub(crate) unsafe extern "C" fn get_link_layer(
    _dev: *mut bindings::ib_device,
    _port: u32,
) -> bindings::rdma_link_layer {
    bindings::rdma_link_layer_IB_LINK_LAYER_ETHERNET
}

/// `query_pkey`.
///
/// # Safety
///
/// `dev` is a device of the driver `D`, and `pkey` is valid.
pub(crate) unsafe extern "C" fn query_pkey<D: Driver>(
    dev: *mut bindings::ib_device,
    _port: u32,
    index: u16,
    pkey: *mut u16,
) -> c_int {
    from_result(|| {
        let found = if D::HAS_QUERY_PKEY {
            // SAFETY: By the requirements of this function.
            D::query_pkey(unsafe { Device::from_raw(dev) }, index)?
        } else if index == 0 {
            DEFAULT_PKEY
        } else {
            return Err(EINVAL);
        };
        // SAFETY: By the requirements of this function.
        unsafe { *pkey = found };
        Ok(0)
    })
}

/// Writes text to memory, as much as fits.
struct Text<'a>(&'a mut [u8]);

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let len = text.len().min(self.0.len());
        let (to, rest) = core::mem::take(&mut self.0).split_at_mut(len);
        to.copy_from_slice(&text.as_bytes()[..len]);
        self.0 = rest;
        if len == text.len() {
            Ok(())
        } else {
            Err(fmt::Error)
        }
    }
}

/// `get_dev_fw_str`.
///
/// # Safety
///
/// `dev` is a device of the driver `D`, and `text` has space for [`FW_VERSION_LEN`] bytes.
pub(crate) unsafe extern "C" fn get_dev_fw_str<D: Driver>(
    dev: *mut bindings::ib_device,
    text: *mut c_char,
) {
    // SAFETY: By the requirements of this function; the memory is initialised here.
    let (dev, text) = unsafe {
        text.write_bytes(0, FW_VERSION_LEN);
        (
            Device::<D>::from_raw(dev),
            core::slice::from_raw_parts_mut(text, FW_VERSION_LEN - 1),
        )
    };
    // Text that does not fit is cut off.
    let _ = D::fw_version(dev, &mut Text(text));
}

/// `add_gid`.
///
/// # Safety
///
/// `attr` is valid and of a device of the driver `D`.
pub(crate) unsafe extern "C" fn add_gid<D: Driver>(
    attr: *const bindings::ib_gid_attr,
    _context: *mut *mut c_void,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function. The core keeps the entry during the call.
        let (dev, attr) = unsafe { (Device::from_raw((*attr).device), GidAttr::from_raw(attr)) };
        D::add_gid(dev, attr)?;
        Ok(0)
    })
}

/// `del_gid`.
///
/// # Safety
///
/// `attr` is valid and of a device of the driver `D`.
pub(crate) unsafe extern "C" fn del_gid<D: Driver>(
    attr: *const bindings::ib_gid_attr,
    _context: *mut *mut c_void,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function. The core keeps the entry during the call.
        let (dev, attr) = unsafe { (Device::from_raw((*attr).device), GidAttr::from_raw(attr)) };
        D::del_gid(dev, attr)?;
        Ok(0)
    })
}

/// `enable_driver`: the device is found from now on, after it is registered and after it has got
/// another namespace (`rdma dev set`). The notifiers did not find it before, and may have missed
/// the end of its network device, its move to another namespace or its new MTU, or that it came.
/// Notices come under the RTNL, so this catches up with all of them.
///
/// # Safety
///
/// `dev` is a device of the driver `D`, which is registered and stays so during the call.
pub(crate) unsafe extern "C" fn enable_driver<D: Driver>(dev: *mut bindings::ib_device) -> c_int {
    // SAFETY: By the requirements of this function.
    let device = unsafe { Device::<D>::from_raw(dev) };
    let rtnl = Rtnl::lock();
    if let Some(netdev) = device.netdev() {
        if !device.has_lost(&netdev, &rtnl) {
            if D::HAS_NETDEV_MTU_CHANGED {
                D::netdev_mtu_changed(device, &netdev);
            }
            return 0;
        }
        if device.parent().is_none() {
            unregister_lost(device);
            return 0;
        }
        Follow::lose(device, &netdev);
    }
    let gained = D::HAS_FIND_NETDEV
        && D::find_netdev(device).is_some_and(|netdev| Follow::gain(device, &netdev));
    drop(rtnl);
    if gained {
        // SAFETY: The device is valid and registered, and has such a port. The function takes the
        // RTNL itself.
        unsafe { bindings::rdma_roce_rescan_port(device.as_raw(), PORT) };
    }
    0
}

/// `dealloc_driver`: the last operation that the core does on a device.
///
/// # Safety
///
/// `dev` is a device of the driver `D`, whose data nobody uses any more.
pub(crate) unsafe extern "C" fn dealloc_driver<D: Driver>(dev: *mut bindings::ib_device) {
    let this = dev.cast::<Device<D>>();
    // SAFETY: By the requirements of this function; `Device` is transparent over `Object`.
    unsafe { Object::dismiss(&raw mut (*this).0, |_| ()) };
}
