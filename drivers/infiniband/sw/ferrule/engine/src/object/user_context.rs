// SPDX-License-Identifier: GPL-2.0

//! A user context: the owner of doorbells.

use crate::{
    base::{
        abi::DB_LEAF_WORDS,
        doorbells::Doorbells,
        host::Host,
        id::{
            ContextId,
            Vport, //
        },
        list::NONE,
        table::{
            tops,
            SlotLink,
            Table, //
        },
        timer::TimerSlot,
        uses::Uses, //
    },
    object::doorbell::{
        self,
        DoorbellScan,
        Owned, //
    },
};

/// A user context.
pub struct UserContext<H: Host> {
    pub(super) doorbells: H::Doorbells,
    /// Where stray doorbells are counted.
    pub(super) vport: Vport,
    /// How far they have been taken.
    pub(super) scan: DoorbellScan,
    /// Queue pairs that belong to this context.
    pub(super) users: u32,
    /// The copy jobs that use one of them.
    pub(super) uses: Uses,
    /// How many of them have their doorbells in each word of 64.
    pub(super) in_word: [u8; DB_LEAF_WORDS],
    /// The words in which there is one.
    pub(super) owned: Owned,
    /// It was told that it need not kick.
    pub(super) awake: bool,
    /// It is awake since its kicks are deferred ([`deferral`](super::deferral)).
    pub(super) deferred: bool,
    /// How many times in a row its doorbells were found when the deferral was to end.
    pub(super) late: u32,
    /// Its kicks are not deferred before this time, in nanoseconds of [`Host::now`].
    pub(super) may_defer_at: u64,
    /// It has kicked and not been looked at, or doorbells are left of the last look.
    pub(super) due: bool,
    /// The looks at it since a doorbell was found, while it is awake.
    pub(super) idle: u32,
    /// Those before and after this one in the ring of the contexts that are looked at.
    pub(super) previous: u32,
    pub(super) next: u32,
}

impl<H: Host> UserContext<H> {
    /// Makes a context, to be handed to [`Engine::add_context`](crate::Engine::add_context).
    ///
    /// Doorbell area and status area are zeroed. Not inlined, so that the context is made where its
    /// caller wants it: it has more than a kilobyte.
    #[inline(never)]
    pub fn new(doorbells: H::Doorbells) -> Self {
        Self {
            doorbells,
            vport: Vport::default(),
            scan: DoorbellScan::NONE,
            users: 0,
            uses: Uses::default(),
            in_word: [0; DB_LEAF_WORDS],
            owned: Owned::NONE,
            awake: false,
            deferred: false,
            late: 0,
            may_defer_at: 0,
            due: false,
            idle: 0,
            previous: NONE,
            next: NONE,
        }
    }

    /// The same context, of another virtual port than the first.
    #[must_use]
    pub fn with_vport(self, vport: Vport) -> Self {
        Self { vport, ..self }
    }
}

impl<H: Host> UserContext<H> {
    /// Whether it is awake, and not for a deferral.
    #[inline]
    pub(super) fn is_kept(&self) -> bool {
        self.awake && !self.deferred
    }

    /// Tells the program to kick from here on, and says whether something is rung by then.
    ///
    /// A program rings, fences, and then looks whether it has to kick. The engine tells it to kick,
    /// fences, and then looks whether it rang. So either the engine sees the doorbell, or the
    /// program kicks.
    pub(super) fn ask_for_kicks(&self) -> bool {
        self.doorbells.set_sleeping(true);
        H::fence();
        self.scan.is_rung(&self.doorbells)
    }

    /// Counts the doorbell `index` in or out.
    pub(super) fn count(&mut self, index: u32, comes: bool) {
        let word = (index / 64) as usize;
        let Some(count) = self.in_word.get_mut(word) else {
            return;
        };
        // Doorbells rung while the word had no queue pair belong to nobody.
        if comes && !self.owned.has_top(word / 64) {
            doorbell::forget_top(&self.doorbells, word / 64);
        }
        if comes && *count == 0 {
            doorbell::forget(&self.doorbells, word);
        }
        // A doorbell that the word `rung` told is still rung by its bit, and a later scan would
        // find it stray.
        if !comes {
            doorbell::forget_one(&self.doorbells, index);
        }
        *count = if comes {
            count.wrapping_add(1)
        } else {
            count.wrapping_sub(1)
        };
        self.owned.set(word, *count != 0);
    }
}

/// The table's data for a context's number.
#[derive(Clone, Copy, Default)]
pub(crate) struct ContextLink {
    /// When the deferral of its kicks ends.
    pub(super) timer: TimerSlot,
}

/// The ring of contexts goes through objects: one that is removed leaves it.
impl SlotLink for ContextLink {
    fn is_listed(&self) -> bool {
        false
    }
}

pub(super) type ContextTable<H> = Table<H, UserContext<H>, ContextLink, { tops(ContextId::LIMIT) }>;
