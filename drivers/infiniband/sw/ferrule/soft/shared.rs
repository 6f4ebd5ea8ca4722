// SPDX-License-Identifier: GPL-2.0

//! The handle by which the verbs use a device's engine.
//!
//! Each method enters the shard ([`shard`](super::shard)), moves the engine, and lets
//! [`policy`](super::policy) see to what is left.

use ferrule_engine::{
    Access,
    Ah,
    ContextId,
    Cq,
    CqInit,
    CqResize,
    Engine,
    Error as Refusal,
    Gid,
    Group,
    Memory,
    Modify,
    Mr,
    MrChange,
    MrInit,
    Mtu,
    Mw,
    MwType,
    Path,
    Qp,
    QpId,
    QpInfo,
    QpInit,
    Refused,
    Srq,
    SrqInfo,
    SrqInit, //
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
    mr::UserRegion, //
};

use super::{
    areas::{
        Areas,
        Ring, //
    },
    core::Core,
    host::Kernel,
    memory::Registered,
    net::path::Path as Route,
    policy, //
};

/// Protection domains of a device.
pub(crate) const MAX_PD: u32 = 65536;

/// A handle to a device's engine, which lives as long as there is one.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(super) core: Arc<WithTimer<Core>>,
    /// The numbers given to protection domains.
    pds: Arc<Mutex<IdPool>>,
}

/// The attributes of a memory region.
pub(crate) struct MrInfo {
    pub(crate) region: UserRegion,
    /// The pages were pinned to be written to.
    pub(crate) writable: bool,
    /// Memory windows are bound to it.
    pub(crate) has_windows: bool,
}

