// SPDX-License-Identifier: GPL-2.0

//! The datagram extended transport header (IBA volume 1, 9.3).

use zerocopy::byteorder::big_endian::U32;
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use super::u24::U24;

/// The header of datagrams: 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
pub struct Deth {
    /// The key of the queue that the datagram is for.
    pub qkey: U32,
    /// Reserved.
    pub reserved: u8,
    /// The queue pair that sent it.
    pub src_qp: U24,
}
