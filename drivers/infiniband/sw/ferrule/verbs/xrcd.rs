// SPDX-License-Identifier: GPL-2.0

//! Domains of extended reliable connections: a number that targets and shared receive queues have
//! in common.

use kernel::prelude::*;
use rdma::xrcd;

use crate::{
    backend::{
        Backend,
        Commands, //
    },
    verbs::Ferrule, //
};

/// A domain.
pub(crate) struct Xrcd<B: Backend> {
    commands: B::Commands,
    id: u32,
}

impl<B: Backend> Xrcd<B> {
    /// The number by which the engine tells domains apart.
    pub(super) fn id(&self) -> u32 {
        self.id
    }
}

impl<B: Backend> xrcd::Operations for Xrcd<B> {
    type Driver = Ferrule<B>;

    fn alloc(new: &xrcd::New<'_, Ferrule<B>>) -> Result<Self> {
        let commands = new.device().commands();
        let id = commands.xrcds().take()?;
        Ok(Xrcd { commands, id })
    }
}

impl<B: Backend> Drop for Xrcd<B> {
    fn drop(&mut self) {
        self.commands.xrcds().give_back(self.id);
    }
}
