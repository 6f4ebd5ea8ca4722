// SPDX-License-Identifier: GPL-2.0

//! Packet sequence numbers: 24 bits that wrap (IBA volume 1, 9.7.2).

use crate::base::attr::Mtu;

/// All bits of a sequence number.
pub(crate) const MASK: u32 = 0xff_ffff;

/// The sequence number that is `packets` after `psn`.
#[inline]
pub(crate) fn advance(psn: u32, packets: u32) -> u32 {
    psn.wrapping_add(packets) & MASK
}

/// The sequence number before `psn`.
#[inline]
pub(crate) fn before(psn: u32) -> u32 {
    psn.wrapping_sub(1) & MASK
}

/// How far `to` is ahead of `from`.
#[inline]
pub(crate) fn distance(from: u32, to: u32) -> u32 {
    to.wrapping_sub(from) & MASK
}

/// Whether `psn` is one of the `length` numbers that begin with `first`.
#[inline]
pub(crate) fn within(psn: u32, first: u32, length: u32) -> bool {
    distance(first, psn) < length
}

/// Whether `psn` lies ahead of `expected`, within half of the space (C9-79).
#[inline]
pub(crate) fn is_ahead(psn: u32, expected: u32) -> bool {
    let distance = psn.wrapping_sub(expected) & MASK;
    distance != 0 && distance <= MASK >> 1
}

/// The packets that `length` bytes take: one at least, for a message without data has one, too.
#[inline]
pub(crate) fn packets(length: u32, mtu: Mtu) -> u32 {
    let before_last = length.saturating_sub(1).wrapping_shr(mtu.shift());
    before_last.wrapping_add(1)
}
