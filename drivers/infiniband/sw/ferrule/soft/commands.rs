// SPDX-License-Identifier: GPL-2.0

//! The command channel of a device.
//!
//! Each method enters the shard of the object that it is about ([`shards`](super::shards)), moves
//! the engine, and lets [`policy`](super::policy) see to what is left.

use core::num::NonZeroU32;

use ferrule_engine::{
    Access,
    Block,
    ContextId,
    Cq,
    CqInfo,
    CqInit,
    CqResize,
    Engine,
    Memory,
    Moderation,
    Mr,
    MrInit,
    Mw,
    MwType,
    Pd,
    Qp,
    QpInfo,
    QpType,
    QpUser,
    Srq,
    SrqInfo,
    Vport,
    NO_CQ, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    boxed::boxed,
    mm::SharedArea, //
};
use rdma::{
    cq,
    mr::UserRegion,
    paging::{
        OnDemand,
        Purpose, //
    },
    umem::Umem, //
};

use super::{
    areas::Buffer,
    destination::Destination,
    host::Kernel,
    memory::Registered,
    paging::Paging,
    shared::{
        counted_at,
        errno,
        memory,
        Shared, //
    },
    softirq, //
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

impl Commands for Shared {
    type Destination = Destination;

    fn add_context(&self, doorbells: Doorbells, beside: Option<ContextId>) -> Result<ContextId> {
        let make = || ferrule_engine::UserContext::new(doorbells);
        self.new_context(boxed(make, GFP_KERNEL_ACCOUNT)?, beside)
    }

    fn quiesce_context(&self, id: ContextId) {
        let block = Block::of_context(id);
        let mut next = Some(0);
        while let Some(from) = next {
            next = self
                .shards
                .command(block, |engine, host| engine.fail_context(host, id, from));
        }
        self.shards.finish(id);
        self.shards
            .command(block, |engine, _| engine.set_context_dead(id));
        // Requests that were rung before the program could see that end, too: the queue pairs go
        // next.
        self.shards.finish(id);
    }

    fn remove_context(&self, id: ContextId) {
        let block = Block::of_context(id);
        self.removed(Some(block), |engine| engine.remove_context(id));
    }

    fn kick(&self, id: ContextId) -> Result {
        self.shards.kick(id);
        Ok(())
    }

    fn add_pd(&self, context: Option<ContextId>) -> Result<u32> {
        self.add_parent(context, Pd::default(), Engine::add_pd)
    }

    fn remove_pd(&self, id: u32) {
        self.removed(Some(Block::of_pd(id)), |engine| engine.remove_pd(id));
    }

    fn xrcds(&self) -> &Numbers {
        &self.xrcds
    }

    fn remove_ah(&self, number: u32) {
        self.removed(Some(Block::of_ah(number)), |engine| {
            engine.remove_ah(number)
        });
    }

    fn add_mr(&self, pd: u32, access: Access, iova: u64, pages: Umem) -> Result<u32> {
        let init = MrInit {
            pd,
            access,
            memory: memory(iova, Registered::of_program(pages)?),
        };
        self.add(Block::of_pd(pd), Mr::new(init), Engine::add_mr)
    }

    fn page_on_demand(&self, context: ContextId, region: &UserRegion) -> Result<Umem> {
        let paging = Paging {
            shards: self.shards.clone(),
            context,
        };
        let paging = Arc::new(paging, GFP_KERNEL_ACCOUNT)?;
        Umem::on_demand(region.start, region.length, region.access, paging)
    }

    fn on_demand(
        &self,
        pd: u32,
        key: u32,
        addr: u64,
        length: u64,
        purpose: Purpose,
    ) -> Result<(Arc<OnDemand>, u64)> {
        self.shards.command(Block::of_key(key), |engine, _| {
            let mr = engine.query_mr(key).map_err(|_| EFAULT)?;
            let memory = &mr.init().memory;
            let offset = addr.checked_sub(memory.iova).ok_or(EFAULT)?;
            let end = offset.checked_add(length).ok_or(EFAULT)?;
            let may_be_used = purpose != Purpose::Write || memory.region.writable();
            if mr.init().pd != pd || end > memory.length || !may_be_used {
                return Err(EFAULT);
            }
            let pages = memory.region.on_demand().ok_or(EINVAL)?;
            Ok((pages.clone(), offset))
        })
    }

    fn add_dm_mr(
        &self,
        pd: u32,
        access: Access,
        area: Arc<SharedArea>,
        offset: u64,
        length: u64,
    ) -> Result<u32> {
        self.add_mr(pd, access, 0, Umem::of_area(area, offset, length)?)
    }

    fn add_dma_mr(&self, pd: u32, access: Access, memory: rdma::Memory) -> Result<u32> {
        let init = MrInit {
            pd,
            access,
            memory: Memory {
                iova: memory.start(),
                length: memory.len(),
                // SAFETY: The region is moved into the engine and reaches nobody else. Address,
                // length and rights are those that the user has asked for by this call, which is
                // the registration.
                region: unsafe { Registered::of_user(memory) },
            },
        };
        self.add(Block::of_pd(pd), Mr::new(init), Engine::add_mr)
    }

    fn add_fast_mr(&self, pd: u32, memory: rdma::Memory, _max_pages: u32) -> Result<u32> {
        let init = MrInit {
            pd,
            access: Access::NONE,
            memory: Memory {
                iova: 0,
                length: 0,
                // SAFETY: The region is moved into the engine and reaches nobody else. Its length
                // is 0 and it has no rights until a request of the user registers it; address,
                // length and rights are then those that the user has mapped and asked for.
                region: unsafe { Registered::of_user(memory) },
            },
        };
        self.add(Block::of_pd(pd), Mr::fast(init), Engine::add_mr)
    }

    /// The engine takes what is mapped as it is: a device of `rdma link` has no parent.
    fn map_fast_mr(&self, _key: u32, _extents: impl Iterator<Item = (u64, u64)>) -> Result {
        Err(EINVAL)
    }

    fn query_mr(&self, key: u32) -> Result<MrInfo> {
        self.shards
            .command(Block::of_key(key), |engine, _| {
                let mr = engine.query_mr(key)?;
                let memory = &mr.init().memory;
                Ok(MrInfo {
                    region: UserRegion {
                        start: memory.region.start(),
                        length: memory.length,
                        iova: memory.iova,
                        access: rdma::Access::from_bits(mr.init().access.0),
                    },
                    writable: memory.region.writable(),
                    is_of_process: memory.region.is_of_process(),
                    has_windows: mr.has_windows(),
                    extents: memory.region.extents(),
                })
            })
            .map_err(errno)
    }

    fn rereg_mr(&self, key: u32, change: MrChange) -> Result {
        let new = match change.memory {
            Some((iova, pages)) => Some(memory(iova, Registered::of_program(pages)?)),
            None => None,
        };
        let mut change = ferrule_engine::MrChange {
            pd: change.pd,
            access: change.access,
            memory: new,
        };
        // `change` has the pages that are to be unpinned, and is dropped without the shard.
        let block = Block::of_key(key);
        self.shards
            .patient_command(Some(block), |engine, _| engine.rereg_mr(key, &mut change))
            .map_err(errno)
    }

    fn remove_mr(&self, key: u32) {
        self.removed(Some(Block::of_key(key)), |engine| engine.remove_mr(key));
    }

    fn add_mw(&self, pd: u32, kind: MwType) -> Result<u32> {
        self.add(Block::of_pd(pd), Mw::new(pd, kind), Engine::add_mw)
    }

    fn remove_mw(&self, key: u32) {
        self.removed(Some(Block::of_key(key)), |engine| engine.remove_mw(key));
    }

    fn add_cq(
        &self,
        context: Option<ContextId>,
        depth: u32,
        ring: CqRing,
        _vector: u32,
        notifier: Arc<cq::Notifier>,
    ) -> Result<u32> {
        let cq = Cq::new(CqInit {
            depth,
            ring,
            handle: notifier,
        })
        .map_err(errno)?;
        self.add_parent(context, cq, Engine::add_cq)
    }

    fn resize_cq(&self, cqn: u32, depth: u32, ring: CqRing) -> Result<u32> {
        let mut resize = CqResize { depth, ring };
        // `resize` has the old ring afterwards, and is dropped without the shard.
        let block = Block::of_cq(cqn);
        self.shards
            .command(block, |engine, _| engine.resize_cq(cqn, &mut resize))
            .map_err(errno)
    }

    fn query_cq(&self, cqn: u32) -> Result<CqInfo> {
        self.shards
            .command(Block::of_cq(cqn), |engine, _| engine.query_cq(cqn))
            .map_err(errno)
    }

    fn moderate_cq(&self, cqn: u32, moderation: Moderation) -> Result {
        self.shards
            .command(Block::of_cq(cqn), |engine, host| {
                engine.moderate_cq(host, cqn, moderation)
            })
            .map_err(errno)
    }

    fn remove_cq(&self, cqn: u32) {
        self.removed(Some(Block::of_cq(cqn)), |engine| engine.remove_cq(cqn));
    }

    fn add_srq(&self, init: SrqInit) -> Result<u32> {
        let pd = Block::of_pd(init.pd);
        let home = match &init.xrc {
            Some(xrc) => {
                self.shards.join_main(pd);
                self.shards.join(pd, Block::of_cq(xrc.cq));
                pd
            }
            None => init.context.map_or(pd, Block::of_context),
        };
        let srq = Srq::<Kernel>::new(ferrule_engine::SrqInit {
            pd: init.pd,
            xrc: init.xrc,
            max_sge: init.max_sge,
            ring: init.ring,
            ctrl: init.ctrl,
            queue: Buffer::new(init.area, None),
            handle: init.notifier,
        })
        .map_err(errno)?;
        self.add(home, srq, Engine::add_srq)
    }

    fn set_srq_limit(&self, number: u32, limit: u32) -> Result {
        self.shards
            .command(Block::of_srq(number), |engine, host| {
                engine.set_srq_limit(host, number, limit)
            })
            .map_err(errno)
    }

    fn resize_srq(&self, number: u32, resize: SrqResize) -> Result {
        let mut resize = ferrule_engine::SrqResize::<Kernel> {
            ring: resize.ring,
            ctrl: resize.ctrl,
            queue: Buffer::new(resize.area, None),
            limit: resize.limit,
        };
        // `resize` has the old ring afterwards, and is dropped without the shard.
        self.shards
            .command(Block::of_srq(number), |engine, host| {
                engine.resize_srq(host, number, &mut resize)
            })
            .map_err(errno)
    }

    fn query_srq(&self, number: u32) -> Result<SrqInfo> {
        self.shards
            .command(Block::of_srq(number), |engine, _| engine.query_srq(number))
            .map_err(errno)
    }

    fn remove_srq(&self, number: u32) {
        self.removed(Some(Block::of_srq(number)), |engine| {
            engine.remove_srq(number)
        });
    }

    fn add_qp(&self, init: QpInit<Destination>) -> Result<NewQp> {
        let pd = Block::of_pd(init.pd);
        let home = match init.qp_type {
            // An XRC target has an XRC domain instead, all of whose objects are in the shard 0.
            QpType::XrcTgt => None,
            // Its peer comes later. Of a program's it has the regions by replicas.
            QpType::Rc | QpType::Uc => Some(init.context.map_or(pd, Block::of_context)),
            // A program tells by an address handle that it sends to queue pairs of the device.
            QpType::Ud if init.context.is_some() => Some(pd),
            QpType::Ud | QpType::RawPacket | QpType::XrcIni => {
                // A user in the kernel makes its handles where nothing can wait. The core sends by
                // queue pair 1 to other queue pairs 1.
                if init.qp_type == QpType::Ud && !init.gsi {
                    self.shards.let_datagrams_meet();
                }
                self.shards.join_main(pd);
                Some(pd)
            }
        };
        let cqs = [init.send_cq, init.recv_cq].into_iter();
        let cqs = cqs.filter(|cq| *cq != NO_CQ).map(Block::of_cq);
        let others = [
            init.srq.map(Block::of_srq),
            init.context.map(Block::of_context),
        ];
        for used in Iterator::chain(cqs, others.into_iter().flatten()) {
            if let Some(home) = home {
                self.shards.join(home, used);
            }
        }
        let QpRings {
            sq, rq, ctrl, cap, ..
        } = init.rings;
        let qp = Qp::<Kernel>::new(ferrule_engine::QpInit {
            user: match init.context {
                None => QpUser::Host,
                Some(id) => QpUser::Context {
                    id,
                    privileged: false,
                },
            },
            vport: Vport::default(),
            pd: init.pd,
            qp_type: init.qp_type,
            gsi: init.gsi,
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            srq: init.srq,
            cap,
            sq_sig_all: init.sq_sig_all,
            sq_ring: sq,
            rq_ring: rq,
            ctrl,
            queue: Buffer::new(init.area, init.posting),
            handle: init.notifier,
        })
        .map_err(errno)?;
        let id = self.add_boxed(home, qp, Engine::add_qp)?;
        if init.qp_type == QpType::Ud {
            self.shards.place_datagrams(Block::of_qp(id.number));
        }
        Ok(NewQp {
            id,
            doorbell: id.number,
        })
    }

    fn query_qp(&self, qpn: u32) -> Result<QpInfo> {
        self.shards
            .command(Block::of_qp(qpn), |engine, _| engine.query_qp(qpn))
            .map_err(errno)
    }

    fn add_counter_set(&self) -> Result<NonZeroU32> {
        self.new_counter_set()
    }

    fn remove_counter_set(&self, set: NonZeroU32) {
        self.remove_set(set);
    }

    fn bind_counters(&self, qpn: u32, set: Option<NonZeroU32>) -> Result {
        let set = set.map(counted_at).transpose().map_err(errno)?;
        let block = Block::of_qp(qpn);
        if set.is_some() {
            self.shards.join_main(block);
        }
        self.shards
            .command(block, |engine, _| engine.bind_counters(qpn, set))
            .map_err(errno)
    }

    fn read_counter_set(&self, set: NonZeroU32, values: &mut [u64]) -> Result {
        self.read_statistics_of_set(set, values)
    }

    fn ring(&self, doorbell: u32) {
        softirq::ring(&self.shards, doorbell);
    }

    fn remove_qp(&self, qpn: u32) {
        self.removed(Some(Block::of_qp(qpn)), |engine| engine.remove_qp(qpn));
    }
}
