// SPDX-License-Identifier: GPL-2.0

//! Completions of requests, of both queues, and the flush of the rest in error.

use zerocopy::byteorder::little_endian::{
    U16,
    U32,
    U64, //
};

use crate::{
    base::{
        abi::{
            self,
            wc_flags,
            wc_opcode, //
        },
        counters::Count,
        event::{
            QpEvent,
            Trace, //
        },
        host::Host,
        status::Status, //
    },
    object::{
        cq::Overrun,
        wr_opcode::{
            completion_opcode,
            Class,
            Extra,
            WrOpcode, //
        },
    },
    operation::request_segment::RequestSegment,
    queue_pair::{
        cx::{
            Cx,
            Next, //
        },
        qp::Qp,
        qp_core::QpCore,
        receive_queue::ReceiveQueue,
        send_queue::SendQueue, //
    },
};

/// The contents of a completion, beside its owner.
pub(crate) struct Completion {
    pub(crate) wr_id: u64,
    pub(crate) status: Status,
    /// `enum ferrule_wc_opcode`.
    pub(crate) opcode: u8,
    pub(crate) length: u32,
    /// Immediate data or a key that was invalidated, with the flag that says which.
    pub(crate) data: [u8; 4],
    pub(crate) flags: u8,
    pub(crate) source: u32,
    /// Service level of the message.
    pub(crate) sl: u8,
    /// The VLAN of a datagram: its identifier plus 1; 0 without.
    pub(crate) vlan: u16,
    /// The version of IP of the header that is in front of a datagram's data; 0 without one.
    pub(crate) ip_version: u8,
    /// The slots of the queue before this index are free. Of a target of XRC, the shared receive
    /// queue.
    pub(crate) queue_index: u32,
    pub(crate) solicited: bool,
}

impl Completion {
    /// Writes the completion to the queue `cqn`.
    pub(crate) fn write<H: Host>(
        &self,
        cx: &mut Cx<'_, H>,
        core: &QpCore<H>,
        cqn: u32,
    ) -> Result<(), Overrun> {
        match self.status {
            Status::Success => (),
            Status::Flushed => cx.counters.flushed.count(1),
            _ => cx.counters.request_errors.count(1),
        }
        cx.host.trace(&Trace::Completion {
            vport: core.init.vport,
            qpn: core.id.number,
            cqn,
            wr_id: self.wr_id,
            status: self.status,
            opcode: self.opcode,
            length: self.length,
        });
        let mut cqe = abi::Cqe {
            wr_id: U64::new(self.wr_id),
            qp_num: U32::new(core.id.qpn()),
            qp_gen: U32::new(core.id.generation),
            byte_len: U32::new(self.length),
            imm_or_inv: self.data,
            src_qp: U32::new(self.source),
            queue_index: U32::new(self.queue_index),
            status: self.status as u8,
            opcode: self.opcode,
            flags: self.flags,
            sl: self.sl,
            pkey_index: U16::ZERO,
            vendor_err: U16::ZERO,
            timestamp: U64::new(cx.now()),
            ip_version: self.ip_version,
            is_xrc: 0,
            vlan: U16::new(self.vlan),
            reserved: [0; 8],
            phase: U32::ZERO,
        };
        if core.init.qp_type.is_target() {
            cqe.is_xrc = 1;
        }
        // A completion in error counts as a solicited one (IBA volume 1, 11.4.2.2).
        let solicited = self.solicited || self.status != Status::Success;
        cx.cqs.push(cx.host, cx.counters, cqn, &mut cqe, solicited)
    }
}

/// Writes the completion of the send request at hand, if one is due.
///
/// Success is reported only where it was asked for; every other end is reported always.
#[inline]
pub(crate) fn complete_send<H: Host>(
    cx: &mut Cx<'_, H>,
    core: &QpCore<H>,
    sq: &SendQueue,
    status: Status,
) -> Result<(), Overrun> {
    let request = &sq.request;
    if status == Status::Success && !core.reports_success(request.slot.head.flags) {
        return Ok(());
    }
    complete_slot(
        cx,
        core,
        request.index,
        request.slot.head.wr_id.get(),
        completion_opcode(WrOpcode::of(request.slot.head.opcode)),
        request.length,
        status,
    )
}

/// Writes the completion of the send request of slot `index`.
pub(crate) fn complete_slot<H: Host>(
    cx: &mut Cx<'_, H>,
    core: &QpCore<H>,
    index: u32,
    wr_id: u64,
    opcode: u8,
    length: u32,
    status: Status,
) -> Result<(), Overrun> {
    Completion {
        wr_id,
        status,
        opcode,
        length: if status == Status::Success { length } else { 0 },
        data: [0; 4],
        flags: 0,
        source: 0,
        sl: 0,
        vlan: 0,
        ip_version: 0,
        queue_index: index.wrapping_add(1),
        solicited: false,
    }
    .write(cx, core, core.init.send_cq)
}

