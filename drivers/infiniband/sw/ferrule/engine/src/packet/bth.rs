// SPDX-License-Identifier: GPL-2.0

//! The base transport header, which every packet begins with (IBA volume 1, 9.2).

use zerocopy::byteorder::big_endian::U16;
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use super::u24::U24;

/// The base transport header: 12 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
pub struct Bth {
    /// The opcode.
    pub opcode: u8,
    /// Solicited event (1 bit), migration request (1), pad count (2), version (4).
    pub flags: u8,
    /// The partition key.
    pub pkey: U16,
    /// Congestion marks forward and backward (1 bit each), and 6 reserved bits. The invariant CRC
    /// does not cover this byte.
    pub congestion: u8,
    /// The queue pair that the packet is for.
    pub dest_qp: U24,
    /// Acknowledgement request (1 bit), and 7 reserved bits.
    pub acknowledge: u8,
    /// The packet sequence number.
    pub psn: U24,
}

impl Bth {
    /// In `flags`: the receiver's completion is a solicited one.
    pub const SOLICITED: u8 = 1 << 7;
    /// In `flags`: the path has migrated, which is the state without path migration.
    pub const MIGRATED: u8 = 1 << 6;
    /// In `congestion`: packets the other way met congestion.
    pub const BECN: u8 = 1 << 6;
    /// In `acknowledge`: the responder is to acknowledge at once.
    pub const ACK_REQ: u8 = 1 << 7;

    /// The version, which is 0.
    #[inline]
    pub const fn version(&self) -> u8 {
        self.flags & 0xf
    }

    /// The bytes after the payload that make it a multiple of 4.
    #[inline]
    pub const fn pad(&self) -> u8 {
        self.flags.wrapping_shr(4) & 3
    }

    /// `flags` for so many bytes of padding.
    #[inline]
    pub const fn pad_flags(pad: u8) -> u8 {
        (pad & 3).wrapping_shl(4)
    }

    /// The receiver's completion is a solicited one.
    #[inline]
    pub const fn is_solicited(&self) -> bool {
        self.flags & Self::SOLICITED != 0
    }

    /// The responder is to acknowledge at once.
    #[inline]
    pub const fn wants_acknowledge(&self) -> bool {
        self.acknowledge & Self::ACK_REQ != 0
    }
}
