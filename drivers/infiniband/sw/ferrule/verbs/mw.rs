// SPDX-License-Identifier: GPL-2.0

//! Memory windows: keys that work requests bind to parts of regions.

use ferrule_engine::MwType;
use kernel::prelude::*;
use rdma::{
    mw,
    UserCall, //
};

use crate::{
    soft::Shared,
    verbs::Ferrule, //
};

/// A memory window. Dropping it takes its key back, bound or not.
pub(crate) struct Mw {
    soft: Shared,
    /// The key that it began with: the engine knows it by any that it had.
    key: u32,
}

impl mw::Operations for Mw {
    type Driver = Ferrule;

    fn alloc(
        new: &mut mw::New<'_, Ferrule>,
        kind: mw::Type,
        _user: Option<UserCall<'_, Ferrule>>,
    ) -> Result<Self> {
        let kind = match kind {
            mw::Type::Type1 => MwType::Type1,
            mw::Type::Type2 => MwType::Type2,
        };
        let soft = new.device().shared();
        let key = soft.add_mw(new.pd().id(), kind)?;
        new.set_rkey(key);
        Ok(Mw { soft, key })
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        self.soft.remove_mw(self.key);
    }
}
