// SPDX-License-Identifier: GPL-2.0

//! User contexts: an open device file, with its doorbells.

use ferrule_engine::{
    abi,
    ContextId, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::mm::SharedArea;
use rdma::{
    mmap::{
        Entry,
        Protection, //
    },
    ucontext,
    Ucontext,
    Udata, //
};

use crate::{
    soft::{
        areas::Areas,
        Shared, //
    },
    verbs::{
        abi::AllocUcontextResp,
        Ferrule, //
    },
};

/// A user context. Dropping it takes its doorbells from the engine.
pub(crate) struct Context {
    soft: Shared,
    id: ContextId,
    _doorbell: Entry,
    _status: Entry,
}

impl Context {
    /// The engine's name for the context.
    pub(super) fn id(&self) -> ContextId {
        self.id
    }
}

#[vtable]
impl ucontext::Operations for Context {
    type Driver = Ferrule;

    fn alloc(new: &ucontext::New<'_, Ferrule>, udata: Udata<'_>) -> Result<Self> {
        let soft = new.device().shared();
        let doorbell = Arc::new(SharedArea::new(abi::DB_AREA_SIZE)?, GFP_KERNEL_ACCOUNT)?;
        let status = Arc::new(SharedArea::new(abi::DB_AREA_SIZE)?, GFP_KERNEL_ACCOUNT)?;
        let doorbell_entry = new.map(doorbell.clone(), Protection::ReadWrite)?;
        let status_entry = new.map(status.clone(), Protection::ReadOnly)?;

        let id = soft.add_context(Areas { doorbell, status })?;
        let context = Context {
            soft,
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

    fn quiesce(ctx: &Ucontext<Ferrule>) {
        ctx.soft.quiesce_context(ctx.id);
    }

    fn disassociate(_ctx: &Ucontext<Ferrule>) {}

    fn kick(ctx: &Ucontext<Ferrule>) -> Result {
        ctx.soft.kick(ctx.id)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.soft.remove_context(self.id);
    }
}
