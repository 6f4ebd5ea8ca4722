// SPDX-License-Identifier: GPL-2.0

//! Commands about the port: its attributes, its addresses, its event queues, its contexts.

use ferrule_engine::{ContextId, Engine, Mtu, UserContext, MAX_RD_ATOMIC};
use rustix::io::Errno;
use zerocopy::little_endian::U64;

use super::layout::{answer, errno_of, name, Answer, NOTHING};
use crate::area::{Doorbells, DB_AREA_SIZE};
use crate::device::clock;
use crate::events::EventQueue;
use crate::guest::Guest;
use crate::host::Nic;
use crate::interface::{CreateEq, DeviceInfo, OpenContext, SetGid, COUNTERS, MULTICAST_COUNTERS};
use crate::pages::area;

/// The most pages of a memory region.
pub(super) const MAX_MR_PAGES: u32 = 1 << 20;

pub(super) fn query_device(guest: &Guest) -> Answer {
    let quota = guest.device.quota();
    Ok(answer(&DeviceInfo {
        max_qp: quota.qps.into(),
        max_cq: quota.cqs.into(),
        max_srq: quota.srqs.into(),
        max_pd: quota.pds.into(),
        max_mr: quota.mrs.into(),
        max_mw: quota.mws.into(),
        max_ah: quota.ahs.into(),
        max_context: quota.contexts.into(),
        max_mcast_grp: quota.groups.into(),
        max_mcast_qp_attach: quota.members.into(),
        max_rd_atomic: u32::from(MAX_RD_ATOMIC).into(),
        max_mr_pages: MAX_MR_PAGES.into(),
        clock: clock().into(),
        reserved: [0; 8],
    }))
}

/// The counters of the guest's port.
pub(super) fn query_counters(guest: &Guest) -> Answer {
    let c = guest
        .device
        .command(|engine, _| engine.counters_of(guest.vport));
    let values: [u64; COUNTERS.len() + MULTICAST_COUNTERS] = [
        c.requests,
        c.request_errors,
        c.responder_errors,
        c.flushed,
        c.messages,
        c.bytes,
        c.completions,
        c.completion_overruns,
        c.receiver_not_ready,
        c.sequence_errors,
        c.retries,
        c.unanswered,
        c.probes,
        c.dropped,
        c.stray_doorbells,
        c.packets_sent,
        c.bytes_sent,
        c.packets_received,
        c.bytes_received,
        c.local_packets,
        c.local_bytes,
        c.send_waits,
        c.malformed_short,
        c.malformed_version,
        c.malformed_opcode,
        c.malformed_length,
        c.icrc_errors,
        c.pkey_errors,
        c.unknown_queue_pairs,
        c.misdirected,
        c.duplicates,
        c.naks_sent,
        c.naks_received,
        c.congestion_marks,
        c.congestion_notifications,
        c.congestion_notifications_handled,
        c.congestion_notifications_sent,
        c.multicast_sent,
        c.multicast_received,
    ];
    Ok(answer(&values.map(U64::new)))
}

pub(super) fn create_eq(guest: &Guest, asked: &CreateEq) -> Answer {
    let queue = EventQueue::new(&guest.memory, asked)?;
    let vector = usize::try_from(asked.vector.get()).map_err(|_| Errno::INVAL)?;
    guest.device.command(|_, host| {
        let place = host.queue(guest.port, vector).ok_or(Errno::INVAL)?;
        if place.is_some() {
            return Err(Errno::BUSY);
        }
        *place = Some(queue);
        Ok(())
    })?;
    NOTHING
}

pub(super) fn destroy_eq(guest: &Guest, vector: u32) -> Answer {
    let vector = usize::try_from(vector).map_err(|_| Errno::INVAL)?;
    let taken = guest
        .device
        .command(|_, host| host.queue(guest.port, vector).and_then(Option::take));
    taken.ok_or(Errno::INVAL)?;
    NOTHING
}

pub(super) fn set_gid(guest: &Guest, asked: &SetGid) -> Answer {
    let gid = match asked.valid.get() {
        0 if asked.gid == [0; 16] => None,
        1 => Some(asked.gid),
        _ => return Err(Errno::INVAL),
    };
    let index = usize::try_from(asked.index.get()).map_err(|_| Errno::INVAL)?;
    guest
        .device
        .command(|_, host| host.set_address(guest.port, index, gid))?;
    NOTHING
}

pub(super) fn set_mtu(guest: &Guest, mtu: u32) -> Answer {
    let mtu = Mtu::try_from(mtu).map_err(errno_of)?;
    let vport = guest.vport;
    guest
        .device
        .command(|engine, _| engine.set_port_mtu(vport, mtu));
    NOTHING
}

pub(super) fn open_context(guest: &mut Guest, asked: &OpenContext) -> Answer {
    guest.contexts.check_limit()?;
    let doorbell = area(&guest.memory, &asked.doorbell, DB_AREA_SIZE)?;
    let status = area(&guest.memory, &asked.status, DB_AREA_SIZE)?;
    let context =
        Box::new(UserContext::<Nic>::new(Doorbells::new(doorbell, status)).with_vport(guest.vport));
    let id = guest.device.add(context, Engine::add_context, |_| ())?;
    guest.contexts.add(id.number());
    Ok(answer(&name(id.number())))
}

pub(super) fn quiesce_context(guest: &Guest, number: u32) -> Answer {
    let id = ContextId::from_number(guest.contexts.own(number)?);
    let device = &guest.device;
    let mut next = Some(0);
    while let Some(from) = next {
        next = device.command(|engine, host| engine.fail_context(host, id, from));
    }
    device.finish(id);
    device.command(|engine, _| engine.set_context_dead(id));
    // Requests that were rung before the program could see that end, too.
    device.finish(id);
    NOTHING
}

pub(super) fn close_context(guest: &mut Guest, number: u32) -> Answer {
    let id = ContextId::from_number(guest.contexts.own(number)?);
    let gone = guest.device.command(|engine, _| engine.remove_context(id));
    gone.map_err(errno_of)?;
    guest.contexts.remove(number);
    NOTHING
}
