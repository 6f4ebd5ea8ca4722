// SPDX-License-Identifier: GPL-2.0

//! The handle by which objects use a device's engine: its command channel.
//!
//! Each method enters the shard ([`shard`](super::shard)), moves the engine, and lets
//! [`policy`](super::policy) see to what is left.

use core::num::NonZeroU32;

use ferrule_engine::{
    Access,
    ContextId,
    CountedAt,
    Cq,
    CqInfo,
    CqInit,
    CqResize,
    Engine,
    Error as Refusal,
    Memory,
    Moderation,
    Mr,
    MrInit,
    Mtu,
    Mw,
    MwType,
    Qp,
    QpInfo,
    QpUser,
    Refused,
    Srq,
    SrqInfo,
    Vport, //
};
use kernel::{
    error::Error,
    pr_warn_once,
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    boxed::boxed,
    mm::SharedArea,
    time::WithTimer, //
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
    core::Core,
    destination::Destination,
    host::Kernel,
    memory::Registered,
    paging::Paging,
    policy,
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

/// A handle to a device's engine, which lives as long as there is one.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(super) core: Arc<WithTimer<Core>>,
    /// The numbers of protection domains.
    pds: Numbers,
    /// The numbers of XRC domains.
    xrcds: Numbers,
}

/// The error number of a refusal.
pub(super) fn errno(refusal: Refusal) -> Error {
    Error::from_errno(-refusal.errno())
}

/// The set of counters of a number.
pub(super) fn counted_at(set: NonZeroU32) -> Result<CountedAt, Refusal> {
    CountedAt::from_number(set.get()).ok_or(Refusal::NotFound)
}

/// Memory of a program, as the engine has it.
fn memory(iova: u64, region: Registered) -> Memory<Kernel> {
    Memory {
        iova,
        length: region.len(),
        region,
    }
}

impl Shared {
    /// An engine without anything.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new() -> Result<Self> {
        Ok(Shared {
            core: Arc::pin_init(WithTimer::new(Core::new()), GFP_KERNEL)?,
            pds: Numbers::new()?,
            xrcds: Numbers::new()?,
        })
    }

    /// Hands an object to the engine with `add`, and the engine's table the space that it asks for.
    ///
    /// The space is allocated while the shard is left, since that may sleep for long.
    pub(super) fn add<T, I>(
        &self,
        object: T,
        add: impl Fn(&mut Engine<Kernel>, KBox<T>) -> Result<I, Refused<KBox<T>>>,
    ) -> Result<I> {
        self.add_boxed(KBox::new(object, GFP_KERNEL_ACCOUNT)?, add)
    }

    /// As [`Shared::add`], for an object that has its place already.
    pub(super) fn add_boxed<T, I>(
        &self,
        mut object: KBox<T>,
        add: impl Fn(&mut Engine<Kernel>, KBox<T>) -> Result<I, Refused<KBox<T>>>,
    ) -> Result<I> {
        loop {
            let refused = match policy::command(&self.core, |engine, _| add(engine, object)) {
                Ok(id) => return Ok(id),
                Err(refused) => refused,
            };
            let Refusal::NeedChunk(need) = refused.error else {
                return Err(errno(refused.error));
            };
            object = refused.object;
            let chunk = need.allocate::<Kernel>().ok_or(ENOMEM)?;
            // Somebody else may have been quicker; then the chunk comes back and is dropped here.
            let _unused = policy::command(&self.core, |engine, _| engine.add_chunk(chunk));
        }
    }

    /// Tells the engine how many bytes a datagram may have.
    pub(super) fn set_port_mtu(&self, mtu: Mtu) {
        policy::command(&self.core, |engine, _| {
            engine.set_port_mtu(Vport::default(), mtu)
        });
    }

    /// Takes an object from the engine and drops it after the shard is left. Waits for the copy jobs that use it.
    ///
    /// The RDMA core destroys an object only when nothing uses it, so a refusal is a bug in this
    /// driver: it is logged once, and the object leaks.
    fn removed<T>(&self, remove: impl Fn(&mut Engine<Kernel>) -> Result<KBox<T>, Refusal>) {
        if let Err(refusal) = policy::patient_command(&self.core, |engine, _| remove(engine)) {
            pr_warn_once!("an object could not be destroyed: {:?}\n", refusal);
        }
    }
}

impl Commands for Shared {
    type Destination = Destination;

    fn add_context(&self, doorbells: Doorbells) -> Result<ContextId> {
        let make = || ferrule_engine::UserContext::new(doorbells);
        let context = boxed(make, GFP_KERNEL_ACCOUNT)?;
        self.add_boxed(context, Engine::add_context)
    }

    fn quiesce_context(&self, id: ContextId) {
        let mut next = Some(0);
        while let Some(from) = next {
            next = policy::command(&self.core, |engine, host| {
                engine.fail_context(host, id, from)
            });
        }
        policy::finish(&self.core, id);
        policy::command(&self.core, |engine, _| engine.set_context_dead(id));
        // Requests that were rung before the program could see that end, too: the queue pairs go
        // next.
        policy::finish(&self.core, id);
    }

    fn remove_context(&self, id: ContextId) {
        self.removed(|engine| engine.remove_context(id));
    }

    fn kick(&self, id: ContextId) -> Result {
        policy::kick(&self.core, id);
        Ok(())
    }

    fn add_pd(&self) -> Result<u32> {
        self.pds.take()
    }

    fn remove_pd(&self, id: u32) {
        self.pds.give_back(id);
    }

