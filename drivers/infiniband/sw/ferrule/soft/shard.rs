// SPDX-License-Identifier: GPL-2.0

//! The shard: it gives the engine one owner at a time, and others leave a message.
//!
//! An engine is a state machine that one caller at a time may move. Callers come from system calls,
//! from the worker thread, and from timers in softirq context, where nobody may wait. So ownership
//! is an atomic word instead of a lock: a caller that finds it taken leaves a message and goes.
//!
//! The work itself stands in doorbells and deadlines already, and the contexts and queue pairs of
//! those doorbells are noted before (`pending.rs`), so a mark is all the message that an owner
//! needs. Owner, mark and the callers that wait stand in one word, and each step is one fully
//! ordered exchange of it: so either the mark is set before the owner leaves, and the owner sees
//! it, or the owner has left before, and the second caller is the owner. A message is never lost.
//!
//! The command channel ([`Shard::enter`]) waits for its turn instead, since it has an answer to
//! give. It does so without sleeping: an owner is not preempted and leaves within a slice, sooner
//! than a thread that sleeps would have a processor again behind those that want one. Commands queue
//! up at a spinlock, which is fair among them. While the first of them waits for the owner,
//! [`Shard::try_enter`] only leaves messages, so that a program which posts without a pause cannot
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

use kernel_ext::task::NoPreempt;

/// Somebody owns the state.
const OWNED: u32 = 1;

/// Somebody came while it was owned or waited for, and went: the engine has to run once more.
const MESSAGE: u32 = 2;

/// A caller in [`Shard::enter`] waits for the owner to leave, and is the next one.
const WAITING: u32 = 4;

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

    /// Becomes the owner if the shard is free and no command waits for it; else calls `note` once, and
    /// leaves a message. The owner that takes the message sees the note.
    ///
    /// The new owner has taken the messages that were left, and is about to run the engine for all
    /// of them. Callable from any context.
    #[inline]
    pub(crate) fn try_enter(&self, note: impl FnOnce()) -> Option<Owner<'_, T>> {
        let here = NoPreempt::new();
        let mut note = Some(note);
        let mut word = 0;
        loop {
            let free = word & !MESSAGE == 0;
            let next = if free {
                OWNED
            } else {
                if let Some(note) = note.take() {
                    note();
                }
                word | MESSAGE
            };
            match self.word.cmpxchg(word, next, Full) {
                // INVARIANT: Of all callers, one alone sets `OWNED` where it was not.
                Ok(_) if free => {
                    return Some(Owner {
                        shard: self,
                        messages: word & MESSAGE != 0,
                        left: false,
                        _here: here,
                    })
                }
                Ok(_) => return None,
                Err(now) => word = now,
            }
        }
    }

    /// Becomes the owner, waiting for it where need be. Messages stay where they are.
    ///
    /// Waits without a time limit, since every owner leaves within its slice. Process context only.
    pub(crate) fn enter(&self) -> Owner<'_, T> {
        let here = NoPreempt::new();
        let word = self.word.load(Relaxed) & MESSAGE;
        // INVARIANT: As in `try_enter`.
        if self.word.cmpxchg(word, word | OWNED, Full).is_ok() {
            return Owner::new(self, here);
        }
        let _turn = self.queue.lock();
        let mut word = self.word.fetch_add(WAITING, Full) | WAITING;
        loop {
            // INVARIANT: As in `try_enter`.
            match self
                .word
                .cmpxchg(word & !OWNED, word & MESSAGE | OWNED, Full)
            {
                Ok(_) => return Owner::new(self, here),
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
    /// Messages were taken, and the engine is to run for whoever left them.
    messages: bool,
    /// The shard has been given up already.
    left: bool,
    _here: NoPreempt,
}

impl<'a, T> Owner<'a, T> {
    /// An owner who has taken no messages.
    fn new(shard: &'a Shard<T>, here: NoPreempt) -> Self {
        Self {
            shard,
            messages: false,
            left: false,
            _here: here,
        }
    }

    /// Takes the messages that were left: the caller is about to run the engine for all of them.
    #[inline]
    pub(crate) fn take_messages(&mut self) {
        let mut word = self.shard.word.load(Relaxed);
        while word & MESSAGE != 0 {
            self.messages = true;
            match self.shard.word.cmpxchg(word, word & !MESSAGE, Full) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
    }

    /// Whether messages were taken: then any context may have work.
    #[inline]
    pub(crate) fn has_messages(&self) -> bool {
        self.messages
    }

    /// Gives the shard up and says whether a message is waiting.
    ///
    /// A caller that hears `true` must make sure that the engine runs again: nobody else will.
    #[must_use]
    #[inline]
    pub(crate) fn leave(mut self) -> bool {
        let word = self.release();
        self.left = true;
        word & MESSAGE != 0
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
        // SAFETY: By the type invariants of `Shard`, this is the only owner, and the mutable borrow of
        // `self` keeps every other reference away while this one lives.
        unsafe { &mut *self.shard.state.get() }
    }
}
