// SPDX-License-Identifier: GPL-2.0

//! The flush extended transport header (IBA volume 1, annex A19).

use zerocopy::byteorder::big_endian::U32;
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

/// What is to be flushed how: 4 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
pub struct Feth {
    /// Reserved (26 bits), selectivity level (2), placement type (4).
    pub bits: U32,
}
