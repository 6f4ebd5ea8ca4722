// SPDX-License-Identifier: GPL-2.0

//! The handle by which objects use the engines of a device.

use core::{
    cell::Cell,
    num::NonZeroU32, //
};

use ferrule_engine::{
    Block,
    ContextId,
    CountedAt,
    Engine,
    Error as Refusal,
    Memory,
    NeedChunk,
    Refused,
    UserContext, //
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
    shards::{
        Place,
        Shards, //
    },
    worker::Workers, //
};
use crate::backend::numbers::Numbers;

/// A handle to the engines of a device, which live as long as there is one.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(super) shards: Arc<Shards>,
    pub(super) workers: Arc<Workers>,
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

/// Hands an object over with `add`, and has `grow` see to the space that its table asks for, until
/// it is taken.
fn until_added<T, I>(
    mut object: KBox<T>,
    add: impl Fn(KBox<T>) -> Result<I, Refused<KBox<T>>>,
    grow: impl Fn(NeedChunk) -> Result,
) -> Result<I> {
    loop {
        let refused = match add(object) {
            Ok(added) => return Ok(added),
            Err(refused) => refused,
        };
        let Refusal::NeedChunk(need) = refused.error else {
            return Err(errno(refused.error));
        };
        object = refused.object;
        grow(need)?;
    }
}

impl Shared {
    /// Engines without anything, and the worker of the first one. Not inlined, for the stack of its
    /// caller.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[inline(never)]
    pub(super) fn new(name: &CStr) -> Result<Self> {
        let shards = Shards::new()?;
        let workers = Workers::new(name)?;
        workers.start(shards.main())?;
        Ok(Shared {
            shards,
            workers,
            xrcds: Numbers::new()?,
        })
    }

    /// Hands an object to the engine that has a block, such as that of its protection domain, with
    /// `add`, and the engine's table the space that it asks for.
    ///
    /// The space is allocated while the shard is left, since that may sleep for long.
    pub(super) fn add<T, I>(
        &self,
        block: Block,
        object: T,
        add: impl Fn(&mut Engine<Kernel>, KBox<T>) -> Result<I, Refused<KBox<T>>>,
    ) -> Result<I> {
        self.add_boxed(Some(block), KBox::new(object, GFP_KERNEL_ACCOUNT)?, add)
    }

    /// As [`Shared::add`], for an object that has its place already; with no block to the shard 0.
    pub(super) fn add_boxed<T, I>(
        &self,
        block: Option<Block>,
        object: KBox<T>,
        add: impl Fn(&mut Engine<Kernel>, KBox<T>) -> Result<I, Refused<KBox<T>>>,
    ) -> Result<I> {
        until_added(
            object,
            |object| {
                self.shards.command_for(block, |engine, _| {
                    let added = add(engine, object);
                    self.shards.count_parents(block, engine);
                    added
                })
            },
            |need| {
                let core = self.shards.of_block(block);
                self.shards.grow(core, need).map(|_| ())
            },
        )
    }

    /// Adds an object to the shard of a user context. One of a user in the kernel has a shard of
    /// its own, if there is one: the first queue pair that uses it brings it together with the
    /// other objects of that user.
    pub(super) fn add_parent<T, I>(
        &self,
        context: Option<ContextId>,
        object: T,
        add: impl Fn(&mut Engine<Kernel>, KBox<T>) -> Result<I, Refused<KBox<T>>>,
    ) -> Result<I> {
        match context {
            Some(context) => self.add(Block::of_context(context), object, add),
            None => {
                let object = KBox::new(object, GFP_KERNEL_ACCOUNT)?;
                self.add_at(self.shards.for_kernel_user(), object, add)
            }
        }
    }

    /// Adds the first object of a user, to a shard that has been chosen for it.
    fn add_at<T, I>(
        &self,
        place: Place<'_>,
        object: KBox<T>,
        add: impl Fn(&mut Engine<Kernel>, KBox<T>) -> Result<I, Refused<KBox<T>>>,
    ) -> Result<I> {
        self.workers.start(&place)?;
        let core = Cell::new(&*place);
        until_added(
            object,
            |object| {
                policy::command(core.get(), |engine, _| {
                    let added = add(engine, object);
                    core.get().count_parents(engine);
                    added
                })
            },
            |need| {
                if !self.shards.grow(core.get(), need)? {
                    core.set(self.shards.main());
                }
                Ok(())
            },
        )
    }

    /// Opens a user context: in the shard of another one, or in one of its own, if there is one.
    pub(super) fn new_context(
        &self,
        context: KBox<UserContext<Kernel>>,
        beside: Option<ContextId>,
    ) -> Result<ContextId> {
        match beside {
            Some(beside) => {
                let block = Some(Block::of_context(beside));
                self.add_boxed(block, context, Engine::add_context)
            }
            None => self.add_at(self.shards.for_context(), context, Engine::add_context),
        }
    }

    /// Takes an object from the engine and drops it after the shard is left. Waits for the copy
    /// jobs that use it.
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
                self.shards.note_removal(block, engine);
            }
            Ok(object)
        });
        if let Err(refusal) = removed {
            pr_warn_once!("an object could not be destroyed: {:?}\n", refusal);
        }
    }
}
