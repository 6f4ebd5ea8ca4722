// SPDX-License-Identifier: GPL-2.0

//! The handle by which objects use the function: each method is a command.
//!
//! The memory of an object stays mapped until the device has answered that the object is destroyed,
//! and that of an object whose command had no answer stays so for good, unless a reset has one.

use ferrule_engine::{
    abi::dead,
    Access,
    ContextId,
    CqInfo,
    Moderation,
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
use kernel_ext::{
    dma::DmaArea,
    mm::SharedArea, //
};
use rdma::{
    cq,
    umem::Umem,
    Memory, //
};

use super::{
    address::Destination,
    area,
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
        Region,
        DEAD, //
    },
    interface::{
        mr_flag,
        qp_flag,
        AllocMw,
        Capabilities,
        CreateCq,
        CreateQp,
        CreateSrq,
        CreateXrcSrq,
        ModerateCq,
        RegMr,
        ResizeCq,
        ResizeSrq,
        Ring,
        SetSrqLimit,
        NONE, //
    },
    regions,
    table::Reservation, //
};
use crate::backend::{
    numbers::Numbers,
    object::{
        MrChange,
        MrInfo,
        NewQp,
        QpInit,
        SrqInit,
        SrqResize, //
    },
    ring::{
        CqRing,
        Doorbells,
        QpRings, //
    },
    Commands, //
};

impl Function {
    /// The number of the event queue for a completion vector. The first event queue has no
    /// completions, unless it is the only one.
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

impl Commands for Arc<Function> {
    type Destination = Destination;

    fn add_context(&self, doorbells: Doorbells, _beside: Option<ContextId>) -> Result<ContextId> {
        let reservation = Reservation::new()?;
        let _reused = self.reused.lock();
        let (number, mapped) = self.open_context(&doorbells)?;
        let context = Context {
            doorbells,
            _mapped: mapped,
        };
        self.contexts.insert(reservation, number, context);
        Ok(ContextId::from_number(number))
    }

    fn quiesce_context(&self, id: ContextId) {
        let _ = self.execute::<command::QuiesceContext>(&id.number().into());
        // Of a function that is gone nobody else says so.
        let value = if self.is_gone() {
            dead::DEAD_UNFLUSHED
        } else {
            dead::DEAD
        };
        self.contexts.with(id.number(), |context| {
            // As in `Function::fail`.
            let _ = context.doorbells.status.store_u32_release(DEAD, value);
        });
    }

    fn remove_context(&self, id: ContextId) {
        let reused = self.reused.lock();
        let destroyed = self.destroy::<command::RemoveContext>(id.number());
        let context = self.contexts.take(id.number());
        drop(reused);
        destroyed.release(context);
    }

    fn is_gone(&self) -> bool {
        Function::is_gone(self)
    }

    fn kick(&self, id: ContextId) -> Result {
        if Function::is_gone(self) {
            return Err(EIO);
        }
        self.kick_for(id.number());
        Ok(())
    }

    fn clock(&self) -> Result<u64> {
        Ok(self.execute::<command::QueryDevice>(&())?.clock.get())
    }

    fn add_pd(&self, _context: Option<ContextId>) -> Result<u32> {
        Ok(self.execute::<command::AddPd>(&())?.number.get())
    }

    fn remove_pd(&self, id: u32) {
        self.destroy::<command::RemovePd>(id).release(());
    }

    fn xrcds(&self) -> &Numbers {
        &self.xrcds
    }

    fn remove_ah(&self, number: u32) {
        self.destroy::<command::RemoveAh>(number).release(());
    }

    fn add_mr(&self, pd: u32, access: Access, iova: u64, pages: Umem) -> Result<u32> {
        let reservation = Reservation::new()?;
        let (operands, list) = regions::region(self, pd, access, iova, &pages)?;
        let (added, pages) = self.hand_over::<command::AddMr, _>(&operands, pages, list)?;
        let key = added.number.get();
        let region = Region::Pinned(pages.into());
        self.regions.insert(reservation, key, region);
        Ok(key)
    }

    fn add_dm_mr(
        &self,
        pd: u32,
        access: Access,
        area: Arc<SharedArea>,
        offset: u64,
        length: u64,
    ) -> Result<u32> {
        let reservation = Reservation::new()?;
        let area = DmaArea::new(self.device(), area)?;
        let (operands, list) = regions::of_area(self, pd, access, &area, offset, length)?;
        let (added, area) = self.hand_over::<command::AddMr, _>(&operands, area, list)?;
        let key = added.number.get();
        self.regions.insert(reservation, key, Region::Area(area));
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
        let reservation = Reservation::new()?;
        let (list, pages) = List::new(self.device(), max_pages)?;
        let operands = list.region(pd, &pages);
        let (added, list) = self.hand_over::<command::AddMr, _>(&operands, list, pages)?;
        let key = added.number.get();
        self.regions.insert(reservation, key, Region::Fast(list));
        Ok(key)
    }

    fn map_fast_mr(&self, key: u32, extents: impl Iterator<Item = (u64, u64)>) -> Result {
        let list = self.regions.with(key, |region| match region {
            Region::Fast(list) => Some(list.memory()),
            Region::Pinned(_) | Region::Area(_) => None,
        });
        fast::fill(&list.flatten().ok_or(EINVAL)?, extents)
    }

    fn query_mr(&self, key: u32) -> Result<MrInfo> {
        regions::query(self, key)
    }

