// SPDX-License-Identifier: GPL-2.0

//! The engine's side of the doorbell protocol that the head of `ferrule-abi.h` tells.
//!
//! A program counts its rings in a word that names the last doorbell, too, and tells how many rings
//! in a row were of it. If these are all that the engine has missed, the word tells all, and the
//! engine looks at no bit: the cache lines of the bits and of their acknowledgements then stay with
//! the program.
//!
//! Otherwise it looks for bits. A doorbell is rung while its bit differs from the acknowledgement,
//! on either of two levels. The engine acknowledges first, fences, and only then reads what lies
//! below: so it sees all that a program stored before it found its bit rung already, and the
//! program rings anew for later stores. A bit may have been rung long ago, and its queue pair then
//! has a turn for nothing, once. This is the code that the model in `tests/loom` runs.
//!
//! A program can ring all its doorbells as often as it likes, so they are taken in steps: see
//! [`BitmapScan`].

use crate::base::{
    abi::DB_TOP_WORDS,
    bitmap_scan::BitmapScan,
    doorbells::Doorbells, //
};

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

/// A doorbell that a scan finds.
pub(crate) enum Found {
    /// It is rung or probably so, and can be prepared for.
    Probably(u32),
    /// It is rung.
    Rung(u32),
}

/// How far the doorbells of a context have been taken.
pub(crate) struct DoorbellScan {
    /// The count of the context's rings as of the last look at it.
    count: u32,
    /// The scan of its doorbells that this look led to.
    scan: BitmapScan,
    /// The doorbell that was found last. A program mostly rings one that it has rung before.
    last: u32,
}

impl DoorbellScan {
    /// Nothing was ever rung.
    pub(crate) const NONE: DoorbellScan = DoorbellScan {
        count: 0,
        scan: BitmapScan::DONE,
        last: 0,
    };

    /// Whether all is taken that was rung by the last look at the count.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.scan.is_done()
    }

    /// Whether something is left to be taken, or was rung since.
    #[inline]
    pub(crate) fn is_rung<D: Doorbells>(&self, area: &D) -> bool {
        !self.is_done() || area.rung().count != self.count
    }

    /// Takes the doorbells that are rung, as far as `looks` go, and calls `found` with each. A look
    /// at the count of the context costs one, too. The doorbell that this look tells is taken at
    /// once.
    ///
    /// Doorbells in words that are not `owned` are forgotten at once, so a program that rings
    /// doorbells of no queue pair is no more work than one that rings none.
    ///
    /// When `found` is called with [`Found::Rung`], everything that was stored before the doorbell
    /// was rung can be read. A doorbell that was acknowledged, and waits for the rest of the scan,
    /// can be rung again meanwhile. Words are read only if the count has changed. Returns `true` if
    /// it had.
    #[inline]
    pub(crate) fn take<D: Doorbells>(
        &mut self,
        area: &D,
        owned: &Owned,
        fence: impl Fn(),
        looks: &mut u32,
        mut found: impl FnMut(Found),
    ) -> bool {
        let mut scan = self.scan;
        if scan.is_done() {
            // The count is read before the bits: a doorbell that is rung from here on changes it
            // once more.
            let rung = area.rung();
            *looks = looks.saturating_sub(1);
            let missed = rung.count.wrapping_sub(self.count);
            if missed == 0 {
                return false;
            }
            self.count = rung.count;
            // A program that finds `taken` behind its last ring does not ring again. So a fence
            // comes before the engine reads the producer index: here, or with each word of bits.
            area.set_taken(rung.count);
            if missed <= rung.run.into() {
                fence();
                *looks = looks.saturating_sub(1);
                self.last = rung.doorbell.into();
                found(Found::Probably(self.last));
                found(Found::Rung(self.last));
                return true;
            }
            area.prefetch((self.last / 64) as usize);
            found(Found::Probably(self.last));
            scan = BitmapScan::new(owned.tops);
        }
        let take_top = |top: u32| {
            let top = top as usize;
            let acknowledged = area.ack_top(top);
            let words = area.top(top) ^ acknowledged;
            if words != 0 {
                area.set_ack_top(top, acknowledged ^ words);
                fence();
            }
            words & owned.words.get(top).copied().unwrap_or(0)
        };
        let take_leaf = |leaf: u32| {
            let leaf = leaf as usize;
            let acknowledged = area.ack_leaf(leaf);
            let doorbells = area.leaf(leaf) ^ acknowledged;
            if doorbells != 0 {
                area.set_ack_leaf(leaf, acknowledged ^ doorbells);
                fence();
            }
            doorbells
        };
        scan.resume(looks, take_top, take_leaf, |doorbell| {
            self.last = doorbell;
            found(Found::Rung(doorbell));
        });
        self.scan = scan;
        true
    }
}

/// Lets all doorbells of a word be at rest: none of them belongs to a queue pair yet.
pub(crate) fn forget<D: Doorbells>(area: &D, word: usize) {
    area.set_ack_leaf(word, area.leaf(word));
}

/// Lets a doorbell be at rest, whose queue pair goes.
pub(crate) fn forget_one<D: Doorbells>(area: &D, doorbell: u32) {
    let word = (doorbell / 64) as usize;
    let acknowledged = area.ack_leaf(word);
    let rung = (area.leaf(word) ^ acknowledged) & 1u64.wrapping_shl(doorbell % 64);
    area.set_ack_leaf(word, acknowledged ^ rung);
}

/// Lets all of a word of the top be at rest: nothing below it belongs to a queue pair yet.
pub(crate) fn forget_top<D: Doorbells>(area: &D, top: usize) {
    area.set_ack_top(top, area.top(top));
}
