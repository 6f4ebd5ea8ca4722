// SPDX-License-Identifier: GPL-2.0

//! Datagrams: one packet each, to one queue pair or to all of a group, and nobody answers.

use zerocopy::FromBytes;

use crate::{
    abi::{
        self,
        wc_flags,
        wc_opcode, //
    },
    attr::{
        PathKind,
        QpType,
        State, //
    },
    bus::Bus,
    completer::Completion,
    counters::Count,
    ending::enter_error,
    grh,
    host::Host,
    message::Message,
    multicast::{
        is_multicast,
        MULTICAST_QPN, //
    },
    psn,
    qp::Qp,
    qp_core::Core,
    receive_queue::ReceiveQueue,
    request::{
        NoReceive,
        Opcode,
        SendRequest, //
    },
    requester::Unfinished,
    schedule::Qps,
    sgl::{
        self,
        Inline,
        Unreachable, //
    },
    status::Status,
    unreliable::{
        drop_too_long,
        end_in_error,
        tell_broken, //
    },
    wire::{
        self,
        ud::Way, //
    },
};

/// With this bit in a request's Q_Key, that of the queue pair is sent instead, which only a
/// privileged program can have set to a controlled one (IBA volume 1, 10.2.5).
const OWN_QKEY: u32 = 1 << 31;

/// What the receiver finds of a datagram beside its data.
pub(crate) struct Area {
    /// The bytes before the data.
    pub(crate) header: [u8; grh::LENGTH as usize],
    /// The service level.
    pub(crate) sl: u8,
}

/// What became of a datagram at a queue pair.
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

/// Sends the request at hand.
///
/// # Errors
///
/// [`Unfinished`]. Nothing was sent then, but to others than the one in question if memory that was
/// registered when the request was taken can no longer be read.
pub(crate) fn send<H: Host>(
    qps: &mut Qps<H>,
    bus: &mut Bus<'_, H>,
    qp: &mut Qp<H>,
) -> Result<(), Unfinished> {
    let request = qp.sq.request();
    let (to, _) = abi::Destination::read_from_prefix(&request.head.extra)
        .map_err(|_| Status::LocalOperation)?;
    let target = to.remote_qpn.get();
    if to.reserved.get() != 0 || target > psn::MASK {
        return Err(Status::LocalOperation.into());
    }
    if request.length > bus.port.mtu.bytes() {
        return Err(Status::LocalLength.into());
    }
    let init = &qp.core.init;
    let own = match init.context {
        Some(_) => None,
        None => bus.host.destination(&init.queue, request.index),
    };
    let (path, mut way) = match own {
        Some((path, route)) => (path, Way::Own(route)),
        None => {
            let ah = to.ah.get();
            let path = bus.port.ahs.path(ah, init.pd);
            (path.ok_or(Status::LocalOperation)?, Way::Handle(ah))
        }
    };
    let qkey = match to.remote_qkey.get() {
        given if given & OWN_QKEY == 0 => given,
        _ => qp.core.attr.qkey,
    };
    let area = |request: &SendRequest| Area {
        header: grh::header(&path, request.length, request.opcode == Opcode::SendWithImm),
        sl: path.sl,
    };

    if !is_multicast(&path.dgid) {
        if path.kind == PathKind::Remote {
            return Ok(wire::ud::send(bus, qp, &mut way, target, qkey)?);
        }
        let area = area(request);
        return deliver(qps, bus, qp, target, &area, qkey);
    }
    // A group's queue pairs are called by one number (IBA volume 1, 10.5.2).
    if target != MULTICAST_QPN {
        bus.counters.dropped.count(1);
        return Ok(());
    }
    let area = area(request);
    let members = bus.port.groups.members(&path.dgid);
    let members = members.as_slice();
    // First those elsewhere: what cannot be sent yet is sent later as a whole.
    if path.kind == PathKind::Remote {
        wire::ud::send(bus, qp, &mut way, target, qkey)?;
    } else if members.is_empty() {
        bus.counters.dropped.count(1);
    }
    for &member in members {
        deliver(qps, bus, qp, member, &area, qkey)?;
    }
    Ok(())
}

