// SPDX-License-Identifier: GPL-2.0

//! Takes datagrams: one packet each, to one queue pair or to all of a group, without responses. So
//! are Ethernet frames, which have no area before their bytes.

use crate::{
    base::{
        abi::{
            wc_flags,
            wc_opcode, //
        },
        attr::{
            QpType,
            State, //
        },
        counters::Count,
        event::DropReason,
        grh,
        host::Host,
        id::{
            qpn,
            Vport, //
        },
        status::Status, //
    },
    memory::{
        copy::{
            self,
            Unreachable, //
        },
        sgl::PrivateBytes, //
    },
    object::{
        request::NoReceive,
        wr_opcode::Extra, //
    },
    operation::{
        completion::Completion,
        request_segment::RequestSegment,
        unreliable::{
            drop_too_long,
            end_in_error,
            report_fatal, //
        },
    },
    queue_pair::{
        cx::Cx,
        qp_core::QpCore,
        receive_queue::ReceiveQueue,
        schedule::Qps, //
    },
};

/// The part of a datagram that the receiver finds beside its data.
pub(crate) struct Area {
    /// The bytes before the data.
    pub(crate) header: [u8; grh::LENGTH as usize],
    /// The service level.
    pub(crate) sl: u8,
    /// The VLAN, as a completion has it.
    pub(crate) vlan: u16,
    /// The virtual port that it was sent to; `None`: a group's members may be on any.
    pub(crate) to: Option<Vport>,
    /// The Q_Key that it was sent with.
    pub(crate) qkey: u32,
}

/// The outcome of a datagram at a queue pair.
pub(crate) enum Arrival {
    /// It is there.
    Delivered,
    /// It was dropped.
    Dropped(DropReason),
    /// The queue pair is to be moved to error.
    Broken,
    /// The sender's memory could not be read.
    SourceLost,
    /// The sender's memory is being brought in: nothing has changed.
    SourceAbsent,
}

/// Hands a datagram, or a frame, which has no area, to the queue pair of a number, which is not at
/// its turn.
pub(crate) fn arrive<H: Host>(
    qps: &mut Qps<H>,
    cx: &mut Cx<'_, H>,
    receiver: u32,
    segment: RequestSegment<'_, H>,
    area: Option<&Area>,
) -> Arrival {
    let Some(peer) = qps.get_mut(receiver) else {
        cx.counters.dropped.count(1);
        return Arrival::Dropped(DropReason::UnknownQueuePair);
    };
    if segment.is_packet() {
        cx.keys.asker = peer.core.asker();
    }
    let own = core::mem::replace(&mut cx.counters, cx.ports.of(peer.core.counted_at));
    let arrival = receive(cx, &peer.core, &mut peer.rq, segment, area);
    cx.counters = own;
    if let Arrival::Broken = arrival {
        let index = peer.core.index();
        peer.core.set_state(cx.host, State::Err);
        qps.stop(index);
    }
    arrival
}

/// Takes a datagram or a frame, or drops it and counts that: there is no response.
pub(crate) fn receive<H: Host>(
    cx: &mut Cx<'_, H>,
    core: &QpCore<H>,
    rq: &mut ReceiveQueue,
    segment: RequestSegment<'_, H>,
    area: Option<&Area>,
) -> Arrival {
    let arrival = take(cx, core, rq, segment, area);
    if let Arrival::Dropped(_) | Arrival::Broken = arrival {
        cx.counters.dropped.count(1);
    }
    arrival
}

/// Judges whether a queue pair may take a datagram or a frame.
fn judge<H: Host>(cx: &Cx<'_, H>, core: &QpCore<H>, area: Option<&Area>) -> Result<(), DropReason> {
    let is_ready = matches!(
        core.state,
        State::Rtr | State::Rts | State::Sqd | State::Sqe
    );
    let qp_type = match area {
        Some(_) => QpType::Ud,
        None => QpType::RawPacket,
    };
    if core.init.qp_type != qp_type {
        return Err(DropReason::Misdirected);
    }
    if !is_ready {
        return Err(DropReason::NotReady);
    }
    let Some(area) = area else {
        return Ok(());
    };
    if area.to.is_some_and(|vport| vport != core.init.vport) {
        return Err(DropReason::Misdirected);
    }
    if core.attr.qkey != area.qkey {
        cx.counters.qkey_violations.count(1);
        return Err(DropReason::Qkey);
    }
    Ok(())
}

