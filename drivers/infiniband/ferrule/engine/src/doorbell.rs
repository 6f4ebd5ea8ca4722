// SPDX-License-Identifier: GPL-2.0

//! The engine's side of the doorbell protocol that the head of `ferrule-abi.h` tells.
//!
//! A doorbell is rung while its bit differs from the acknowledgement, on either of two levels. The
//! engine acknowledges first, fences, and only then reads what lies below: so what a program
//! stored before it found its bit rung already is seen, and what it stores afterwards is rung
//! anew. This is the code that the model in `tests/loom.rs` runs.

use crate::abi::DB_TOP_WORDS;
use crate::host::Doorbells;

/// The words of 64 doorbells in which a context has a queue pair.
pub(crate) struct Owned {
    /// A bit for each word.
    words: [u64; DB_TOP_WORDS],
    /// A bit for each of these that is not 0: a scan has no time to look at the others.
    tops: u64,
}

impl Owned {
    /// No word yet.
    pub(crate) const NONE: Owned = Owned {
        words: [0; DB_TOP_WORDS],
        tops: 0,
    };

    /// Whether a word below this one of the top is owned.
    pub(crate) fn has_top(&self, top: usize) -> bool {
        self.words.get(top).is_some_and(|&words| words != 0)
    }

    /// A word has a queue pair now, or has none any more.
    pub(crate) fn set(&mut self, word: usize, owned: bool) {
        let set = |bits: u64, bit: usize, value: bool| {
            let bit = 1u64.wrapping_shl(bit as u32);
            if value {
                bits | bit
            } else {
                bits & !bit
            }
        };
        let top = word / 64;
        if let Some(words) = self.words.get_mut(top) {
            *words = set(*words, word % 64, owned);
            self.tops = set(self.tops, top, *words != 0);
        }
    }
}

/// Whether anything was rung since the scan that remembered `seq`.
#[inline]
pub(crate) fn is_rung<D: Doorbells>(area: &D, seq: u32) -> bool {
    area.seq() != seq
}

/// Takes the doorbells that are rung and calls `rung` with each.
///
/// What is rung in words that are not `owned` is forgotten at once, so that a program which rings
/// doorbells that it has not is no more work than one which rings none.
///
/// When `rung` is called, everything that was stored before the doorbell was rung can be read.
/// `seq` remembers the count of the last scan; nothing is looked at while it has not changed.
/// Answers whether it had.
pub(crate) fn scan<D: Doorbells>(
    area: &D,
    seq: &mut u32,
    owned: &Owned,
    fence: impl Fn(),
    mut rung: impl FnMut(u32),
) -> bool {
    // The count is read before the bits: what is rung from here on changes it once more.
    let count = area.seq();
    if count == *seq {
        return false;
    }
    *seq = count;
    for top in bits(owned.tops) {
        let top = top as usize;
        let own = owned.words.get(top).copied().unwrap_or(0);
        let acknowledged = area.ack_top(top);
        let words = area.top(top) ^ acknowledged;
        if words == 0 {
            continue;
        }
        area.set_ack_top(top, acknowledged ^ words);
        fence();
        for word in bits(words & own) {
            let leaf = top.wrapping_mul(64).wrapping_add(word as usize);
            let acknowledged = area.ack_leaf(leaf);
            let doorbells = area.leaf(leaf) ^ acknowledged;
            if doorbells == 0 {
                continue;
            }
            area.set_ack_leaf(leaf, acknowledged ^ doorbells);
            fence();
            for doorbell in bits(doorbells) {
                rung((leaf as u32).wrapping_mul(64).wrapping_add(doorbell));
            }
        }
    }
    true
}

/// Lets all doorbells of a word be at rest: none of them belongs to a queue pair yet.
pub(crate) fn forget<D: Doorbells>(area: &D, word: usize) {
    area.set_ack_leaf(word, area.leaf(word));
}

/// Lets all of a word of the top be at rest: nothing below it belongs to a queue pair yet.
pub(crate) fn forget_top<D: Doorbells>(area: &D, top: usize) {
    area.set_ack_top(top, area.top(top));
}

/// The positions of the bits that are set in `word`, from the lowest on.
fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        if word == 0 {
            return None;
        }
        let position = word.trailing_zeros();
        word &= word.wrapping_sub(1);
        Some(position)
    })
}