/// Hands the datagram to one queue pair, which may be the sender itself.
fn deliver<H: Host>(
    qps: &mut Qps<H>,
    bus: &mut Bus<'_, H>,
    qp: &mut Qp<H>,
    receiver: u32,
    area: &Area,
    qkey: u32,
) -> Result<(), Unfinished> {
    let Qp { core, sq, rq, .. } = qp;
    // Each receiver gets all of it, so each copy begins at the start.
    sq.begin_again();
    let length = sq.request().length;
    let message = sq.message(core, length);
    let arrival = if receiver == core.id.number {
        let arrival = receive(bus, core, rq, message, area, qkey);
        if let Arrival::Broken = arrival {
            enter_error(qps, bus.host, core);
        }
        arrival
    } else {
        arrive(qps, bus, receiver, message, area, qkey)
    };
    match arrival {
        Arrival::SourceLost => Err(Status::LocalProtection.into()),
        Arrival::Delivered | Arrival::Dropped | Arrival::Broken => Ok(()),
    }
}

/// Hands a datagram to the queue pair of a number, which is not at its turn.
pub(crate) fn arrive<H: Host>(
    qps: &mut Qps<H>,
    bus: &mut Bus<'_, H>,
    receiver: u32,
    message: Message<'_, H>,
    area: &Area,
    qkey: u32,
) -> Arrival {
    let Some(peer) = qps.get_mut(receiver) else {
        bus.counters.dropped.count(1);
        return Arrival::Dropped;
    };
    let arrival = receive(bus, &peer.core, &mut peer.rq, message, area, qkey);
    if let Arrival::Broken = arrival {
        let index = peer.core.index();
        peer.core.set_state(bus.host, State::Err);
        qps.stop(index);
    }
    arrival
}

/// Takes a datagram, or drops it and counts that: nobody is told.
fn receive<H: Host>(
    bus: &mut Bus<'_, H>,
    core: &Core<H>,
    rq: &mut ReceiveQueue,
    message: Message<'_, H>,
    area: &Area,
    qkey: u32,
) -> Arrival {
    let arrival = take(bus, core, rq, message, area, qkey);
    if let Arrival::Dropped | Arrival::Broken = arrival {
        bus.counters.dropped.count(1);
    }
    arrival
}

/// Takes a datagram, unless something forbids it.
fn take<H: Host>(
    bus: &mut Bus<'_, H>,
    core: &Core<H>,
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
    if core.attr.qkey != qkey {
        bus.counters.qkey_violations.count(1);
        return Arrival::Dropped;
    }
    match rq.take(bus, core) {
        Ok(()) => (),
        Err(NoReceive::Empty) => return Arrival::Dropped,
        Err(NoReceive::Malformed(status)) => {
            // Moved to error whether that could be told or not.
            let _ = end_in_error(bus, core, rq, status);
            return Arrival::Broken;
        }
        Err(NoReceive::Jump) => {
            tell_broken(bus, core);
            return Arrival::Broken;
        }
    }
    let length = message.length;
    if !rq.has_room(length.wrapping_add(grh::LENGTH)) {
        return match drop_too_long(bus, core, rq) {
            Ok(()) => Arrival::Dropped,
            Err(_) => Arrival::Broken,
        };
    }
    let with_imm = message.opcode == Opcode::SendWithImm;
    let mut copied = sgl::copy(
        bus.keys,
        &mut Inline(&area.header),
        &mut rq.target(),
        grh::LENGTH,
    );
    if copied.is_ok() {
        copied = sgl::copy(bus.keys, &mut message.local(), &mut rq.target(), length);
    }
    bus.allowance.take_bytes(length.wrapping_add(grh::LENGTH));
    match copied {
        Ok(()) => (),
        // The receive request stays for the next datagram.
        Err(Unreachable::Source) => {
            rq.abandon();
            return Arrival::SourceLost;
        }
        // The buffer is not what it should be (IBA volume 1, 9.9.3, class A).
        Err(Unreachable::Target) => {
            let _ = end_in_error(bus, core, rq, Status::LocalProtection);
            return Arrival::Broken;
        }
    }
    bus.counters.messages.count(1);
    bus.counters.bytes.count(u64::from(length));
    let told = Completion {
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
        source: message.from,
        sl: area.sl,
        queue_index: rq.request().index.wrapping_add(1),
        solicited: message.is_solicited(),
    }
    .write(bus, core, core.init.recv_cq);
    rq.finish();
    match told {
        Ok(()) => Arrival::Delivered,
        Err(_) => {
            tell_broken(bus, core);
            Arrival::Broken
        }
    }
}
