// SPDX-License-Identifier: GPL-2.0

//! The memory in which a program rings, as the engine accesses it.

use crate::base::abi;

/// The doorbell area of a user context, which the program writes, and the status area, which only
/// the engine writes. See the comment at the head of `ferrule-abi.h` for the protocol.
///
/// Word numbers are below [`abi::DB_TOP_WORDS`] and [`abi::DB_LEAF_WORDS`]; an implementation
/// answers 0 and stores nothing for others.
pub trait Doorbells {
    /// Loads `ferrule_db.rung` with acquire semantics.
    fn rung(&self) -> abi::Rung;

    /// Loads a word of `ferrule_db.top`.
    fn top(&self, word: usize) -> u64;

    /// Loads a word of the doorbell area's `leaf`.
    fn leaf(&self, word: usize) -> u64;

    /// Loads a word of `ferrule_status.top`, which is zero in the beginning.
    fn ack_top(&self, word: usize) -> u64;

    /// Loads a word of the status area's `leaf`, which is zero in the beginning.
    fn ack_leaf(&self, word: usize) -> u64;

    /// Stores a word of `ferrule_status.top`.
    fn set_ack_top(&self, word: usize, value: u64);

    /// Stores a word of the status area's `leaf`.
    fn set_ack_leaf(&self, word: usize, value: u64);

    /// Stores `ferrule_status.taken`.
    fn set_taken(&self, count: u32);

    /// Stores `ferrule_status.sleeping` with release semantics: a program that reads 0 sees whether
    /// its kicks are deferred.
    fn set_sleeping(&self, sleeping: bool);

    /// Stores `ferrule_status.dead`.
    fn set_dead(&self);

    /// Loads `ferrule_db.backlog`: whether the program posts far ahead of its polls. A host whose
    /// kicks cost little does not ask.
    #[inline]
    fn has_backlog(&self) -> bool {
        false
    }

    /// As [`Queue::prefetch`](crate::Queue::prefetch), of a word of the doorbell area's `leaf`. The
    /// word of the top that leads to it is read at once.
    #[inline]
    fn prefetch(&self, _leaf: usize) {}

    /// Stores `ferrule_status.deferred`.
    fn set_deferred(&self, _deferred: bool) {}
}
