// SPDX-License-Identifier: GPL-2.0

//! A set of numbers that wait for the owner of the shard: queue pairs of the kernel's own users
//! that have new requests, or contexts that kicked while another caller was the owner.
//!
//! The set is a bitmap of three levels: a bit for each number, and above it bits that tell which
//! words below are not 0. [`PendingSet::add`] sets bits from the bottom up; the owner of the shard
//! clears them from the top down, each before it reads the word below, and all steps are fully
//! ordered. So a bit that is found set has yet to be taken, together with the requests that were
//! posted before; and a bit that is set below is found by way of those above.
//!
//! The owner takes some at a time, and keeps its position in a [`BitmapScan`].

use ferrule_engine::{
    abi,
    BitmapScan,
    ContextId, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Full,
        Relaxed, //
    },
};

const BITS: u32 = u64::BITS;
const LEAVES: u32 = abi::MAX_QP / BITS;
const MIDDLES: u32 = LEAVES / BITS;

// Each number has a bit of its own.
const _: () = assert!(ContextId::LIMIT <= LEAVES * BITS);

/// The bitmap.
pub(super) struct PendingSet {
    leaves: KVec<Atomic<u64>>,
    middles: KVec<Atomic<u64>>,
    top: Atomic<u64>,
}

/// Sets a bit, and says whether it was not set.
fn set(word: &Atomic<u64>, bit: u32) -> bool {
    let bit = 1 << bit;
    let mut now = word.load(Relaxed);
    // If the bit is set already, the exchange orders what was posted before it all the same.
    while let Err(other) = word.cmpxchg(now, now | bit, Full) {
        now = other;
    }
    now & bit == 0
}

/// Clears all bits of a word, and answers those that were set.
fn clear(word: Option<&Atomic<u64>>) -> u64 {
    match word {
        Some(word) if word.load(Relaxed) != 0 => word.xchg(0, Full),
        _ => 0,
    }
}

impl PendingSet {
    /// An empty set.
    pub(super) fn new() -> Result<Self> {
        let words = |count| -> Result<KVec<Atomic<u64>>> {
            let mut words = KVec::with_capacity(count as usize, GFP_KERNEL)?;
            for _ in 0..count {
                words.push(Atomic::new(0), GFP_KERNEL)?;
            }
            Ok(words)
        };
        Ok(PendingSet {
            leaves: words(LEAVES)?,
            middles: words(MIDDLES)?,
            top: Atomic::new(0),
        })
    }

    /// Adds a number, and says whether it was not in the set; then the caller sees to it that the
    /// engine runs. Any context.
    pub(super) fn add(&self, number: u32) -> bool {
        let index = number & abi::DB_INDEX_MASK;
        let (leaf, middle) = (index / BITS, index / BITS / BITS);
        let (Some(leaf_word), Some(middle_word)) = (
            self.leaves.get(leaf as usize),
            self.middles.get(middle as usize),
        ) else {
            return false;
        };
        if !set(leaf_word, index % BITS) {
            return false;
        }
        set(middle_word, leaf % BITS);
        set(&self.top, middle);
        true
    }

    /// Whether the set is empty, as far as this caller can see.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.top.load(Relaxed) == 0
    }

    /// Takes numbers, below 65536, out of the set and calls `each` with them, as many as `looks`
    /// allows. The rest is for the next call with the same `position`. For the owner of the shard.
    #[inline]
    pub(super) fn take(&self, position: &mut BitmapScan, looks: &mut u32, each: impl FnMut(u32)) {
        if position.is_done() {
            if self.is_empty() {
                return;
            }
            *position = BitmapScan::new(self.top.xchg(0, Full));
        }
        position.resume(
            looks,
            |middle| clear(self.middles.get(middle as usize)),
            |leaf| clear(self.leaves.get(leaf as usize)),
            each,
        );
    }
}
