// SPDX-License-Identifier: GPL-2.0

//! Walks over many bits, that can pause at each step.

/// A walk over the set bits of a tree of words. A bit on top stands for one of up to 64 words above, a bit of these for
/// a word below, and the walk looks for the bits of that: 65536 with 16 words above.
///
/// Others set bits all the while, from the bottom up. The walk takes a whole word when it comes to it, and keeps the bits
/// that it has yet to visit. So it can pause anywhere, and goes on where it was. The next walk finds the bits that were
/// set behind this one. So each walk ends, and no bit waits for longer than two of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// The words above that are to be taken.
    tops: u64,
    /// The bits left of the word above that was taken last, and its number.
    words: u64,
    top: u32,
    /// The same of the word below.
    bits: u64,
    word: u32,
}

impl Walk {
    /// A walk that has nowhere to go.
    pub const OVER: Walk = Walk {
        tops: 0,
        words: 0,
        top: 0,
        bits: 0,
        word: 0,
    };

    /// Begins a walk over the words above whose bits are set in `tops`.
    #[inline]
    pub fn new(tops: u64) -> Self {
        Walk { tops, ..Self::OVER }
    }

    /// Whether nothing is left to be visited.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.tops | self.words | self.bits == 0
    }

    /// Goes on, until the walk is over or `looks` are used up. To take a word costs one, and so does each bit.
    ///
    /// `above` and `below` take the words of these numbers: they answer the bits that are set there, and clear them.
    /// `found` gets the numbers of the bits below.
    #[inline]
    pub fn go_on(
        &mut self,
        looks: &mut u32,
        mut above: impl FnMut(u32) -> u64,
        mut below: impl FnMut(u32) -> u64,
        mut found: impl FnMut(u32),
    ) {
        let mut walk = *self;
        let mut left = *looks;
        'walk: loop {
            while walk.bits != 0 {
                if left == 0 {
                    break 'walk;
                }
                left = left.wrapping_sub(1);
                let bit = pop(&mut walk.bits);
                found(walk.word.wrapping_mul(64).wrapping_add(bit));
            }
            while walk.words == 0 {
                if walk.tops == 0 || left == 0 {
                    break 'walk;
                }
                left = left.wrapping_sub(1);
                walk.top = pop(&mut walk.tops);
                walk.words = above(walk.top);
            }
            if left == 0 {
                break;
            }
            left = left.wrapping_sub(1);
            let word = pop(&mut walk.words);
            walk.word = walk.top.wrapping_mul(64).wrapping_add(word);
            walk.bits = below(walk.word);
        }
        *self = walk;
        *looks = left;
    }
}

/// Takes the lowest bit out of a word in which there is one, and answers its position.
#[inline]
fn pop(word: &mut u64) -> u32 {
    let position = word.trailing_zeros();
    *word &= word.wrapping_sub(1);
    position
}
