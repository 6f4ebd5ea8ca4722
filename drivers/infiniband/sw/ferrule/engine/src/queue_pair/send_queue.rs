// SPDX-License-Identifier: GPL-2.0

//! The send queue: its ring, the request at hand, and the requester's state of it.

use core::mem::offset_of;

use crate::{
    base::{
        abi,
        attr::{
            Attributes,
            State, //
        },
        counters::Count,
        event::Trace,
        host::{
            Host,
            Queue, //
        },
        ring::{
            Consumer,
            Jump, //
        },
        status::Status, //
    },
    memory::key_use::CheckedUse,
    object::{
        qp_init::QpInit,
        request::SendRequest,
        wr_opcode::WrOpcode, //
    },
    queue_pair::{
        cx::Cx,
        qp_core::QpCore, //
    },
};

/// The control word in which the program stores the producer index.
const PRODUCER: u32 = offset_of!(abi::QpCtrl, sq_producer) as u32;

/// The local ACK timeout is doubled no more often than so.
const MAX_BACKOFF: u32 = 2;

/// The event that the requester waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Nothing,
    /// An acknowledgement that may not come.
    Acknowledgement,
    /// The time that a receiver which was not ready asked for.
    Receiver,
    /// The host: space for a packet, or memory that it is bringing in.
    Host,
    /// The end of a copy job.
    Copy,
    /// Its turn: that job has been carried out, and the peer judges the segment at hand again,
    /// which has so many bytes.
    Copied(u32),
    /// The end of the requests that were posted before the return from SQE, which are flushed
    /// first.
    Flush,
}

/// The request at hand after a copy job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterCopy {
    /// It goes on as if there had been none; or there is no request at hand.
    GoOn,
    /// The peer judges the segment again, whose bytes have been copied. It has so many.
    JudgeAgain(u32),
    /// It ends in error.
    Fail(Status),
}

/// The send queue's side of a queue pair.
pub(crate) struct SendQueue {
    ring: Consumer,
    /// A request is at hand.
    pub(crate) busy: bool,
    /// The request at hand, or the last one.
    pub(crate) request: SendRequest,
    /// Bytes of the request that have been acknowledged.
    pub(crate) done: u32,
    /// The sequence number of the next packet.
    pub(crate) psn: u32,
    pub(crate) wait: Wait,
    after_copy: AfterCopy,
    pub(crate) retries: u8,
    rnr_retries: u8,
}

/// The result of a look at the ring.
pub(crate) enum Taken {
    /// A request. The use of its memory was checked.
    Request(CheckedUse),
    Nothing,
    Malformed(Status),
    Jump,
}

impl SendQueue {
    pub(crate) fn new() -> Self {
        Self {
            ring: Consumer::NEW,
            busy: false,
            request: SendRequest::new(),
            done: 0,
            psn: 0,
            wait: Wait::Nothing,
            after_copy: AfterCopy::GoOn,
            retries: 0,
            rnr_retries: 0,
        }
    }

    /// Forgets all, as in RESET.
    pub(crate) fn reset(&mut self) {
        self.ring = Consumer::NEW;
        self.psn = 0;
        self.wait = Wait::Nothing;
        self.busy = false;
        self.done = 0;
    }

    /// Goes on as if so many requests had been taken.
    #[cfg(test)]
    pub(crate) fn set_indices(&mut self, index: u32) {
        self.ring.set_indices(index);
    }

    pub(crate) fn consumer(&self) -> u32 {
        self.ring.index
    }

    /// The request at hand has ended, or the wire has it in a record.
    #[inline]
    pub(crate) fn finish(&mut self) {
        self.busy = false;
    }

    /// Has all its retries again, as the attributes have them.
    pub(crate) fn refill_retries(&mut self, attr: &Attributes) {
        (self.retries, self.rnr_retries) = (attr.retry_cnt, attr.rnr_retry);
    }

    /// The local ACK timeout in nanoseconds; `None` waits for ever (C9-141).
    ///
    /// The first and the second retry in a row double it (RFC 6298, 5.5), so that a peer whose
    /// processors are taken away for a second is not lost. Four times the timeout is as long as a
    /// requester may take to see that it is over (9.7.6.1.3).
    pub(crate) fn ack_timeout(&self, attr: &Attributes) -> Option<u64> {
        let retries = u32::from(attr.retry_cnt.saturating_sub(self.retries));
        let timeout = 4096u64.wrapping_shl(u32::from(attr.timeout));
        (attr.timeout != 0).then(|| timeout.wrapping_shl(retries.min(MAX_BACKOFF)))
    }

    /// Gives back all retries that are for losses.
    pub(crate) fn refill_transport_retries(&mut self, attr: &Attributes) {
        self.retries = attr.retry_cnt;
    }

    /// Prefetches the producer index and the next request.
    #[inline]
    pub(crate) fn prefetch<H: Host>(&self, core: &QpCore<H>) {
        let QpInit { queue, ctrl, .. } = &core.init;
        queue.prefetch(ctrl.wrapping_add(PRODUCER));
        queue.prefetch(core.init.sq_ring.slot(self.ring.index));
    }

