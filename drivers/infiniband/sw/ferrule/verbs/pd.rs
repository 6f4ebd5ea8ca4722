// SPDX-License-Identifier: GPL-2.0

//! Protection domains: a number that keys and queue pairs have in common.

use kernel::prelude::*;
use rdma::{
    pd,
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
}

impl<B: Backend> Pd<B> {
    /// The number by which the engine tells protection domains apart.
    pub(super) fn id(&self) -> u32 {
        self.id
    }
}

#[vtable]
impl<B: Backend> pd::Operations for Pd<B> {
    type Driver = Ferrule<B>;

    fn alloc(
        new: &pd::New<'_, Ferrule<B>>,
        _user: Option<UserCall<'_, Ferrule<B>>>,
    ) -> Result<Self> {
        let commands = new.device().commands();
        let id = commands.add_pd()?;
        Ok(Pd { commands, id })
    }
}

impl<B: Backend> Drop for Pd<B> {
    fn drop(&mut self) {
        self.commands.remove_pd(self.id);
    }
}
