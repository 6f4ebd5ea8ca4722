// SPDX-License-Identifier: GPL-2.0

//! Sends datagrams: to a queue pair of the engine, by packet, or to all of a group.

use zerocopy::FromBytes;

use crate::{
    base::{
        abi,
        attr::PathKind,
        counters::Count,
        grh,
        host::{
            Host,
            Unsent, //
        },
        psn,
        status::Status, //
    },
    object::{
        multicast::MULTICAST_QPN,
        request::SendRequest,
        wr_opcode::Extra, //
    },
    operation::{
        ending::enter_error,
        request_segment::RequestSegment,
        ud_receive::{
            arrive,
            receive,
            Area,
            Arrival, //
        },
        unreliable::Unfinished, //
    },
    packet::ip::is_multicast,
    queue_pair::{
        cx::Cx,
        qp::Qp,
        schedule::Qps, //
    },
    wire::{
        self,
        ud::DatagramRoute, //
    },
};

/// With this bit in a request's Q_Key, that of the queue pair is sent instead, which only a
/// privileged program can have set to a controlled one (IBA volume 1, 10.2.5).
const OWN_QKEY: u32 = 1 << 31;

/// Sends the request at hand.
///
/// # Errors
///
/// [`Unfinished`]. Nothing was sent then, but to others than the one in question if memory that was
/// registered when the request was taken can no longer be read.
pub(crate) fn send<H: Host>(
    qps: &mut Qps<H>,
    cx: &mut Cx<'_, H>,
    qp: &mut Qp<H>,
) -> Result<(), Unfinished> {
    let request = &qp.sq.request;
    let (to, _) = abi::Destination::read_from_prefix(&request.slot.head.extra)
        .map_err(|_| Status::LocalOperation)?;
    let target = to.remote_qpn.get();
    if to.reserved.get() != 0 || target > psn::MASK {
        return Err(Status::LocalOperation.into());
    }
    if request.length > cx.port.mtu(qp.core.init.vport).bytes() {
        return Err(Status::LocalLength.into());
    }
    let init = &qp.core.init;
    let (path, mut way) = match cx.host.destination(&init.queue, request.index) {
        Some((path, route)) => (path, DatagramRoute::Own(route)),
        None => {
            let ah = to.ah.get();
            let path = cx.port.ahs.path(ah, init.pd);
            (
                path.ok_or(Status::LocalOperation)?,
                DatagramRoute::Handle(ah),
            )
        }
    };
    let qkey = match to.remote_qkey.get() {
        given if given & OWN_QKEY == 0 => given,
        _ => qp.core.attr.qkey,
    };
    let area = |request: &SendRequest, to| Area {
        header: grh::header(
            &path,
            request.length,
            request.opcode.facts().extra == Extra::Immediate,
        ),
        sl: path.sl,
        // A datagram that is no packet is in no VLAN.
        vlan: 0,
        to,
        qkey,
    };

    if !is_multicast(&path.dgid) {
        let PathKind::Local(vport) = path.kind else {
            return Ok(wire::ud::send(cx, qp, &mut way, target, qkey)?);
        };
        let area = area(request, Some(vport));
        return match deliver(qps, cx, qp, vport.number(target), &area)? {
            Arrival::SourceAbsent => Err(Unsent::Absent.into()),
            _ => Ok(()),
        };
    }
    // A group's queue pairs are called by one number (IBA volume 1, 10.5.2).
    if target != MULTICAST_QPN {
        cx.counters.dropped.count(1);
        return Ok(());
    }
    let area = area(request, None);
    let members = cx.port.groups.members(&path.dgid);
    let members = members.as_slice();
    // First the remote ones: if that cannot be sent yet, all of the datagram is sent later.
    if path.is_remote() {
        wire::ud::send(cx, qp, &mut way, target, qkey)?;
        cx.counters.multicast_sent.count(1);
    } else if members.is_empty() {
        cx.counters.dropped.count(1);
    }
    let mut is_sent = path.is_remote();
    for &member in members {
        match deliver(qps, cx, qp, member, &area)? {
            Arrival::Delivered | Arrival::Broken => is_sent = true,
            Arrival::SourceAbsent if !is_sent => return Err(Unsent::Absent.into()),
            // To send all of it again would be to send it twice to others.
            Arrival::SourceAbsent => cx.counters.dropped.count(1),
            Arrival::Dropped(_) | Arrival::SourceLost => (),
        }
    }
    Ok(())
}

/// Hands the datagram to one queue pair, which may be the sender itself.
fn deliver<H: Host>(
    qps: &mut Qps<H>,
    cx: &mut Cx<'_, H>,
    qp: &mut Qp<H>,
    receiver: u32,
    area: &Area,
) -> Result<Arrival, Unfinished> {
    let Qp { core, sq, rq, .. } = qp;
    let length = sq.request.length;
    // A datagram is one packet, whatever its length.
    let segment = RequestSegment::next(sq, core, length, 1);
    let arrival = if receiver == core.id.number {
        let arrival = receive(cx, core, rq, segment, Some(area));
        if let Arrival::Broken = arrival {
            enter_error(qps, cx.host, core);
        }
        arrival
    } else {
        arrive(qps, cx, receiver, segment, Some(area))
    };
    match arrival {
        Arrival::SourceLost => Err(Status::LocalProtection.into()),
        arrival => Ok(arrival),
    }
}
