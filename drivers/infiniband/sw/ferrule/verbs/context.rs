// SPDX-License-Identifier: GPL-2.0

//! User contexts: an open device file, with doorbells for each program that posts by it.
//!
//! That is the program that has opened the file, and those that have imported it (`ibv_import_device`). Each has doorbells of
//! its own, since ringing takes a lock, which only the threads of one process share.

use core::marker::PhantomData;

use ferrule_engine::{
    abi,
    ContextId, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::mm::SharedArea;
use rdma::{
    method::{
        Attr,
        Attrs,
        Method, //
    },
    mmap::{
        Entry,
        Protection, //
    },
    ucontext,
    Device,
    HandleCharge,
    Ucontext,
    Udata, //
};

use crate::{
    backend::{
        ring::Doorbells as Areas,
        Backend,
        Commands, //
    },
    verbs::{
        abi::{
            AllocUcontextResp,
            ATTR_CLOCK,
            ATTR_DOORBELLS,
            ATTR_IMPORT,
            METHOD_IMPORT,
            METHOD_KICK,
            METHOD_KICK_IMPORTED,
            METHOD_QUERY_CLOCK,
            METHOD_UNIMPORT, //
        },
        dm,
        Ferrule, //
    },
};

/// The most programs that have imported a context at a time. Each is a context of the engine's, of which a device has
/// [`ContextId::LIMIT`].
const MAX_IMPORTS: usize = 16;

/// The doorbells of one program. Dropping them takes them from the engine.
pub(crate) struct Doorbells<B: Backend> {
    commands: B::Commands,
    id: ContextId,
    doorbell: Entry,
    status: Entry,
    /// Of those beside the program that has opened the file, which the core has charged.
    _charge: Option<HandleCharge<Ferrule<B>>>,
}

impl<B: Backend> Doorbells<B> {
    /// New ones, of a program of its own or `beside` that of another context; `map` makes an area mappable by the programs of
    /// the context.
    fn new(
        dev: &Device<Ferrule<B>>,
        beside: Option<ContextId>,
        map: impl Fn(Arc<SharedArea>, Protection) -> Result<Entry>,
    ) -> Result<Arc<Self>> {
        let charge = beside.map(|_| HandleCharge::new(dev)).transpose()?;
        let commands = dev.commands();
        let areas = Areas::new()?;
        let doorbell = map(areas.doorbell.clone(), Protection::ReadWrite)?;
        let status = map(areas.status.clone(), Protection::ReadOnly)?;
        let id = commands.add_context(areas, beside)?;
        let doorbells = Doorbells {
            commands,
            id,
            doorbell,
            status,
            _charge: charge,
        };
        Ok(Arc::new(doorbells, GFP_KERNEL_ACCOUNT)?)
    }

    /// The engine's name for them.
    pub(super) fn id(&self) -> ContextId {
        self.id
    }

    /// How the program finds them; `import` is their number among those of a context.
    fn response(&self, import: u32) -> AllocUcontextResp {
        AllocUcontextResp {
            db_offset: self.doorbell.offset(),
            status_offset: self.status.offset(),
            max_inline: abi::MAX_INLINE as u32,
            import,
        }
    }

    fn kick(&self) -> Result {
        self.commands.kick(self.id)
    }
}

impl<B: Backend> Drop for Doorbells<B> {
    fn drop(&mut self) {
        self.commands.remove_context(self.id);
    }
}

/// Doorbells of programs; none in places that are free.
type Imported<B> = KVec<Option<Arc<Doorbells<B>>>>;

/// A user context.
pub(crate) struct Context<B: Backend> {
    own: Arc<Doorbells<B>>,
    /// Those of programs that have imported the context, by their number less one.
    imported: Pin<KBox<Mutex<Imported<B>>>>,
    dm: Arc<dm::Quota>,
}

impl<B: Backend> Context<B> {
    /// The engine's name for it.
    pub(super) fn id(&self) -> ContextId {
        self.own.id
    }

    /// The doorbells of a number: 0 stands for those of the program that has opened the file.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there are none.
    pub(super) fn doorbells(&self, import: u32) -> Result<Arc<Doorbells<B>>> {
        let Some(index) = import.checked_sub(1) else {
            return Ok(self.own.clone());
        };
        let imported = self.imported.lock();
        let found = imported.get(index as usize).ok_or(EINVAL)?;
        found.clone().ok_or(EINVAL)
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
        let own = Doorbells::new(new.device(), None, |area, protection| {
            new.map(area, protection)
        })?;
        let imported = new_mutex!(KVec::new(), "Context::imported");
        let imported = KBox::pin_init(imported, GFP_KERNEL_ACCOUNT)?;
        let dm = dm::Quota::new()?;
        udata.respond(&own.response(0))?;
        Ok(Context { own, imported, dm })
    }

    fn quiesce(ctx: &Ucontext<Ferrule<B>>) {
        ctx.own.commands.quiesce_context(ctx.own.id);
        let mut import = 1;
        // Doorbells that were given up have no queue pairs, or none that can be rung by a program that lives.
        while import <= MAX_IMPORTS as u32 {
            if let Ok(doorbells) = ctx.doorbells(import) {
                doorbells.commands.quiesce_context(doorbells.id);
            }
            import += 1;
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

/// The number of a program that has imported a context.
const IMPORT: Attr = Attr::input::<u32>(ATTR_IMPORT);

/// `FERRULE_METHOD_IMPORT`.
pub(crate) struct Import<B>(PhantomData<fn() -> B>);

impl<B: Backend> Method for Import<B> {
    type Driver = Ferrule<B>;

    const ID: u16 = METHOD_IMPORT;
    const ATTRS: &'static [&'static Attr] = &[&DOORBELLS];

    fn call(ctx: &Ucontext<Ferrule<B>>, attrs: &Attrs<'_, Ferrule<B>>) -> Result {
        let map = |area, protection| ctx.map(area, protection);
        let doorbells = Doorbells::new(ctx.device(), Some(ctx.id()), map)?;
        let import = ctx.add(&doorbells)?;
        attrs
            .write(&DOORBELLS, &doorbells.response(import))
            .inspect_err(|_| drop(ctx.remove(import)))
    }
}

/// `FERRULE_METHOD_UNIMPORT`.
pub(crate) struct Unimport<B>(PhantomData<fn() -> B>);

impl<B: Backend> Method for Unimport<B> {
    type Driver = Ferrule<B>;

    const ID: u16 = METHOD_UNIMPORT;
    const ATTRS: &'static [&'static Attr] = &[&IMPORT];

    fn call(ctx: &Ucontext<Ferrule<B>>, attrs: &Attrs<'_, Ferrule<B>>) -> Result {
        ctx.remove(attrs.read(&IMPORT)?).map(drop)
    }
}

/// `FERRULE_METHOD_KICK_IMPORTED`.
pub(crate) struct KickImported<B>(PhantomData<fn() -> B>);

impl<B: Backend> Method for KickImported<B> {
    type Driver = Ferrule<B>;

    const ID: u16 = METHOD_KICK_IMPORTED;
    const ATTRS: &'static [&'static Attr] = &[&IMPORT];

    fn call(ctx: &Ucontext<Ferrule<B>>, attrs: &Attrs<'_, Ferrule<B>>) -> Result {
        ctx.doorbells(attrs.read(&IMPORT)?)?.kick()
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
        attrs.write(&CLOCK, &ctx.own.commands.clock()?)
    }
}
