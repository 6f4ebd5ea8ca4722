// SPDX-License-Identifier: GPL-2.0

//! Deferred kicks: a program that posts far ahead of its polls kicks once for many requests.
//!
//! Where the engine has no processor of its own it sleeps, and a program pays a system call for
//! each request that it posts. A program that has a backlog, requests that it has posted and not
//! polled, gains nothing by each of these calls. So the engine tells its context that it need not
//! kick, as if it were awake, and sets `deferred`. The provider then kicks when a poll finds
//! nothing, or when the program asks for an event: from there on the program waits for the engine.
//! A program that does neither is served by a timer, [`DEFERRAL_NS`] after the engine has last
//! found its doorbells.
//!
//! When the timer fires, the context has to kick again, unless it has rung and its backlog stays.
//! Program and engine meet as they do when the engine falls asleep ([`UserContexts::try_sleep`]).
//!
//! A program may wait for its peer by looking at memory, and leave its completions alone. It does
//! not kick, so each of its requests would wait for the timer. After [`MOST_LATE`] of them its
//! kicks are not deferred for [`PAUSE_NS`].
//!
//! The backlog is the program's own word. It delays its own requests alone, by [`DEFERRAL_NS`] at
//! most.

use crate::{
    base::{
        doorbells::Doorbells,
        host::Host,
        id::ContextId,
        timer::{
            TimerSlot,
            TimerSlots, //
        },
    },
    object::{
        user_context::ContextTable,
        user_contexts::UserContexts, //
    },
};

/// How long kicks are deferred, in nanoseconds, since doorbells were last found.
///
/// Longer than a program takes to post a queue of 128 requests, and about as long as the time slice
/// of a thread. A timer that is set and fires more often costs an emulated machine as much as it
/// saves.
const DEFERRAL_NS: u64 = 4_000_000;

/// How many times in a row doorbells of a context wait for the timer, before the engine takes its
/// program for one that does not poll.
const MOST_LATE: u32 = 2;

/// How long kicks of such a program are not deferred, in nanoseconds.
const PAUSE_NS: u64 = 100_000_000;

impl<H: Host> TimerSlots for ContextTable<H> {
    fn slot(&mut self, index: u32) -> Option<&mut TimerSlot> {
        Some(&mut self.link_mut(index)?.timer)
    }
}

impl<H: Host> UserContexts<H> {
    /// Defers the kicks of a context, or defers them for longer. The engine sleeps, and has found
    /// doorbells of the context, whose program has a backlog.
    pub(crate) fn defer(&mut self, id: ContextId, now: u64) {
        let due_at = self.timers.deadline(&mut self.table, id.0);
        let Some(context) = self.table.get_mut(id.0) else {
            return;
        };
        let mut end = now.wrapping_add(DEFERRAL_NS);
        if context.deferred {
            context.late = match due_at {
                Some(due_at) if due_at <= now => context.late.wrapping_add(1),
                // The program has kicked, or another one has run the engine.
                _ => 0,
            };
            if context.late >= MOST_LATE {
                context.late = 0;
                context.may_defer_at = now.wrapping_add(PAUSE_NS);
                // Its timer ends the deferral.
                end = now;
            }
        } else {
            if now < context.may_defer_at {
                return;
            }
            let (due, was_kept) = (context.due, context.is_kept());
            context.deferred = true;
            context.doorbells.set_deferred(true);
            context.doorbells.set_sleeping(false);
            self.awake = self.awake.wrapping_sub(u32::from(was_kept));
            self.watch(id, true, due);
        }
        self.timers.set(&mut self.table, id.0, end);
    }

    /// When the next deferral ends.
    #[inline]
    pub(crate) fn deadline(&mut self) -> Option<u64> {
        self.timers.next(&mut self.table)
    }

    /// Ends a deferral that is due at `now`; returns whether there was one. The doorbells of a
    /// context that has rung are to be taken: the context is due.
    pub(crate) fn fire_timer(&mut self, now: u64) -> bool {
        let Some(index) = self.timers.pop_due(&mut self.table, now) else {
            return false;
        };
        let Some(context) = self.table.get_mut(index) else {
            return true;
        };
        let due = context.ask_for_kicks() || context.due;
        let goes_on = due && now >= context.may_defer_at && context.doorbells.has_backlog();
        if goes_on {
            context.doorbells.set_sleeping(false);
            let end = now.wrapping_add(DEFERRAL_NS);
            self.timers.set(&mut self.table, index, end);
        }
        self.watch(ContextId(index), goes_on, due);
        true
    }
}
