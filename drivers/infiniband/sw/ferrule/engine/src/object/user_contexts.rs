// SPDX-License-Identifier: GPL-2.0

//! All user contexts, and which of their programs have to kick.
//!
//! While the engine sleeps, a program that rings a doorbell kicks, too, and the kick tells the
//! engine whose doorbells to take. While it is awake it looks for itself, but only at the contexts
//! that kicked since: only those are told that they need not kick. One that does not ring for a
//! while is told to kick again. So the cost of a look grows with the busy contexts, not with the
//! open ones.
//!
//! Contexts that are looked at stand in a ring, one after the other: those that are awake, and
//! those that are due, since they have kicked or have doorbells left of the last look. Programs
//! decide how many these are, so a run looks at some of them, and the next run goes on from there.

use crate::{
    base::{
        doorbells::Doorbells,
        error::{
            Error,
            Refused,
            TableKind, //
        },
        host::Host,
        id::{
            ContextId,
            Vport, //
        },
        list::NONE,
        table::{
            Table,
            TableChunk, //
        },
        timer::Timers,
        uses::Uses, //
    },
    object::{
        doorbell::Found,
        user_context::{
            ContextLink,
            ContextTable,
            UserContext, //
        },
    },
};

/// So many looks without a doorbell, and a context has to kick again. Each look is a read of its
/// memory, and the kick a system call, so it pays for a program that pauses for less.
const IDLE_LOOKS: u32 = 1024;

/// The cost of telling a context to kick, in looks: it is told, looked at, and perhaps told again.
const TELL_LOOKS: u32 = 3;

/// The result of a scan of a context's doorbells.
pub(crate) struct Scanned {
    /// Something had been rung there.
    pub(crate) found: bool,
    /// Doorbells are left.
    pub(crate) more: bool,
    /// Something had been rung, and the kicks of the program are to be deferred.
    pub(crate) has_backlog: bool,
    /// So many looks are left.
    pub(crate) left: u32,
}

/// The result of a step towards sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// All contexts have been told to kick.
    Asleep,
    /// Some have been told, and others are left.
    Step,
    /// There is something to do: the engine is awake.
    Awake,
}

/// All open contexts, and whether the engine sleeps.
///
/// # Invariants
///
/// - The contexts that are awake or due, and no others, stand in the ring, and `watched` is their
///   number.
/// - `due` is the number of those that are due.
/// - The contexts whose kicks are deferred, and no others, have a timer, and they are awake.
/// - `awake` is the number of those that are awake without a deferral.
pub(crate) struct UserContexts<H: Host> {
    pub(super) table: ContextTable<H>,
    /// Of contexts whose kicks are deferred.
    pub(super) timers: Timers,
    /// The one of the ring that is looked at next.
    next: u32,
    watched: u32,
    due: u32,
    pub(super) awake: u32,
    /// The engine sleeps or is about to: no context is told any more that it need not kick.
    pub(super) sleeping: bool,
}

impl<H: Host> UserContexts<H> {
    pub(crate) fn new() -> Self {
        Self {
            table: Table::new(TableKind::Contexts, 0, ContextId::LIMIT, 0),
            timers: Timers::new(),
            next: NONE,
            watched: 0,
            due: 0,
            awake: 0,
            sleeping: true,
        }
    }

    pub(crate) fn add(
        &mut self,
        context: H::Box<UserContext<H>>,
    ) -> Result<ContextId, Refused<H::Box<UserContext<H>>>> {
        let index = self.table.insert(context, |context, _, _| {
            context.doorbells.set_sleeping(true);
        })?;
        self.wake_one(ContextId(index));
        Ok(ContextId(index))
    }

    pub(crate) fn remove(&mut self, id: ContextId) -> Result<H::Box<UserContext<H>>, Error> {
        if self.table.get(id.0).ok_or(Error::NotFound)?.users != 0 {
            return Err(Error::Busy);
        }
        self.watch(id, false, false);
        self.table.remove(id.0).ok_or(Error::NotFound)
    }

    /// Gives a block without objects to the table of another engine ([`Table::give`]).
    pub(crate) fn give(
        &mut self,
        all: bool,
        chunk: &mut TableChunk<H, UserContext<H>, ContextLink>,
    ) -> Option<u32> {
        self.table.give(all, chunk)
    }

    /// Takes over all contexts of `other`, and tells of each block. Those that need not kick have
    /// to from here on, since this engine may sleep; if one has rung, it is due.
    pub(crate) fn take_over(&mut self, other: &mut Self, each: impl FnMut(u32)) {
        while other.sleep(u32::MAX) != Sleep::Asleep {}
        self.table.take_over(&mut other.table, each);
        self.timers.take_over(&mut self.table, &mut other.timers);
        let next = core::mem::replace(&mut other.next, NONE);
        if self.next == NONE {
            self.next = next;
        } else {
            self.join(next);
        }
        self.watched = self
            .watched
            .wrapping_add(core::mem::take(&mut other.watched));
        self.due = self.due.wrapping_add(core::mem::take(&mut other.due));
    }

