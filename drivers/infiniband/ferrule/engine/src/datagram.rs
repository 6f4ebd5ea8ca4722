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
        Path,
        PathKind,
        QpType,
        State, //
    },
    completer::Completion,
    counters::Count,
    grh,
    host::Host,
    message::Message,
    multicast::{
        is_multicast,
        MAX_MCAST_QP_ATTACH,
        MULTICAST_QPN, //
    },
    psn,
    qp::{
        Core,
        Qp, //
    },
    request::{
        Opcode,
        Status, //
    },
    requester::enter_error,
    responder::{
        NoReceive,
        Responder, //
    },
    schedule::{
        Bus,
        Qps, //
    },
    sgl::{
        self,
        Side,
        Unreachable, //
    },
    unreliable::{
        drop_too_long,
        end_in_error,
        tell_broken, //
    },
};

/// With this bit in a request's Q_Key, that of the queue pair is sent instead, which only a
/// privileged program can have set to a controlled one (IBA volume 1, 10.2.5).
const OWN_QKEY: u32 = 1 << 31;

/// A datagram on its way.
struct Datagram<'a, H: Host> {
    message: Message<'a, H>,
    path: &'a Path,
    qkey: u32,
}

/// What became of a datagram at a queue pair.
enum Arrival {
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
/// The status with which the request ends. Nothing was sent then, but to some of a group if memory
/// that was registered when the request was taken can no longer be read.
pub(crate) fn send<H: Host>(
    qps: &mut Qps<H>,
    bus: &mut Bus<'_, H>,
    qp: &mut Qp<H>,
) -> Result<(), Status> {
    let request = qp.sq.request();
    let (to, _) = abi::Destination::read_from_prefix(&request.head.extra)
        .map_err(|_| Status::LocalOperation)?;
    let target = to.remote_qpn.get();
    if to.reserved.get() != 0 || target > psn::MASK {
        return Err(Status::LocalOperation);
    }
    if request.length > bus.port.mtu.bytes() {
        return Err(Status::LocalLength);
    }
    let pd = qp.core.init.pd;
    let path = bus
        .port
        .ahs
        .path(to.ah.get(), pd)
        .ok_or(Status::LocalOperation)?;
    let qkey = match to.remote_qkey.get() {
        given if given & OWN_QKEY == 0 => given,
        _ => qp.core.attr.qkey,
    };

    let mut group = [0; MAX_MCAST_QP_ATTACH];
    let receivers: &[u32] = if is_multicast(&path.dgid) {
        let members = bus.port.groups.members(&path.dgid);
        for (to, from) in group.iter_mut().zip(members) {
            *to = *from;
        }
        let count = if target == MULTICAST_QPN {
            members.len()
        } else {
            0
        };
        group.get(..count).unwrap_or(&[])
    } else if path.kind == PathKind::Local {
        core::slice::from_ref(&target)
    } else {
        // There is no wire yet.
        &[]
    };
    if receivers.is_empty() {
        bus.counters.dropped.count(1);
    }
    for &receiver in receivers {
        match deliver(qps, bus, qp, receiver, &path, qkey) {
            Arrival::Delivered => (),
            Arrival::SourceLost => return Err(Status::LocalProtection),
            Arrival::Dropped | Arrival::Broken => bus.counters.dropped.count(1),
        }
    }
    Ok(())
}

/// Hands the datagram to one queue pair, which may be the sender itself.
fn deliver<H: Host>(
    qps: &mut Qps<H>,
    bus: &mut Bus<'_, H>,
    qp: &mut Qp<H>,
    receiver: u32,
    path: &Path,
    qkey: u32,
) -> Arrival {
    let Qp { core, sq, rq, .. } = qp;
    // Each receiver gets all of it, so each copy begins at the start.
    sq.begin_again();
    let length = sq.request().length;
    let datagram = Datagram {
        message: sq.message(core, length),
        path,
        qkey,
    };
    if receiver == core.id.number {
        let arrival = receive(bus, core, rq, datagram);
        if let Arrival::Broken = arrival {
            enter_error(qps, bus.host, core);
        }
        return arrival;
    }
    let Some(peer) = qps.get_mut(receiver) else {
        return Arrival::Dropped;
    };
    let arrival = receive(bus, &peer.core, &mut peer.rq, datagram);
    if let Arrival::Broken = arrival {
        let index = peer.core.index();
        peer.core.set_state(bus.host, State::Err);
        qps.stop(index);
    }
    arrival
}

/// Takes a datagram, or drops it: nobody is told.
fn receive<H: Host>(
    bus: &mut Bus<'_, H>,
    core: &Core<H>,
    rq: &mut Responder,
    mut datagram: Datagram<'_, H>,
) -> Arrival {
    let ready = matches!(
        core.state,
        State::Rtr | State::Rts | State::Sqd | State::Sqe
    );
    if core.init.qp_type != QpType::Ud || !ready {
        return Arrival::Dropped;
    }
    if core.attr.qkey != datagram.qkey {
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
    let length = datagram.message.length;
    if !rq.has_room(length.wrapping_add(grh::LENGTH)) {
        return match drop_too_long(bus, core, rq) {
            Ok(()) => Arrival::Dropped,
            Err(_) => Arrival::Broken,
        };
    }
    let with_imm = datagram.message.opcode == Opcode::SendWithImm;
    let header = grh::header(datagram.path, length, with_imm);
    let mut copied = sgl::copy(
        bus.keys,
        &mut Side::Inline(&header),
        &mut rq.target(),
        grh::LENGTH,
    );
    if copied.is_ok() {
        copied = sgl::copy(
            bus.keys,
            &mut datagram.message.local(),
            &mut rq.target(),
            length,
        );
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
            datagram.message.head.imm_or_inv
        } else {
            [0; 4]
        },
        flags: wc_flags::GRH | if with_imm { wc_flags::WITH_IMM } else { 0 },
        source: datagram.message.from,
        sl: datagram.path.sl,
        queue_index: rq.request().index.wrapping_add(1),
        solicited: datagram.message.is_solicited(),
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
