// SPDX-License-Identifier: GPL-2.0

//! Memory regions: pages of a program, pinned and given keys; and for kernel users all memory, and
//! what their requests register.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::error::code::EOPNOTSUPP;
use rdma::{
    device::OnDemand,
    dma_buf,
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
    verbs::{
        pd::Pd,
        threads::Threads,
        Ferrule, //
    },
};

/// The rights that any region may be registered with.
pub(super) const OFFERED: Access = Access::LOCAL_WRITE
    .or(Access::REMOTE_WRITE)
    .or(Access::REMOTE_READ)
    .or(Access::REMOTE_ATOMIC)
    .or(Access::FLUSH_GLOBAL)
    .or(Access::MW_BIND)
    .or(Access::ZERO_BASED)
    .or(Access::OPTIONAL);

/// The rights that a region of a program may be registered with.
fn offered<B: Backend>() -> Access {
    if B::ON_DEMAND == OnDemand::NONE {
        OFFERED
    } else {
        OFFERED.or(Access::ON_DEMAND).or(Access::HUGETLB)
    }
}

/// A memory region. Dropping it takes the keys back and then unpins the pages: no copy is under way
/// any more when [`Commands::remove_mr`] has returned.
pub(crate) struct Mr<B: Backend> {
    commands: B::Commands,
    key: u32,
    /// Its protection domain when it was made.
    pd: u32,
    /// The threads of the program that it is of; none of a kernel user.
    threads: Option<Arc<Threads<B>>>,
}

impl<B: Backend> Mr<B> {
    /// A region that the backend has, by its key. From now on its user knows it by that.
    pub(super) fn new(new: &mut mr::New<'_, Ferrule<B>>, key: u32) -> Self {
        new.set_keys(key, key);
        let pd = new.pd().id();
        let threads = new.pd().threads().cloned();
        if let Some(threads) = &threads {
            threads.registered(key, pd);
        }
        Mr {
            commands: new.device().commands(),
            key,
            pd,
            threads,
        }
    }

    /// The key by which the engine knows the region.
    pub(super) fn key(&self) -> u32 {
        self.key
    }

    /// The command channel of its device.
    pub(super) fn commands(&self) -> &B::Commands {
        &self.commands
    }
}

/// The pages of a region, which are pinned for what is wanted of them, or paged on demand.
fn pages<B: Backend>(
    dev: &Device<Ferrule<B>>,
    pd: &Pd<B>,
    region: &mr::UserRegion,
) -> Result<Umem> {
    if region.access.contains(Access::ON_DEMAND) {
        let threads = pd.threads().ok_or(EOPNOTSUPP)?;
        // The memory manager takes pages back from one engine.
        threads.gather();
        dev.commands().page_on_demand(threads.first(), region)
    } else {
        Umem::pin(dev, region.start, region.length, region.access)
    }
}

/// The address by which requests name the first byte of a region: 0 if its addresses are offsets,
/// and else `iova`.
fn first_byte(access: Access, iova: u64) -> u64 {
    if access.contains(Access::ZERO_BASED) {
        0
    } else {
        iova
    }
}

pub(super) fn engine_access(access: Access) -> ferrule_engine::Access {
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
        if !offered::<B>().contains(region.access) {
            return Err(EOPNOTSUPP);
        }
        let commands = new.device().commands();
        let key = commands.add_mr(
            new.pd().id(),
            engine_access(region.access),
            first_byte(region.access, region.iova),
            pages(new.device(), new.pd(), region)?,
        )?;
        Ok(Mr::new(new, key))
    }

    fn reg_dma_buf(
        new: &mut mr::New<'_, Ferrule<B>>,
        part: &dma_buf::Part,
        iova: u64,
        access: Access,
    ) -> Result<Self> {
        if !OFFERED.contains(access) {
            return Err(EOPNOTSUPP);
        }
        let memory = Umem::of_dma_buf(new.device(), part, access)?;
        let commands = new.device().commands();
        let key = commands.add_mr(
            new.pd().id(),
            engine_access(access),
            first_byte(access, iova),
            memory,
        )?;
        Ok(Mr::new(new, key))
    }

    fn get_dma(
        new: &mut mr::New<'_, Ferrule<B>>,
        memory: rdma::Memory,
        access: Access,
    ) -> Result<Self> {
        if !OFFERED.without(Access::ZERO_BASED).contains(access) {
            return Err(EOPNOTSUPP);
        }
        let commands = new.device().commands();
        let key = commands.add_dma_mr(new.pd().id(), engine_access(access), memory)?;
        Ok(Mr::new(new, key))
    }

    fn alloc(new: &mut mr::New<'_, Ferrule<B>>, memory: rdma::Memory) -> Result<Self> {
        let commands = new.device().commands();
        let key = commands.add_fast_mr(new.pd().id(), memory, new.max_pages())?;
        Ok(Mr::new(new, key))
    }

    fn mapped(mr: &rdma::Mr<Ferrule<B>>, extents: impl Iterator<Item = (u64, u64)>) -> Result {
        mr.commands.map_fast_mr(mr.key, extents)
    }

    fn rereg_user(mr: &rdma::Mr<Ferrule<B>>, change: &mr::Change<'_, Ferrule<B>>) -> Result {
        if change
            .access
            .is_some_and(|access| !offered::<B>().contains(access))
        {
            return Err(EOPNOTSUPP);
        }
        let now = mr.commands.query_mr(mr.key)?;
        let access = change.access.unwrap_or(now.region.access);
        let is_zero_based = access.contains(Access::ZERO_BASED);
        let changes_base = is_zero_based != now.region.access.contains(Access::ZERO_BASED);
        let was_paged = now.region.access.contains(Access::ON_DEMAND);
        let changes_paging = access.contains(Access::ON_DEMAND) != was_paged;
        // Buffers of other drivers and device memory are no part of a process.
        let pins_anew = (access.writes() && !now.writable) || changes_base || changes_paging;
        if change.memory.is_none() && pins_anew && !now.is_of_process {
            return Err(EOPNOTSUPP);
        }
        let region = match change.memory {
            Some((start, length, iova)) => Some(mr::UserRegion {
                start,
                length,
                iova,
                access,
            }),
            // Pages that were pinned to be read only are pinned anew. So are those of a region
            // whose addresses become others: pointers, where they were offsets; and those that are
            // to be pinned, or paged on demand from now on.
            None if pins_anew => Some(mr::UserRegion {
                access,
                iova: if changes_base {
                    now.region.start
                } else {
                    now.region.iova
                },
                ..now.region
            }),
            None => None,
        };
        let memory = match &region {
            Some(region) => {
                let pd = change.pd.unwrap_or(change.pd_so_far);
                let pages = pages(mr.device(), pd, region)?;
                Some((first_byte(access, region.iova), pages))
            }
            None => None,
        };
        if let Some(threads) = &mr.threads {
            threads.gather_region(mr.key, mr.pd);
        }
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
        // A device that does not answer is gone, and with it the windows; the core has to get rid
        // of the region.
        match mr.commands.query_mr(mr.key) {
            Ok(info) if info.has_windows => Err(EBUSY),
            _ => Ok(()),
        }
    }
}

impl<B: Backend> Drop for Mr<B> {
    fn drop(&mut self) {
        match &self.threads {
            Some(threads) => threads.deregister(self.key, self.pd),
            None => self.commands.remove_mr(self.key),
        }
    }
}
