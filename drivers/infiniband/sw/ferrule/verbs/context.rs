// SPDX-License-Identifier: GPL-2.0

//! User contexts: an open device file, with its doorbells.

use core::marker::PhantomData;

use ferrule_engine::{
    abi,
    ContextId, //
};
use kernel::prelude::*;
use rdma::{
    method::{
        Attrs,
        Method, //
    },
    mmap::{
        Entry,
        Protection, //
    },
    ucontext,
    Ucontext,
    Udata, //
};

use crate::{
    backend::{
        ring::Doorbells,
        Backend,
        Commands, //
    },
    verbs::{
        abi::{
            AllocUcontextResp,
            METHOD_KICK, //
        },
        Ferrule, //
    },
};

/// A user context. Dropping it takes its doorbells from the engine.
pub(crate) struct Context<B: Backend> {
    commands: B::Commands,
    id: ContextId,
    _doorbell: Entry,
    _status: Entry,
}

impl<B: Backend> Context<B> {
    /// The engine's name for the context.
    pub(super) fn id(&self) -> ContextId {
        self.id
    }
}

#[vtable]
impl<B: Backend> ucontext::Operations for Context<B> {
    type Driver = Ferrule<B>;

    fn alloc(new: &ucontext::New<'_, Ferrule<B>>, udata: Udata<'_>) -> Result<Self> {
        let commands = new.device().commands();
        let doorbells = Doorbells::new()?;
        let doorbell_entry = new.map(doorbells.doorbell.clone(), Protection::ReadWrite)?;
        let status_entry = new.map(doorbells.status.clone(), Protection::ReadOnly)?;

        let id = commands.add_context(doorbells)?;
        let context = Context {
            commands,
            id,
            _doorbell: doorbell_entry,
            _status: status_entry,
        };
        udata.respond(&AllocUcontextResp {
            db_offset: context._doorbell.offset(),
            status_offset: context._status.offset(),
            max_inline: abi::MAX_INLINE as u32,
            ..Default::default()
        })?;
        Ok(context)
    }

    fn quiesce(ctx: &Ucontext<Ferrule<B>>) {
        ctx.commands.quiesce_context(ctx.id);
    }

    fn disassociate(_ctx: &Ucontext<Ferrule<B>>) {}
}

/// `FERRULE_METHOD_KICK`. It has no attributes, and so costs as little as a command can.
pub(crate) struct Kick<B>(PhantomData<fn() -> B>);

impl<B: Backend> Method for Kick<B> {
    type Driver = Ferrule<B>;

    const ID: u16 = METHOD_KICK;

    fn call(ctx: &Ucontext<Ferrule<B>>, _attrs: &Attrs<'_>) -> Result {
        ctx.commands.kick(ctx.id)
    }
}

impl<B: Backend> Drop for Context<B> {
    fn drop(&mut self) {
        self.commands.remove_context(self.id);
    }
}
