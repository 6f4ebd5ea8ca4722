// SPDX-License-Identifier: GPL-2.0

//! The shard: it gives the engine one owner at a time, and others tell the owner that they came.
//!
//! An engine is a state machine that one caller at a time may move. Callers come from system calls,
//! from the worker thread, and from timers in softirq context, where nobody may wait. So ownership
//! is an atomic word instead of a lock: a caller that finds it taken sets a bit, [`MISSED`], and
//! goes. Linux's queueing disciplines without a lock do the same (`__QDISC_STATE_MISSED`).
//!
//! The work itself stands in doorbells and deadlines already, and the contexts and queue pairs of
//! those doorbells are noted before (`pending.rs`), so a bit is all that an owner needs. It stands
//! in one word with the owner and the callers that wait, and each step is one fully ordered
//! exchange of that word. So either the bit is set before the owner leaves, and the owner sees it,
//! or the owner has left before, and the second caller is the owner. A missed call is never lost.
//!
//! Each processor is to do the work of its own program. So a caller in process context waits for
//! the owner first, and sets the bit only after a while. It looks at the word meanwhile, and can be
//! preempted.
//!
//! The command channel ([`Shard::enter`]) waits for its turn in any case, since it has an answer to
//! give. It does not sleep: an owner is not preempted and leaves within a slice, sooner than a
//! thread that sleeps would have a processor again behind those that want one. They queue up at a
//! spinlock, which is fair among them. While the first of them waits for the owner,
//! [`Shard::try_enter`] only sets the bit, so that a program which posts without a pause cannot
//! keep another one from destroying its queue pair.

use core::{
    cell::UnsafeCell,
    ops::{
        Deref,
        DerefMut, //
    },
};

use kernel::{
    new_spinlock,
    prelude::*,
    processor::cpu_relax,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        SpinLock, //
    },
};

use kernel_ext::{
    task::NoPreempt,
    time::monotonic_ns, //
};

/// Somebody owns the state.
const OWNED: u32 = 1;

/// A call was missed: its caller came while the state was owned or waited for, and went. The engine
/// has to run once more.
const MISSED: u32 = 2;

/// A caller in [`Shard::enter`] waits for the owner to leave, and is the next one.
const WAITING: u32 = 4;

/// How long a caller waits that may leave its work to the owner instead, in nanoseconds. Others
/// that wait beside it may have their turns before, each for the work of a whole kick.
const PATIENCE_NS: u64 = 1_000_000;

/// How long it waits once it has seen that somebody waits in [`Shard::enter`], in nanoseconds: some
/// slices. Where several do so, the shard is never free in between. Each of those, or its worker,
/// serves the calls that were missed before.
const PATIENCE_BEHIND_NS: u64 = 100_000;

/// A value that one owner at a time may use, without any lock.
///
/// # Invariants
///
/// `state` is only accessed through an [`Owner`], and at most one [`Owner`] exists at a time:
/// `OWNED` is set in `word` exactly while one does.
#[pin_data]
pub(crate) struct Shard<T> {
    word: Atomic<u32>,
    /// Its holder may set [`WAITING`].
    #[pin]
    queue: SpinLock<()>,
    state: UnsafeCell<T>,
}

// SAFETY: `state` is handed to one owner at a time, and the word by which it changes hands orders
// their accesses; the other fields are `Sync`. `T: Send` lets the value change hands.
unsafe impl<T: Send> Sync for Shard<T> {}

impl<T> Shard<T> {
    /// Makes a shard that nobody owns.
    pub(crate) fn new(state: T) -> impl PinInit<Self> {
        pin_init!(Self {
            word: Atomic::new(0),
            queue <- new_spinlock!((), "Shard::queue"),
            state: UnsafeCell::new(state),
        })
    }

