// SPDX-License-Identifier: GPL-2.0

//! The packets of requests: whether the next one may be sent, its headers and its payload, and the
//! notes about it (IBA volume 1, 9.2, 9.3 and 9.7).

use crate::{
    base::{
        abi,
        attr::QpType,
        host::{
            Host,
            Reorder,
            Sends,
            Unsent, //
        },
        psn,
        status::Status, //
    },
    memory::sgl::{
        PrivateBytes,
        Side, //
    },
    object::{
        request::remote_srq,
        wr_opcode::{
            Atomic,
            Class,
            Extra,
            WrOpcode, //
        },
    },
    packet::{
        self,
        opcode::Position,
        AtomicEth,
        Bth,
        Feth,
        Headers,
        Ieth,
        ImmDt,
        Reth,
        XrcEth,
        U24, //
    },
    queue_pair::{
        cx::Cx,
        qp::Qp,
        remote::{
            requester_state::{
                Mark,
                Record,
                REQUESTS, //
            },
            responder_state::SPAN,
            state::{
                Wire,
                REORDER_WINDOW, //
            },
        },
    },
    wire::transmit::{
        bth,
        transmit, //
    },
};

/// The result of a step of the requester.
pub(super) enum Step {
    /// A packet was sent, or the request was passed over, executed, or has failed: the next step
    /// may follow.
    Done,
    /// The requester has to wait.
    Wait,
}

/// How far ahead of the oldest packet that has not been acknowledged the next one may be at
/// present.
fn send_window<H: Host>(wire: &Wire<H>) -> u32 {
    if wire.requester.tlp.holds_back() {
        return 1;
    }
    // Packets that are buffered behind a loss are not in flight any more.
    let come = wire
        .completer
        .reorder
        .count()
        .max(wire.requester.retransmit.peer_buffered);
    wire.requester
        .congestion
        .window()
        .saturating_add(come)
        .min(REORDER_WINDOW)
}

/// The responder has reported no receive request for this message.
fn exceeds_credits<H: Host>(wire: &Wire<H>, record: &Record, opcode: WrOpcode) -> bool {
    let lsn = wire.requester.lsn;
    lsn.is_some_and(|lsn| psn::is_ahead(record.ssn, lsn)) && opcode.takes_receive()
}

/// Whether the next packet of a request may be sent now, within the [`send_window`].
fn may_send<H: Host>(qp: &Qp<H>, record: &Record, send_window: u32) -> bool {
    let Qp { core, sq, wire, .. } = qp;
    let index = wire.requester.sending;
    // Of the request whose first packets have been acknowledged, none is before it.
    let before = if index == wire.requester.oldest {
        0
    } else {
        psn::distance(wire.requester.snd_una, record.psn)
    };
    if record.has_response() || record.flags & abi::wr_flags::FENCE != 0 {
        let mut open = 0u8;
        let mut other = wire.requester.oldest;
        while other != index {
            let data = wire
                .requester
                .record(other)
                .is_some_and(Record::has_response);
            open = open.saturating_add(u8::from(data));
            other = other.wrapping_add(1);
        }
        // No more than the responder has resources for (IBA volume 1, 9.4.4); behind a fence, none
        // (10.8.3.3).
        let limit = if record.flags & abi::wr_flags::FENCE != 0 {
            1
        } else {
            core.attr.max_rd_atomic
        };
        if open >= limit {
            return false;
        }
    }
    // Part of a read that is asked for again comes before the next part is.
    if wire.requester.is_part_sent {
        return false;
    }
    // The window must have space for all the data of a read, too. One that is larger is asked for
    // in parts, when all before it has ended.
    if record.has_response()
        && index != wire.requester.oldest
        && (record.packets > wire.requester.congestion.window()
            || psn::distance(wire.requester.snd_una, record.end()) > send_window)
    {
        return false;
    }
    // Sequence numbers in use are never so many that older and newer ones look alike.
    if before != 0 && wire.requester.offset == 0 && before.saturating_add(record.packets) >= SPAN {
        return false;
    }
    let sent = wire
        .requester
        .offset
        .wrapping_shr(core.attr.path_mtu.shift());
    let next = psn::advance(record.psn, sent);
    if !record.has_response() && psn::distance(wire.requester.snd_una, next) >= send_window {
        return false;
    }
    // Beyond the receive requests that the responder has reported, only one packet of one message
    // is sent, to learn more (IBA volume 1, 9.7.7.2). When it has been acknowledged, there was a
    // receive request for the message.
    !exceeds_credits(wire, record, sq.request.opcode)
        || if wire.requester.offset == 0 {
            wire.requester.snd_una == record.psn
        } else {
            wire.requester.snd_una != record.psn && index == wire.requester.oldest
        }
}

