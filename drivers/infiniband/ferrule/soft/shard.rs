// SPDX-License-Identifier: GPL-2.0

//! The shard: who may run the engine, and how the others leave word.
//!
//! An engine is a state machine that one caller at a time may move. Callers come from system calls,
//! from the worker thread, and from timers in softirq context, where nobody may wait. So ownership
//! is an atomic word instead of a lock: who finds it taken leaves a message and goes.
//!
//! What is to be done already stands in doorbells and deadlines, so a mark is all the message that
//! an owner needs. The two sides are ordered like this, with full barriers between the steps:
//!
//! ```text
//!   who finds the shard owned            the owner
//!   ─────────────────────────            ─────────────────────────────────
//!   1. mark := set                       1. owner := free
//!   2. owner still there? then go;       2. mark set? then somebody has to
//!      else try to enter again              run the engine: this caller sees to it
//! ```
//!
//! So at least one of the two sees the other, and a message is never lost.
//!
//! The command channel ([`Shard::enter`]) waits for its turn instead, since it has an answer to
//! give. While it waits, [`Shard::try_enter`] only leaves messages, so that a program which posts
//! without a pause cannot keep another one from destroying its queue pair.

use core::{
    cell::UnsafeCell,
    ops::{
        Deref,
        DerefMut, //
    },
};

use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Full,
        Relaxed, //
    },
};

use kernel_ext::{
    new_waitqueue,
    sync::WaitQueue, //
};

const FREE: u32 = 0;
const OWNED: u32 = 1;

/// A value that one owner at a time may use, without any lock.
///
/// # Invariants
///
/// `state` is only accessed through an [`Owner`], and at most one [`Owner`] exists at a time:
/// `owner` is `OWNED` exactly while one does.
#[pin_data]
pub(crate) struct Shard<T> {
    owner: Atomic<u32>,
    /// Not 0: somebody found the shard owned, and the engine has to run once more.
    message: Atomic<u32>,
    /// Callers in [`Shard::enter`] that wait for their turn.
    waiters: Atomic<u32>,
    #[pin]
    freed: WaitQueue,
    state: UnsafeCell<T>,
}

// SAFETY: `state` is handed to one owner at a time, and the word by which it changes hands orders
// their accesses; the other fields are `Sync`. `T: Send` lets the value change hands.
unsafe impl<T: Send> Sync for Shard<T> {}

impl<T> Shard<T> {
    /// Makes a shard that nobody owns.
    pub(crate) fn new(state: T) -> impl PinInit<Self> {
        pin_init!(Self {
            owner: Atomic::new(FREE),
            message: Atomic::new(0),
            waiters: Atomic::new(0),
            freed <- new_waitqueue!("Shard::freed"),
            state: UnsafeCell::new(state),
        })
    }

    /// Takes the word from `FREE` to `OWNED`.
    fn claim(&self) -> Option<Owner<'_, T>> {
        match self.owner.cmpxchg(FREE, OWNED, Full) {
            // INVARIANT: Of all callers, one alone changes the word from `FREE`, and it becomes
            // `FREE` again only when that caller's `Owner` is gone.
            Ok(_) => Some(Owner { shard: self }),
            Err(_) => None,
        }
    }

    /// Becomes the owner if the shard is free and no command waits for it; else leaves a message.
    ///
    /// Callable from any context.
    pub(crate) fn try_enter(&self) -> Option<Owner<'_, T>> {
        loop {
            if self.waiters.load(Relaxed) == 0 {
                if let Some(owner) = self.claim() {
                    return Some(owner);
                }
            }
            self.message.xchg(1, Full);
            // Whoever is the owner now, or waits to be, will find the message when it leaves: a
            // waiter stops being counted only after it has become the owner.
            if self.waiters.fetch_add(0, Full) != 0 || self.owner.fetch_add(0, Full) != FREE {
                return None;
            }
        }
    }

    /// Becomes the owner, waiting for it where need be.
    ///
    /// Waits without a time limit, since every owner leaves within its budget. Process context
    /// only.
    pub(crate) fn enter(&self) -> Owner<'_, T> {
        if let Some(owner) = self.claim() {
            return owner;
        }
        self.waiters.fetch_add(1, Full);
        let owner = loop {
            self.freed.wait(|| self.owner.load(Relaxed) == FREE);
            if let Some(owner) = self.claim() {
                break owner;
            }
        };
        self.waiters.fetch_sub(1, Full);
        owner
    }
}

/// The right to use what a [`Shard`] holds, until [`Owner::leave`] gives it up.
pub(crate) struct Owner<'a, T> {
    shard: &'a Shard<T>,
}

impl<T> Owner<'_, T> {
    /// Takes the messages that were left: the caller is about to run the engine for all of them.
    pub(crate) fn take_messages(&self) {
        self.shard.message.xchg(0, Full);
    }

    /// Gives the shard up and says whether a message is waiting.
    ///
    /// A caller that hears `true` must see to it that the engine runs again: nobody else will.
    #[must_use]
    pub(crate) fn leave(self) -> bool {
        let shard = self.shard;
        drop(self);
        shard.message.fetch_add(0, Full) != 0
    }
}

impl<T> Drop for Owner<'_, T> {
    fn drop(&mut self) {
        self.shard.owner.xchg(FREE, Full);
        if self.shard.waiters.fetch_add(0, Full) != 0 {
            self.shard.freed.wake_up();
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
        // SAFETY: As for `deref`; and `self` is borrowed mutably, so no other reference exists.
        unsafe { &mut *self.shard.state.get() }
    }
}
