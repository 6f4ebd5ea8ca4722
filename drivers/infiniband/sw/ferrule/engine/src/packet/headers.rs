// SPDX-License-Identifier: GPL-2.0

//! The headers of transport, each a type of the layout that it has on the wire (IBA volume 1, 9.2
//! and 9.3; annexes A14 and A19).

use zerocopy::byteorder::big_endian::{
    U16,
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

/// The partition that every port is a full member of, which is the only one here.
pub const DEFAULT_PKEY: u16 = 0xffff;

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

/// The base transport header (BTH), which every packet begins with: 12 bytes.
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

    /// Of a packet to the queue pair `target`, without payload.
    pub fn to(target: u32, opcode: u8, psn: u32) -> Self {
        Self {
            opcode,
            flags: Self::MIGRATED,
            pkey: DEFAULT_PKEY.into(),
            dest_qp: U24::new(target),
            psn: U24::new(psn),
            ..Self::default()
        }
    }

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

/// The shared receive queue that a request over XRC is for (XRCETH, annex A14): 4 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
pub struct XrcEth {
    /// Reserved.
    pub reserved: u8,
    /// The shared receive queue.
    pub srq: U24,
}

/// The header of datagrams (DETH): 8 bytes.
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

/// A range of the responder's memory (RETH): 16 bytes.
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

/// Placement type and selectivity level of a FLUSH (FETH, annex A19): 4 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
pub struct Feth {
    /// Reserved (26 bits), selectivity level (2), placement type (4).
    pub bits: U32,
}

impl Feth {
    /// Of placement types and a selectivity level.
    pub fn new(placement: u8, level: u8) -> Self {
        let bits = u32::from(level & 0x3).wrapping_shl(4) | u32::from(placement & 0xf);
        Self { bits: bits.into() }
    }

    /// The placement types.
    pub fn placement(&self) -> u8 {
        (self.bits.get() & 0xf) as u8
    }

    /// The selectivity level.
    pub fn level(&self) -> u8 {
        (self.bits.get().wrapping_shr(4) & 0x3) as u8
    }
}

/// An atomic operation on 8 bytes of the responder (AtomicETH): 28 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
pub struct AtomicEth {
    /// The address, a multiple of 8.
    pub addr: U64,
    /// The key.
    pub rkey: U32,
    /// The value to swap in, or to add.
    pub swap_or_add: U64,
    /// The value to compare with.
    pub compare: U64,
}

/// The value in memory before an atomic operation (AtomicAckETH): 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
pub struct AtomicAckEth {
    /// The number.
    pub original: U64,
}

/// An acknowledgement (AETH, 9.7.5): 4 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
pub struct Aeth {
    /// The bits of a [`Syndrome`].
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

/// The meaning of an acknowledgement.
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
    /// The syndrome that the bits stand for, if they stand for one.
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

/// Immediate data (ImmDt): 4 bytes, which mean nothing here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
pub struct ImmDt {
    /// The bytes, in the order in which the program gave them.
    pub data: [u8; 4],
}

/// A key of the responder that is to be invalidated (IETH): 4 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
pub struct Ieth {
    /// The key.
    pub rkey: U32,
}
