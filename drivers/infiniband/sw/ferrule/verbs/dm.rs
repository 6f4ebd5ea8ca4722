// SPDX-License-Identifier: GPL-2.0

//! Device memory: pages of the kernel's that a program allocates, registers, and copies to and
//! from.
//!
//! Memory of an adapter saves the way over the bus. Here it saves nothing, and is there for
//! programs that are written for such adapters. It is charged to the process, and each context has
//! so much of it that none takes another's.

use core::marker::PhantomData;

use kernel::{
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};
use kernel_ext::{
    error::code::EOPNOTSUPP,
    mm::SharedArea, //
};
use rdma::{
    dm,
    method::{
        self,
        Attrs,
        Method, //
    },
    mmap::{
        Entry,
        Protection, //
    },
    mr,
    Ucontext, //
};

use crate::{
    backend::{
        Backend,
        Commands, //
    },
    verbs::{
        abi::{
            DmPlace,
            ATTR_DM,
            ATTR_DM_PLACE,
            METHOD_QUERY_DM, //
        },
        mr::{
            engine_access,
            Mr,
            OFFERED, //
        },
        Ferrule, //
    },
};

/// The bytes of device memory that a context may have at a time.
pub(super) const MAX_SIZE: u64 = 16 << 20;

/// The bytes of device memory that a context may still take.
pub(super) struct Quota(Atomic<u64>);

impl Quota {
    /// That of a new context.
    pub(super) fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(Quota(Atomic::new(MAX_SIZE)), GFP_KERNEL_ACCOUNT)?)
    }

    /// Takes bytes of it, until the answer is dropped.
    fn take(self: &Arc<Self>, bytes: u64) -> Result<Share> {
        let mut left = self.0.load(Relaxed);
        loop {
            let rest = left.checked_sub(bytes).ok_or(ENOMEM)?;
            match self.0.cmpxchg(left, rest, Relaxed) {
                Ok(_) => break,
                Err(now) => left = now,
            }
        }
        Ok(Share {
            quota: self.clone(),
            bytes,
        })
    }
}

/// Bytes that a context has taken of its quota.
struct Share {
    quota: Arc<Quota>,
    bytes: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.quota.0.fetch_add(self.bytes, Relaxed);
    }
}

/// Device memory. Dropping it frees the pages, but for those that the program has mapped still.
pub(crate) struct Dm<B> {
    entry: Entry,
    _share: Share,
    _backend: PhantomData<fn() -> B>,
}

impl<B: Backend> dm::Operations for Dm<B> {
    type Driver = Ferrule<B>;

    /// It begins at a page, which is the most that it can be aligned to, and takes whole pages, of
    /// the quota as well.
    fn alloc(ctx: &Ucontext<Ferrule<B>>, length: u64, log_align: u32) -> Result<Self> {
        if length == 0 || log_align > PAGE_SHIFT as u32 {
            return Err(EINVAL);
        }
        let bytes = length
            .checked_next_multiple_of(PAGE_SIZE as u64)
            .ok_or(ENOMEM)?;
        let share = ctx.dm_quota().take(bytes)?;
        let area = SharedArea::new(usize::try_from(bytes)?)?;
        let area = Arc::new(area, GFP_KERNEL_ACCOUNT)?;
        Ok(Dm {
            entry: ctx.map(area, Protection::ReadWrite)?,
            _share: share,
            _backend: PhantomData,
        })
    }

    fn reg(
        dm: &rdma::Dm<Ferrule<B>>,
        new: &mut mr::New<'_, Ferrule<B>>,
        part: &dm::Part,
    ) -> Result<Mr<B>> {
        let access = part.access.without(rdma::Access::ZERO_BASED);
        if !OFFERED.contains(access) {
            return Err(EOPNOTSUPP);
        }
        let commands = new.device().commands();
        let key = commands.add_dm_mr(
            new.pd().id(),
            engine_access(access),
            dm.entry.area().clone(),
            part.offset,
            part.length,
        )?;
        Ok(Mr::new(new, key))
    }
}

/// `FERRULE_METHOD_QUERY_DM`.
pub(crate) struct Query<B>(PhantomData<fn() -> B>);

impl<B: Backend> Query<B> {
    const DM: method::Attr = method::Attr::object::<rdma::Dm<Ferrule<B>>>(ATTR_DM);
    const PLACE: method::Attr = method::Attr::output::<DmPlace>(ATTR_DM_PLACE);
}

impl<B: Backend> Method for Query<B> {
    type Driver = Ferrule<B>;

    const ID: u16 = METHOD_QUERY_DM;
    const ATTRS: &'static [&'static method::Attr] = &[&Self::DM, &Self::PLACE];

    fn call(_ctx: &Ucontext<Ferrule<B>>, attrs: &Attrs<'_, Ferrule<B>>) -> Result {
        let dm: &rdma::Dm<Ferrule<B>> = attrs.object(&Self::DM)?;
        attrs.write(
            &Self::PLACE,
            &DmPlace {
                offset: dm.entry.offset(),
                length: dm.len(),
            },
        )
    }
}
