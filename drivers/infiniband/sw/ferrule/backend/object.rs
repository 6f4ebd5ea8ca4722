// SPDX-License-Identifier: GPL-2.0

//! The parameters of objects, and their events, as far as no crate below has a type for them.

use ferrule_engine::{
    Access,
    ContextId,
    QpId,
    QpType,
    RingLayout,
    XrcSrq, //
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
    /// The GID that they go to is in the device's own table, so that nothing need be a packet.
    pub(crate) is_own: bool,
}

/// A queue pair to be made.
pub(crate) struct QpInit<D: Destination> {
    /// The context whose doorbells ring it; none for a kernel user's, which
    /// [`Commands::ring`](super::Commands::ring) rings.
    pub(crate) context: Option<ContextId>,
    /// The protection domain; of a target of XRC, the XRC domain.
    pub(crate) pd: u32,
    pub(crate) qp_type: QpType,
    /// It is the port's queue pair for general services; then the service is UD.
    pub(crate) gsi: bool,
    /// Or [`NO_CQ`](ferrule_engine::NO_CQ), of a target of XRC.
    pub(crate) send_cq: u32,
    /// Likewise, of either side of XRC.
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

/// The ring that a shared receive queue is to go on with.
pub(crate) struct SrqResize {
    pub(crate) ring: RingLayout,
    /// The offset of the control words, in bytes.
    pub(crate) ctrl: u32,
    /// The memory of the ring, with the producer index and the requests that wait, at the places of
    /// their indices.
    pub(crate) area: Arc<SharedArea>,
    /// The limit that it is to have; none: the one that it has.
    pub(crate) limit: Option<u32>,
}

/// A shared receive queue to be made.
pub(crate) struct SrqInit {
    pub(crate) pd: u32,
    /// The user context that it is made with; none of a kernel user.
    pub(crate) context: Option<ContextId>,
    /// The XRC domain and the completion queue of an XRC queue.
    pub(crate) xrc: Option<XrcSrq>,
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

/// The changes of a memory region. `None` leaves a part as it is.
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
    /// They are part of a process, at the address of the region; else the address says nothing.
    pub(crate) is_of_process: bool,
    /// Memory windows are bound to it.
    pub(crate) has_windows: bool,
    /// The number of contiguous pieces in which its bytes lie; 0 if the backend does not count
    /// them.
    pub(crate) extents: u32,
}