/// Sends the next packet of the request at hand, if it may be sent now.
pub(super) fn send<H: Host>(cx: &mut Cx<'_, H>, qp: &mut Qp<H>, record: &Record) -> Step {
    // A packet that is retransmitted alone has been sent before, and waits for nothing.
    let is_selective = qp.wire.requester.retransmit.is_active();
    let send_window = send_window(&qp.wire);
    if !is_selective
        && (!qp.wire.requester.congestion.may_send(cx.now()) || !may_send(qp, record, send_window))
    {
        return Step::Wait;
    }
    let Qp { core, sq, wire, .. } = qp;
    let mtu = core.attr.path_mtu;
    let opcode = sq.request.opcode;
    let has_response = record.has_response();
    let (length, position) = if has_response {
        (opcode.request_length(), Position::Only)
    } else {
        let rest = record.length.wrapping_sub(wire.requester.offset);
        let length = rest.min(mtu.bytes());
        (
            length,
            Position::of(wire.requester.offset == 0, length == rest),
        )
    };
    let psn = wire.requester.next_psn(record, mtu);
    // No more of a read is asked for at once than the window has space for: the responder knows
    // none, and would flood whatever is between. It goes on where the response ended or broke off.
    let range = if record.is_read() {
        let rest = record.length.wrapping_sub(record.done);
        let part = if is_selective {
            rest
        } else {
            rest.min(wire.requester.congestion.window().wrapping_shl(mtu.shift()))
        };
        let until = record.done.wrapping_add(part);
        let until = wire.requester.part.unwrap_or(until);
        (
            record.done,
            until.min(wire.requester.retransmit.read_end(record, mtu.shift())),
        )
    } else {
        (0, record.length)
    };
    let mut base = bth(core, opcode.packet(position), psn);
    base.flags |= Bth::pad_flags(packet::pad(length));
    // The packet asks for an acknowledgement if
    // - no other packet follows soon, since nothing is posted, or the next request waits or sends
    //   nothing;
    // - it fills the window, and no packet in flight asks; else each packet behind a full window
    //   would ask;
    // - it goes beyond the credits, or takes the last one: the acknowledgement brings more;
    // - it is a selective retransmission, whose acknowledgement tells of further losses;
    // - the acknowledgement interval, or a quarter of the requests in flight, has gone without a
    //   packet that asks.
    wire.requester.since_ack_request = wire.requester.since_ack_request.saturating_add(1);
    let is_last = position.ends() && !sq.is_followed(cx, core);
    let ahead = psn::distance(wire.requester.snd_una, psn);
    let is_window_full = ahead.saturating_add(1) >= send_window
        && !psn::within(wire.requester.ack_requested, wire.requester.snd_una, ahead);
    let exceeds_credits = exceeds_credits(wire, record, opcode);
    let takes_last_credit =
        position.ends() && wire.requester.lsn == Some(record.ssn) && opcode.takes_receive();
    if is_last
        || is_window_full
        || exceeds_credits
        || takes_last_credit
        || is_selective
        || wire.requester.since_ack_request >= wire.requester.congestion.ack_interval()
        || (position.ends() && wire.requester.outstanding(sq.consumer()) % (REQUESTS / 4) == 0)
    {
        base.acknowledge = Bth::ACK_REQ;
    }
    let request = &sq.request;
    let srq = match core.init.qp_type {
        QpType::XrcIni => Some(remote_srq(&request.slot.head, opcode)),
        QpType::Rc | QpType::Uc | QpType::Ud | QpType::XrcTgt | QpType::RawPacket => None,
    };
    let headers = headers(&request.slot.head, opcode, range, base, position, srq);
    let payload = if has_response {
        // That of an ATOMIC WRITE is in the head.
        let value = request.slot.head.extra.get(..length as usize);
        Side::Private(PrivateBytes(value.unwrap_or(&[])))
    } else {
        request.side(core.init.pd, wire.requester.offset)
    };
    let kind = Sends::Requests;
    match transmit(cx, core, kind, &mut wire.route, headers, payload, length) {
        Ok(()) => (),
        Err(unsent) => {
            if unsent != Unsent::Fault {
                wire.block_tx(kind, unsent, cx.now());
                return Step::Wait;
            }
            // The program's own memory cannot be read; requests that were begun before end first.
            let sending = wire.requester.sending;
            if let Some(record) = wire.requester.record_mut(sending) {
                record.failed = Some(Status::LocalProtection);
            }
            return Step::Done;
        }
    }
    if base.wants_acknowledge() {
        wire.requester.since_ack_request = 0;
        wire.requester.ack_requested = psn;
    }
    cx.take_packet(length);
    let next = if record.is_read() {
        psn::advance(record.psn, psn::packets(range.1, mtu))
    } else {
        psn::advance(psn, 1)
    };
    let is_new = psn::is_ahead(next, wire.requester.snd_nxt);
    if base.wants_acknowledge() || has_response {
        wire.requester.tlp.start_sample(psn, cx.now(), !is_new);
    }
    wire.requester.congestion.sent(cx.now());
    if record.is_read() && (!is_new || range != (0, record.length)) {
        let sending = wire.requester.sending;
        if let Some(record) = wire.requester.record_mut(sending) {
            record.mark = Mark::Parted;
        }
    }
    if is_new {
        wire.requester.snd_nxt = next;
        // To the responder, each part of a read is a message.
        if range.0 != 0 {
            wire.requester.ssn = psn::advance(wire.requester.ssn, 1);
        }
    }
    if wire.requester.ack_deadline.is_none() {
        wire.start_ack_timer(core, sq, cx.now());
    }
    if is_selective {
        wire.requester.end_retransmit(Some(psn));
        return Step::Done;
    }
    if range.1 != record.length {
        wire.requester.part = Some(range.1);
        wire.requester.is_part_sent = true;
    }
    if position.ends() && range.1 == record.length {
        wire.requester.advance();
    } else if !has_response {
        wire.requester.offset = wire.requester.offset.wrapping_add(length);
    }
    Step::Done
}

