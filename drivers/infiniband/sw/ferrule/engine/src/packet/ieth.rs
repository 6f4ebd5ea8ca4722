// SPDX-License-Identifier: GPL-2.0

//! The invalidate extended transport header (IBA volume 1, 9.3).

use zerocopy::byteorder::big_endian::U32;
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

/// A key of the responder that is to be invalidated: 4 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
pub struct Ieth {
    /// The key.
    pub rkey: U32,
}