    /// Becomes the owner if the shard is free and nobody waits for it; else calls `note` once, and
    /// sets [`MISSED`]. The owner that clears it sees the note.
    ///
    /// The new owner has taken the missed calls, and is about to run the engine for all of them. A
    /// caller that may wait is in process context, and waits for a while first; others may be in
    /// any context.
    #[inline]
    pub(crate) fn try_enter(&self, may_wait: bool, note: impl FnOnce()) -> Option<Owner<'_, T>> {
        if may_wait {
            if let Some(owner) = self.enter_soon() {
                return Some(owner);
            }
        }
        let here = NoPreempt::new();
        let mut note = Some(note);
        let mut word = 0;
        loop {
            let free = word & !MISSED == 0;
            let next = if free {
                OWNED
            } else {
                if let Some(note) = note.take() {
                    note();
                }
                word | MISSED
            };
            match self.word.cmpxchg(word, next, Full) {
                // INVARIANT: Of all callers, one alone sets `OWNED` where it was not.
                Ok(_) if free => return Some(Owner::new(self, here, word & MISSED != 0)),
                Ok(_) => return None,
                Err(now) => word = now,
            }
        }
    }

    /// Becomes the owner as soon as the shard is free and nobody waits in [`Shard::enter`], and
    /// takes the missed calls. Gives up after [`PATIENCE_NS`], or [`PATIENCE_BEHIND_NS`].
    ///
    /// The caller may be preempted while it waits.
    #[inline]
    fn enter_soon(&self) -> Option<Owner<'_, T>> {
        let mut until = u64::MAX;
        loop {
            let word = self.word.load(Relaxed);
            if word & !MISSED == 0 {
                let here = NoPreempt::new();
                // INVARIANT: As in `try_enter`.
                if self.word.cmpxchg(word, OWNED, Full).is_ok() {
                    return Some(Owner::new(self, here, word & MISSED != 0));
                }
            }
            let now = monotonic_ns();
            let patience = if word & WAITING == 0 {
                PATIENCE_NS
            } else {
                PATIENCE_BEHIND_NS
            };
            until = until.min(now.saturating_add(patience));
            if now > until {
                return None;
            }
            cpu_relax();
        }
    }

    /// Becomes the owner of two shards, as [`Shard::enter`] does of one.
    ///
    /// It owns the first while it waits for the second. All callers give two in the same order, so
    /// none wait in a circle.
    pub(crate) fn enter_both<'a>(
        first: &'a Self,
        second: &'a Self,
    ) -> (Owner<'a, T>, Owner<'a, T>) {
        (first.enter(), second.enter())
    }

    /// Becomes the owner, waiting for it where need be. Missed calls stay for a later owner.
    ///
    /// Waits without a time limit, since every owner leaves after its slice and the softirqs of its
    /// burst. Process context only.
    ///
    /// Preemption is off meanwhile: the queue is a spinlock, since the kernel takes pages away
    /// where nothing may sleep (`paging.rs`). So a caller keeps its processor for a turn of each
    /// one before it, of which another processor has one at most.
    pub(crate) fn enter(&self) -> Owner<'_, T> {
        let here = NoPreempt::new();
        let word = self.word.load(Relaxed) & MISSED;
        // INVARIANT: As in `try_enter`.
        if self.word.cmpxchg(word, word | OWNED, Full).is_ok() {
            return Owner::new(self, here, false);
        }
        let _turn = self.queue.lock();
        let mut word = self.word.fetch_add(WAITING, Full) | WAITING;
        loop {
            // INVARIANT: As in `try_enter`.
            match self
                .word
                .cmpxchg(word & !OWNED, word & MISSED | OWNED, Full)
            {
                Ok(_) => return Owner::new(self, here, false),
                Err(now) => word = now,
            }
            while word & OWNED != 0 {
                cpu_relax();
                word = self.word.load(Relaxed);
            }
        }
    }
}

/// The right to use what a [`Shard`] holds, until [`Owner::leave`] gives it up.
///
/// An owner is not preempted. If it were, all others would have to wait until it has a processor
/// again, behind programs that do nothing but ask for one.
pub(crate) struct Owner<'a, T> {
    shard: &'a Shard<T>,
    /// Missed calls were taken, and the engine is to run for their callers.
    missed: bool,
    /// The shard has been given up already.
    left: bool,
    _here: NoPreempt,
}

impl<'a, T> Owner<'a, T> {
    /// An owner, who may have taken missed calls.
    #[inline]
    fn new(shard: &'a Shard<T>, here: NoPreempt, missed: bool) -> Self {
        Self {
            shard,
            missed,
            left: false,
            _here: here,
        }
    }

    /// Takes the missed calls: the caller is about to run the engine for all of them.
    #[inline]
    pub(crate) fn take_missed(&mut self) {
        let mut word = self.shard.word.load(Relaxed);
        while word & MISSED != 0 {
            self.missed = true;
            match self.shard.word.cmpxchg(word, word & !MISSED, Full) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
    }

    /// Whether missed calls were taken: then any context may have work.
    #[inline]
    pub(crate) fn has_missed(&self) -> bool {
        self.missed
    }

    /// Gives the shard up. Returns `true` if a call was missed.
    ///
    /// A caller that hears `true` must make sure that the engine runs again: nobody else will.
    #[must_use]
    #[inline]
    pub(crate) fn leave(mut self) -> bool {
        let word = self.release();
        self.left = true;
        word & MISSED != 0
    }

    /// Clears `OWNED`, and answers the word as it was.
    #[inline]
    fn release(&self) -> u32 {
        let mut word = OWNED;
        while let Err(now) = self.shard.word.cmpxchg(word, word & !OWNED, Full) {
            word = now;
        }
        word
    }
}

impl<T> Drop for Owner<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if !self.left {
            self.release();
        }
    }
}

impl<T> Deref for Owner<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: By the type invariants of `Shard`, this is the only owner, and the borrow of
        // `self` keeps it one while the reference lives.
        unsafe { &*self.shard.state.get() }
    }
}

impl<T> DerefMut for Owner<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: By the type invariants of `Shard`, this is the only owner, and the mutable borrow
        // of `self` keeps every other reference away while this one lives.
        unsafe { &mut *self.shard.state.get() }
    }
}
