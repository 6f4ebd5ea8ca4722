// SPDX-License-Identifier: GPL-2.0

//! Unreliable connections on the wire: packets in order, and no retransmission.

use crate::{
    base::{
        abi,
        counters::Count,
        event::DropReason,
        host::{
            Host,
            Sends,
            Unsent, //
        },
        psn, //
    },
    memory::copy::AtOnce,
    operation::{
        ending::enter_error,
        request_segment::{
            RequestSegment,
            Response, //
        },
        uc_receive, //
    },
    packet::{
        self,
        opcode::Position,
        Bth,
        Packet, //
    },
    queue_pair::{
        cx::Cx,
        qp::Qp,
        schedule::Qps, //
    },
    wire::{
        assemble::assemble,
        request_packet::headers,
        transmit::{
            bth,
            transmit, //
        },
    },
};

/// Sends a segment of the request at hand, which is one packet.
pub(crate) fn send<H: Host>(cx: &mut Cx<'_, H>, qp: &mut Qp<H>, length: u32) -> Result<(), Unsent> {
    let Qp { core, sq, wire, .. } = qp;
    let packets = psn::packets(length, core.attr.path_mtu);
    let segment = RequestSegment::next(sq, core, length, packets);
    let position = Position::of(segment.is_first, segment.is_last);
    let opcode = segment.opcode.packet(position);
    let mut base = bth(core, opcode, segment.psn);
    base.flags |= Bth::pad_flags(packet::pad(length));
    let range = (0, segment.total);
    let headers = headers(segment.head, segment.opcode, range, base, position, None);
    let payload = segment.local();
    let kind = Sends::Requests;
    transmit(cx, core, kind, &mut wire.route, headers, payload, length)
}

/// Takes a packet.
pub(super) fn receive<H: Host>(
    qps: &mut Qps<H>,
    cx: &mut Cx<'_, H>,
    qp: &mut Qp<H>,
    packet: &Packet<'_>,
    bytes: &H::Packet,
) {
    let Qp { core, rq, wire, .. } = qp;
    let mut head = abi::SendWqe::default();
    let Some(segment) = assemble(core, &mut wire.responder, packet, bytes, &mut head) else {
        // A packet that does not fit the message ends the message (C9-188).
        let psn = packet.bth().psn.get();
        cx.counters.sequence_errors.count(u64::from(psn != rq.psn));
        cx.drop_packet(packet.bth(), DropReason::OutOfSequence);
        rq.psn = psn::advance(psn, 1);
        return rq.abandon();
    };
    let response = uc_receive::receive(cx, core, rq, segment, &mut AtOnce);
    match response {
        Ok(Response::Acknowledge) => {
            wire.responder.offset_in = segment.offset.wrapping_add(segment.length)
        }
        Ok(Response::Nak(_)) => enter_error(qps, cx.host, core),
        Ok(_) => (),
        Err(reason) => cx.trace_drop(packet.bth(), reason),
    }
}
