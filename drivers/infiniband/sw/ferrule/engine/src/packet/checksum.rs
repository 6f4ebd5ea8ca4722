// SPDX-License-Identifier: GPL-2.0

//! The Internet checksum (RFC 1071).

/// The sum of 16-bit words in ones' complement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// Adds bytes; an odd one counts as if a zero came behind it, so only the last bytes may be
    /// odd.
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> Self {
        let mut pairs = bytes.chunks_exact(2);
        let words = pairs.by_ref().map(|pair| match *pair {
            [high, low] => u64::from(u16::from_be_bytes([high, low])),
            _ => 0,
        });
        let sum = words.fold(self.0, u64::wrapping_add);
        let odd = pairs.remainder().first();
        let odd = odd.map_or(0, |&high| u64::from(u16::from_be_bytes([high, 0])));
        Self(sum.wrapping_add(odd))
    }

    /// Adds a number.
    #[must_use]
    pub fn with_word(self, word: u32) -> Self {
        self.with(&word.to_be_bytes())
    }

    /// The checksum: over bytes that have theirs among them it is 0.
    pub fn end(self) -> u16 {
        let Self(mut sum) = self;
        while let high @ 1.. = sum.wrapping_shr(16) {
            sum = (sum & 0xffff).wrapping_add(high);
        }
        !(sum as u16)
    }
}
