// SPDX-License-Identifier: GPL-2.0

//! The handle by which objects use the engines of a device.

use core::num::NonZeroU32;

use ferrule_engine::{
    Block,
    ContextId,
    CountedAt,
    Engine,
    Error as Refusal,
    Memory,
    Mtu,
    Refused,
    TableKind,
    UserContext,
    Vport, //
};
use kernel::{
    error::Error,
    pr_warn_once,
    prelude::*,
    sync::Arc, //
};

use super::{
    host::Kernel,
    memory::Registered,
    policy,
    shards::Shards,
    worker::Workers, //
};
use crate::backend::numbers::{
    self,
    Numbers, //
};

/// A handle to the engines of a device, which live as long as there is one.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(super) shards: Arc<Shards>,
    pub(super) workers: Arc<Workers>,
    /// The numbers of protection domains.
    pub(super) pds: Numbers,
    /// The numbers of XRC domains.
    pub(super) xrcds: Numbers,
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
pub(super) fn memory(iova: u64, region: Registered) -> Memory<Kernel> {
    Memory {
        iova,
        length: region.len(),
        region,
    }
}

/// The bits of a protection domain's name that are its number. Those above tell whose it is.
pub(super) const PD_NUMBER: u32 = numbers::LIMIT - 1;

/// The name of the protection domain of a number, for a user context in this block, or for a user in the kernel.
pub(super) fn named_pd(number: u32, user: Option<Block>) -> u32 {
    number | user.map_or(0, |context| context.number + 1) * numbers::LIMIT
}

/// The user of a protection domain: the block of the user context, or none for a user in the kernel.
pub(super) fn user_of(pd: u32) -> Option<Block> {
    let number = (pd / numbers::LIMIT).checked_sub(1)?;
    Some(Block {
        kind: TableKind::Contexts,
        number,
    })
}

impl Shared {
    /// Engines without anything, and the worker of the first one.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(name: &CStr) -> Result<Self> {
        let shards = Shards::new()?;
        let workers = Workers::new(name)?;
        workers.start(shards.main())?;
        Ok(Shared {
            shards,
            workers,
            pds: Numbers::new()?,
            xrcds: Numbers::new()?,
        })
    }

    /// Hands an object to the engine that has those of a user context, or of users in the kernel, with `add`, and the
    /// engine's table the space that it asks for.
    ///
    /// The space is allocated while the shard is left, since that may sleep for long.
    pub(super) fn add<T, I>(
        &self,
        user: Option<Block>,
        object: T,
        add: impl Fn(&mut Engine<Kernel>, KBox<T>) -> Result<I, Refused<KBox<T>>>,
    ) -> Result<I> {
        self.add_boxed(user, KBox::new(object, GFP_KERNEL_ACCOUNT)?, add)
    }

    /// As [`Shared::add`], for an object that has its place already.
    pub(super) fn add_boxed<T, I>(
        &self,
        user: Option<Block>,
        mut object: KBox<T>,
        add: impl Fn(&mut Engine<Kernel>, KBox<T>) -> Result<I, Refused<KBox<T>>>,
    ) -> Result<I> {
        loop {
            let added = self
                .shards
                .command_for(user, |engine, _| add(engine, object));
            let refused = match added {
                Ok(id) => return Ok(id),
                Err(refused) => refused,
            };
            let Refusal::NeedChunk(need) = refused.error else {
                return Err(errno(refused.error));
            };
            object = refused.object;
            self.shards.grow(self.shards.of_user(user), need)?;
        }
    }

    /// Opens a user context: in the shard of another one, or in one of its own, if there is one.
    pub(super) fn new_context(
        &self,
        mut context: KBox<UserContext<Kernel>>,
        beside: Option<ContextId>,
    ) -> Result<ContextId> {
        if let Some(beside) = beside {
            let block = Block::of_context(beside);
            return self.add_boxed(Some(block), context, |engine, context| {
                let added = engine.add_context(context);
                self.shards.count_contexts(block, engine);
                added
            });
        }
        let place = self.shards.for_context();
        let mut core = &*place;
        self.workers.start(core)?;
        loop {
            let added = policy::command(core, |engine, _| {
                let added = engine.add_context(context);
                core.count_contexts(engine);
                added
            });
            let refused = match added {
                Ok(id) => return Ok(id),
                Err(refused) => refused,
            };
            let Refusal::NeedChunk(need) = refused.error else {
                return Err(errno(refused.error));
            };
            context = refused.object;
            if !self.shards.grow(core, need)? {
                core = self.shards.main();
            }
        }
    }

    /// Tells how many bytes a datagram may have. All datagrams are in the shard 0.
    pub(super) fn set_port_mtu(&self, mtu: Mtu) {
        policy::command(self.shards.main(), |engine, _| {
            engine.set_port_mtu(Vport::default(), mtu)
        });
    }

    /// Takes an object from the engine and drops it after the shard is left. Waits for the copy jobs that use it.
    ///
    /// The RDMA core destroys an object only when nothing uses it, so a refusal is a bug in this
    /// driver: it is logged once, and the object leaks.
    pub(super) fn removed<T>(
        &self,
        block: Option<Block>,
        remove: impl Fn(&mut Engine<Kernel>) -> Result<KBox<T>, Refusal>,
    ) {
        let removed = self.shards.patient_command(block, |engine, _| {
            let object = remove(engine)?;
            if let Some(block) = block {
                self.shards.note_removal(block);
            }
            Ok(object)
        });
        if let Err(refusal) = removed {
            pr_warn_once!("an object could not be destroyed: {:?}\n", refusal);
        }
    }
}
