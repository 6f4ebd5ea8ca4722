// SPDX-License-Identifier: GPL-2.0

//! User contexts: an open device file, with doorbells for each program that posts by it.
//!
//! That is the program that has opened the file, and those that have imported it
//! (`ibv_import_device`). Each has doorbells of its own, since ringing takes a lock, which only the
//! threads of one process share. A thread may have doorbells of its own, too
//! ([`threads`](super::threads)).

use core::marker::PhantomData;

use ferrule_engine::ContextId;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::error::code::EOPNOTSUPP;
use rdma::{
    method::{
        Attr,
        Attrs,
        Method, //
    },
    ucontext,
    Ucontext,
    Udata, //
};

use crate::{
    backend::{
        Backend,
        Commands, //
    },
    verbs::{
        abi::{
            AllocUcontextResp,
            ATTR_CLOCK,
            ATTR_DOORBELLS,
            ATTR_NUMBER,
            METHOD_ADD_THREAD,
            METHOD_IMPORT,
            METHOD_KICK,
            METHOD_KICK_DOORBELLS,
            METHOD_QUERY_CLOCK,
            METHOD_UNIMPORT, //
        },
        dm,
        doorbells::Doorbells,
        threads::{
            Threads,
            MAX_THREADS, //
        },
        Ferrule, //
    },
};

/// The most programs that have imported a context at a time. Each is a context of the engine's, of
/// which a device has [`ContextId::LIMIT`].
const MAX_IMPORTS: usize = 16;

/// Doorbells of programs; none in places that are free.
type Imported<B> = KVec<Option<Arc<Doorbells<B>>>>;

/// A user context.
pub(crate) struct Context<B: Backend> {
    own: Arc<Doorbells<B>>,
    /// Those of programs that have imported the context, by their number less one.
    imported: Pin<KBox<Mutex<Imported<B>>>>,
    /// Those of threads have the numbers behind.
    threads: Arc<Threads<B>>,
    dm: Arc<dm::Quota>,
}

impl<B: Backend> Context<B> {
    /// The engine's name for it.
    pub(super) fn id(&self) -> ContextId {
        self.own.id()
    }

    /// The doorbells of a number: 0 stands for those of the program that has opened the file.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there are none.
    pub(super) fn doorbells(&self, number: u32) -> Result<Arc<Doorbells<B>>> {
        let Some(index) = number.checked_sub(1) else {
            return Ok(self.own.clone());
        };
        if let Some(thread) = self.thread(number) {
            return Ok(thread.clone());
        }
        let imported = self.imported.lock();
        let found = imported.get(index as usize).ok_or(EINVAL)?;
        found.clone().ok_or(EINVAL)
    }

    /// The doorbells of a number, if they are a thread's.
    fn thread(&self, number: u32) -> Option<&Arc<Doorbells<B>>> {
        let index = (number as usize).checked_sub(1 + MAX_IMPORTS)?;
        self.threads.doorbells(index)
    }

    /// Keeps the doorbells of a program that imports the context, and returns their number.
    ///
    /// # Errors
    ///
    /// `ENOMEM` without memory, or if there are too many.
    fn add(&self, doorbells: &Arc<Doorbells<B>>) -> Result<u32> {
        let mut imported = self.imported.lock();
        let free = imported.iter().position(Option::is_none);
        let index = free.unwrap_or(imported.len());
        match imported.get_mut(index) {
            Some(place) => *place = Some(doorbells.clone()),
            None if index == MAX_IMPORTS => return Err(ENOMEM),
            None => imported.push(Some(doorbells.clone()), GFP_KERNEL_ACCOUNT)?,
        }
        Ok(index as u32 + 1)
    }

    /// Gives up the doorbells of a program. Queue pairs that have them keep them.
    fn remove(&self, import: u32) -> Result<Arc<Doorbells<B>>> {
        let index = import.checked_sub(1).ok_or(EINVAL)?;
        let mut imported = self.imported.lock();
        let place = imported.get_mut(index as usize).ok_or(EINVAL)?;
        place.take().ok_or(EINVAL)
    }

    /// The threads that have doorbells of their own.
    pub(super) fn threads(&self) -> &Arc<Threads<B>> {
        &self.threads
    }

    /// The bytes of device memory that it may have.
    pub(super) fn dm_quota(&self) -> &Arc<dm::Quota> {
        &self.dm
    }
}

#[vtable]
impl<B: Backend> ucontext::Operations for Context<B> {
    type Driver = Ferrule<B>;

    const IMPORTABLE: bool = true;

    fn alloc(new: &ucontext::New<'_, Ferrule<B>>, udata: Udata<'_>) -> Result<Self> {
        let map = |area, protection| new.map(area, protection);
        let own = Doorbells::new(new.device(), None, true, map)?;
        let imported = new_mutex!(KVec::new(), "Context::imported");
        let imported = KBox::pin_init(imported, GFP_KERNEL_ACCOUNT)?;
        let threads = Threads::new(new.device().commands(), own.id())?;
        let dm = dm::Quota::new()?;
        udata.respond(&own.response(0))?;
        Ok(Context {
            own,
            imported,
            threads,
            dm,
        })
    }

