// SPDX-License-Identifier: GPL-2.0

//! User contexts: whose doorbells they are, and who has to kick.
//!
//! While the engine sleeps, who rings kicks, and by that the engine knows whose doorbells to take. While it
//! is awake it looks for itself, but only at the contexts that kicked since: only those are told that they
//! need not kick. One that does not ring for a while is told to kick again. So a look costs what is busy,
//! not what is open.

use crate::{
    abi::DB_LEAF_WORDS,
    doorbell::{
        self,
        Owned, //
    },
    error::{
        Error,
        Refused, //
    },
    host::{
        Doorbells,
        Host, //
    },
    table::{
        tops,
        Table,
        TableChunk,
        TableKind, //
    },
};

/// So many looks without a doorbell, and a context has to kick again. Each look is a read of its
/// memory, and the kick a system call, so it pays for a program that pauses for less.
const IDLE_LOOKS: u32 = 1024;

/// The number of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextId(pub(crate) u32);

impl ContextId {
    /// Numbers are below this: the most contexts that may be open at a time.
    pub const LIMIT: u32 = 1 << 16;

    /// The context of a number, if there is one.
    pub fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// The number, below [`LIMIT`](Self::LIMIT).
    pub fn number(self) -> u32 {
        self.0
    }
}

/// A user context.
pub struct Context<H: Host> {
    doorbells: H::Doorbells,
    /// `ferrule_db.seq` as of the last scan.
    seq: u32,
    /// Queue pairs that belong to this context.
    users: u32,
    /// How many of them have their doorbells in each word of 64.
    in_word: [u8; DB_LEAF_WORDS],
    /// The words in which there is one.
    owned: Owned,
    /// It was told that it need not kick.
    awake: bool,
    /// The looks at it since a doorbell was found.
    idle: u32,
    /// Those before and after this one in the list of the contexts that are awake.
    previous: Option<u32>,
    next: Option<u32>,
}

impl<H: Host> Context<H> {
    /// Makes a context, to be handed to [`Engine::add_context`](crate::Engine::add_context).
    ///
    /// Doorbell area and status area are zeroed.
    pub fn new(doorbells: H::Doorbells) -> Self {
        Self {
            doorbells,
            seq: 0,
            users: 0,
            in_word: [0; DB_LEAF_WORDS],
            owned: Owned::NONE,
            awake: false,
            idle: 0,
            previous: None,
            next: None,
        }
    }
}

impl<H: Host> Context<H> {
    /// Counts the doorbell `index` in or out.
    fn count(&mut self, index: u32, comes: bool) {
        let word = (index / 64) as usize;
        let Some(count) = self.in_word.get_mut(word) else {
            return;
        };
        // What was rung so far where there was no queue pair was nobody's.
        if comes && !self.owned.has_top(word / 64) {
            doorbell::forget_top(&self.doorbells, word / 64);
        }
        if comes && *count == 0 {
            doorbell::forget(&self.doorbells, word);
        }
        *count = if comes {
            count.wrapping_add(1)
        } else {
            count.wrapping_sub(1)
        };
        self.owned.set(word, *count != 0);
    }
}

/// What belongs to a context's number: nothing yet.
#[derive(Clone, Copy, Default)]
pub(crate) struct ContextLink;

/// All open contexts, and whether the engine sleeps.
pub(crate) struct Contexts<H: Host> {
    table: Table<H, Context<H>, ContextLink, { tops(ContextId::LIMIT) }>,
    first: Option<u32>,
    sleeping: bool,
}

impl<H: Host> Contexts<H> {
    pub(crate) fn new() -> Self {
        Self {
            table: Table::new(TableKind::Contexts, 0, ContextId::LIMIT, 0),
            first: None,
            sleeping: true,
        }
    }

    pub(crate) fn add(
        &mut self,
        context: H::Box<Context<H>>,
    ) -> Result<ContextId, Refused<H::Box<Context<H>>>> {
        let index = self.table.insert(context, |context, _, _| {
            context.doorbells.set_sleeping(true);
        })?;
        self.wake_one(ContextId(index));
        Ok(ContextId(index))
    }

    pub(crate) fn remove(&mut self, id: ContextId) -> Result<H::Box<Context<H>>, Error> {
        if self.table.get(id.0).ok_or(Error::NotFound)?.users != 0 {
            return Err(Error::Busy);
        }
        self.rest(id);
        self.table.remove(id.0).ok_or(Error::NotFound)
    }

    pub(crate) fn len(&self) -> u32 {
        self.table.len()
    }

    pub(crate) fn grow(
        &mut self,
        chunk: TableChunk<H, Context<H>, ContextLink>,
    ) -> Option<TableChunk<H, Context<H>, ContextLink>> {
        self.table.grow(chunk)
    }

    pub(crate) fn exists(&self, id: ContextId) -> bool {
        self.table.get(id.0).is_some()
    }

