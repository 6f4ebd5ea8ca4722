// SPDX-License-Identifier: GPL-2.0

//! The attributes of the device and of its port.

use ferrule_engine::abi;
use kernel::prelude::*;
use rdma::{
    device::{
        AtomicCap,
        Attr,
        Caps, //
    },
    port,
    Device, //
};

use super::{
    dm,
    Ferrule, //
};
use crate::backend::Backend;

/// The longest message that the port promises. The engine takes 2 GiB, the most that IBA volume 1,
/// 9.7.2, has; but programs allocate by what the port says, and half of that is what common
/// adapters have them used to.
const MAX_MESSAGE_SIZE: u32 = 1 << 30;

/// Entries of the GID table, which the core fills from the network device's addresses.
const GID_TABLE_LEN: i32 = 256;

/// A locally administered OUI: the device is nobody's product.
const VENDOR_ID: u32 = 0x02_4645;

/// The limits and abilities of the device.
pub(super) fn query<B: Backend>(dev: &Device<Ferrule<B>>) -> Result<Attr> {
    let limits = dev.limits();
    // The core tells of ports that become active, and refuses address handles of ports that are not
    // there.
    let mut caps = Caps::RNR_NAK
        | Caps::CURR_QP_STATE_MOD
        | Caps::PORT_ACTIVE_EVENT
        | Caps::SYS_IMAGE_GUID
        | Caps::SRQ_RESIZE
        | Caps::UD_AV_PORT_ENFORCE
        | Caps::MEM_WINDOW
        | Caps::MEM_WINDOW_TYPE_2B
        | Caps::XRC
        | Caps::ATOMIC_WRITE
        | Caps::FLUSH_GLOBAL;
    if B::MAX_FAST_REG_PAGES > 0 {
        caps = caps | Caps::MEM_MGT_EXTENSIONS;
    }
    if B::HAS_FRAMES {
        caps = caps | Caps::MANAGED_FLOW_STEERING;
    }
    Ok(Attr {
        fw_ver: crate::VERSION,
        sys_image_guid: dev.node_guid(),
        max_mr_size: limits.max_mr_size,
        page_size_cap: !(kernel::page::PAGE_SIZE as u64 - 1),
        vendor_id: VENDOR_ID,
        max_qp: limits.max_qp,
        max_qp_wr: abi::MAX_QP_DEPTH,
        max_send_sge: abi::MAX_SGE as u32,
        max_recv_sge: abi::MAX_SGE as u32,
        max_sge_rd: abi::MAX_SGE as u32,
        max_cq: limits.max_cq,
        max_cqe: abi::MAX_CQ_DEPTH,
        max_mr: limits.max_mr,
        max_pd: limits.max_pd,
        max_qp_rd_atom: limits.max_rd_atomic.into(),
        max_res_rd_atom: u32::from(limits.max_rd_atomic) * limits.max_qp,
        max_qp_init_rd_atom: limits.max_rd_atomic.into(),
        max_ah: limits.max_ah,
        max_mw: limits.max_mw,
        max_mcast_grp: limits.max_mcast_grp,
        max_mcast_qp_attach: limits.max_mcast_qp_attach,
        max_total_mcast_qp_attach: limits.max_mcast_grp * limits.max_mcast_qp_attach,
        max_srq: limits.max_srq,
        max_srq_wr: abi::MAX_QP_DEPTH,
        max_srq_sge: abi::MAX_SGE as u32,
        max_fast_reg_page_list_len: B::MAX_FAST_REG_PAGES,
        max_pkeys: 1,
        // Atomic operations are the processor's own.
        atomic_cap: AtomicCap::Glob,
        caps,
        max_cq_moderation_count: u16::MAX,
        max_cq_moderation_period: u16::MAX,
        timestamp_mask: u64::MAX,
        hca_core_clock: 1_000_000,
        max_dm_size: dm::MAX_SIZE,
        max_raw_ethy_qp: if B::HAS_FRAMES { limits.max_qp } else { 0 },
        on_demand: B::ON_DEMAND,
        ..Default::default()
    })
}

/// The port; `attr` comes with what the network device tells.
pub(super) fn query_port(attr: &mut port::Attr) {
    attr.gid_tbl_len = GID_TABLE_LEN;
    attr.max_msg_sz = MAX_MESSAGE_SIZE;
}
