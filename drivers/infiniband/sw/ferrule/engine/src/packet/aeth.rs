// SPDX-License-Identifier: GPL-2.0

//! The acknowledge extended transport header (IBA volume 1, 9.3 and 9.7.5).

use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use super::u24::U24;

/// An acknowledgement: 4 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
pub struct Aeth {
    /// What [`Syndrome`] tells.
    pub syndrome: u8,
    /// The messages that the responder has carried out, as a number of 24 bits.
    pub msn: U24,
}

/// Why a responder refuses (IBA volume 1, 9.7.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Nak {
    /// An earlier packet was expected.
    Sequence = 0,
    /// The request is not one that the responder takes.
    InvalidRequest = 1,
    /// The memory is not open to the request.
    RemoteAccess = 2,
    /// The responder could not carry the request out.
    RemoteOperation = 3,
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// All went well; the code of how many receive requests wait.
    Acknowledge(u8),
    /// There is no receive request; the code of the time to wait.
    RnrNak(u8),
    /// The request is refused.
    Negative(Nak),
}

impl Syndrome {
    /// What the bits mean, if they mean anything.
    #[inline]
    pub const fn parse(bits: u8) -> Option<Self> {
        let value = bits & 0x1f;
        Some(match (bits.wrapping_shr(5), value) {
            (0, credits) => Syndrome::Acknowledge(credits),
            (1, timer) => Syndrome::RnrNak(timer),
            (3, 0) => Syndrome::Negative(Nak::Sequence),
            (3, 1) => Syndrome::Negative(Nak::InvalidRequest),
            (3, 2) => Syndrome::Negative(Nak::RemoteAccess),
            (3, 3) => Syndrome::Negative(Nak::RemoteOperation),
            _ => return None,
        })
    }

    /// The bits.
    #[inline]
    pub const fn bits(self) -> u8 {
        match self {
            Syndrome::Acknowledge(credits) => credits & 0x1f,
            Syndrome::RnrNak(timer) => 0x20 | timer & 0x1f,
            Syndrome::Negative(nak) => 0x60 | nak as u8,
        }
    }
}

/// The code of no limit: the requester need not count receive requests.
pub const UNLIMITED: u8 = 31;

/// The receive requests that a code of credits stands for (IBA volume 1, 9.7.7.2); `None` for no
/// limit.
#[inline]
pub const fn credits_of(code: u8) -> Option<u32> {
    let half = (code & 0x1f).wrapping_shr(1) as u32;
    match code & 0x1f {
        UNLIMITED => None,
        0 => Some(0),
        1 => Some(1),
        // Powers of two, and what lies halfway between each and the next.
        even if even & 1 == 0 => Some(1u32.wrapping_shl(half)),
        _ => Some(3u32.wrapping_shl(half.wrapping_sub(1))),
    }
}

/// The code of the most credits that are no more than `requests`.
#[inline]
pub const fn encode_credits(requests: u32) -> u8 {
    if requests < 2 {
        return requests as u8;
    }
    let log = requests.ilog2();
    let half = requests.wrapping_shr(log.wrapping_sub(1)) & 1;
    let code = log.wrapping_mul(2).wrapping_add(half);
    if code < 30 {
        code as u8
    } else {
        30
    }
}
