// SPDX-License-Identifier: GPL-2.0

//! Immediate data (IBA volume 1, 9.3).

use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

/// Immediate data: 4 bytes, which mean nothing here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
pub struct ImmDt {
    /// The bytes, in the order in which the program gave them.
    pub data: [u8; 4],
}
