// SPDX-License-Identifier: GPL-2.0

//! Commands about [replicas](crate::memory::replica).

use crate::{
    base::{
        error::{
            Error,
            Refused, //
        },
        host::Host, //
    },
    engine::Engine,
    memory::{
        memory_region::Mr,
        replica::{
            Pruned,
            Removed,
            Replicas, //
        },
    },
};

impl<H: Host> Engine<H> {
    /// Makes a replica of a region, for another engine of the device.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`], also after [`Engine::begin_removal`]; [`Error::NotSupported`] if one
    /// engine alone may access the memory.
    pub fn replica(&self, key: u32) -> Result<Mr<H>, Error> {
        let mr = self.keys.mr(key)?;
        if mr.is_leaving() {
            return Err(Error::NotFound);
        }
        mr.replica().ok_or(Error::NotSupported)
    }

    /// A region is about to be removed: there is no [replica](Engine::replica) of it any more.
    ///
    /// The replicas that there are go first, and then the region: both may have to wait for copy
    /// jobs.
    pub fn begin_removal(&mut self, key: u32) {
        if let Some(mr) = self.keys.mr_mut(key) {
            mr.leave();
        }
    }

    /// The key of the first region of a protection domain from an index on, and the index from
    /// which the search goes on; it looks at some at a time.
    pub fn next_of_domain(&self, pd: u32, from: u32) -> (Option<u32>, Option<u32>) {
        self.keys.next_of(pd, from)
    }

    /// Adds a replica: the queue pairs of this engine may use the region from now on. It is to be
    /// removed before the region.
    ///
    /// Takes `space` if it needs that. There is one more tree then: [`Engine::unite_replicas`].
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if there is one; [`Error::NoMemory`] without `space` where it is needed,
    /// which [`Replicas::for_region`] allocates.
    pub fn add_replica(
        &mut self,
        mr: H::Box<Mr<H>>,
        space: &mut Option<H::Box<Replicas<H>>>,
    ) -> Result<(), Refused<H::Box<Mr<H>>>> {
        self.keys.replicas.add(mr, space)
    }

    /// Removes the replica of a region, for the host to drop without the shard with the memory that
    /// it was in. There may be [another one](Engine::has_replica) until [`Engine::unite_replicas`]
    /// has ended.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`]; [`Error::InUse`] while a copy job uses it.
    pub fn remove_replica(&mut self, key: u32) -> Result<Removed<H>, Error> {
        self.keys.replicas.remove(key)
    }

    /// Whether there is a replica of a region.
    pub fn has_replica(&self, key: u32) -> bool {
        self.keys.replicas.has(key)
    }

    /// Brings trees of replicas together, after [`Engine::merge`] or [`Engine::add_replica`]: a
    /// step of some hundred accesses.
    ///
    /// Returns memory for the host to drop without the shard, as long as there is more than one
    /// tree; `None` then.
    pub fn unite_replicas(&mut self) -> Option<Pruned<H>> {
        self.keys.replicas.unite()
    }
}
