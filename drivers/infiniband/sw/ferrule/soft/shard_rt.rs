// SPDX-License-Identifier: GPL-2.0

//! The shard where the kernel preempts all but raw spinlocks: `PREEMPT_RT`.
//!
//! It is that of `shard.rs`, with a lock in the place of disabled preemption. A spinlock sleeps
//! there, and has priority inheritance (`Documentation/locking/locktypes.rst`). So an owner can be
//! preempted, takes other spinlocks, and hands packets to the network. A thread with real-time
//! priority that waits for an owner lends it that priority.
//!
//! Threads wait for their turn, those that kick as well. They queue up at a mutex, which is fair
//! among threads of one priority. The spinlock is not: a thread that runs may take it before the
//! one that was woken for it. So a program that kicks without a pause would keep another one from
//! destroying its queue pair.
//!
//! Softirqs do not wait: one may run on top of an owner that sends a packet, and may hold locks of
//! the network that this owner takes. A softirq that finds the shard owned notes that its call was
//! missed, and goes.
//!
//! The note is stored before a second look at the lock, and an owner reads it after it has released
//! the lock, each with a full barrier between. So either the softirq becomes the owner, or an owner
//! comes to see the note.

use core::ops::{
    Deref,
    DerefMut, //
};

use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        lock::{
            spinlock::SpinLockBackend,
            Guard, //
        },
        Mutex,
        SpinLock, //
    }, //
};

use kernel_ext::sync::smp_mb;

/// A value that one owner at a time may use.
#[pin_data]
pub(crate) struct Shard<T> {
    /// Its holder is the next owner.
    #[pin]
    queue: Mutex<()>,
    #[pin]
    state: SpinLock<T>,
    /// 1: a call was missed, and the engine has to run once more.
    missed: Atomic<u32>,
}

impl<T: Unpin> Shard<T> {
    /// Makes a shard that nobody owns.
    pub(crate) fn new(state: T) -> impl PinInit<Self> {
        pin_init!(Self {
            queue <- new_mutex!((), "Shard::queue"),
            state <- new_spinlock!(state, "Shard::state"),
            missed: Atomic::new(0),
        })
    }

    /// Becomes the owner, and takes the missed calls. A caller that may wait does. One that may
    /// not, and finds the shard owned, calls `note`, and an owner sees that.
    ///
    /// The new owner is about to run the engine for all missed calls. A caller that may wait is a
    /// thread that may sleep.
    #[inline]
    pub(crate) fn try_enter(&self, may_wait: bool, note: impl FnOnce()) -> Option<Owner<'_, T>> {
        let mut owner = if may_wait {
            self.enter()
        } else {
            self.enter_at_once(note)?
        };
        owner.take_missed();
        Some(owner)
    }

    /// Becomes the owner if nobody is; else leaves a note for the owner.
    fn enter_at_once(&self, note: impl FnOnce()) -> Option<Owner<'_, T>> {
        if let Some(state) = self.state.try_lock() {
            return Some(self.owner(state));
        }
        note();
        self.missed.xchg(1, Full);
        // The owner may have looked for the note before it was there.
        Some(self.owner(self.state.try_lock()?))
    }

    /// Becomes the owner, waiting for it where need be. Missed calls stay for a later owner.
    /// Process context only.
    pub(crate) fn enter(&self) -> Owner<'_, T> {
        let _turn = self.queue.lock();
        self.owner(self.state.lock())
    }

    /// Becomes the owner of two shards, as [`Shard::enter`] does of one. The caller has the engines
    /// run for missed calls afterwards, as it has held the locks before it was the owner, too.
    ///
    /// The holder of a spinlock may not wait for a mutex. So the caller has its turn at the second
    /// shard first: then only those that do not queue up may become its owner before. It owns
    /// neither of the two while it waits.
    pub(crate) fn enter_both<'a>(
        first: &'a Self,
        second: &'a Self,
    ) -> (Owner<'a, T>, Owner<'a, T>) {
        let _turn = second.queue.lock();
        loop {
            drop(second.state.lock());
            let state = first.state.lock();
            if let Some(other) = second.state.try_lock() {
                return (first.owner(state), second.owner(other));
            }
        }
    }

    fn owner<'a>(&'a self, state: Guard<'a, T, SpinLockBackend>) -> Owner<'a, T> {
        Owner {
            state,
            noted: &self.missed,
            missed: false,
        }
    }
}

/// The right to use what a [`Shard`] holds, until [`Owner::leave`] gives it up.
pub(crate) struct Owner<'a, T> {
    state: Guard<'a, T, SpinLockBackend>,
    /// Of the shard.
    noted: &'a Atomic<u32>,
    /// Missed calls were taken, and the engine is to run for their callers.
    missed: bool,
}

impl<T> Owner<'_, T> {
    /// Takes the missed calls: the caller is about to run the engine for all of them.
    #[inline]
    pub(crate) fn take_missed(&mut self) {
        if self.noted.load(Relaxed) != 0 {
            self.missed |= self.noted.xchg(0, Full) != 0;
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
    pub(crate) fn leave(self) -> bool {
        let noted = self.noted;
        drop(self);
        smp_mb();
        noted.load(Relaxed) != 0
    }
}

impl<T> Deref for Owner<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.state
    }
}

impl<T: Unpin> DerefMut for Owner<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.state
    }
}