    fn quiesce(ctx: &Ucontext<Ferrule<B>>) {
        // Doorbells that were given up have no queue pairs, or none that can be rung by a program
        // that lives.
        let most = (MAX_IMPORTS + MAX_THREADS) as u32;
        for doorbells in (0..=most).filter_map(|number| ctx.doorbells(number).ok()) {
            doorbells.quiesce();
        }
    }

    fn disassociate(_ctx: &Ucontext<Ferrule<B>>) {}
}

/// `FERRULE_METHOD_KICK`. It has no attributes, and so costs as little as a command can.
pub(crate) struct Kick<B>(PhantomData<fn() -> B>);

impl<B: Backend> Method for Kick<B> {
    type Driver = Ferrule<B>;

    const ID: u16 = METHOD_KICK;

    fn call(ctx: &Ucontext<Ferrule<B>>, _attrs: &Attrs<'_, Ferrule<B>>) -> Result {
        ctx.own.kick()
    }
}

/// The doorbells that a program gets.
const DOORBELLS: Attr = Attr::output::<AllocUcontextResp>(ATTR_DOORBELLS);

/// The number of doorbells.
const NUMBER: Attr = Attr::input::<u32>(ATTR_NUMBER);

/// `FERRULE_METHOD_IMPORT`.
pub(crate) struct Import<B>(PhantomData<fn() -> B>);

impl<B: Backend> Method for Import<B> {
    type Driver = Ferrule<B>;

    const ID: u16 = METHOD_IMPORT;
    const ATTRS: &'static [&'static Attr] = &[&DOORBELLS];

    fn call(ctx: &Ucontext<Ferrule<B>>, attrs: &Attrs<'_, Ferrule<B>>) -> Result {
        let map = |area, protection| ctx.map(area, protection);
        let doorbells = Doorbells::new(ctx.device(), Some(ctx.id()), false, map)?;
        let import = ctx.add(&doorbells)?;
        attrs
            .write(&DOORBELLS, &doorbells.response(import))
            .inspect_err(|_| drop(ctx.remove(import)))
    }
}

/// `FERRULE_METHOD_ADD_THREAD`.
pub(crate) struct AddThread<B>(PhantomData<fn() -> B>);

impl<B: Backend> Method for AddThread<B> {
    type Driver = Ferrule<B>;

    const ID: u16 = METHOD_ADD_THREAD;
    const ATTRS: &'static [&'static Attr] = &[&DOORBELLS];

    /// If the answer cannot be written, the doorbells are there all the same, until the file is
    /// closed.
    fn call(ctx: &Ucontext<Ferrule<B>>, attrs: &Attrs<'_, Ferrule<B>>) -> Result {
        if !B::HAS_ENGINES {
            return Err(EOPNOTSUPP);
        }
        let (index, doorbells) = ctx.threads.add(|beside| {
            let map = |area, protection| ctx.map(area, protection);
            Doorbells::new(ctx.device(), beside, false, map)
        })?;
        let number = 1 + MAX_IMPORTS + index;
        attrs.write(&DOORBELLS, &doorbells.response(number as u32))
    }
}

/// `FERRULE_METHOD_UNIMPORT`.
pub(crate) struct Unimport<B>(PhantomData<fn() -> B>);

impl<B: Backend> Method for Unimport<B> {
    type Driver = Ferrule<B>;

    const ID: u16 = METHOD_UNIMPORT;
    const ATTRS: &'static [&'static Attr] = &[&NUMBER];

    fn call(ctx: &Ucontext<Ferrule<B>>, attrs: &Attrs<'_, Ferrule<B>>) -> Result {
        ctx.remove(attrs.read(&NUMBER)?).map(drop)
    }
}

/// `FERRULE_METHOD_KICK_DOORBELLS`.
pub(crate) struct KickDoorbells<B>(PhantomData<fn() -> B>);

impl<B: Backend> Method for KickDoorbells<B> {
    type Driver = Ferrule<B>;

    const ID: u16 = METHOD_KICK_DOORBELLS;
    const ATTRS: &'static [&'static Attr] = &[&NUMBER];

    fn call(ctx: &Ucontext<Ferrule<B>>, attrs: &Attrs<'_, Ferrule<B>>) -> Result {
        let number = attrs.read(&NUMBER)?;
        match ctx.thread(number) {
            Some(thread) => thread.kick(),
            None => ctx.doorbells(number)?.kick(),
        }
    }
}

/// The time.
const CLOCK: Attr = Attr::output::<u64>(ATTR_CLOCK);

/// `FERRULE_METHOD_QUERY_CLOCK`.
pub(crate) struct QueryClock<B>(PhantomData<fn() -> B>);

impl<B: Backend> Method for QueryClock<B> {
    type Driver = Ferrule<B>;

    const ID: u16 = METHOD_QUERY_CLOCK;
    const ATTRS: &'static [&'static Attr] = &[&CLOCK];

    fn call(ctx: &Ucontext<Ferrule<B>>, attrs: &Attrs<'_, Ferrule<B>>) -> Result {
        attrs.write(&CLOCK, &ctx.device().commands().clock()?)
    }
}
