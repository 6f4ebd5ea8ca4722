// SPDX-License-Identifier: GPL-2.0

//! Memory windows: keys that work requests bind to parts of regions.

use ferrule_engine::MwType;
use kernel::prelude::*;
use rdma::{
    mw,
    UserCall, //
};

use crate::{
    backend::{
        Backend,
        Commands, //
    },
    verbs::Ferrule, //
};

/// A memory window. Dropping it takes its key back, bound or not.
pub(crate) struct Mw<B: Backend> {
    commands: B::Commands,
    /// The key that it began with: the engine knows it by any that it had.
    key: u32,
}

impl<B: Backend> mw::Operations for Mw<B> {
    type Driver = Ferrule<B>;

    fn alloc(
        new: &mut mw::New<'_, Ferrule<B>>,
        kind: mw::Type,
        _user: Option<UserCall<'_, Ferrule<B>>>,
    ) -> Result<Self> {
        let kind = match kind {
            mw::Type::Type1 => MwType::Type1,
            mw::Type::Type2 => MwType::Type2,
        };
        // Requests bind it, and so change what its engine knows.
        if let Some(threads) = new.pd().threads() {
            threads.gather();
        }
        let commands = new.device().commands();
        let key = commands.add_mw(new.pd().id(), kind)?;
        new.set_rkey(key);
        Ok(Mw { commands, key })
    }
}

impl<B: Backend> Drop for Mw<B> {
    fn drop(&mut self) {
        self.commands.remove_mw(self.key);
    }
}