/// The headers of a packet of a request. Of a read or a write, the range is what is named of the
/// peer's memory: by the bytes of the message. Over XRC there is the shared receive queue that it
/// is for.
pub(super) fn headers(
    head: &abi::SendWqe,
    opcode: WrOpcode,
    (from, until): (u32, u32),
    mut base: Bth,
    position: Position,
    srq: Option<u32>,
) -> Headers {
    let ends = position.ends();
    if ends && head.flags & abi::wr_flags::SOLICITED != 0 && opcode.takes_receive() {
        base.flags |= Bth::SOLICITED;
    }
    let mut headers = Headers::new(&base);
    if let Some(srq) = srq {
        headers.push(&XrcEth {
            reserved: 0,
            srq: U24::new(srq),
        });
    }
    let length = until.wrapping_sub(from);
    let reth = |rkey: u32| Reth {
        addr: head.remote_addr.get().wrapping_add(from.into()).into(),
        rkey: rkey.into(),
        length: length.into(),
    };
    let facts = opcode.facts();
    match facts.class {
        // Where there are no bytes, no key is looked at (C9-88). rdma_rxe remembers none of such a
        // read (qp_resp_from_reth) and, if the response was lost, does not know it again by any
        // other.
        Class::Read if length == 0 => headers.push(&reth(0)),
        Class::Read => headers.push(&reth(head.rkey.get())),
        Class::Write if position.begins() => headers.push(&reth(head.rkey.get())),
        Class::AtomicWrite => headers.push(&reth(head.rkey.get())),
        Class::Flush => {
            let words: abi::FlushWords = zerocopy::transmute!(head.extra);
            headers.push(&Feth::new(words.placement, words.level));
            headers.push(&Reth {
                addr: head.remote_addr.get().into(),
                rkey: head.rkey.get().into(),
                length: words.length.get().into(),
            });
        }
        Class::Atomic(operation) => {
            let words: abi::AtomicWords = zerocopy::transmute!(head.extra);
            let (swap_or_add, compare) = match operation {
                Atomic::CompareSwap => (words.swap.get(), words.compare_add.get()),
                Atomic::FetchAdd => (words.compare_add.get(), 0),
            };
            headers.push(&AtomicEth {
                addr: head.remote_addr.get().into(),
                rkey: head.rkey.get().into(),
                swap_or_add: swap_or_add.into(),
                compare: compare.into(),
            });
        }
        Class::Send | Class::Write | Class::Key(_) => (),
    }
    match facts.extra {
        Extra::Immediate if ends => headers.push(&ImmDt {
            data: head.imm_or_inv,
        }),
        Extra::Invalidate if ends => headers.push(&Ieth {
            rkey: u32::from_le_bytes(head.imm_or_inv).into(),
        }),
        Extra::None | Extra::Immediate | Extra::Invalidate | Extra::InvalidateOwn => (),
    }
    headers
}
