// SPDX-License-Identifier: GPL-2.0

//! The codes of the timer for receiver not ready.

/// Nanoseconds that a receiver which is not ready asks for, by the code of the timer (IBA volume
/// 1, table 45).
const TIMER: [u64; 32] = [
    655_360_000,
    10_000,
    20_000,
    30_000,
    40_000,
    60_000,
    80_000,
    120_000,
    160_000,
    240_000,
    320_000,
    480_000,
    640_000,
    960_000,
    1_280_000,
    1_920_000,
    2_560_000,
    3_840_000,
    5_120_000,
    7_680_000,
    10_240_000,
    15_360_000,
    20_480_000,
    30_720_000,
    40_960_000,
    61_440_000,
    81_920_000,
    122_880_000,
    163_840_000,
    245_760_000,
    327_680_000,
    491_520_000,
];

/// Nanoseconds that a receiver which is not ready asks for by a code of the timer.
pub(crate) fn nanoseconds(code: u8) -> u64 {
    TIMER.get(usize::from(code & 31)).copied().unwrap_or(0)
}
