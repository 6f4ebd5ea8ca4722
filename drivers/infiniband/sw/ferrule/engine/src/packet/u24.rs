// SPDX-License-Identifier: GPL-2.0

//! Numbers of 24 bits in headers.

use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

/// A number of 24 bits, big-endian: of a queue pair, or a sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
pub struct U24([u8; 3]);

impl U24 {
    /// The low 24 bits of a number.
    #[inline]
    pub const fn new(value: u32) -> Self {
        let [_, high, middle, low] = value.to_be_bytes();
        Self([high, middle, low])
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u32 {
        let Self([high, middle, low]) = self;
        u32::from_be_bytes([0, high, middle, low])
    }
}
