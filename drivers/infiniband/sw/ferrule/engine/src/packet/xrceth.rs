// SPDX-License-Identifier: GPL-2.0

//! The XRC extended transport header (IBA volume 1, annex A14).

use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use super::u24::U24;

/// The shared receive queue that a request over XRC is for: 4 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
pub struct XrcEth {
    /// Reserved.
    pub reserved: u8,
    /// The shared receive queue.
    pub srq: U24,
}
