// SPDX-License-Identifier: GPL-2.0

//! Memory regions: pages of a program, pinned and given keys; and for kernel users all memory, and what
//! their requests register.

use ferrule_engine::{
    Memory,
    MrChange,
    MrInit, //
};
use kernel::prelude::*;
use kernel_ext::error::code::EOPNOTSUPP;
use rdma::{
    mr,
    umem::Umem,
    Access,
    Device,
    UserCall, //
};

use crate::{
    soft::{
        host::Kernel,
        Shared, //
    },
    verbs::Ferrule, //
};

/// The rights that a region may be registered with.
const OFFERED: Access = Access::LOCAL_WRITE
    .or(Access::REMOTE_WRITE)
    .or(Access::REMOTE_READ)
    .or(Access::REMOTE_ATOMIC)
    .or(Access::MW_BIND)
    .or(Access::OPTIONAL);

/// The pages that are registered at once at most: requests to block devices have no more as a rule.
pub(super) const MAX_PAGES: u32 = 512;

/// A memory region. Dropping it takes the keys back and then unpins the pages: no copy is under
/// way any more when [`Shared::remove_mr`] returns.
pub(crate) struct Mr {
    soft: Shared,
    key: u32,
}

/// Pins pages for what is wanted of them.
fn pin(dev: &Device<Ferrule>, region: &mr::UserRegion) -> Result<Memory<Kernel>> {
    let umem = Umem::pin(dev, region.start, region.length, region.access)?;
    Ok(Memory {
        iova: region.iova,
        length: region.length,
        region: umem.into(),
    })
}

fn engine_access(access: Access) -> ferrule_engine::Access {
    ferrule_engine::Access(access.bits())
}

#[vtable]
impl mr::Operations for Mr {
    type Driver = Ferrule;

    const MAX_PAGES: u32 = MAX_PAGES;

    fn reg_user(
        new: &mut mr::New<'_, Ferrule>,
        region: &mr::UserRegion,
        _user: UserCall<'_, Ferrule>,
    ) -> Result<Self> {
        if !OFFERED.contains(region.access) {
            return Err(EOPNOTSUPP);
        }
        let soft = new.device().shared();
        let key = soft.add_mr(MrInit {
            pd: new.pd().id(),
            access: engine_access(region.access),
            memory: pin(new.device(), region)?,
        })?;
        new.set_keys(key, key);
        Ok(Mr { soft, key })
    }

    fn get_dma(
        new: &mut mr::New<'_, Ferrule>,
        memory: rdma::Memory,
        access: Access,
    ) -> Result<Self> {
        if !OFFERED.contains(access) {
            return Err(EOPNOTSUPP);
        }
        let soft = new.device().shared();
        let key = soft.add_dma_mr(new.pd().id(), engine_access(access), memory)?;
        new.set_keys(key, key);
        Ok(Mr { soft, key })
    }

    fn alloc(new: &mut mr::New<'_, Ferrule>, memory: rdma::Memory) -> Result<Self> {
        let soft = new.device().shared();
        let key = soft.add_fast_mr(new.pd().id(), memory)?;
        new.set_keys(key, key);
        Ok(Mr { soft, key })
    }

    fn rereg_user(mr: &rdma::Mr<Ferrule>, change: &mr::Change<'_, Ferrule>) -> Result {
        if change
            .access
            .is_some_and(|access| !OFFERED.contains(access))
        {
            return Err(EOPNOTSUPP);
        }
        let now = mr.soft.query_mr(mr.key)?;
        let access = change.access.unwrap_or(now.region.access);
        let region = match change.memory {
            Some((start, length, iova)) => Some(mr::UserRegion {
                start,
                length,
                iova,
                access,
            }),
            // Pages that were pinned to be read only are pinned anew.
            None if access.writes() && !now.writable => Some(mr::UserRegion {
                access,
                ..now.region
            }),
            None => None,
        };
        let memory = match &region {
            Some(region) => Some(pin(mr.device(), region)?),
            None => None,
        };
        mr.soft.rereg_mr(
            mr.key,
            MrChange {
                pd: change.pd.map(|pd| pd.id()),
                access: change.access.map(engine_access),
                memory,
            },
        )
    }

    /// Not while memory windows are bound to it. One that is bound while
    /// the region goes opens nothing afterwards.
    fn may_dereg(mr: &rdma::Mr<Ferrule>) -> Result {
        if mr.soft.query_mr(mr.key)?.has_windows {
            return Err(EBUSY);
        }
        Ok(())
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        self.soft.remove_mr(self.key);
    }
}
