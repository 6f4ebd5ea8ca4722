// SPDX-License-Identifier: GPL-2.0

//! The extended transport headers of atomic operations and of their answers (IBA volume 1, 9.3).

use zerocopy::byteorder::big_endian::{
    U32,
    U64, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

/// An atomic operation on 8 bytes of the responder: 28 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
pub struct AtomicEth {
    /// The address, a multiple of 8.
    pub addr: U64,
    /// The key.
    pub rkey: U32,
    /// What to swap in, or to add.
    pub swap_or_add: U64,
    /// What to compare with.
    pub compare: U64,
}

/// What stood in memory before an atomic operation: 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
pub struct AtomicAckEth {
    /// The number.
    pub original: U64,
}