    /// Takes the next request out of the ring.
    #[inline(always)]
    pub(crate) fn take<H: Host>(&mut self, cx: &mut Cx<'_, H>, core: &QpCore<H>) -> Taken {
        let init = &core.init;
        let looks = self.ring.has_taken_all();
        let index = match self
            .ring
            .take(&init.sq_ring, || cx.load_producer(core, PRODUCER))
        {
            Ok(Some(index)) => index,
            Ok(None) => return Taken::Nothing,
            Err(Jump) => return Taken::Jump,
        };
        if looks {
            cx.host.trace(&Trace::Doorbell {
                qpn: core.id.number,
                producer: self.ring.producer,
            });
        }
        self.busy = true;
        self.done = 0;
        let judged = self.request.read(init, core.opcodes, index);
        cx.counters.requests.count(1);
        cx.host.trace(&Trace::Request {
            vport: core.init.vport,
            qpn: core.id.number,
            wr_id: self.request.slot.head.wr_id.get(),
            opcode: self.request.slot.head.opcode,
            length: self.request.length,
        });
        if let Err(status) = judged {
            return Taken::Malformed(status);
        }
        // Without a resource for reads and atomics, none could ever be sent (IBA volume 1, 9.4.4).
        if core.attr.max_rd_atomic == 0 && self.request.opcode.has_response() {
            return Taken::Malformed(Status::LocalOperation);
        }
        match self.check_keys(cx, core) {
            Some(checked) => Taken::Request(checked),
            None => Taken::Malformed(Status::LocalProtection),
        }
    }

    /// Local keys are checked before anything is sent, so that a request which names memory that it
    /// must not is never begun (C10-57).
    #[inline(always)]
    fn check_keys<H: Host>(&self, cx: &mut Cx<'_, H>, core: &QpCore<H>) -> Option<CheckedUse> {
        let request = &self.request;
        if request.is_inline() {
            return Some(CheckedUse::NONE);
        }
        let need = request.opcode.local_need();
        cx.keys.check_list(core.init.pd, need, request.entries())
    }

    /// Copies a request that was taken before once more, and judges it as then.
    pub(crate) fn reload<H: Host>(
        &mut self,
        cx: &mut Cx<'_, H>,
        core: &QpCore<H>,
        index: u32,
    ) -> Result<&SendRequest, Status> {
        self.request.read(&core.init, core.opcodes, index)?;
        self.check_keys(cx, core).ok_or(Status::LocalProtection)?;
        Ok(&self.request)
    }

    /// Returns `true` if one of the next requests will send packets soon, so that its packets can
    /// ask for the acknowledgement. A request that changes a key waits, and one that registers
    /// sends nothing.
    pub(crate) fn is_followed<H: Host>(&mut self, cx: &Cx<'_, H>, core: &QpCore<H>) -> bool {
        // Kernel users post a few registrations in front of a request.
        const LOOKS: u32 = 4;

        let init = &core.init;
        let load = || cx.load_producer(core, PRODUCER);
        let waiting = self.ring.waiting(&init.sq_ring, load);
        let first = self.ring.index;
        let next = (0..waiting.unwrap_or(0).min(LOOKS))
            .map(|i| SendRequest::peek(&init.queue, &init.sq_ring, first.wrapping_add(i)))
            .map(WrOpcode::of)
            .find(|opcode| !opcode.is_some_and(WrOpcode::may_be_early));
        // One that names no operation ends with an error, as soon as it is taken.
        next.is_some_and(|opcode| !opcode.is_some_and(WrOpcode::is_local))
    }

    /// There may be space for a packet again. One that waits for memory tries, too.
    pub(crate) fn unblock_tx(&mut self) {
        if self.wait == Wait::Host {
            self.wait = Wait::Nothing;
        }
    }

    /// The queue waits for a copy job, which is to have that end.
    pub(crate) fn begin_copy(&mut self, after: AfterCopy) {
        self.wait = Wait::Copy;
        self.after_copy = after;
    }

    /// The copy job has been carried out. Returns how the request at hand ends, if it does so in
    /// error.
    pub(crate) fn end_copy(&mut self) -> Option<Status> {
        self.wait = Wait::Nothing;
        match self.after_copy {
            AfterCopy::GoOn => None,
            AfterCopy::JudgeAgain(length) => {
                self.wait = Wait::Copied(length);
                None
            }
            AfterCopy::Fail(status) => Some(status),
        }
    }

    /// Goes back to an earlier request. The copies of a job for the one at hand do not count, nor
    /// does what it waits for.
    pub(crate) fn rewind(&mut self, index: u32) {
        if self.wait != Wait::Copy {
            self.wait = Wait::Nothing;
        }
        self.ring.index = index;
        self.finish();
    }

    /// Takes one of the retries after receiver not ready; returns whether there was one.
    pub(crate) fn take_rnr_retry(&mut self, attr: &Attributes) -> bool {
        // 7 stands for no limit.
        if attr.rnr_retry == 7 {
            return true;
        }
        match self.rnr_retries.checked_sub(1) {
            Some(left) => {
                self.rnr_retries = left;
                true
            }
            None => false,
        }
    }

    /// The queue returns from SQE. All that has been posted until now is behind the request that
    /// failed, and never sent (IBA volume 1, 10.3.1).
    pub(crate) fn begin_flush<H: Host>(&mut self, core: &QpCore<H>) {
        // A producer index that makes no sense is told when the next request is taken.
        let _ = self
            .ring
            .available(&core.init.sq_ring, || core.load(PRODUCER));
        self.wait = Wait::Flush;
    }

    /// Takes the next request to be flushed: first the one at hand, then those in the ring. After a
    /// return from SQE, these are the ones that were known then.
    pub(crate) fn take_for_flush<H: Host>(&mut self, cx: &Cx<'_, H>, core: &QpCore<H>) -> bool {
        if self.busy {
            return true;
        }
        let can_send = matches!(core.state, State::Rts | State::Sqd);
        if can_send && self.ring.has_taken_all() {
            return false;
        }
        let init = &core.init;
        let load = || cx.load_producer(core, PRODUCER);
        let Ok(Some(index)) = self.ring.take(&init.sq_ring, load) else {
            return false;
        };
        self.request.read_head(&init.queue, &init.sq_ring, index);
        self.busy = true;
        true
    }
}
