// SPDX-License-Identifier: GPL-2.0

//! Memory regions: pages of a program, pinned and given keys; and for kernel users all memory, and what
//! their requests register.

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
    backend::{
        object::MrChange,
        Backend,
        Commands, //
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

/// A memory region. Dropping it takes the keys back and then unpins the pages: no copy is under
/// way any more when [`Commands::remove_mr`] returns.
pub(crate) struct Mr<B: Backend> {
    commands: B::Commands,
    key: u32,
}

/// Pins pages for what is wanted of them.
fn pin<B: Backend>(dev: &Device<Ferrule<B>>, region: &mr::UserRegion) -> Result<Umem> {
    Umem::pin(dev, region.start, region.length, region.access)
}

fn engine_access(access: Access) -> ferrule_engine::Access {
    ferrule_engine::Access(access.bits())
}

#[vtable]
impl<B: Backend> mr::Operations for Mr<B> {
    type Driver = Ferrule<B>;

    const MAX_PAGES: u32 = B::MAX_FAST_REG_PAGES;

    fn reg_user(
        new: &mut mr::New<'_, Ferrule<B>>,
        region: &mr::UserRegion,
        _user: UserCall<'_, Ferrule<B>>,
    ) -> Result<Self> {
        if !OFFERED.contains(region.access) {
            return Err(EOPNOTSUPP);
        }
        let commands = new.device().commands();
        let key = commands.add_mr(
            new.pd().id(),
            engine_access(region.access),
            region.iova,
            pin(new.device(), region)?,
        )?;
        new.set_keys(key, key);
        Ok(Mr { commands, key })
    }

    fn get_dma(
        new: &mut mr::New<'_, Ferrule<B>>,
        memory: rdma::Memory,
        access: Access,
    ) -> Result<Self> {
        if !OFFERED.contains(access) {
            return Err(EOPNOTSUPP);
        }
        let commands = new.device().commands();
        let key = commands.add_dma_mr(new.pd().id(), engine_access(access), memory)?;
        new.set_keys(key, key);
        Ok(Mr { commands, key })
    }

    fn alloc(new: &mut mr::New<'_, Ferrule<B>>, memory: rdma::Memory) -> Result<Self> {
        let commands = new.device().commands();
        let key = commands.add_fast_mr(new.pd().id(), memory, new.max_pages())?;
        new.set_keys(key, key);
        Ok(Mr { commands, key })
    }

    fn mapped(mr: &rdma::Mr<Ferrule<B>>, extents: impl Iterator<Item = (u64, u64)>) -> Result {
        mr.commands.map_fast_mr(mr.key, extents)
    }

    fn rereg_user(mr: &rdma::Mr<Ferrule<B>>, change: &mr::Change<'_, Ferrule<B>>) -> Result {
        if change
            .access
            .is_some_and(|access| !OFFERED.contains(access))
        {
            return Err(EOPNOTSUPP);
        }
        let now = mr.commands.query_mr(mr.key)?;
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
            Some(region) => Some((region.iova, pin(mr.device(), region)?)),
            None => None,
        };
        mr.commands.rereg_mr(
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
    fn may_dereg(mr: &rdma::Mr<Ferrule<B>>) -> Result {
        if mr.commands.query_mr(mr.key)?.has_windows {
            return Err(EBUSY);
        }
        Ok(())
    }
}

impl<B: Backend> Drop for Mr<B> {
    fn drop(&mut self) {
        self.commands.remove_mr(self.key);
    }
}
