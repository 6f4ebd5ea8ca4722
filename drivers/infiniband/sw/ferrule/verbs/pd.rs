// SPDX-License-Identifier: GPL-2.0

//! Protection domains: a number that keys and queue pairs have in common.

use ferrule_engine::ContextId;
use kernel::prelude::*;
use kernel_ext::error::code::EOPNOTSUPP;
use rdma::{
    device::OnDemand,
    pd,
    Advice,
    UserCall, //
};

use crate::{
    backend::{
        Backend,
        Commands, //
    },
    verbs::Ferrule, //
};

/// A protection domain.
pub(crate) struct Pd<B: Backend> {
    commands: B::Commands,
    id: u32,
    /// The context that it is of; none of a kernel user.
    context: Option<ContextId>,
}

impl<B: Backend> Pd<B> {
    /// The number by which the engine tells protection domains apart.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// The context that it is of; none of a kernel user.
    pub(super) fn context(&self) -> Option<ContextId> {
        self.context
    }
}

#[vtable]
impl<B: Backend> pd::Operations for Pd<B> {
    type Driver = Ferrule<B>;

    fn alloc(
        new: &pd::New<'_, Ferrule<B>>,
        user: Option<UserCall<'_, Ferrule<B>>>,
    ) -> Result<Self> {
        let commands = new.device().commands();
        let context = user.map(|user| user.ucontext().id());
        let id = commands.add_pd(context)?;
        Ok(Pd {
            commands,
            id,
            context,
        })
    }

    fn prefetch(pd: &rdma::Pd<Ferrule<B>>, advice: Advice<'_>) -> Result {
        if B::ON_DEMAND == OnDemand::NONE {
            return Err(EOPNOTSUPP);
        }
        let commands = &pd.commands;
        // A key that is wrong is told before anything is brought in.
        for now in [false, true] {
            for (key, addr, length) in advice.ranges() {
                let (pages, offset) =
                    commands.on_demand(pd.id, key, addr, length, advice.purpose)?;
                if now {
                    pages.prefetch(offset, length, &advice)?;
                }
            }
        }
        Ok(())
    }
}

impl<B: Backend> Drop for Pd<B> {
    fn drop(&mut self) {
        self.commands.remove_pd(self.id);
    }
}