/// Takes a datagram or a frame, unless something forbids it.
fn take<H: Host>(
    cx: &mut Cx<'_, H>,
    core: &QpCore<H>,
    rq: &mut ReceiveQueue,
    segment: RequestSegment<'_, H>,
    area: Option<&Area>,
) -> Arrival {
    if let Err(reason) = judge(cx, core, area) {
        return Arrival::Dropped(reason);
    }
    match rq.take(cx, core) {
        Ok(()) => (),
        Err(NoReceive::Empty) => return Arrival::Dropped(DropReason::NoReceive),
        Err(NoReceive::Malformed(status)) => {
            // Moved to error whether that could be completed or not.
            let _ = end_in_error(cx, core, rq, status);
            return Arrival::Broken;
        }
        Err(NoReceive::Jump) => {
            report_fatal(cx, core);
            return Arrival::Broken;
        }
    }
    let length = segment.length;
    let total = match area {
        Some(_) => length.wrapping_add(grh::LENGTH),
        None => length,
    };
    if !rq.fits(total) {
        return match drop_too_long(cx, core, rq) {
            Ok(()) => Arrival::Dropped(DropReason::TooLong),
            Err(_) => Arrival::Broken,
        };
    }
    let with_imm = segment.opcode.facts().extra == Extra::Immediate;
    let mut copied = Ok(());
    if let Some(area) = area {
        let header = PrivateBytes(&area.header);
        copied = copy::copy(cx.keys, header, rq.target(0), grh::LENGTH);
    }
    if copied.is_ok() {
        let start = total.wrapping_sub(length);
        copied = copy::copy(cx.keys, segment.local(), rq.target(start), length);
    }
    cx.allowance.take_bytes(total);
    match copied {
        Ok(()) => (),
        // The receive request stays for the next datagram.
        Err(Unreachable::Source) => {
            rq.abandon();
            return Arrival::SourceLost;
        }
        // No job copies a datagram.
        Err(Unreachable::SourceAbsent | Unreachable::Later) => {
            rq.abandon();
            return Arrival::SourceAbsent;
        }
        // A sender has other receivers too, and must not wait for the memory of one, which may
        // never come. It comes in for the next datagram.
        Err(Unreachable::TargetAbsent) => {
            copy::page_in(cx.keys, rq.target(0), total);
            rq.abandon();
            return Arrival::Dropped(DropReason::Absent);
        }
        // The buffer is not what it should be (IBA volume 1, 9.9.3, class A).
        Err(Unreachable::Target) => {
            let _ = end_in_error(cx, core, rq, Status::LocalProtection);
            return Arrival::Broken;
        }
    }
    cx.counters.messages.count(1);
    cx.counters.bytes.count(u64::from(length));
    segment.count_taken(cx.counters);
    let completed = Completion {
        wr_id: rq.request.slot.head.wr_id.get(),
        status: Status::Success,
        opcode: wc_opcode::RECV,
        length: total,
        data: if with_imm {
            segment.head.imm_or_inv
        } else {
            [0; 4]
        },
        flags: area.map_or(0, |_| wc_flags::GRH) | if with_imm { wc_flags::WITH_IMM } else { 0 },
        source: qpn(segment.from),
        sl: area.map_or(0, |area| area.sl),
        vlan: area.map_or(0, |area| area.vlan),
        ip_version: area.map_or(0, |area| grh::ip_version(&area.header)),
        queue_index: rq.request.queue_index,
        solicited: segment.is_solicited(),
    }
    .write(cx, core, core.init.recv_cq);
    rq.finish();
    match completed {
        Ok(()) => Arrival::Delivered,
        Err(_) => {
            report_fatal(cx, core);
            Arrival::Broken
        }
    }
}
