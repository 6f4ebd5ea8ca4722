// SPDX-License-Identifier: GPL-2.0

//! Protection domains: a number that keys and queue pairs have in common.

use kernel::prelude::*;
use rdma::{
    pd,
    UserCall, //
};

use crate::{
    soft::Shared,
    verbs::Ferrule, //
};

/// A protection domain.
pub(crate) struct Pd {
    soft: Shared,
    id: u32,
}

impl Pd {
    /// The number by which the engine tells protection domains apart.
    pub(super) fn id(&self) -> u32 {
        self.id
    }
}

#[vtable]
impl pd::Operations for Pd {
    type Driver = Ferrule;

    fn alloc(new: &pd::New<'_, Ferrule>, _user: Option<UserCall<'_, Ferrule>>) -> Result<Self> {
        let soft = new.device().shared();
        let id = soft.alloc_pd()?;
        Ok(Pd { soft, id })
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        self.soft.free_pd(self.id);
    }
}
