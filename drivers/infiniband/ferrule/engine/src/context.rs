// SPDX-License-Identifier: GPL-2.0

//! User contexts: whose doorbells they are.

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

/// The most contexts that may be open at a time.
const MAX_CONTEXTS: u32 = 1 << 16;

/// The number of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextId(pub(crate) u32);

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
    /// The open contexts before and after this one in the list of all.
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
    table: Table<H, Context<H>, ContextLink, { tops(MAX_CONTEXTS) }>,
    first: Option<u32>,
    sleeping: bool,
}

impl<H: Host> Contexts<H> {
    pub(crate) fn new() -> Self {
        Self {
            table: Table::new(TableKind::Contexts, 0, MAX_CONTEXTS, 0),
            first: None,
            sleeping: true,
        }
    }

    pub(crate) fn add(
        &mut self,
        context: H::Box<Context<H>>,
    ) -> Result<ContextId, Refused<H::Box<Context<H>>>> {
        let (sleeping, first) = (self.sleeping, self.first);
        let index = self.table.insert(context, |context, _, _| {
            context.doorbells.set_sleeping(sleeping);
            context.next = first;
        })?;
        if let Some(next) = first.and_then(|first| self.table.get_mut(first)) {
            next.previous = Some(index);
        }
        self.first = Some(index);
        Ok(ContextId(index))
    }

    pub(crate) fn remove(&mut self, id: ContextId) -> Result<H::Box<Context<H>>, Error> {
        let context = self.table.get(id.0).ok_or(Error::NotFound)?;
        if context.users != 0 {
            return Err(Error::Busy);
        }
        let (previous, next) = (context.previous, context.next);
        match previous.and_then(|previous| self.table.get_mut(previous)) {
            Some(previous) => previous.next = next,
            None => self.first = next,
        }
        if let Some(next) = next.and_then(|next| self.table.get_mut(next)) {
            next.previous = previous;
        }
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

    /// The first open context.
    pub(crate) fn first(&self) -> Option<ContextId> {
        self.first.map(ContextId)
    }

    /// The open context after `id`.
    pub(crate) fn after(&self, id: ContextId) -> Option<ContextId> {
        self.table.get(id.0)?.next.map(ContextId)
    }

    /// Takes the doorbells that were rung in a context and hands each to `rung`.
    ///
    /// Answers whether anything had been rung there.
    #[inline]
    pub(crate) fn scan(&mut self, id: ContextId, rung: impl FnMut(u32)) -> bool {
        match self.table.get_mut(id.0) {
            Some(context) => doorbell::scan(
                &context.doorbells,
                &mut context.seq,
                &context.owned,
                H::fence,
                rung,
            ),
            None => false,
        }
    }

    fn for_each(&self, mut action: impl FnMut(&Context<H>)) {
        let mut next = self.first;
        while let Some(context) = next.and_then(|index| self.table.get(index)) {
            action(context);
            next = context.next;
        }
    }

    /// Tells the contexts that the engine is awake, so that nobody needs to kick.
    pub(crate) fn wake(&mut self) {
        if self.sleeping {
            self.sleeping = false;
            self.for_each(|context| context.doorbells.set_sleeping(false));
        }
    }

    /// Tells the contexts that the engine sleeps, whatever is rung by then.
    pub(crate) fn sleep(&mut self) {
        self.sleeping = true;
        self.for_each(|context| context.doorbells.set_sleeping(true));
        // Who rings fences and then looks whether the engine sleeps; the engine says so, fences
        // and then looks whether anybody rang. So a ring is seen by the one or kicks the other.
        H::fence();
    }

    /// Tells the contexts that the engine sleeps, unless something is rung by then.
    pub(crate) fn try_sleep(&mut self) -> bool {
        self.sleep();
        let mut rung = false;
        self.for_each(|context| rung |= doorbell::is_rung(&context.doorbells, context.seq));
        if rung {
            self.wake();
        }
        !rung
    }

    /// Tells a context that its device is gone.
    pub(crate) fn set_dead(&mut self, id: ContextId) {
        if let Some(context) = self.table.get(id.0) {
            context.doorbells.set_dead();
        }
    }
}
