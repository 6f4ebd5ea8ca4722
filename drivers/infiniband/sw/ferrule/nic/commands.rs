// SPDX-License-Identifier: GPL-2.0

//! The handle by which objects use the function: each method is a command.
//!
//! What an object is made of stays mapped until the device has answered that it is destroyed.

use ferrule_engine::{
    Access,
    ContextId,
    MwType,
    QpId,
    QpInfo,
    RingLayout,
    SrqInfo, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::{
    cq,
    mr::UserRegion,
    umem::Umem,
    Memory, //
};

use super::{
    address::Destination,
    area::{
        self,
        Listed, //
    },
    attributes,
    command,
    events::{
        self,
        Cq,
        Qp,
        Srq, //
    },
    fast::{
        self,
        List, //
    },
    function::{
        Context,
        Function,
        Region, //
    },
    interface::{
        mr_flag,
        qp_flag,
        rereg,
        AllocMw,
        Capabilities,
        CreateCq,
        CreateQp,
        CreateSrq,
        RegMr,
        ReregMr,
        ResizeCq,
        Ring,
        SetSrqLimit,
        NONE, //
    },
    table::Room, //
};
use crate::backend::{
    object::{
        MrChange,
        MrInfo,
        NewQp,
        QpInit,
        SrqInit, //
    },
    ring::{
        CqRing,
        Doorbells,
        QpRings, //
    },
    Commands, //
};

impl Function {
    /// The event queue of a completion vector. That of vector 0 has no completions, unless it is the only one.
    fn completion_eq(&self, vector: u32) -> u32 {
        match self.events.count() - 1 {
            0 => events::ASYNC,
            count => 1 + vector % count,
        }
    }
}

/// A ring as commands have it.
fn ring(layout: &RingLayout) -> Ring {
    Ring {
        offset: layout.offset.into(),
        depth: layout.depth.into(),
        stride: layout.stride.into(),
        reserved: 0.into(),
    }
}

/// Pages of a program, that begin at `iova` for it, as a command has them; and the list of the pages, which the command
/// names.
fn region(
    function: &Function,
    pd: u32,
    access: Access,
    iova: u64,
    pages: &Umem,
) -> Result<(RegMr, Listed)> {
    let list = Listed::new(function.device(), pages.dma_pages()?)?;
    let flags = if pages.writable() {
        mr_flag::WRITABLE
    } else {
        0
    };
    let operands = RegMr {
        pd: pd.into(),
        access: access.0.into(),
        iova: iova.into(),
        length: pages.len().into(),
        offset: pages.page_offset().into(),
        flags: flags.into(),
        memory: list.operand(),
    };
    Ok((operands, list))
}

impl Commands for Arc<Function> {
    type Destination = Destination;

    fn add_context(&self, doorbells: Doorbells) -> Result<ContextId> {
        let room = Room::new()?;
        let (number, mapped) = self.open_context(&doorbells)?;
        let context = Context {
            doorbells,
            _mapped: mapped,
        };
        self.contexts.insert(room, number, context);
        Ok(ContextId::from_number(number))
    }

    fn quiesce_context(&self, id: ContextId) {
        let _ = self.execute::<command::QuiesceContext>(&id.number().into());
        // If the function has been taken away, nobody else says so.
        self.contexts.with(id.number(), |context| {
            let dead = core::mem::offset_of!(ferrule_engine::abi::Status, dead);
            let _ = context.doorbells.status.store_u32(dead, 1);
        });
    }

    fn remove_context(&self, id: ContextId) {
        self.destroy::<command::RemoveContext>(id.number())
            .release(self.contexts.take(id.number()));
    }

    fn kick(&self, id: ContextId) -> Result {
        if self.is_gone() {
            return Err(EIO);
        }
        Function::kick(self, id.number());
        Ok(())
    }

    fn add_pd(&self) -> Result<u32> {
        Ok(self.execute::<command::AddPd>(&())?.number.get())
    }

    fn remove_pd(&self, id: u32) {
        self.destroy::<command::RemovePd>(id).release(());
    }

    fn remove_ah(&self, number: u32) {
        self.destroy::<command::RemoveAh>(number).release(());
    }

    fn add_mr(&self, pd: u32, access: Access, iova: u64, pages: Umem) -> Result<u32> {
        let room = Room::new()?;
        let (operands, _list) = region(self, pd, access, iova, &pages)?;
        let key = self.execute::<command::AddMr>(&operands)?.number.get();
        let region = Region::Pinned(pages.into());
        self.regions.insert(room, key, region);
        Ok(key)
    }

    /// The device reaches all memory by the addresses that are mapped for it.
    fn add_dma_mr(&self, pd: u32, access: Access, _memory: Memory) -> Result<u32> {
        let added = self.execute::<command::AddMr>(&RegMr {
            pd: pd.into(),
            access: access.0.into(),
            iova: 0.into(),
            length: u64::MAX.into(),
            offset: 0.into(),
            flags: (mr_flag::ALL | mr_flag::WRITABLE).into(),
            memory: area::no_pages(),
        })?;
        Ok(added.number.get())
    }

    /// The device reads what is mapped from a list.
    fn add_fast_mr(&self, pd: u32, _memory: Memory, max_pages: u32) -> Result<u32> {
        let room = Room::new()?;
        let (list, pages) = List::new(self.device(), max_pages)?;
        let added = self.execute::<command::AddMr>(&list.region(pd, &pages))?;
        let key = added.number.get();
        self.regions.insert(room, key, Region::Fast(list));
        Ok(key)
    }

    fn map_fast_mr(&self, key: u32, extents: impl Iterator<Item = (u64, u64)>) -> Result {
        let list = self.regions.with(key, |region| match region {
            Region::Fast(list) => Some(list.memory()),
            Region::Pinned(_) => None,
        });
        fast::fill(&list.flatten().ok_or(EINVAL)?, extents)
    }

    fn query_mr(&self, key: u32) -> Result<MrInfo> {
        let info = self.execute::<command::QueryMr>(&key.into())?;
        let start = self
            .regions
            .with(key, |region| match region {
                Region::Pinned(memory) => memory.start(),
                Region::Fast(_) => 0,
            })
            .unwrap_or(0);
        Ok(MrInfo {
            region: UserRegion {
                start,
                length: info.length.get(),
                iova: info.iova.get(),
                access: rdma::Access::from_bits(info.access.get()),
            },
            writable: info.flags.get() & mr_flag::WRITABLE != 0,
            has_windows: info.has_windows.get() != 0,
        })
    }

    fn rereg_mr(&self, key: u32, change: MrChange) -> Result {
        let mut mask = 0;
        if change.pd.is_some() {
            mask |= rereg::PD;
        }
        if change.access.is_some() {
            mask |= rereg::ACCESS;
        }
        let (pd, access) = (
            change.pd.unwrap_or(0),
            change.access.unwrap_or(Access::NONE),
        );
        let mut operands = ReregMr {
            key: key.into(),
            mask: mask.into(),
            change: RegMr {
                pd: pd.into(),
                access: access.0.into(),
                iova: 0.into(),
                length: 0.into(),
                offset: 0.into(),
                flags: 0.into(),
                memory: area::no_pages(),
            },
        };
        let Some((iova, pages)) = change.memory else {
            self.execute::<command::ChangeMr>(&operands)?;
            return Ok(());
        };
        let (memory, _list) = region(self, pd, access, iova, &pages)?;
        operands.mask = (mask | rereg::MEMORY).into();
        operands.change = memory;
        self.execute::<command::ChangeMr>(&operands)?;
        let mut memory = Some(Region::Pinned(pages.into()));
        // The pages of before are unpinned without the lock.
        let _before = self.regions.with(key, |region| {
            memory
                .take()
                .map(|memory| core::mem::replace(region, memory))
        });
        Ok(())
    }

    fn remove_mr(&self, key: u32) {
        self.destroy::<command::RemoveMr>(key)
            .release(self.regions.take(key));
    }

    fn add_mw(&self, pd: u32, kind: MwType) -> Result<u32> {
        let kind: u32 = match kind {
            MwType::Type1 => 1,
            MwType::Type2 => 2,
        };
        let added = self.execute::<command::AddMw>(&AllocMw {
            pd: pd.into(),
            kind: kind.into(),
        })?;
        Ok(added.number.get())
    }

    fn remove_mw(&self, key: u32) {
        self.destroy::<command::RemoveMw>(key).release(());
    }

    fn add_cq(
        &self,
        depth: u32,
        ring: CqRing,
        vector: u32,
        notifier: Arc<cq::Notifier>,
    ) -> Result<u32> {
        let room = Room::new()?;
        let vector = self.completion_eq(vector);
        let (slots, slots_list) = area::map(self.device(), ring.slots)?;
        let (ctrl, ctrl_list) = area::map(self.device(), ring.ctrl)?;
        let added = self.execute::<command::AddCq>(&CreateCq {
            depth: depth.into(),
            eq: vector.into(),
            ring: slots_list.operand(),
            ctrl: ctrl_list.operand(),
        })?;
        let cqn = added.number.get();
        let cq = Cq {
            notifier,
            vector,
            ring: slots,
            _ctrl: ctrl,
        };
        self.events.cqs.insert(room, cqn, cq);
        Ok(cqn)
    }

    fn resize_cq(&self, cqn: u32, depth: u32, ring: CqRing) -> Result<u32> {
        let (ring, list) = area::map(self.device(), ring.slots)?;
        let base = self.execute::<command::ChangeCq>(&ResizeCq {
            cqn: cqn.into(),
            depth: depth.into(),
            ring: list.operand(),
        })?;
        let mut ring = Some(ring);
        // The ring of before is unmapped without the lock.
        let _before = self.events.cqs.with(cqn, |cq| {
            ring.take()
                .map(|ring| core::mem::replace(&mut cq.ring, ring))
        });
        Ok(base.number.get())
    }

    fn remove_cq(&self, cqn: u32) {
        let destroyed = self.destroy::<command::RemoveCq>(cqn);
        let vector = self.events.cqs.with(cqn, |cq| cq.vector);
        let cq = self.events.cqs.take(cqn);
        // Afterwards none of its events is underway: neither here, nor to another queue that gets its number.
        self.events.drain(events::ASYNC);
        if let Some(vector) = vector {
            self.events.drain(vector);
        }
        destroyed.release(cq);
    }

    fn add_srq(&self, init: SrqInit) -> Result<u32> {
        let room = Room::new()?;
        let (area, list) = area::map(self.device(), init.area)?;
        let added = self.execute::<command::AddSrq>(&CreateSrq {
            pd: init.pd.into(),
            max_sge: init.max_sge.into(),
            ring: ring(&init.ring),
            ctrl: init.ctrl.into(),
            reserved: 0.into(),
            area: list.operand(),
        })?;
        let number = added.number.get();
        let srq = Srq {
            notifier: init.notifier,
            _area: area,
        };
        self.events.srqs.insert(room, number, srq);
        Ok(number)
    }

    fn set_srq_limit(&self, number: u32, limit: u32) -> Result {
        self.execute::<command::ChangeSrq>(&SetSrqLimit {
            number: number.into(),
            limit: limit.into(),
        })?;
        Ok(())
    }

    fn query_srq(&self, number: u32) -> Result<SrqInfo> {
        let info = self.execute::<command::QuerySrq>(&number.into())?;
        Ok(SrqInfo {
            max_wr: info.max_wr.get(),
            max_sge: info.max_sge.get(),
            limit: info.limit.get(),
        })
    }

    fn remove_srq(&self, number: u32) {
        let destroyed = self.destroy::<command::RemoveSrq>(number);
        let srq = self.events.srqs.take(number);
        self.events.drain(events::ASYNC);
        destroyed.release(srq);
    }

    fn add_qp(&self, init: QpInit<Destination>) -> Result<NewQp> {
        let room = Room::new()?;
        let QpRings {
            sq,
            rq,
            ctrl,
            destinations,
            cap,
        } = &init.rings;
        let mut flags = 0;
        if init.sq_sig_all {
            flags |= qp_flag::SQ_SIG_ALL;
        }
        if init.gsi {
            flags |= qp_flag::GSI;
        }
        if init.context.is_none() {
            flags |= qp_flag::PRIVILEGED;
        }
        let context = init
            .context
            .map_or(self.context, |context| context.number());
        let (area, list) = area::map(self.device(), init.area)?;
        let made = self.execute::<command::AddQp>(&CreateQp {
            context: context.into(),
            pd: init.pd.into(),
            qp_type: attributes::service(init.qp_type).into(),
            flags: flags.into(),
            send_cq: init.send_cq.into(),
            recv_cq: init.recv_cq.into(),
            srq: init.srq.unwrap_or(NONE).into(),
            cap: Capabilities {
                max_send_wr: cap.max_send_wr.into(),
                max_recv_wr: cap.max_recv_wr.into(),
                max_send_sge: cap.max_send_sge.into(),
                max_recv_sge: cap.max_recv_sge.into(),
                max_inline: cap.max_inline.into(),
            },
            sq: ring(sq),
            rq: ring(rq),
            ctrl: (*ctrl).into(),
            destinations: destinations.unwrap_or(NONE).into(),
            area: list.operand(),
            reserved: [0; 16],
        })?;
        let number = made.number.get();
        let qp = Qp {
            notifier: init.notifier,
            _area: area,
        };
        self.events.qps.insert(room, number, qp);
        Ok(NewQp {
            id: QpId {
                number,
                generation: made.generation.get(),
            },
            doorbell: made.doorbell.get(),
        })
    }

    fn query_qp(&self, qpn: u32) -> Result<QpInfo> {
        attributes::info(&self.execute::<command::QueryQp>(&qpn.into())?)
    }

    fn ring(&self, doorbell: u32) {
        Function::ring(self, doorbell);
    }

    fn remove_qp(&self, qpn: u32) {
        let destroyed = self.destroy::<command::RemoveQp>(qpn);
        let qp = self.events.qps.take(qpn);
        self.events.drain(events::ASYNC);
        destroyed.release(qp);
    }
}
