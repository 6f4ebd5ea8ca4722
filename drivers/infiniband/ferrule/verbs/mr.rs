// SPDX-License-Identifier: GPL-2.0

//! Memory regions: pages of a program, pinned and given keys.

use kernel::prelude::*;
use kernel_ext::error::code::EOPNOTSUPP;
use rdma::{
    mr,
    umem::Umem,
    Access,
    UserCall, //
};

use crate::{
    soft::{
        host::Pinned,
        Shared, //
    },
    verbs::Ferrule, //
};

/// A memory region. Dropping it takes the keys back and then unpins the pages: no copy is under
/// way any more when [`Shared::remove_mr`] returns.
pub(crate) struct Mr {
    soft: Shared,
    key: u32,
}

#[vtable]
impl mr::Operations for Mr {
    type Driver = Ferrule;

    fn reg_user(
        new: &mut mr::New<'_, Ferrule>,
        region: &mr::UserRegion,
        _user: UserCall<'_, Ferrule>,
    ) -> Result<Self> {
        const OFFERED: Access = Access::LOCAL_WRITE
            .or(Access::REMOTE_WRITE)
            .or(Access::REMOTE_READ)
            .or(Access::REMOTE_ATOMIC)
            .or(Access::MW_BIND)
            .or(Access::OPTIONAL);

        if !OFFERED.contains(region.access) {
            return Err(EOPNOTSUPP);
        }
        let umem = Umem::pin(new.device(), region.start, region.length, region.access)?;
        let soft = new.device().shared();
        let key = soft.add_mr(
            new.pd().id(),
            region.iova,
            region.length,
            ferrule_engine::Access(region.access.bits()),
            Pinned(umem),
        )?;
        new.set_keys(key, key);
        Ok(Mr { soft, key })
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        self.soft.remove_mr(self.key);
    }
}
