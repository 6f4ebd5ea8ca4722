// SPDX-License-Identifier: GPL-2.0

//! Queue pairs: their parts.

use crate::{
    base::{
        abi,
        attr::{
            Attributes,
            QpInfo,
            QpType,
            State, //
        },
        copy_job::CopyJob,
        error::Error,
        host::{
            Host,
            JobPlace,
            Queue, //
        },
        id::QpId,
        list::Link,
        table::SlotLink,
        timer::TimerSlot,
        uses::Uses, //
    },
    object::{
        opcodes::Opcodes,
        qp_init::{
            QpInit,
            NO_CQ, //
        },
    },
    queue_pair::{
        qp_core::QpCore,
        receive_queue::ReceiveQueue,
        remote::state::Wire,
        send_queue::{
            SendQueue,
            Wait, //
        },
    },
};

/// A queue pair.
pub struct Qp<H: Host> {
    pub(crate) core: QpCore<H>,
    pub(crate) sq: SendQueue,
    pub(crate) rq: ReceiveQueue,
    pub(crate) wire: H::Box<Wire<H>>,
    /// The queue pair's copy job, unless somebody carries it out. None where a peer on this engine
    /// acknowledges nothing.
    pub(crate) job: JobPlace<H>,
}

/// The table's data for a queue pair's number.
#[derive(Clone, Copy, Default)]
pub(crate) struct QpLink {
    /// In the list of queue pairs of its run queue that wait for a turn.
    pub(crate) active: Link,
    /// The run queue that the turns belong to.
    pub(crate) run_queue: u32,
    pub(crate) timer: TimerSlot,
}

impl SlotLink for QpLink {
    fn is_listed(&self) -> bool {
        self.active.is_listed()
    }
}

impl<H: Host> Qp<H> {
    /// Makes a queue pair in memory of its own, to be handed to
    /// [`Engine::add_qp`](crate::Engine::add_qp). Calls [`Host::boxed`].
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the rings are not well formed, do not lie in the buffer, or cannot
    /// hold what `cap` promises; [`Error::NoMemory`].
    pub fn new(init: QpInit<H>) -> Result<H::Box<Self>, Error> {
        let size = init.queue.size();
        let cap = &init.cap;
        if cap.max_send_sge as usize > abi::MAX_SGE
            || cap.max_recv_sge as usize > abi::MAX_SGE
            || cap.max_inline as usize > abi::MAX_INLINE
            || cap.max_send_wr > init.sq_ring.depth
            || (init.srq.is_none() && cap.max_recv_wr > init.rq_ring.depth)
            || (init.srq.is_some() && init.rq_ring.depth != 0)
            || (init.gsi && init.qp_type != QpType::Ud)
            || !has_objects(&init)
        {
            return Err(Error::Invalid);
        }
        let entries = |count: u32| (count as usize).wrapping_mul(size_of::<abi::Sge>());
        let body = entries(cap.max_send_sge).max(cap.max_inline as usize);
        let entry = size_of::<abi::SendWqe>().wrapping_add(body);
        init.sq_ring.check(size, entry)?;
        let entry = size_of::<abi::RecvWqe>().wrapping_add(entries(cap.max_recv_sge));
        init.rq_ring.check(size, entry)?;
        let end = (init.ctrl as usize).checked_add(size_of::<abi::QpCtrl>());
        if init.ctrl % 64 != 0 || end.is_none_or(|end| end > size) {
            return Err(Error::Invalid);
        }
        let wire = Wire::<H>::new().ok_or(Error::NoMemory)?;
        let job = match init.qp_type {
            QpType::Rc | QpType::Uc | QpType::XrcIni => {
                Some(H::boxed(CopyJob::new).ok_or(Error::NoMemory)?)
            }
            QpType::Ud | QpType::XrcTgt | QpType::RawPacket => None,
        };
        H::boxed(|| Self::in_reset(init, wire, job)).ok_or(Error::NoMemory)
    }

    /// A queue pair that has not been used. Not inlined, so that it is made where its caller wants
    /// it.
    #[inline(never)]
    fn in_reset(init: QpInit<H>, wire: H::Box<Wire<H>>, job: JobPlace<H>) -> Self {
        Self {
            core: QpCore {
                id: QpId::default(),
                state: State::Reset,
                attr: Attributes::RESET,
                counted_at: init.vport.into(),
                opcodes: Opcodes::new(init.qp_type, init.user.is_privileged()),
                init,
                groups: 0,
                uses: Uses::default(),
                resets: 0,
            },
            sq: SendQueue::new(),
            rq: ReceiveQueue::new(),
            wire,
            job,
        }
    }

    /// The name of this queue pair, once it has been added.
    pub fn id(&self) -> QpId {
        self.core.id
    }

    /// The host's handle, by which it tells of events.
    pub fn handle(&self) -> &H::QpHandle {
        &self.core.init.handle
    }

    pub(crate) fn query(&self) -> QpInfo {
        let core = &self.core;
        QpInfo {
            state: core.state,
            sq_draining: core.state == State::Sqd && !is_drained(core, &self.sq, &self.wire),
            qp_type: core.init.qp_type,
            cap: core.init.cap,
            sq_sig_all: core.init.sq_sig_all,
            attr: Attributes {
                sq_psn: self.sq.psn,
                rq_psn: self.rq.psn,
                ..core.attr
            },
            sq_consumer: self.sq.consumer(),
            rq_consumer: self.rq.consumer(),
        }
    }
}

/// Whether it has the queues and domains that its type has, and no others.
fn has_objects<H: Host>(init: &QpInit<H>) -> bool {
    let (sends, receives) = match init.qp_type {
        QpType::Rc | QpType::Uc | QpType::Ud | QpType::RawPacket => (true, true),
        QpType::XrcIni => (true, false),
        QpType::XrcTgt => (false, false),
    };
    (init.send_cq != NO_CQ) == sends
        && (init.recv_cq != NO_CQ) == receives
        && (sends || init.sq_ring.depth == 0)
        && (receives || (init.rq_ring.depth == 0 && init.srq.is_none()))
}

/// Whether all send requests that were begun have ended.
pub(crate) fn is_drained<H: Host>(core: &QpCore<H>, sq: &SendQueue, wire: &Wire<H>) -> bool {
    if core.is_acknowledged() {
        wire.requester.outstanding(sq.consumer()) == 0
    } else {
        !sq.busy && !matches!(sq.wait, Wait::Copy | Wait::Flush)
    }
}