    /// Puts another ring in front of the context that is next, so that all others come first.
    fn join(&mut self, other: u32) {
        let first = self.next;
        let (Some(last), Some(others_last)) = (
            self.table.get(first).map(|context| context.previous),
            self.table.get(other).map(|context| context.previous),
        ) else {
            return;
        };
        for (before, after) in [(last, other), (others_last, first)] {
            if let Some(context) = self.table.get_mut(before) {
                context.next = after;
            }
            if let Some(context) = self.table.get_mut(after) {
                context.previous = before;
            }
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.table.len()
    }

    pub(crate) fn grow(
        &mut self,
        chunk: TableChunk<H, UserContext<H>, ContextLink>,
    ) -> Option<TableChunk<H, UserContext<H>, ContextLink>> {
        self.table.grow(chunk)
    }

    /// The uses of a context's queue pairs by copy jobs.
    pub(crate) fn uses_mut(&mut self, id: ContextId) -> Option<&mut Uses> {
        Some(&mut self.table.get_mut(id.0)?.uses)
    }

    /// The virtual port of a context.
    pub(crate) fn vport(&self, id: ContextId) -> Vport {
        self.table
            .get(id.0)
            .map(|context| context.vport)
            .unwrap_or_default()
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

    /// How many contexts are looked at.
    #[inline]
    pub(crate) fn watched(&self) -> u32 {
        self.watched
    }

    /// Whether a context is due.
    #[inline]
    pub(crate) fn has_due(&self) -> bool {
        self.due != 0
    }

    /// Whether this one is.
    #[inline]
    pub(crate) fn is_due(&self, id: ContextId) -> bool {
        self.has_due() && self.table.get(id.0).is_some_and(|context| context.due)
    }

    /// The context that is scanned next. The one after it follows.
    #[inline]
    pub(crate) fn next_to_scan(&mut self) -> Option<ContextId> {
        let id = ContextId(self.next);
        self.next = self.table.get(id.0)?.next;
        Some(id)
    }

    /// Lets this context, which is due, be the next one to scan.
    pub(crate) fn scan_next(&mut self, id: ContextId) {
        self.next = id.0;
    }

    /// Takes the doorbells that were rung in a context, as far as `looks` go; `found` gets each.
    #[inline]
    pub(crate) fn scan(&mut self, id: ContextId, looks: u32, found: impl FnMut(Found)) -> Scanned {
        let Some(context) = self.table.get_mut(id.0) else {
            return Scanned {
                found: false,
                more: false,
                has_backlog: false,
                left: looks,
            };
        };
        let UserContext {
            doorbells,
            scan,
            owned,
            ..
        } = context;
        let mut left = looks;
        let found = scan.take(doorbells, owned, H::fence, &mut left, found);
        let more = !scan.is_done();
        // A context whose kicks are deferred is awake until its timer fires.
        let (awake, deferred) = (context.awake, context.deferred);
        // An engine that is awake looks for itself.
        let has_backlog = found && self.sleeping && context.doorbells.has_backlog();
        if found {
            context.idle = 0;
        }
        if context.due != more {
            self.watch(id, awake, more);
        }
        if awake && !found && !deferred {
            self.found_nothing(id, &mut left);
        }
        Scanned {
            found,
            more,
            has_backlog,
            left,
        }
    }

    /// Nothing was rung in a context that is awake. After so many looks it has to kick again.
    #[inline]
    fn found_nothing(&mut self, id: ContextId, looks: &mut u32) {
        let Some(context) = self.table.get_mut(id.0) else {
            return;
        };
        context.idle = context.idle.wrapping_add(1);
        if context.idle < IDLE_LOOKS {
            return;
        }
        if let Some(left) = looks.checked_sub(TELL_LOOKS) {
            *looks = left;
            self.demote(id);
        }
    }

    /// The engine is awake: a context that kicks is told.
    pub(crate) fn wake(&mut self) {
        self.sleeping = false;
    }

    /// Tells a context that it need not kick, if the engine is awake; then its doorbells are taken.
    #[inline]
    pub(crate) fn wake_one(&mut self, id: ContextId) {
        if self.sleeping {
            return;
        }
        if let Some(context) = self.table.get_mut(id.0).filter(|context| !context.awake) {
            context.idle = 0;
            context.doorbells.set_sleeping(false);
            let due = context.due;
            self.watch(id, true, due);
        }
    }

    /// A context has kicked, and is to be looked at.
    pub(crate) fn kicked(&mut self, id: ContextId) {
        self.wake_one(id);
        if let Some(context) = self.table.get(id.0) {
            self.watch(id, context.awake, true);
        }
    }

    /// A kick of the context has arrived. Its sender has swapped `sleeping` with 0, so the context
    /// has sent no other one since.
    pub(crate) fn kicked_by_message(&mut self, id: ContextId) {
        self.kicked(id);
        if let Some(context) = self.table.get(id.0).filter(|context| !context.awake) {
            // The context has to kick from here on. As in `ask_for_kicks`, a program that has still
            // read 0 has rung by now, and the scan that follows sees its doorbell.
            context.doorbells.set_sleeping(true);
            H::fence();
        }
    }

    /// Tells a context to kick, unless something is rung by then.
    #[cold]
    fn demote(&mut self, id: ContextId) {
        let Some(context) = self.table.get_mut(id.0) else {
            return;
        };
        context.idle = 0;
        if context.ask_for_kicks() {
            context.doorbells.set_sleeping(false);
        } else {
            self.watch(id, false, false);
        }
    }

    /// Tells some contexts to kick, unless something is rung by then in one of them: these stay as
    /// they were, and the engine is awake. None of the contexts may be due.
    pub(crate) fn try_sleep(&mut self, looks: u32) -> Sleep {
        self.sleeping = true;
        let some = (looks / TELL_LOOKS).max(1).min(self.watched);
        self.set_sleeping(some, true);
        // As in `ask_for_kicks`, with one fence for all of them.
        H::fence();
        let mut next = self.next;
        for _ in 0..some {
            let Some(context) = self.table.get(next) else {
                break;
            };
            if context.scan.is_rung(&context.doorbells) {
                self.set_sleeping(some, false);
                self.sleeping = false;
                return Sleep::Awake;
            }
            next = context.next;
        }
        for _ in 0..some {
            self.watch(ContextId(self.next), false, false);
        }
        if self.watched == 0 {
            Sleep::Asleep
        } else {
            Sleep::Step
        }
    }

    /// Tells some contexts to kick, though their doorbells may be rung. Such a context is due, so
    /// that the next runs take them. Contexts whose kicks are deferred stay awake.
    pub(crate) fn sleep(&mut self, looks: u32) -> Sleep {
        self.sleeping = true;
        let some = (looks / TELL_LOOKS).max(1).min(self.watched);
        for _ in 0..some {
            if self.awake == 0 {
                break;
            }
            let Some(id) = self.next_to_scan() else {
                break;
            };
            let Some(context) = self.table.get(id.0).filter(|context| context.is_kept()) else {
                continue;
            };
            let due = context.ask_for_kicks() || context.due;
            self.watch(id, false, due);
        }
        if self.awake == 0 {
            Sleep::Asleep
        } else {
            Sleep::Step
        }
    }

    /// Tells so many contexts of the ring whether they have to kick.
    fn set_sleeping(&self, some: u32, sleeping: bool) {
        let mut next = self.next;
        for _ in 0..some {
            let Some(context) = self.table.get(next) else {
                break;
            };
            context.doorbells.set_sleeping(sleeping);
            next = context.next;
        }
    }

    /// Sets whether a context is awake and whether it is due, and so whether it stands in the ring.
    pub(super) fn watch(&mut self, id: ContextId, awake: bool, due: bool) {
        let Some(context) = self.table.get_mut(id.0) else {
            return;
        };
        let was = (context.awake || context.due, context.due);
        let was_kept = context.is_kept();
        (context.awake, context.due) = (awake, due);
        let is_kept = context.is_kept();
        if context.deferred && !awake {
            context.deferred = false;
            context.doorbells.set_deferred(false);
            self.timers.clear(&mut self.table, id.0);
        }
        self.awake = self
            .awake
            .wrapping_add(u32::from(is_kept))
            .wrapping_sub(u32::from(was_kept));
        self.due = self
            .due
            .wrapping_add(u32::from(due))
            .wrapping_sub(u32::from(was.1));
        match (was.0, awake || due) {
            (false, true) => self.link(id.0),
            (true, false) => self.unlink(id.0),
            _ => (),
        }
    }

    /// Puts a context into the ring: before the one that is next, so that all others come first.
    fn link(&mut self, index: u32) {
        let next = self.next;
        let (previous, next) = match self.table.get_mut(next) {
            Some(context) => (core::mem::replace(&mut context.previous, index), next),
            None => {
                self.next = index;
                (index, index)
            }
        };
        if let Some(context) = self.table.get_mut(previous) {
            context.next = index;
        }
        if let Some(context) = self.table.get_mut(index) {
            (context.previous, context.next) = (previous, next);
        }
        self.watched = self.watched.wrapping_add(1);
    }

    /// Takes a context out of the ring.
    fn unlink(&mut self, index: u32) {
        let Some(context) = self.table.get(index) else {
            return;
        };
        let (previous, next) = (context.previous, context.next);
        if let Some(context) = self.table.get_mut(previous) {
            context.next = next;
        }
        if let Some(context) = self.table.get_mut(next) {
            context.previous = previous;
        }
        if self.next == index {
            self.next = if next == index { NONE } else { next };
        }
        self.watched = self.watched.wrapping_sub(1);
    }

    /// Tells a context that its device is gone.
    pub(crate) fn set_dead(&mut self, id: ContextId) {
        if let Some(context) = self.table.get(id.0) {
            context.doorbells.set_dead();
        }
    }
}