    /// Counts a queue pair that belongs to the context, with its doorbell.
    pub(crate) fn add_user(&mut self, id: ContextId, index: u32) {
        if let Some(context) = self.table.get_mut(id.0) {
            context.users = context.users.wrapping_add(1);
            context.count(index, true);
        }
    }

    /// A queue pair that belonged to the context is gone.
    pub(crate) fn remove_user(&mut self, id: ContextId, index: u32) {
        if let Some(context) = self.table.get_mut(id.0) {
            context.users = context.users.wrapping_sub(1);
            context.count(index, false);
        }
    }

    /// The first context that is awake.
    #[inline]
    pub(crate) fn first(&self) -> Option<ContextId> {
        self.first.map(ContextId)
    }

    /// The context after `id` of those that are awake.
    #[inline]
    pub(crate) fn after(&self, id: ContextId) -> Option<ContextId> {
        self.table.get(id.0)?.next.map(ContextId)
    }

    /// Takes the doorbells that were rung in a context and hands each to `rung`.
    ///
    /// Answers whether anything had been rung there.
    #[inline]
    pub(crate) fn scan(&mut self, id: ContextId, rung: impl FnMut(u32)) -> bool {
        let Some(context) = self.table.get_mut(id.0) else {
            return false;
        };
        let found = doorbell::scan(
            &context.doorbells,
            &mut context.seq,
            &context.owned,
            H::fence,
            rung,
        );
        context.idle = if found {
            0
        } else {
            context.idle.wrapping_add(1)
        };
        if context.idle >= IDLE_LOOKS {
            self.demote(id);
        }
        found
    }

    /// The engine is awake: a context that kicks is told.
    pub(crate) fn wake(&mut self) {
        self.sleeping = false;
    }

    /// Tells a context that it need not kick, if the engine is awake. Its doorbells are to be taken
    /// after that.
    #[inline]
    pub(crate) fn wake_one(&mut self, id: ContextId) {
        if self.sleeping {
            return;
        }
        let first = self.first;
        match self.table.get_mut(id.0) {
            Some(context) if !context.awake => {
                context.awake = true;
                context.idle = 0;
                context.next = first;
                context.doorbells.set_sleeping(false);
            }
            _ => return,
        }
        if let Some(next) = first.and_then(|first| self.table.get_mut(first)) {
            next.previous = Some(id.0);
        }
        self.first = Some(id.0);
    }

    /// After so many looks without a doorbell a context has to kick again.
    #[cold]
    fn demote(&mut self, id: ContextId) {
        let Some(context) = self.table.get_mut(id.0).filter(|context| context.awake) else {
            return;
        };
        context.idle = 0;
        context.doorbells.set_sleeping(true);
        // As in `tell`.
        H::fence();
        if doorbell::is_rung(&context.doorbells, context.seq) {
            context.doorbells.set_sleeping(false);
        } else {
            self.rest(id);
        }
    }

    /// A context that has to kick is none of those that are awake any more.
    pub(crate) fn rest(&mut self, id: ContextId) {
        let Some(context) = self.table.get_mut(id.0).filter(|context| context.awake) else {
            return;
        };
        context.awake = false;
        let (previous, next) = (context.previous.take(), context.next.take());
        match previous.and_then(|previous| self.table.get_mut(previous)) {
            Some(previous) => previous.next = next,
            None => self.first = next,
        }
        if let Some(next) = next.and_then(|next| self.table.get_mut(next)) {
            next.previous = previous;
        }
    }

    /// Tells all contexts to kick, whatever is rung by then. The caller takes the doorbells of those
    /// that were awake, and lets each [rest](Contexts::rest).
    pub(crate) fn sleep(&mut self) {
        self.sleeping = true;
        self.tell(true);
    }

    /// Tells all contexts to kick, unless something is rung by then.
    pub(crate) fn try_sleep(&mut self) -> bool {
        self.tell(true);
        let mut next = self.first();
        while let Some(id) = next {
            let context = self.table.get(id.0);
            if context.is_some_and(|context| doorbell::is_rung(&context.doorbells, context.seq)) {
                self.tell(false);
                return false;
            }
            next = self.after(id);
        }
        self.sleeping = true;
        while let Some(id) = self.first() {
            self.rest(id);
        }
        true
    }

    /// Tells all contexts that are awake whether they have to kick.
    fn tell(&self, sleeping: bool) {
        let mut next = self.first;
        while let Some(context) = next.and_then(|index| self.table.get(index)) {
            context.doorbells.set_sleeping(sleeping);
            next = context.next;
        }
        // Who rings fences and then looks whether it has to kick; the engine says so, fences
        // and then looks whether anybody rang. So a ring is seen by the one or kicks the other.
        H::fence();
    }

    /// Tells a context that its device is gone.
    pub(crate) fn set_dead(&mut self, id: ContextId) {
        if let Some(context) = self.table.get(id.0) {
            context.doorbells.set_dead();
        }
    }
}
