// SPDX-License-Identifier: GPL-2.0

//! Doorbell areas, each of which is a context of the engine's.

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
    Device,
    HandleCharge,
    UserCall, //
};

use crate::{
    backend::{
        ring::Doorbells as Areas,
        Backend,
        Commands, //
    },
    verbs::{
        abi::{
            AllocUcontextResp,
            CreateCmd, //
        },
        Ferrule, //
    },
};

/// Doorbells of a program, or of one of its threads. Dropping them takes them from the engine.
pub(crate) struct Doorbells<B: Backend> {
    commands: B::Commands,
    id: ContextId,
    doorbell: Entry,
    status: Entry,
    /// Of those beside the program that has opened the file, which the core has charged.
    _charge: Option<HandleCharge<Ferrule<B>>>,
}

impl<B: Backend> Doorbells<B> {
    /// New ones, apart from all contexts or `beside` one; `map` makes an area mappable by the
    /// programs of the context. Those that a context has beside its first ones are charged as a
    /// handle.
    pub(super) fn new(
        dev: &Device<Ferrule<B>>,
        beside: Option<ContextId>,
        is_first: bool,
        map: impl Fn(Arc<SharedArea>, Protection) -> Result<Entry>,
    ) -> Result<Arc<Self>> {
        let charge = (!is_first).then(|| HandleCharge::new(dev)).transpose()?;
        let commands = dev.commands();
        let areas = Areas::new()?;
        let doorbell = map(areas.doorbell.clone(), Protection::ReadWrite)?;
        let status = map(areas.status.clone(), Protection::ReadOnly)?;
        let id = commands.add_context(areas, beside)?;
        let doorbells = Doorbells {
            commands,
            id,
            doorbell,
            status,
            _charge: charge,
        };
        Ok(Arc::new(doorbells, GFP_KERNEL_ACCOUNT)?)
    }

    /// The engine's name for them.
    pub(super) fn id(&self) -> ContextId {
        self.id
    }

    /// How the program finds them; `number` is theirs among those of a context.
    pub(super) fn response(&self, number: u32) -> AllocUcontextResp {
        AllocUcontextResp {
            db_offset: self.doorbell.offset(),
            status_offset: self.status.offset(),
            max_inline: abi::MAX_INLINE as u32,
            number,
        }
    }

    /// Ends the work of their queue pairs, and refuses more of it.
    pub(super) fn quiesce(&self) {
        self.commands.quiesce_context(self.id);
    }

    /// Serves what was rung.
    pub(super) fn kick(&self) -> Result {
        self.commands.kick(self.id)
    }
}

impl<B: Backend> Drop for Doorbells<B> {
    fn drop(&mut self) {
        self.commands.remove_context(self.id);
    }
}

/// The doorbells that a program names when it makes a queue. One that knows of no others than the
/// first sends no request.
///
/// # Errors
///
/// `EFAULT`; `EINVAL` if there are none of the number.
pub(super) fn doorbells<B: Backend>(user: &UserCall<'_, Ferrule<B>>) -> Result<Arc<Doorbells<B>>> {
    let CreateCmd {
        doorbells,
        reserved,
    } = user.copy_in(0)?;
    if reserved != 0 {
        return Err(EINVAL);
    }
    user.ucontext().doorbells(doorbells)
}