/// Writes the completion of the receive request that a message took.
pub(crate) fn complete_receive<H: Host>(
    cx: &mut Cx<'_, H>,
    core: &QpCore<H>,
    rq: &ReceiveQueue,
    segment: RequestSegment<'_, H>,
) -> Result<(), Overrun> {
    let facts = segment.opcode.facts();
    // The queue of the message was there when the message was judged.
    let cqn = core.receive_cq(cx.srqs, rq.srq).ok_or(Overrun)?;
    let flags = match facts.extra {
        Extra::None | Extra::InvalidateOwn => 0,
        Extra::Immediate => wc_flags::WITH_IMM,
        Extra::Invalidate => wc_flags::WITH_INV,
    };
    Completion {
        wr_id: rq.request.slot.head.wr_id.get(),
        status: Status::Success,
        opcode: match facts.class {
            Class::Write => wc_opcode::RECV_RDMA_WITH_IMM,
            // Only a SEND takes a receive request besides.
            Class::Send
            | Class::Read
            | Class::Atomic(_)
            | Class::AtomicWrite
            | Class::Flush
            | Class::Key(_) => wc_opcode::RECV,
        },
        length: segment.total,
        data: if flags != 0 {
            segment.head.imm_or_inv
        } else {
            [0; 4]
        },
        flags,
        source: segment.from,
        sl: 0,
        vlan: 0,
        ip_version: 0,
        queue_index: rq.request.queue_index,
        solicited: segment.is_solicited(),
    }
    .write(cx, core, cqn)
}

/// Writes the completion of the receive request at hand, which did not take a message. There is
/// none if the request is of an XRC shared receive queue that is gone.
pub(crate) fn complete_receive_in_error<H: Host>(
    cx: &mut Cx<'_, H>,
    core: &QpCore<H>,
    rq: &ReceiveQueue,
    status: Status,
) -> Result<(), Overrun> {
    let request = &rq.request;
    let Some(cqn) = core.receive_cq(cx.srqs, rq.srq) else {
        return Ok(());
    };
    Completion {
        wr_id: request.slot.head.wr_id.get(),
        status,
        opcode: wc_opcode::RECV,
        length: 0,
        data: [0; 4],
        flags: 0,
        source: 0,
        sl: 0,
        vlan: 0,
        ip_version: 0,
        queue_index: request.queue_index,
        solicited: false,
    }
    .write(cx, core, cqn)
}

/// Ends what is left in the send queue with flush errors, as far as the turn allows (C10-42).
pub(crate) fn flush_send_queue<H: Host>(cx: &mut Cx<'_, H>, qp: &mut Qp<H>) -> Next {
    let Qp { core, sq, wire, .. } = qp;
    // Requests on their way to a remote peer come first.
    if core.is_acknowledged() && wire.requester.outstanding(sq.consumer()) != 0 {
        sq.rewind(wire.requester.oldest);
    }
    while !cx.allowance.is_spent() {
        if !sq.take_for_flush(cx, core) {
            wire.stop(sq.consumer());
            return Next::Idle;
        }
        cx.allowance.take_request();
        // A completion queue without space has raised an event; the queue is emptied all the same.
        let _ = complete_send(cx, core, sq, Status::Flushed);
        sq.finish();
        wire.stop(sq.consumer());
    }
    Next::Again
}

/// Ends what is left in the receive queue with flush errors, as far as the turn allows (C10-42).
pub(crate) fn flush_receive_queue<H: Host>(cx: &mut Cx<'_, H>, qp: &mut Qp<H>) -> Next {
    let Qp { core, rq, .. } = qp;
    // The program posts, fences, and looks whether it has to ring; the engine asked it to, fences,
    // and looks what was posted. So at least one of the two sees what the other did.
    H::fence();
    while !cx.allowance.is_spent() {
        if !rq.take_for_flush(cx, core) {
            // Requests in a shared receive queue are for others to take. An event tells that this
            // queue pair takes no more, and that its completions are all written (IBA volume 1,
            // 11.6.3.4).
            if core.init.srq.is_some() && rq.should_report_last_wqe() {
                let handle = &core.init.handle;
                cx.host.qp_event(handle, QpEvent::LastRequestReached);
            }
            return Next::Idle;
        }
        cx.allowance.take_request();
        let _ = complete_receive_in_error(cx, core, rq, Status::Flushed);
        rq.finish();
    }
    Next::Again
}
