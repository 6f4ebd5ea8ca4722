// SPDX-License-Identifier: GPL-2.0

//! The receive queue: its ring, the receive request at hand, and the responder's state of it.

use core::mem::offset_of;

use crate::{
    base::{
        abi,
        attr::{
            Access,
            State, //
        },
        counters::Count,
        event::QpEvent,
        host::Host,
        psn,
        ring::{
            Consumer,
            Jump, //
        },
    },
    memory::sgl::Sgl,
    object::request::{
        total_length,
        NoReceive,
        ReceiveRequest, //
    },
    queue_pair::{
        cx::Cx,
        qp_core::QpCore, //
    },
};

/// The control word in which the program stores the producer index.
const PRODUCER: u32 = offset_of!(abi::QpCtrl, rq_producer) as u32;

/// The message that the responder is in the middle of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inbound {
    Nothing,
    Send,
    Write,
}

/// The receive queue's side of a queue pair.
pub(crate) struct ReceiveQueue {
    ring: Consumer,
    /// A receive request is at hand.
    pub(crate) busy: bool,
    /// The receive request at hand, or the last one.
    pub(crate) request: ReceiveRequest,
    /// The protection domain of that request's memory: with a shared receive queue, the queue's.
    pd: u32,
    /// Over XRC, the shared receive queue that the message at hand is for, and the request from.
    pub(crate) srq: u32,
    pub(crate) inbound: Inbound,
    /// A message arrived in state RTR, and an event has reported that.
    established: bool,
    /// In error, an event has reported that no more is taken from the shared receive queue.
    last_wqe_reported: bool,
    /// The next sequence number that is expected.
    pub(crate) psn: u32,
    /// The value that the last atomic operation by packet found.
    pub(crate) found: u64,
}

impl ReceiveQueue {
    pub(crate) fn new() -> Self {
        Self {
            ring: Consumer::NEW,
            busy: false,
            request: ReceiveRequest::new(),
            pd: 0,
            srq: 0,
            inbound: Inbound::Nothing,
            established: false,
            last_wqe_reported: false,
            psn: 0,
            found: 0,
        }
    }

    /// Forgets all, as in RESET.
    pub(crate) fn reset(&mut self) {
        self.ring = Consumer::NEW;
        self.inbound = Inbound::Nothing;
        self.established = false;
        self.last_wqe_reported = false;
        self.psn = 0;
        self.finish();
    }

    /// Goes on as if so many requests had been taken.
    #[cfg(test)]
    pub(crate) fn set_indices(&mut self, index: u32) {
        self.ring.set_indices(index);
    }

    pub(crate) fn consumer(&self) -> u32 {
        self.ring.index
    }

    /// The receive request at hand has ended.
    #[inline]
    pub(crate) fn finish(&mut self) {
        self.busy = false;
    }

    /// How many receive requests the peer may count on. None of them completes in the turn that
    /// tells the peer.
    pub(crate) fn available<H: Host>(&mut self, core: &QpCore<H>) -> u32 {
        let load = || core.load(PRODUCER);
        self.ring.available(&core.init.rq_ring, load).unwrap_or(0)
    }

    /// Takes the next receive request, out of the own ring or the shared receive queue, unless one
    /// stayed at hand when a message was dropped, or when its sender could not read it any more.
    pub(crate) fn take<H: Host>(
        &mut self,
        cx: &mut Cx<'_, H>,
        core: &QpCore<H>,
    ) -> Result<(), NoReceive> {
        if self.busy {
            return Ok(());
        }
        let srq = if core.init.qp_type.is_target() {
            Some(self.srq)
        } else {
            core.init.srq
        };
        if let Some(srq) = srq {
            let taken = cx
                .srqs
                .take(cx.host, cx.counters, srq, &cx.time, &mut self.request);
            // A malformed request has been taken, too, and ends here.
            self.busy = !matches!(taken, Err(NoReceive::Empty | NoReceive::Jump));
            if core.init.qp_type.is_target() {
                self.request.queue_index = srq;
            }
            self.pd = taken?;
            return Ok(());
        }
        let init = &core.init;
        let index = match self
            .ring
            .take(&init.rq_ring, || cx.load_producer(core, PRODUCER))
        {
            Ok(Some(index)) => index,
            Ok(None) => return Err(NoReceive::Empty),
            Err(Jump) => {
                cx.counters.producer_jumps.count(1);
                return Err(NoReceive::Jump);
            }
        };
        self.busy = true;
        self.pd = init.pd;
        self.request
            .read(&init.queue, &init.rq_ring, index, init.cap.max_recv_sge)
            .map_err(NoReceive::Malformed)
    }

    /// Whether a message fits into the buffer of the receive request at hand.
    pub(crate) fn fits(&self, length: u32) -> bool {
        // A list that has no total has space for any message.
        total_length(self.request.entries()).is_none_or(|total| length <= total)
    }

    /// Where the bytes for the receive request at hand belong, from `offset` on.
    #[inline(always)]
    pub(crate) fn target(&self, offset: u32) -> Sgl<'_> {
        Sgl::at(self.pd, Access::LOCAL_WRITE, self.request.entries(), offset)
    }

    /// A message has begun and not ended.
    pub(crate) fn is_within_message(&self) -> bool {
        self.inbound != Inbound::Nothing
    }

    /// Drops the part of a message that has come. A receive request stays at hand for the next one.
    pub(crate) fn abandon(&mut self) {
        self.inbound = Inbound::Nothing;
    }

    /// Goes on behind a segment that was dropped.
    pub(crate) fn skip(&mut self, psn: u32, packets: u32) {
        self.psn = psn::advance(psn, packets);
    }

    /// A message has come. Tells of the first one in state RTR, before this side was ready to send
    /// (IBA volume 1, 11.6.3.3).
    #[inline(always)]
    pub(crate) fn establish<H: Host>(&mut self, cx: &mut Cx<'_, H>, core: &QpCore<H>) {
        if !self.established && core.state == State::Rtr {
            self.established = true;
            report_established(cx, core);
        }
    }

    /// Whether to report now that no more is taken from the shared receive queue: once.
    pub(crate) fn should_report_last_wqe(&mut self) -> bool {
        !core::mem::replace(&mut self.last_wqe_reported, true)
    }

    /// Takes the next receive request to be flushed: first the one at hand, then those in the ring.
    pub(crate) fn take_for_flush<H: Host>(&mut self, cx: &Cx<'_, H>, core: &QpCore<H>) -> bool {
        if self.busy {
            return true;
        }
        let init = &core.init;
        let load = || cx.load_producer(core, PRODUCER);
        let Ok(Some(index)) = self.ring.take(&init.rq_ring, load) else {
            return false;
        };
        self.request.read_head(&init.queue, &init.rq_ring, index);
        self.busy = true;
        true
    }
}

/// Not inlined, since it happens once.
#[cold]
fn report_established<H: Host>(cx: &mut Cx<'_, H>, core: &QpCore<H>) {
    cx.host
        .qp_event(&core.init.handle, QpEvent::CommunicationEstablished);
}
