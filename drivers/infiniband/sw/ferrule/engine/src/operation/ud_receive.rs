// SPDX-License-Identifier: GPL-2.0

//! Takes datagrams: one packet each, to one queue pair or to all of a group, without responses.

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
        grh,
        host::Host,
        id::{
            qpn,
            Vport, //
        },
        status::Status, //
    },
    memory::sgl::{
        self,
        PrivateBytes,
        Unreachable, //
    },
    object::{
        opcode::Extra,
        request::NoReceive, //
    },
    operation::{
        completion::Completion,
        message::Message,
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
    /// The virtual port that it was sent to; `None`: a group's members may be on any.
    pub(crate) to: Option<Vport>,
}

/// The outcome of a datagram at a queue pair.
pub(crate) enum Arrival {
    /// It is there.
    Delivered,
    /// It was dropped.
    Dropped,
    /// The queue pair is to be moved to error.
    Broken,
    /// The sender's memory could not be read.
    SourceLost,
}

/// Hands a datagram to the queue pair of a number, which is not at its turn.
pub(crate) fn arrive<H: Host>(
    qps: &mut Qps<H>,
    cx: &mut Cx<'_, H>,
    receiver: u32,
    message: Message<'_, H>,
    area: &Area,
    qkey: u32,
) -> Arrival {
    let Some(peer) = qps.get_mut(receiver) else {
        cx.counters.dropped.count(1);
        return Arrival::Dropped;
    };
    let own = core::mem::replace(&mut cx.counters, cx.ports.of(peer.core.init.vport));
    let arrival = receive(cx, &peer.core, &mut peer.rq, message, area, qkey);
    cx.counters = own;
    if let Arrival::Broken = arrival {
        let index = peer.core.index();
        peer.core.set_state(cx.host, State::Err);
        qps.stop(index);
    }
    arrival
}

/// Takes a datagram, or drops it and counts that: there is no response.
pub(crate) fn receive<H: Host>(
    cx: &mut Cx<'_, H>,
    core: &QpCore<H>,
    rq: &mut ReceiveQueue,
    message: Message<'_, H>,
    area: &Area,
    qkey: u32,
) -> Arrival {
    let arrival = take(cx, core, rq, message, area, qkey);
    if let Arrival::Dropped | Arrival::Broken = arrival {
        cx.counters.dropped.count(1);
    }
    arrival
}

/// Takes a datagram, unless something forbids it.
fn take<H: Host>(
    cx: &mut Cx<'_, H>,
    core: &QpCore<H>,
    rq: &mut ReceiveQueue,
    mut message: Message<'_, H>,
    area: &Area,
    qkey: u32,
) -> Arrival {
    let ready = matches!(
        core.state,
        State::Rtr | State::Rts | State::Sqd | State::Sqe
    );
    if core.init.qp_type != QpType::Ud || !ready {
        return Arrival::Dropped;
    }
    if area.to.is_some_and(|vport| vport != core.init.vport) {
        return Arrival::Dropped;
    }
    if core.attr.qkey != qkey {
        cx.counters.qkey_violations.count(1);
        return Arrival::Dropped;
    }
    match rq.take(cx, core) {
        Ok(()) => (),
        Err(NoReceive::Empty) => return Arrival::Dropped,
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
    let length = message.length;
    if !rq.has_room(length.wrapping_add(grh::LENGTH)) {
        return match drop_too_long(cx, core, rq) {
            Ok(()) => Arrival::Dropped,
            Err(_) => Arrival::Broken,
        };
    }
    let with_imm = message.opcode.facts().extra == Extra::Immediate;
    let mut copied = sgl::copy(
        cx.keys,
        &mut PrivateBytes(&area.header),
        &mut rq.target(),
        grh::LENGTH,
    );
    if copied.is_ok() {
        copied = sgl::copy(cx.keys, &mut message.local(), &mut rq.target(), length);
    }
    cx.allowance.take_bytes(length.wrapping_add(grh::LENGTH));
    match copied {
        Ok(()) => (),
        // The receive request stays for the next datagram.
        Err(Unreachable::Source) => {
            rq.abandon();
            return Arrival::SourceLost;
        }
        // The buffer is not what it should be (IBA volume 1, 9.9.3, class A).
        Err(Unreachable::Target) => {
            let _ = end_in_error(cx, core, rq, Status::LocalProtection);
            return Arrival::Broken;
        }
    }
    cx.counters.messages.count(1);
    cx.counters.bytes.count(u64::from(length));
    message.count_taken(message.opcode.facts().class, cx.counters);
    let completed = Completion {
        wr_id: rq.request().head.wr_id.get(),
        status: Status::Success,
        opcode: wc_opcode::RECV,
        length: length.wrapping_add(grh::LENGTH),
        data: if with_imm {
            message.head.imm_or_inv
        } else {
            [0; 4]
        },
        flags: wc_flags::GRH | if with_imm { wc_flags::WITH_IMM } else { 0 },
        source: qpn(message.from),
        sl: area.sl,
        ip_version: grh::ip_version(&area.header),
        queue_index: rq.request().index.wrapping_add(1),
        solicited: message.is_solicited(),
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
