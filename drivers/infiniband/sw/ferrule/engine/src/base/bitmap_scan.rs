// SPDX-License-Identifier: GPL-2.0

//! Scans of large bitmaps, that can pause at each step.

/// A scan of a bitmap in levels. A bit on top stands for one of up to 64 words above, a bit of
/// these for a word below, and the scan looks for the bits of that: 65536 with 16 words above.
///
/// Others set bits meanwhile, from the bottom up. The scan takes a whole word when it comes to it,
/// and stores the bits that it has yet to visit. So it can pause anywhere, and resumes where it
/// was. The next scan finds the bits that were set behind this one. So each scan ends, and no bit
/// waits for longer than two of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BitmapScan {
    /// The words above that are to be taken.
    tops: u64,
    /// The bits left of the word above that was taken last, and its number.
    words: u64,
    top: u32,
    /// The same of the word below.
    bits: u64,
    word: u32,
}

impl BitmapScan {
    /// A scan that has ended.
    pub const DONE: BitmapScan = BitmapScan {
        tops: 0,
        words: 0,
        top: 0,
        bits: 0,
        word: 0,
    };

    /// Begins a scan over the words above whose bits are set in `tops`.
    #[inline]
    pub fn new(tops: u64) -> Self {
        BitmapScan { tops, ..Self::DONE }
    }

    /// Whether nothing is left to be visited.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.tops | self.words | self.bits == 0
    }

    /// Resumes the scan, until it ends or `looks` are used up. To take a word costs one, and so
    /// does each bit.
    ///
    /// `above` and `below` take the words of these numbers: they answer the bits that are set
    /// there, and clear them. `found` gets the numbers of the bits below.
    #[inline]
    pub fn resume(
        &mut self,
        looks: &mut u32,
        mut above: impl FnMut(u32) -> u64,
        mut below: impl FnMut(u32) -> u64,
        mut found: impl FnMut(u32),
    ) {
        let mut scan = *self;
        let mut left = *looks;
        'scan: loop {
            while scan.bits != 0 {
                if left == 0 {
                    break 'scan;
                }
                left = left.wrapping_sub(1);
                let bit = pop(&mut scan.bits);
                found(scan.word.wrapping_mul(64).wrapping_add(bit));
            }
            while scan.words == 0 {
                if scan.tops == 0 || left == 0 {
                    break 'scan;
                }
                left = left.wrapping_sub(1);
                scan.top = pop(&mut scan.tops);
                scan.words = above(scan.top);
            }
            if left == 0 {
                break;
            }
            left = left.wrapping_sub(1);
            let word = pop(&mut scan.words);
            scan.word = scan.top.wrapping_mul(64).wrapping_add(word);
            scan.bits = below(scan.word);
        }
        *self = scan;
        *looks = left;
    }
}

/// Takes the lowest bit out of a word in which there is one, and returns its position.
#[inline]
fn pop(word: &mut u64) -> u32 {
    let position = word.trailing_zeros();
    *word &= word.wrapping_sub(1);
    position
}
