// SPDX-License-Identifier: GPL-2.0

//! The engine: its parts. The control path and the run stand in files of their own.

mod attach;
pub(crate) mod block;
pub(crate) mod chunk;
mod control;
mod copies;
mod counting;
mod merge;
mod replicate;
pub(crate) mod run;

use crate::{
    base::{
        counters::{
            Objects,
            PortCounters, //
        },
        error::{
            Error,
            TableKind, //
        },
        host::Host, //
    },
    congestion,
    engine::chunk::{
        Chunk,
        ChunkKind, //
    },
    memory::key::Keys,
    object::{
        cq::Cqs,
        port::Port,
        protection_domain::{
            PdTable,
            MAX_PD, //
        },
        srq::Srqs,
        user_contexts::UserContexts, //
    },
    queue_pair::schedule::Qps, //
};

/// The parameters of a new engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Config {
    /// A random number: memory keys begin with generations that depend on it, and so do the lists
    /// by which multicast groups are found.
    pub random: u32,
    /// A retry count of 7 stands for no limit, as `rdma_rxe` has it. Else it is seven retries, as
    /// the specification has it.
    pub retries_for_ever: bool,
    /// How many virtual ports there are; 0 counts as 1.
    pub vports: u8,
}

/// One shard of an RDMA device: all that does the work, and all that it works on.
///
/// A device has one engine or several, which share its numbers in [blocks](block::Block). Objects
/// that use each other, and queue pairs that have each other as peers on this device, are in one
/// engine; two engines can be [merged](Engine::merge).
///
/// The caller of a method owns the engine for the time of the call; the host decides how callers
/// take turns. No method allocates, sleeps, or calls anything but the [`Host`].
pub struct Engine<H: Host> {
    contexts: UserContexts<H>,
    // In memory of their own: an engine is on the stack while it is made.
    keys: H::Box<Keys<H>>,
    cqs: Cqs<H>,
    srqs: Srqs<H>,
    port: H::Box<Port<H>>,
    /// The knowledge of this engine's connections of the paths to their peers.
    paths: H::Box<[congestion::PathState; congestion::PATHS]>,
    qps: Qps<H>,
    counters: PortCounters<H>,
    retries_for_ever: bool,
    pds: PdTable<H>,
}

impl<H: Host> Engine<H> {
    /// Makes an engine without objects, which sleeps. Calls [`Host::boxed`]; `None` if there is no
    /// memory.
    pub fn new(config: Config) -> Option<H::Box<Self>> {
        let keys = H::boxed(|| Keys::new(config.random))?;
        let port = H::boxed(|| Port::new(config.random))?;
        let counters = PortCounters::new(config.vports.max(1))?;
        let paths = H::boxed_array(|_| congestion::PathState::default())?;
        H::boxed(|| Self {
            contexts: UserContexts::new(),
            keys,
            cqs: Cqs::new(),
            srqs: Srqs::new(),
            port,
            paths,
            qps: Qps::new(config.vports),
            counters,
            retries_for_ever: config.retries_for_ever,
            pds: PdTable::new(TableKind::Pds, 0, MAX_PD, 0),
        })
    }

    /// Hands the engine memory that it asked for with [`Error::NeedChunk`].
    ///
    /// Returns memory that it did not need after all, for the host to drop without the shard.
    pub fn add_chunk(&mut self, chunk: Chunk<H>) -> Option<Chunk<H>> {
        let left = match chunk.0 {
            ChunkKind::Contexts(chunk) => ChunkKind::Contexts(self.contexts.grow(chunk)?),
            ChunkKind::Pds(chunk) => ChunkKind::Pds(self.pds.grow(chunk)?),
            ChunkKind::Keys(chunk) => ChunkKind::Keys(self.keys.grow(chunk)?),
            ChunkKind::Mws(chunk) => ChunkKind::Mws(self.keys.mws.grow(chunk)?),
            ChunkKind::Cqs(chunk) => ChunkKind::Cqs(self.cqs.grow(chunk)?),
            ChunkKind::Qps(chunk) => ChunkKind::Qps(self.qps.grow(chunk)?),
            ChunkKind::Srqs(chunk) => ChunkKind::Srqs(self.srqs.grow(chunk)?),
            ChunkKind::Ahs(chunk) => ChunkKind::Ahs(self.port.ahs.grow(chunk)?),
            ChunkKind::Groups(chunk) => ChunkKind::Groups(self.port.groups.grow(chunk)?),
        };
        Some(Chunk(left))
    }

    /// How many objects there are.
    pub fn objects(&self) -> Objects {
        Objects {
            user_contexts: self.contexts.len(),
            protection_domains: self.pds.len(),
            regions: self.keys.len(),
            windows: self.keys.mws.len(),
            completion_queues: self.cqs.len(),
            shared_receive_queues: self.srqs.len(),
            queue_pairs: self.qps.len(),
            address_handles: self.port.ahs.len(),
            groups: self.port.groups.len(),
        }
    }

    /// Whether a copy job uses a memory region.
    pub fn is_copying(&self) -> bool {
        self.keys.uses.is_used()
    }

    /// Whether there is a queue pair for datagrams.
    pub fn has_datagrams(&self) -> bool {
        self.qps.datagrams != 0
    }

    /// How many objects there are that need no other one to be there. With none of them, the engine
    /// is not in use.
    pub fn parents(&self) -> u32 {
        [self.contexts.len(), self.pds.len(), self.cqs.len()]
            .into_iter()
            .fold(0, u32::wrapping_add)
    }

    /// The buffer of a queue pair, for the host's own data there. Its size stays as it is.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`].
    pub fn queue_mut(&mut self, qpn: u32) -> Result<&mut H::Queue, Error> {
        let qp = self.qps.get_mut(qpn).ok_or(Error::NotFound)?;
        Ok(&mut qp.core.init.queue)
    }

    /// All queue pairs.
    #[cfg(test)]
    pub(crate) fn qps_mut(&mut self) -> &mut Qps<H> {
        &mut self.qps
    }

    /// All multicast groups.
    #[cfg(test)]
    pub(crate) fn groups(&self) -> &crate::object::multicast::Groups<H> {
        &self.port.groups
    }

    /// All shared receive queues.
    #[cfg(test)]
    pub(crate) fn srqs_mut(&mut self) -> &mut Srqs<H> {
        &mut self.srqs
    }

    /// All completion queues.
    #[cfg(test)]
    pub(crate) fn cqs_mut(&mut self) -> &mut Cqs<H> {
        &mut self.cqs
    }
}
