// SPDX-License-Identifier: GPL-2.0

//! Regions of a program in the shards of its threads.

use ferrule_engine::{
    Block,
    ContextId,
    Error as Refusal,
    Mr,
    Replicas, //
};
use kernel::prelude::*;
use kernel_ext::{
    task::{
        is_killed,
        QuiescentStates, //
    },
    time::WithTimer, //
};

use super::{
    core::Core,
    host::Kernel,
    policy,
    shards::Shards,
    shared::{
        errno,
        Shared, //
    },
};
use crate::backend::replication::Replication;

impl Shards {
    /// Brings the trees of replicas in a shard together. Process context.
    ///
    /// The caller that has given the shard a second tree does it. If the shard becomes part of
    /// another one meanwhile, the caller of that merge goes on.
    pub(super) fn unite_replicas(&self, core: &WithTimer<Core>) {
        let mut quiescent = QuiescentStates::begin();
        while let Some(left) = policy::command(core, |engine, _| engine.unite_replicas()) {
            drop(left);
            quiescent.pass();
        }
    }
}

impl Shared {
    /// Adds a replica for the shard of a context, unless the region is there.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn add_replica(&self, replica: Mr<Kernel>, to: ContextId) -> Result {
        let key = replica.key();
        let (region, context) = (Block::of_key(key), Block::of_context(to));
        let mut replica = Some(KBox::new(replica, GFP_KERNEL_ACCOUNT)?);
        let mut space = None;
        loop {
            let (added, has_more, core) = self.shards.command(context, |engine, _| {
                let core = self.shards.of(context);
                let had_space = space.is_some();
                let added = match replica.take() {
                    // The caller owns the shard of the context. If it has the region, that stays.
                    Some(mr) if self.shards.of(region).index != core.index => {
                        engine.add_replica(mr, &mut space).map_err(|refused| {
                            replica = Some(refused.object);
                            refused.error
                        })
                    }
                    mr => {
                        replica = mr;
                        Ok(())
                    }
                };
                (added, had_space && space.is_none(), core)
            });
            if has_more {
                self.shards.unite_replicas(core);
            }
            match added {
                Err(Refusal::NoMemory) => {
                    space = Some(Replicas::<Kernel>::for_region(key).ok_or(ENOMEM)?);
                }
                Ok(()) | Err(Refusal::Busy) => return Ok(()),
                Err(refusal) => return Err(errno(refusal)),
            }
        }
    }
}

impl Replication for Shared {
    fn begin_removal(&self, key: u32) {
        self.shards
            .command(Block::of_key(key), |engine, _| engine.begin_removal(key));
    }

    fn replicate(&self, key: u32, to: ContextId) -> Result {
        let made = self
            .shards
            .command(Block::of_key(key), |engine, _| engine.replica(key));
        match made {
            Err(Refusal::NotFound) => Ok(()),
            made => self.add_replica(made.map_err(errno)?, to),
        }
    }

    fn replicate_domain(&self, pd: u32, to: ContextId) -> Result {
        let mut quiescent = QuiescentStates::begin();
        let mut next = Some(0);
        while let Some(from) = next {
            if is_killed() {
                return Err(EINTR);
            }
            let (made, behind) = self.shards.command(Block::of_pd(pd), |engine, _| {
                let (key, behind) = engine.next_of_domain(pd, from);
                (key.map(|key| engine.replica(key)), behind)
            });
            match made {
                None | Some(Err(Refusal::NotFound)) => (),
                Some(made) => self.add_replica(made.map_err(errno)?, to)?,
            }
            next = behind;
            quiescent.pass();
        }
        Ok(())
    }

    fn remove_replicas(&self, key: u32, from: ContextId) {
        let context = Some(Block::of_context(from));
        // There may be several where shards have become one just now.
        loop {
            let removed = self.shards.patient_command(context, |engine, _| {
                let removed = engine.remove_replica(key)?;
                Ok((removed, engine.has_replica(key)))
            });
            match removed {
                Ok((removed, true)) => drop(removed),
                Ok((_, false)) | Err(_) => break,
            }
        }
    }

    fn join_contexts(&self, one: ContextId, other: ContextId) {
        self.shards
            .join(Block::of_context(one), Block::of_context(other));
    }
}
