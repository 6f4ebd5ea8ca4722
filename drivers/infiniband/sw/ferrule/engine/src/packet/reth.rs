// SPDX-License-Identifier: GPL-2.0

//! The RDMA extended transport header (IBA volume 1, 9.3).

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

/// A range of the responder's memory: 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
pub struct Reth {
    /// The address of the first byte.
    pub addr: U64,
    /// The key.
    pub rkey: U32,
    /// The bytes of the whole message.
    pub length: U32,
}