    fn xrcds(&self) -> &Numbers {
        &self.xrcds
    }

    fn remove_ah(&self, number: u32) {
        self.removed(|engine| engine.remove_ah(number));
    }

    fn add_mr(&self, pd: u32, access: Access, iova: u64, pages: Umem) -> Result<u32> {
        let init = MrInit {
            pd,
            access,
            memory: memory(iova, Registered::of_program(pages)?),
        };
        self.add(Mr::new(init), Engine::add_mr)
    }

    fn page_on_demand(&self, region: &UserRegion) -> Result<Umem> {
        let paging = Arc::new(Paging(self.core.clone()), GFP_KERNEL_ACCOUNT)?;
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
        policy::command(&self.core, |engine, _| {
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
                // SAFETY: The region is moved into the engine and reaches nobody else. Address, length and
                // rights are those that the user has asked for by this call, which is the registration.
                region: unsafe { Registered::of_user(memory) },
            },
        };
        self.add(Mr::new(init), Engine::add_mr)
    }

    fn add_fast_mr(&self, pd: u32, memory: rdma::Memory, _max_pages: u32) -> Result<u32> {
        let init = MrInit {
            pd,
            access: Access::NONE,
            memory: Memory {
                iova: 0,
                length: 0,
                // SAFETY: The region is moved into the engine and reaches nobody else. Its length is 0 and it
                // has no rights until a request of the user registers it; address, length and rights
                // are then those that the user has mapped and asked for.
                region: unsafe { Registered::of_user(memory) },
            },
        };
        self.add(Mr::fast(init), Engine::add_mr)
    }

    /// The engine takes what is mapped as it is: a device of `rdma link` has no parent.
    fn map_fast_mr(&self, _key: u32, _extents: impl Iterator<Item = (u64, u64)>) -> Result {
        Err(EINVAL)
    }

    fn query_mr(&self, key: u32) -> Result<MrInfo> {
        policy::command(&self.core, |engine, _| {
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
        policy::patient_command(&self.core, |engine, _| engine.rereg_mr(key, &mut change))
            .map_err(errno)
    }

    fn remove_mr(&self, key: u32) {
        self.removed(|engine| engine.remove_mr(key));
    }

    fn add_mw(&self, pd: u32, kind: MwType) -> Result<u32> {
        self.add(Mw::new(pd, kind), Engine::add_mw)
    }

    fn remove_mw(&self, key: u32) {
        self.removed(|engine| engine.remove_mw(key));
    }

    fn add_cq(
        &self,
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
        self.add(cq, Engine::add_cq)
    }

    fn resize_cq(&self, cqn: u32, depth: u32, ring: CqRing) -> Result<u32> {
        let mut resize = CqResize { depth, ring };
        // `resize` has the old ring afterwards, and is dropped without the shard.
        policy::command(&self.core, |engine, _| engine.resize_cq(cqn, &mut resize)).map_err(errno)
    }

    fn query_cq(&self, cqn: u32) -> Result<CqInfo> {
        policy::command(&self.core, |engine, _| engine.query_cq(cqn)).map_err(errno)
    }

    fn moderate_cq(&self, cqn: u32, moderation: Moderation) -> Result {
        policy::command(&self.core, |engine, host| {
            engine.moderate_cq(host, cqn, moderation)
        })
        .map_err(errno)
    }

    fn remove_cq(&self, cqn: u32) {
        self.removed(|engine| engine.remove_cq(cqn));
    }

    fn add_srq(&self, init: SrqInit) -> Result<u32> {
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
        self.add(srq, Engine::add_srq)
    }

    fn set_srq_limit(&self, number: u32, limit: u32) -> Result {
        policy::command(&self.core, |engine, host| {
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
        policy::command(&self.core, |engine, host| {
            engine.resize_srq(host, number, &mut resize)
        })
        .map_err(errno)
    }

    fn query_srq(&self, number: u32) -> Result<SrqInfo> {
        policy::command(&self.core, |engine, _| engine.query_srq(number)).map_err(errno)
    }

    fn remove_srq(&self, number: u32) {
        self.removed(|engine| engine.remove_srq(number));
    }

    fn add_qp(&self, init: QpInit<Destination>) -> Result<NewQp> {
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
        let id = self.add_boxed(qp, Engine::add_qp)?;
        Ok(NewQp {
            id,
            doorbell: id.number,
        })
    }

    fn query_qp(&self, qpn: u32) -> Result<QpInfo> {
        policy::command(&self.core, |engine, _| engine.query_qp(qpn)).map_err(errno)
    }

    fn add_counter_set(&self) -> Result<NonZeroU32> {
        self.new_counter_set()
    }

    fn remove_counter_set(&self, set: NonZeroU32) {
        self.removed(|engine| engine.remove_counter_set(counted_at(set)?));
    }

    fn bind_counters(&self, qpn: u32, set: Option<NonZeroU32>) -> Result {
        let set = set.map(counted_at).transpose().map_err(errno)?;
        policy::command(&self.core, |engine, _| engine.bind_counters(qpn, set)).map_err(errno)
    }

    fn read_counter_set(&self, set: NonZeroU32, values: &mut [u64]) -> Result {
        self.read_statistics_of_set(set, values)
    }

    fn ring(&self, doorbell: u32) {
        softirq::ring(&self.core, doorbell);
    }

    fn remove_qp(&self, qpn: u32) {
        self.removed(|engine| engine.remove_qp(qpn));
    }
}
