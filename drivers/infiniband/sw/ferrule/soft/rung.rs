// SPDX-License-Identifier: GPL-2.0

//! Who has rung: queue pairs of the kernel's own users, or contexts that kicked while another one was
//! the owner.
//!
//! A bit for each number, and above them bits that tell where to look. Who rings sets bits from
//! the bottom up; the owner of the shard clears them from the top down, each before it looks below, and
//! all steps are fully ordered. So a bit that was found set has yet to be taken, together with what was
//! posted before; and one that was set below is found by way of those above.
//!
//! The owner takes some at a time. How far it has come is the owner's own, a [`Walk`].

use ferrule_engine::{
    abi,
    ContextId,
    Walk, //
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

/// The bits.
pub(super) struct Rung {
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

impl Rung {
    /// Nobody has rung.
    pub(super) fn new() -> Result<Self> {
        let words = |count| -> Result<KVec<Atomic<u64>>> {
            let mut words = KVec::with_capacity(count as usize, GFP_KERNEL)?;
            for _ in 0..count {
                words.push(Atomic::new(0), GFP_KERNEL)?;
            }
            Ok(words)
        };
        Ok(Rung {
            leaves: words(LEAVES)?,
            middles: words(MIDDLES)?,
            top: Atomic::new(0),
        })
    }

    /// The one of a number has rung. Says whether it had not been rung already; then the caller sees
    /// to it that the engine runs. Any context.
    pub(super) fn ring(&self, number: u32) -> bool {
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

    /// Whether somebody has rung, as far as can be seen from here.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.top.load(Relaxed) != 0
    }

    /// Hands the numbers, below 65536, of those who have rung to `rung`, as far as `looks` go, and forgets them. Those
    /// that are left are for the next call with the same `walk`. For the owner of the shard.
    #[inline]
    pub(super) fn take(&self, walk: &mut Walk, looks: &mut u32, rung: impl FnMut(u32)) {
        if walk.is_over() {
            if !self.any() {
                return;
            }
            *walk = Walk::new(self.top.xchg(0, Full));
        }
        walk.go_on(
            looks,
            |middle| clear(self.middles.get(middle as usize)),
            |leaf| clear(self.leaves.get(leaf as usize)),
            rung,
        );
    }
}