    fn rereg_mr(&self, key: u32, change: MrChange) -> Result {
        regions::change(self, key, change)
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
        _context: Option<ContextId>,
        depth: u32,
        ring: CqRing,
        vector: u32,
        notifier: Arc<cq::Notifier>,
    ) -> Result<u32> {
        let reservation = Reservation::new()?;
        let eq = self.completion_eq(vector);
        let (slots, slots_list) = area::map(self.device(), ring.slots)?;
        let (ctrl, ctrl_list) = area::map(self.device(), ring.ctrl)?;
        let operands = CreateCq {
            depth: depth.into(),
            eq: eq.into(),
            ring: slots_list.operand(),
            ctrl: ctrl_list.operand(),
        };
        let lists = (slots_list, ctrl_list);
        let _reused = self.reused.lock();
        let (added, (slots, ctrl)) =
            self.hand_over::<command::AddCq, _>(&operands, (slots, ctrl), lists)?;
        let cqn = added.number.get();
        let cq = Cq {
            notifier,
            vector: eq,
            ring: slots,
            ctrl,
            told: 0,
        };
        self.events.cqs.insert(reservation, cqn, cq);
        Ok(cqn)
    }

    fn resize_cq(&self, cqn: u32, depth: u32, ring: CqRing) -> Result<u32> {
        let (ring, list) = area::map(self.device(), ring.slots)?;
        let operands = ResizeCq {
            cqn: cqn.into(),
            depth: depth.into(),
            ring: list.operand(),
        };
        let (base, ring) = self.hand_over::<command::ChangeCq, _>(&operands, ring, list)?;
        let _before = self.events.cqs.swap(cqn, ring, |cq| &mut cq.ring);
        Ok(base.number.get())
    }

    fn query_cq(&self, cqn: u32) -> Result<CqInfo> {
        let info = self.execute::<command::QueryCq>(&cqn.into())?;
        Ok(CqInfo {
            depth: info.depth.get(),
            producer: info.producer.get(),
            consumer: info.consumer.get(),
            overrun: info.overrun.get() != 0,
        })
    }

    fn moderate_cq(&self, cqn: u32, moderation: Moderation) -> Result {
        self.execute::<command::HoldCqEvents>(&ModerateCq {
            cqn: cqn.into(),
            count: moderation.count.into(),
            period: moderation.period.into(),
        })?;
        Ok(())
    }

    fn remove_cq(&self, cqn: u32) {
        let reused = self.reused.lock();
        let destroyed = self.destroy::<command::RemoveCq>(cqn);
        let vector = self.events.cqs.with(cqn, |cq| cq.vector);
        let cq = self.events.cqs.take(cqn);
        // Afterwards none of its events is underway: neither here, nor to another queue that gets
        // its number.
        self.events.drain(events::ASYNC);
        if let Some(vector) = vector {
            self.events.drain(vector);
        }
        drop(reused);
        destroyed.release(cq);
    }

    fn add_srq(&self, init: SrqInit) -> Result<u32> {
        let reservation = Reservation::new()?;
        let (area, list) = area::map(self.device(), init.area)?;
        let srq = CreateSrq {
            pd: init.pd.into(),
            max_sge: init.max_sge.into(),
            ring: ring(&init.ring),
            ctrl: init.ctrl.into(),
            reserved: 0.into(),
            area: list.operand(),
        };
        let (added, area) = match init.xrc {
            None => self.hand_over::<command::AddSrq, _>(&srq, area, list)?,
            Some(xrc) => {
                let srq = CreateXrcSrq {
                    srq,
                    xrcd: xrc.domain.into(),
                    cq: xrc.cq.into(),
                };
                self.hand_over::<command::AddXrcSrq, _>(&srq, area, list)?
            }
        };
        let number = added.number.get();
        let srq = Srq {
            notifier: init.notifier,
            area,
        };
        self.events.srqs.insert(reservation, number, srq);
        Ok(number)
    }

    fn set_srq_limit(&self, number: u32, limit: u32) -> Result {
        self.execute::<command::ChangeSrq>(&SetSrqLimit {
            number: number.into(),
            limit: limit.into(),
        })?;
        Ok(())
    }

    fn resize_srq(&self, number: u32, resize: SrqResize) -> Result {
        let (area, list) = area::map(self.device(), resize.area)?;
        let operands = ResizeSrq {
            number: number.into(),
            limit: resize.limit.unwrap_or(NONE).into(),
            ring: ring(&resize.ring),
            ctrl: resize.ctrl.into(),
            reserved: 0.into(),
            area: list.operand(),
        };
        let ((), area) = self.hand_over::<command::ReplaceSrq, _>(&operands, area, list)?;
        let _before = self.events.srqs.swap(number, area, |srq| &mut srq.area);
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
        let reservation = Reservation::new()?;
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
        let service = attributes::service(init.qp_type)?;
        let (area, list) = area::map(self.device(), init.area)?;
        let operands = CreateQp {
            context: context.into(),
            pd: init.pd.into(),
            qp_type: service.into(),
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
        };
        let (made, area) = self.hand_over::<command::AddQp, _>(&operands, area, list)?;
        let number = made.number.get();
        let qp = Qp {
            notifier: init.notifier,
            has_srq: init.srq.is_some(),
            _area: area,
        };
        self.events.qps.insert(reservation, number, qp);
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
