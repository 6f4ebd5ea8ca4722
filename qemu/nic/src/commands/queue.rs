// SPDX-License-Identifier: GPL-2.0

//! Commands about completion queues and shared receive queues.

use std::sync::Arc;

use ferrule_engine::abi;
use ferrule_engine::{
    Cq, CqInit, CqResize, Engine, Moderation, RingLayout, Srq, SrqInit, SrqResize, XrcSrq,
};
use rustix::io::Errno;

use super::layout::{answer, errno_of, name, zero, Answer, NOTHING};
use crate::area::{Queue, Ring, CQE_SIZE};
use crate::guest::{Guest, CQ_EVENTS};
use crate::host::{Handle, Nic};
use crate::interface::{
    self, event, CreateCq, CreateSrq, CreateXrcSrq, ModerateCq, PageList, ResizeCq, ResizeSrq,
    SetSrqLimit, NONE,
};
use crate::pages::{area, Pages, PAGE};

/// The most bytes of a slot: the head and the longest list, rounded up as the driver does it.
const fn largest_slot(head: usize) -> usize {
    let list = abi::MAX_SGE.saturating_mul(size_of::<abi::Sge>());
    head.saturating_add(list).next_power_of_two()
}

/// The most bytes for one entry: a slot of each ring, and an address vector.
const LARGEST_ENTRY: usize = largest_slot(size_of::<abi::SendWqe>())
    + largest_slot(size_of::<abi::RecvWqe>())
    + size_of::<interface::AddressVector>();

/// The most pages of the buffer of a queue: those entries, and a page for the control words.
const MAX_QUEUE_PAGES: u32 =
    (abi::MAX_QP_DEPTH as usize * LARGEST_ENTRY).div_ceil(interface::PAGE_SIZE) as u32 + 1;

/// Pins the slots of a completion queue.
fn slots(guest: &Guest, list: &PageList, depth: u32) -> Result<Pages, Errno> {
    if !depth.is_power_of_two() || depth > abi::MAX_CQ_DEPTH {
        return Err(Errno::INVAL);
    }
    let length = u64::from(depth).saturating_mul(CQE_SIZE);
    area(&guest.memory, list, length)
}

/// Pins the buffer of a queue.
pub(super) fn buffer(guest: &Guest, list: &PageList) -> Result<Pages, Errno> {
    let count = list.pages.get();
    if count > MAX_QUEUE_PAGES {
        return Err(Errno::INVAL);
    }
    area(&guest.memory, list, u64::from(count).saturating_mul(PAGE))
}

/// Where a ring stands.
pub(super) fn layout(ring: &interface::Ring) -> Result<RingLayout, Errno> {
    zero(ring.reserved.get())?;
    Ok(RingLayout {
        offset: ring.offset.get(),
        depth: ring.depth.get(),
        stride: ring.stride.get(),
    })
}

pub(super) fn create_cq(guest: &mut Guest, asked: &CreateCq) -> Answer {
    guest.cqs.check_limit()?;
    let (depth, eq) = (asked.depth.get(), asked.eq.get());
    if eq != NONE {
        let known = guest
            .device
            .command(|_, host| host.has_queue(guest.port, eq));
        known.then_some(()).ok_or(Errno::INVAL)?;
    }
    let ctrl = area(&guest.memory, &asked.ctrl, size_of::<abi::CqCtrl>() as u64)?;
    let ctrl = Arc::new(ctrl);
    let ring = Ring::new(slots(guest, &asked.ring, depth)?, Arc::clone(&ctrl));
    let handle = Handle::new(guest.port, eq);
    let init = CqInit {
        depth,
        ring,
        handle: handle.clone(),
    };
    let cq = Cq::<Nic>::new(init).map_err(errno_of)?;
    let told = |&cqn: &u32| handle.set_number(cqn);
    let cqn = guest.device.add(Box::new(cq), Engine::add_cq, told)?;
    guest.cqs.add(cqn);
    guest.cq_ctrls.insert(cqn, ctrl);
    Ok(answer(&name(cqn)))
}

pub(super) fn resize_cq(guest: &Guest, asked: &ResizeCq) -> Answer {
    let cqn = guest.cqs.own(asked.cqn.get())?;
    let ctrl = guest.cq_ctrls.get(&cqn).ok_or(Errno::INVAL)?;
    let depth = asked.depth.get();
    let ring = Ring::new(slots(guest, &asked.ring, depth)?, Arc::clone(ctrl));
    let mut resize = CqResize { depth, ring };
    // The old ring is dropped after the engine was left.
    let base = guest
        .device
        .command(|engine, _| engine.resize_cq(cqn, &mut resize));
    Ok(answer(&name(base.map_err(errno_of)?)))
}

