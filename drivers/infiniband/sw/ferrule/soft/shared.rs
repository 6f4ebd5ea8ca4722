// SPDX-License-Identifier: GPL-2.0

//! The handle by which objects use a device's engine: its command channel.
//!
//! Each method enters the shard ([`shard`](super::shard)), moves the engine, and lets
//! [`policy`](super::policy) see to what is left.

use ferrule_engine::{
    Access,
    ContextId,
    Cq,
    CqInit,
    CqResize,
    Engine,
    Error as Refusal,
    Memory,
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
    id_pool::IdPool,
    new_mutex, pr_warn_once,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};
use kernel_ext::{
    boxed::boxed,
    time::WithTimer, //
};
use rdma::{
    cq,
    mr::UserRegion,
    umem::Umem, //
};

use super::{
    areas::Buffer,
    core::Core,
    destination::Destination,
    host::Kernel,
    memory::Registered,
    policy, //
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

/// Protection domains of a device.
pub(super) const MAX_PD: u32 = 65536;

/// A handle to a device's engine, which lives as long as there is one.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(super) core: Arc<WithTimer<Core>>,
    /// The numbers given to protection domains.
    pds: Arc<Mutex<IdPool>>,
}

/// The error number of a refusal.
pub(super) fn errno(refusal: Refusal) -> Error {
    Error::from_errno(-refusal.errno())
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
        let pds = IdPool::with_capacity(MAX_PD as usize, GFP_KERNEL)?;
        Ok(Shared {
            core: Arc::pin_init(WithTimer::new(Core::new()), GFP_KERNEL)?,
            pds: Arc::pin_init(new_mutex!(pds, "Shared::pds"), GFP_KERNEL)?,
        })
    }

    /// Hands an object to the engine with `add`, and the engine's table the room that it asks for.
    ///
    /// The room is allocated while the shard is left, since that may sleep for long.
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

    /// Takes an object from the engine and drops it after the shard is left.
    ///
    /// The RDMA core destroys an object only when nothing uses it, so a refusal is a bug in this
    /// driver: it is logged once, and the object leaks.
    fn removed<T>(&self, remove: impl FnOnce(&mut Engine<Kernel>) -> Result<KBox<T>, Refusal>) {
        if let Err(refusal) = policy::command(&self.core, |engine, _| remove(engine)) {
            pr_warn_once!("an object could not be destroyed: {:?}\n", refusal);
        }
    }
}

impl Commands for Shared {
    type Destination = Destination;

    fn add_context(&self, doorbells: Doorbells) -> Result<ContextId> {
        let make = || ferrule_engine::Context::new(doorbells);
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
        let mut pds = self.pds.lock();
        let id = pds.find_unused_id(0).ok_or(ENOMEM)?;
        Ok(id.acquire() as u32)
    }

    fn remove_pd(&self, id: u32) {
        self.pds.lock().release_id(id as usize);
    }

    fn remove_ah(&self, number: u32) {
        self.removed(|engine| engine.remove_ah(number));
    }

    fn add_mr(&self, pd: u32, access: Access, iova: u64, pages: Umem) -> Result<u32> {
        let init = MrInit {
            pd,
            access,
            memory: memory(iova, pages.into()),
        };
        self.add(Mr::new(init), Engine::add_mr)
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
                has_windows: mr.has_windows(),
            })
        })
        .map_err(errno)
    }

    fn rereg_mr(&self, key: u32, change: MrChange) -> Result {
        let mut change = ferrule_engine::MrChange {
            pd: change.pd,
            access: change.access,
            memory: change
                .memory
                .map(|(iova, pages)| memory(iova, pages.into())),
        };
        // `change` has the pages that are to be unpinned, and is dropped without the shard.
        policy::command(&self.core, |engine, _| engine.rereg_mr(key, &mut change)).map_err(errno)
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
        // `resize` has the ring of before afterwards, and is dropped without the shard.
        policy::command(&self.core, |engine, _| engine.resize_cq(cqn, &mut resize)).map_err(errno)
    }

    fn remove_cq(&self, cqn: u32) {
        self.removed(|engine| engine.remove_cq(cqn));
    }

    fn add_srq(&self, init: SrqInit) -> Result<u32> {
        let srq = Srq::<Kernel>::new(ferrule_engine::SrqInit {
            pd: init.pd,
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
            sq,
            rq,
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

    fn ring(&self, doorbell: u32) {
        policy::ring(&self.core, doorbell);
    }

    fn remove_qp(&self, qpn: u32) {
        self.removed(|engine| engine.remove_qp(qpn));
    }
}