/// The error number of a refusal.
pub(super) fn errno(refusal: Refusal) -> Error {
    Error::from_errno(-refusal.errno())
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
    fn add<T, I>(
        &self,
        object: T,
        add: impl Fn(&mut Engine<Kernel>, KBox<T>) -> Result<I, Refused<KBox<T>>>,
    ) -> Result<I> {
        self.add_boxed(KBox::new(object, GFP_KERNEL_ACCOUNT)?, add)
    }

    /// As [`Shared::add`], for an object that has its place already.
    fn add_boxed<T, I>(
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

    /// Opens a user context.
    pub(crate) fn add_context(&self, areas: Areas) -> Result<ContextId> {
        let make = || ferrule_engine::Context::new(areas);
        let context = boxed(make, GFP_KERNEL_ACCOUNT)?;
        self.add_boxed(context, Engine::add_context)
    }

    /// Ends the work of a context's queue pairs with flush errors, then refuses more of it.
    pub(crate) fn quiesce_context(&self, id: ContextId) {
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

    /// Closes a user context, which has no queue pairs any more.
    pub(crate) fn remove_context(&self, id: ContextId) {
        self.removed(|engine| engine.remove_context(id));
    }

    /// Runs the engine for a context that has rung a doorbell while no worker was awake.
    pub(crate) fn kick(&self, id: ContextId) -> Result {
        policy::kick(&self.core, id);
        Ok(())
    }

    /// A queue pair of a kernel user has new requests. Any context; the engine runs later.
    pub(crate) fn ring(&self, qpn: u32) {
        policy::ring(&self.core, qpn);
    }

    /// Takes a number for a protection domain.
    pub(crate) fn alloc_pd(&self) -> Result<u32> {
        let mut pds = self.pds.lock();
        let id = pds.find_unused_id(0).ok_or(ENOMEM)?;
        Ok(id.acquire() as u32)
    }

    /// Gives the number of a protection domain back.
    pub(crate) fn free_pd(&self, id: u32) {
        self.pds.lock().release_id(id as usize);
    }

    /// Tells the engine how many bytes a datagram may have.
    pub(crate) fn set_port_mtu(&self, mtu: Mtu) {
        policy::command(&self.core, |engine, _| engine.set_port_mtu(mtu));
    }

    /// Makes an address handle for queue pairs of a protection domain, and returns its number, which
    /// is never 0.
    pub(crate) fn add_ah(&self, pd: u32, path: Path, route: Option<Route>) -> Result<u32> {
        self.add(Ah::new(pd, path, route), Engine::add_ah)
    }

    /// Destroys an address handle.
    pub(crate) fn remove_ah(&self, number: u32) {
        self.removed(|engine| engine.remove_ah(number));
    }

    /// Attaches a datagram queue pair to a multicast group.
    pub(crate) fn attach_mcast(&self, qpn: u32, gid: &Gid) -> Result {
        // The memory is dropped here if the group is there already.
        let _unused = self.add(Group::new(), |engine, memory| {
            engine.attach_mcast(qpn, gid, memory)
        })?;
        Ok(())
    }

    /// Detaches a queue pair from a multicast group.
    pub(crate) fn detach_mcast(&self, qpn: u32, gid: &Gid) -> Result {
        // Likewise the memory of a group that was left by its last member.
        let _group = policy::command(&self.core, |engine, _| engine.detach_mcast(qpn, gid))
            .map_err(errno)?;
        Ok(())
    }

    /// Registers pinned pages and returns the key, which is the local and the remote one.
    pub(crate) fn add_mr(&self, init: MrInit<Kernel>) -> Result<u32> {
        self.add(Mr::new(init), Engine::add_mr)
    }

    /// Registers all memory for a kernel user, by its own addresses, and returns the key, which is the
    /// local and the remote one.
    pub(crate) fn add_dma_mr(&self, pd: u32, access: Access, memory: rdma::Memory) -> Result<u32> {
        self.add_mr(MrInit {
            pd,
            access,
            memory: Memory {
                iova: memory.start(),
                length: memory.len(),
                // SAFETY: The region goes to the engine, and its range is that of the memory.
                region: unsafe { Registered::of_user(memory) },
            },
        })
    }

    /// Makes a region for what a kernel user maps to it and its requests register, and returns the first
    /// of its keys.
    pub(crate) fn add_fast_mr(&self, pd: u32, memory: rdma::Memory) -> Result<u32> {
        let init = MrInit {
            pd,
            access: Access::NONE,
            memory: Memory {
                iova: 0,
                length: 0,
                // SAFETY: The region goes to the engine, and opens nothing. Requests of the user open it,
                // as far as the engine finds what is mapped.
                region: unsafe { Registered::of_user(memory) },
            },
        };
        self.add(Mr::fast(init), Engine::add_mr)
    }

    /// How a memory region stands.
    pub(crate) fn query_mr(&self, key: u32) -> Result<MrInfo> {
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

    /// Changes a memory region; afterwards no copy from or to the replaced memory is under way, and
    /// its pages are free.
    pub(crate) fn rereg_mr(&self, key: u32, mut change: MrChange<Kernel>) -> Result {
        // `change` has the pages that are to be unpinned, and is dropped without the shard.
        policy::command(&self.core, |engine, _| engine.rereg_mr(key, &mut change)).map_err(errno)
    }

    /// Makes a memory window, which is not bound, and returns its key.
    pub(crate) fn add_mw(&self, pd: u32, kind: MwType) -> Result<u32> {
        self.add(Mw::new(pd, kind), Engine::add_mw)
    }

    /// Takes a memory window back; afterwards it opens nothing.
    pub(crate) fn remove_mw(&self, key: u32) {
        self.removed(|engine| engine.remove_mw(key));
    }

    /// Takes a key back; afterwards no copy from or to the pages is under way, and they are free.
    pub(crate) fn remove_mr(&self, key: u32) {
        self.removed(|engine| engine.remove_mr(key));
    }

    /// Makes a completion queue of `depth` slots, a power of two, and returns its number.
    pub(crate) fn add_cq(&self, depth: u32, ring: Ring, handle: Arc<cq::Notifier>) -> Result<u32> {
        let cq = Cq::new(CqInit {
            depth,
            ring,
            handle,
        })
        .map_err(errno)?;
        self.add(cq, Engine::add_cq)
    }

    /// Lets a completion queue go on with another ring, whose control words are those that it has,
    /// and returns the index of the first completion there.
    pub(crate) fn resize_cq(&self, cqn: u32, depth: u32, ring: Ring) -> Result<u32> {
        let mut resize = CqResize { depth, ring };
        // `resize` has the ring of before afterwards, and is dropped without the shard.
        policy::command(&self.core, |engine, _| engine.resize_cq(cqn, &mut resize)).map_err(errno)
    }

    /// Destroys a completion queue, which no queue pair uses any more.
    pub(crate) fn remove_cq(&self, cqn: u32) {
        self.removed(|engine| engine.remove_cq(cqn));
    }

    /// Makes a shared receive queue and returns its number.
    pub(crate) fn add_srq(&self, init: SrqInit<Kernel>) -> Result<u32> {
        let srq = Srq::new(init).map_err(errno)?;
        self.add(srq, Engine::add_srq)
    }

    /// Sets the number of requests below which a shared receive queue tells, once.
    pub(crate) fn set_srq_limit(&self, number: u32, limit: u32) -> Result {
        policy::command(&self.core, |engine, host| {
            engine.set_srq_limit(host, number, limit)
        })
        .map_err(errno)
    }

    /// The sizes and the limit of a shared receive queue.
    pub(crate) fn query_srq(&self, number: u32) -> Result<SrqInfo> {
        policy::command(&self.core, |engine, _| engine.query_srq(number)).map_err(errno)
    }

    /// Destroys a shared receive queue, which no queue pair uses any more.
    pub(crate) fn remove_srq(&self, number: u32) {
        self.removed(|engine| engine.remove_srq(number));
    }

    /// Makes a queue pair in state RESET.
    pub(crate) fn add_qp(&self, init: QpInit<Kernel>) -> Result<QpId> {
        self.add_boxed(Qp::new(init).map_err(errno)?, Engine::add_qp)
    }

    /// Changes attributes of a queue pair, the way to its peer among them.
    pub(crate) fn modify_qp(&self, qpn: u32, change: &Modify, mut route: Option<Route>) -> Result {
        // `route` has the way of before afterwards, and is dropped without the shard.
        policy::command(&self.core, |engine, host| {
            engine.modify_qp(host, qpn, change, &mut route)
        })
        .map_err(errno)
    }

    /// The attributes of a queue pair.
    pub(crate) fn query_qp(&self, qpn: u32) -> Result<QpInfo> {
        policy::command(&self.core, |engine, _| engine.query_qp(qpn)).map_err(errno)
    }

    /// Destroys a queue pair; afterwards no completion of it is written any more.
    pub(crate) fn remove_qp(&self, qpn: u32) {
        self.removed(|engine| engine.remove_qp(qpn));
    }

    /// Takes an object from the engine and drops it after the shard is left.
    ///
    /// The core destroys a thing only when nothing uses it any more, so a refusal is a fault of
    /// ours. It is told once, and the object stays with the engine.
    fn removed<T>(&self, remove: impl FnOnce(&mut Engine<Kernel>) -> Result<KBox<T>, Refusal>) {
        if let Err(refusal) = policy::command(&self.core, |engine, _| remove(engine)) {
            pr_warn_once!("an object could not be destroyed: {:?}\n", refusal);
        }
    }
}
