// SPDX-License-Identifier: GPL-2.0

//! The attributes of the device and of its port.

use ferrule_engine::{
    abi,
    MAX_AH,
    MAX_CQ,
    MAX_MCAST_GRP,
    MAX_MCAST_QP_ATTACH,
    MAX_MR,
    MAX_MW,
    MAX_RD_ATOMIC,
    MAX_SRQ, //
};
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

use crate::verbs::{
    mr::MAX_PAGES,
    Ferrule, //
};

/// The longest message: IBA volume 1, 9.7.2, fixes it for every transport service but datagrams.
const MAX_MESSAGE_SIZE: u32 = 1 << 31;

/// Entries of the GID table, which the core fills from the network device's addresses.
const GID_TABLE_LEN: i32 = 256;

/// A locally administered OUI: the device is nobody's product.
const VENDOR_ID: u32 = 0x02_4645;

/// The limits and abilities of the device.
pub(super) fn query(dev: &Device<Ferrule>) -> Result<Attr> {
    Ok(Attr {
        fw_ver: crate::VERSION,
        sys_image_guid: dev.node_guid(),
        max_mr_size: u64::MAX,
        page_size_cap: !(kernel::page::PAGE_SIZE as u64 - 1),
        vendor_id: VENDOR_ID,
        max_qp: abi::MAX_QP - 2,
        max_qp_wr: abi::MAX_QP_DEPTH,
        max_send_sge: abi::MAX_SGE as u32,
        max_recv_sge: abi::MAX_SGE as u32,
        max_sge_rd: abi::MAX_SGE as u32,
        max_cq: MAX_CQ,
        max_cqe: abi::MAX_CQ_DEPTH,
        max_mr: MAX_MR - 1,
        max_pd: crate::soft::MAX_PD,
        max_qp_rd_atom: MAX_RD_ATOMIC.into(),
        max_res_rd_atom: u32::from(MAX_RD_ATOMIC) * (abi::MAX_QP - 2),
        max_qp_init_rd_atom: MAX_RD_ATOMIC.into(),
        max_ah: MAX_AH - 1,
        max_mw: MAX_MW,
        max_mcast_grp: MAX_MCAST_GRP,
        max_mcast_qp_attach: MAX_MCAST_QP_ATTACH as u32,
        max_total_mcast_qp_attach: MAX_MCAST_GRP * MAX_MCAST_QP_ATTACH as u32,
        max_srq: MAX_SRQ,
        max_srq_wr: abi::MAX_QP_DEPTH,
        max_srq_sge: abi::MAX_SGE as u32,
        max_fast_reg_page_list_len: MAX_PAGES,
        max_pkeys: 1,
        // Atomic operations are the processor's own.
        atomic_cap: AtomicCap::Glob,
        caps: Caps::RNR_NAK
            | Caps::CURR_QP_STATE_MOD
            | Caps::MEM_WINDOW
            | Caps::MEM_WINDOW_TYPE_2B
            | Caps::MEM_MGT_EXTENSIONS,
        timestamp_mask: u64::MAX,
        hca_core_clock: 1_000_000,
        ..Default::default()
    })
}

/// The port; `attr` comes with what the network device tells.
pub(super) fn query_port(attr: &mut port::Attr) {
    attr.gid_tbl_len = GID_TABLE_LEN;
    attr.max_msg_sz = MAX_MESSAGE_SIZE;
}