pub(super) fn query_cq(guest: &Guest, cqn: u32) -> Answer {
    let cqn = guest.cqs.own(cqn)?;
    let info = guest.device.command(|engine, _| engine.query_cq(cqn));
    let info = info.map_err(errno_of)?;
    Ok(answer(&interface::CqInfo {
        depth: info.depth.into(),
        producer: info.producer.into(),
        consumer: info.consumer.into(),
        overrun: u32::from(info.overrun).into(),
    }))
}

pub(super) fn moderate_cq(guest: &Guest, asked: &ModerateCq) -> Answer {
    let cqn = guest.cqs.own(asked.cqn.get())?;
    let moderation = Moderation {
        count: asked.count.get(),
        period: asked.period.get(),
    };
    let done = guest
        .device
        .command(|engine, host| engine.moderate_cq(host, cqn, moderation));
    done.map_err(errno_of)?;
    NOTHING
}

pub(super) fn destroy_cq(guest: &mut Guest, cqn: u32) -> Answer {
    guest.cqs.own(cqn)?;
    let gone = guest.device.command(|engine, _| engine.remove_cq(cqn));
    gone.map_err(errno_of)?;
    guest.cqs.remove(cqn);
    guest.cq_ctrls.remove(&cqn);
    guest.forget(CQ_EVENTS, cqn);
    NOTHING
}

pub(super) fn create_xrc_srq(guest: &mut Guest, asked: &CreateXrcSrq) -> Answer {
    let xrc = XrcSrq {
        domain: guest.xrcd(asked.xrcd.get())?,
        cq: guest.cqs.own(asked.cq.get())?,
    };
    create_srq(guest, &asked.srq, Some(xrc))
}

pub(super) fn create_srq(guest: &mut Guest, asked: &CreateSrq, xrc: Option<XrcSrq>) -> Answer {
    zero(asked.reserved.get())?;
    guest.srqs.check_limit()?;
    let handle = Handle::new(guest.port, NONE);
    let srq = Srq::<Nic>::new(SrqInit {
        pd: guest.pd(asked.pd.get())?,
        xrc,
        max_sge: asked.max_sge.get(),
        ring: layout(&asked.ring)?,
        ctrl: asked.ctrl.get(),
        queue: Queue::new(buffer(guest, &asked.area)?, guest.port, (0, 0)),
        handle: handle.clone(),
    });
    let srq = Box::new(srq.map_err(errno_of)?);
    let told = |&number: &u32| handle.set_number(number);
    let number = guest.device.add(srq, Engine::add_srq, told)?;
    guest.srqs.add(number);
    Ok(answer(&name(number)))
}

pub(super) fn set_srq_limit(guest: &Guest, asked: &SetSrqLimit) -> Answer {
    let number = guest.srqs.own(asked.number.get())?;
    let done = guest
        .device
        .command(|engine, host| engine.set_srq_limit(host, number, asked.limit.get()));
    done.map_err(errno_of)?;
    NOTHING
}

pub(super) fn resize_srq(guest: &Guest, asked: &ResizeSrq) -> Answer {
    zero(asked.reserved.get())?;
    let number = guest.srqs.own(asked.number.get())?;
    let limit = asked.limit.get();
    // The old buffer is dropped after the engine was left.
    let mut resize = SrqResize::<Nic> {
        ring: layout(&asked.ring)?,
        ctrl: asked.ctrl.get(),
        queue: Queue::new(buffer(guest, &asked.area)?, guest.port, (0, 0)),
        limit: (limit != NONE).then_some(limit),
    };
    let done = guest
        .device
        .command(|engine, host| engine.resize_srq(host, number, &mut resize));
    done.map_err(errno_of)?;
    NOTHING
}

pub(super) fn query_srq(guest: &Guest, number: u32) -> Answer {
    let number = guest.srqs.own(number)?;
    let info = guest.device.command(|engine, _| engine.query_srq(number));
    let info = info.map_err(errno_of)?;
    Ok(answer(&interface::SrqInfo {
        max_wr: info.max_wr.into(),
        max_sge: info.max_sge.into(),
        limit: info.limit.into(),
        reserved: 0.into(),
    }))
}

pub(super) fn destroy_srq(guest: &mut Guest, number: u32) -> Answer {
    guest.srqs.own(number)?;
    let gone = guest.device.command(|engine, _| engine.remove_srq(number));
    gone.map_err(errno_of)?;
    guest.srqs.remove(number);
    guest.forget(&[event::SRQ], number);
    NOTHING
}
