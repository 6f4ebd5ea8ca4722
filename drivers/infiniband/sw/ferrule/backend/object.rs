// SPDX-License-Identifier: GPL-2.0

//! What objects are made of, and what there is to tell of them, as far as no crate below has a type for it.

use ferrule_engine::{
    Access,
    ContextId,
    QpId,
    QpType,
    RingLayout, //
};
use kernel::sync::Arc;
use kernel_ext::mm::SharedArea;
use rdma::{
    mr::UserRegion,
    qp,
    srq,
    umem::Umem,
    AhAttr,
    GidAttr, //
};

use super::{
    destination::Destination,
    posting::Posting,
    ring::QpRings, //
};

/// How much of everything a device has.
pub(crate) struct Limits {
    pub(crate) max_qp: u32,
    pub(crate) max_cq: u32,
    pub(crate) max_srq: u32,
    pub(crate) max_pd: u32,
    pub(crate) max_mr: u32,
    pub(crate) max_mw: u32,
    pub(crate) max_ah: u32,
    /// Multicast groups, and queue pairs in each.
    pub(crate) max_mcast_grp: u32,
    pub(crate) max_mcast_qp_attach: u32,
    /// Reads and atomics that a queue pair may have outstanding, in either direction.
    pub(crate) max_rd_atomic: u8,
    /// Bytes of a memory region.
    pub(crate) max_mr_size: u64,
}

/// An address vector whose GIDs are found.
pub(crate) struct AddressVector<'a> {
    pub(crate) attr: &'a AhAttr,
    /// The GID that packets come from.
    pub(crate) sgid: &'a GidAttr,
    /// The GID that they go to is in the device's own table.
    pub(crate) is_own: bool,
}

/// A queue pair to be made.
pub(crate) struct QpInit<D: Destination> {
    /// The context whose doorbells ring it; none for a kernel user's, which [`Commands::ring`](super::Commands::ring) rings.
    pub(crate) context: Option<ContextId>,
    pub(crate) pd: u32,
    pub(crate) qp_type: QpType,
    /// It is the port's queue pair for general services; then the service is UD.
    pub(crate) gsi: bool,
    pub(crate) send_cq: u32,
    pub(crate) recv_cq: u32,
    pub(crate) srq: Option<u32>,
    /// Every send request completes with a completion.
    pub(crate) sq_sig_all: bool,
    pub(crate) rings: QpRings,
    /// The memory of the rings, zeroed.
    pub(crate) area: Arc<SharedArea>,
    /// A kernel user's side of the rings; `None` for a program's.
    pub(crate) posting: Option<Arc<Posting<D>>>,
    /// Its events go by this.
    pub(crate) notifier: Arc<qp::Notifier>,
}

/// A queue pair that was made.
pub(crate) struct NewQp {
    pub(crate) id: QpId,
    /// The doorbell that rings it.
    pub(crate) doorbell: u32,
}

/// A shared receive queue to be made.
pub(crate) struct SrqInit {
    pub(crate) pd: u32,
    /// Scatter entries of a request.
    pub(crate) max_sge: u32,
    pub(crate) ring: RingLayout,
    /// The offset of the control words, in bytes.
    pub(crate) ctrl: u32,
    /// The memory of the ring, zeroed.
    pub(crate) area: Arc<SharedArea>,
    /// Its events go by this.
    pub(crate) notifier: Arc<srq::Notifier>,
}

/// What of a memory region is to be changed.
pub(crate) struct MrChange {
    pub(crate) pd: Option<u32>,
    pub(crate) access: Option<Access>,
    /// Where it begins for its user, and other pages.
    pub(crate) memory: Option<(u64, Umem)>,
}

/// The attributes of a memory region.
pub(crate) struct MrInfo {
    pub(crate) region: UserRegion,
    /// The pages were pinned to be written to.
    pub(crate) writable: bool,
    /// Memory windows are bound to it.
    pub(crate) has_windows: bool,
}
