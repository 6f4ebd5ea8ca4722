// SPDX-License-Identifier: GPL-2.0

//! Regions of a program in the shards of its threads.

use ferrule_engine::{
    Block,
    ContextId,
    Error as Refusal,
    Replicas, //
};
use kernel::prelude::*;
use kernel_ext::{
    task::is_killed,
    time::WithTimer, //
};

use super::{
    core::Core,
    host::Kernel,
    policy,
    shards::Shards, //
    shared::{
        errno,
        Shared, //
    },
};

impl Shards {
    /// Brings the trees of replicas in a shard together. Process context.
    ///
    /// It is done by whoever has made them several. If the engine becomes part of another one meanwhile, that caller goes on.
    pub(super) fn unite_replicas(&self, core: &WithTimer<Core>) {
        while let Some(left) = policy::command(core, |engine, _| engine.unite_replicas()) {
            drop(left);
        }
    }
}

impl Shared {
    /// Adds a replica of a region for the shard of a context, unless the region is there, or has gone.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EOPNOTSUPP`.
    pub(super) fn add_replica(&self, key: u32, to: ContextId) -> Result {
        let (region, context) = (Block::of_key(key), Block::of_context(to));
        let made = self.shards.command(region, |engine, _| engine.replica(key));
        let mut replica = match made {
            Err(Refusal::NotFound) => return Ok(()),
            made => Some(KBox::new(made.map_err(errno)?, GFP_KERNEL_ACCOUNT)?),
        };
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

    /// Adds replicas of all regions of a protection domain for the shard of a context.
    ///
    /// # Errors
    ///
    /// As [`Shared::add_replica`], and `EINTR` if the calling process has been killed; there may be some replicas then.
    pub(super) fn add_replicas(&self, pd: u32, to: ContextId) -> Result {
        let mut next = Some(0);
        while let Some(from) = next {
            if is_killed() {
                return Err(EINTR);
            }
            let (key, behind) = self.shards.command(Block::of_pd(pd), |engine, _| {
                engine.next_of_domain(pd, from)
            });
            if let Some(key) = key {
                self.add_replica(key, to)?;
            }
            next = behind;
        }
        Ok(())
    }

    /// Removes the replicas of a region from the shard of a context, if there are any. Waits for the copy jobs that use it.
    pub(super) fn drop_replicas(&self, key: u32, from: ContextId) {
        let context = Some(Block::of_context(from));
        // There may be several where shards have become one just now.
        while let Ok(removed) = self
            .shards
            .patient_command(context, |engine, _| engine.remove_replica(key))
        {
            drop(removed);
        }
    }
}
