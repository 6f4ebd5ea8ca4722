// SPDX-License-Identifier: GPL-2.0

//! The parameters of a new queue pair.

use crate::base::{
    attr::{
        Capabilities,
        QpType, //
    },
    host::Host,
    id::{
        ContextId,
        Vport, //
    },
    ring::RingLayout, //
};

/// No completion queue, where a queue pair has none.
pub const NO_CQ: u32 = u32::MAX;

/// The user of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpUser {
    /// The host's own, whose queue pair [`Engine::ring_qp`](crate::Engine::ring_qp) rings.
    Host,
    /// One whose queue pair a context's doorbells ring.
    Context {
        /// The context.
        id: ContextId,
        /// It is a kernel's.
        privileged: bool,
    },
}

impl QpUser {
    /// The context whose doorbells ring the queue pair, if there is one.
    #[inline(always)]
    pub(crate) fn context(self) -> Option<ContextId> {
        match self {
            QpUser::Host => None,
            QpUser::Context { id, .. } => Some(id),
        }
    }

    /// Whether requests may register memory ([`fast`](crate::fast)): a privileged user's alone (IBA
    /// volume 1, 10.6.3.2).
    #[inline(always)]
    pub(crate) fn is_privileged(self) -> bool {
        match self {
            QpUser::Host => true,
            QpUser::Context { privileged, .. } => privileged,
        }
    }
}

/// The parameters of a new queue pair.
pub struct QpInit<H: Host> {
    /// Its user.
    pub user: QpUser,
    /// The virtual port that it belongs to.
    pub vport: Vport,
    /// The protection domain; of a target of XRC, the XRC domain. Keys are judged there by the
    /// protection domain of the shared receive queue that a request names.
    pub pd: u32,
    /// The transport service.
    pub qp_type: QpType,
    /// It is the port's queue pair for general services, whose number is [`GSI`](crate::GSI), and
    /// of which each virtual port has one at most (IBA volume 1, 3.9.5). Then the service has to be
    /// UD.
    pub gsi: bool,
    /// The completion queue of the send queue; [`NO_CQ`] of a target of XRC.
    pub send_cq: u32,
    /// The completion queue of the receive queue; [`NO_CQ`] of either side of XRC.
    pub recv_cq: u32,
    /// The shared receive queue, if there is one: then the queue pair has no receive ring.
    pub srq: Option<u32>,
    /// The capacities of the queue pair.
    pub cap: Capabilities,
    /// Every send request completes with a completion.
    pub sq_sig_all: bool,
    /// The slots of the send queue.
    pub sq_ring: RingLayout,
    /// The slots of the receive queue; none with a shared receive queue.
    pub rq_ring: RingLayout,
    /// Where [`abi::QpCtrl`](crate::abi::QpCtrl) stands, in bytes from the start of the buffer.
    pub ctrl: u32,
    /// The buffer, zeroed.
    pub queue: H::Queue,
    /// The host's handle, by which it tells of events.
    pub handle: H::QpHandle,
}
