// SPDX-License-Identifier: GPL-2.0

//! Protection domains: a number that keys and queue pairs have in common.

use kernel::{
    prelude::*,
    sync::Arc, //
};
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
    verbs::{
        threads::Threads,
        Ferrule, //
    },
};

/// A protection domain.
pub(crate) struct Pd<B: Backend> {
    commands: B::Commands,
    id: u32,
    /// The threads of the program that it is of; none of a kernel user.
    threads: Option<Arc<Threads<B>>>,
}

impl<B: Backend> Pd<B> {
    /// The number by which the engine tells protection domains apart.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// The threads of the program that it is of; none of a kernel user.
    pub(super) fn threads(&self) -> Option<&Arc<Threads<B>>> {
        self.threads.as_ref()
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
        let threads = user.map(|user| user.ucontext().threads().clone());
        let context = threads.as_ref().map(|threads| threads.first());
        let id = commands.add_pd(context)?;
        Ok(Pd {
            commands,
            id,
            threads,
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
        if let Some(threads) = &self.threads {
            threads.forget_domain(self.id);
        }
        self.commands.remove_pd(self.id);
    }
}
