// SPDX-License-Identifier: GPL-2.0

//! Packets of RoCEv2, from the base transport header to the invariant CRC (IBA volume 1, chapter
//! 9, annexes A14, A17 and A19).
//!
//! Each header is a type of the layout that it has on the wire: parsing is a view of the bytes, and
//! printing copies them out again. [`opcode`] has the one table that tells which headers, which
//! payload and which order each opcode has; all else here follows it. The headers in front of the
//! base transport header are the host's; [`ip`] has those of IP for hosts that make them.

use zerocopy::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

pub mod checksum;
mod headers;
pub mod icrc;
pub mod ip;
pub mod opcode;

pub use self::{
    headers::{
        credits_of,
        encode_credits,
        Aeth,
        AtomicAckEth,
        AtomicEth,
        Bth,
        Deth,
        Feth,
        Ieth,
        ImmDt,
        Nak,
        Reth,
        Syndrome,
        XrcEth,
        DEFAULT_PKEY,
        U24,
        UNLIMITED, //
    },
    opcode::{
        Header,
        OpcodeInfo, //
    },
};

/// The UDP port of RoCEv2 (annex A17).
pub const PORT: u16 = 4791;

/// The most bytes of headers that a packet has: those of an atomic operation over XRC.
pub const MAX_HEADERS: usize = 44;

/// Why bytes are no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// They end before the headers do, or before the invariant CRC.
    Short,
    /// The version of the transport header is not 0.
    Version,
    /// No service that is known here has the opcode.
    Opcode,
    /// The payload is not what the opcode allows, whatever the path MTU is; or the pad count does
    /// not fit.
    Length,
}

/// A packet without its invariant CRC, as a view of bytes.
///
/// # Invariants
///
/// `headers` is as long as `rule` says.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    info: &'static OpcodeInfo,
    headers: &'a [u8],
    payload: usize,
}

/// The base transport header that bytes begin with, if they are as many.
pub fn bth(bytes: &[u8]) -> Option<Bth> {
    view(bytes, 0).copied()
}

impl<'a> Packet<'a> {
    /// Looks at a packet of `length` bytes in all, from the base transport header up to but not
    /// including the invariant CRC, of which `bytes` are the first: all headers at least.
    ///
    /// # Errors
    ///
    /// The fault of the packet, as far as it shows without the path MTU.
    pub fn parse(bytes: &'a [u8], length: usize) -> Result<Self, Malformed> {
        let bth = view::<Bth>(bytes, 0).ok_or(Malformed::Short)?;
        if bth.version() != 0 {
            return Err(Malformed::Version);
        }
        let info = opcode::info(bth.opcode).ok_or(Malformed::Opcode)?;
        let headers = bytes.get(..info.length()).ok_or(Malformed::Short)?;
        let body = length.checked_sub(headers.len()).ok_or(Malformed::Short)?;
        let payload = body
            .checked_sub(usize::from(bth.pad()))
            .filter(|&payload| body % 4 == 0 && info.payload.fits_some_mtu(payload))
            .ok_or(Malformed::Length)?;
        Ok(Self {
            info,
            headers,
            payload,
        })
    }

    /// The rule of the packet's opcode.
    #[inline]
    pub fn info(&self) -> &'static OpcodeInfo {
        self.info
    }

    /// All headers, as they stand.
    #[inline]
    pub fn headers(&self) -> &'a [u8] {
        self.headers
    }

    /// The length of the payload in bytes, without what pads it.
    #[inline]
    pub fn payload(&self) -> usize {
        self.payload
    }

    /// The base transport header.
    #[inline]
    pub fn bth(&self) -> Bth {
        view(self.headers, 0).copied().unwrap_or_default()
    }

    /// A header that not all packets have.
    #[inline]
    fn extension<T>(&self, header: Header) -> Option<&'a T>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        view(self.headers, self.info.offset(header)?)
    }

    /// The header of the XRC service: the shared receive queue.
    pub fn xrceth(&self) -> Option<&'a XrcEth> {
        self.extension(Header::Xrceth)
    }

    /// The header of datagrams.
    pub fn deth(&self) -> Option<&'a Deth> {
        self.extension(Header::Deth)
    }

    /// The placement type and selectivity level of a FLUSH.
    pub fn feth(&self) -> Option<&'a Feth> {
        self.extension(Header::Feth)
    }

    /// The range of memory that the request is for.
    pub fn reth(&self) -> Option<&'a Reth> {
        self.extension(Header::Reth)
    }

    /// The atomic operation.
    pub fn atomic(&self) -> Option<&'a AtomicEth> {
        self.extension(Header::Atomic)
    }

    /// The acknowledgement.
    pub fn aeth(&self) -> Option<&'a Aeth> {
        self.extension(Header::Aeth)
    }

    /// The value in memory before the atomic operation.
    pub fn atomic_ack(&self) -> Option<&'a AtomicAckEth> {
        self.extension(Header::AtomicAck)
    }

    /// The immediate data.
    pub fn imm(&self) -> Option<&'a ImmDt> {
        self.extension(Header::Imm)
    }

    /// The key to be invalidated.
    pub fn ieth(&self) -> Option<&'a Ieth> {
        self.extension(Header::Ieth)
    }
}

/// The bytes at `offset` as a header.
#[inline]
fn view<T>(bytes: &[u8], offset: usize) -> Option<&T>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    Some(T::ref_from_prefix(bytes.get(offset..)?).ok()?.0)
}

/// The headers of a packet that is being made.
#[derive(Clone, Copy)]
pub struct Headers {
    bytes: [u8; MAX_HEADERS],
    length: usize,
}

impl Headers {
    /// Begins with a base transport header.
    #[inline]
    pub fn new(bth: &Bth) -> Self {
        let mut headers = Self {
            bytes: [0; MAX_HEADERS],
            length: 0,
        };
        headers.push(bth);
        headers
    }

    /// Appends a header. The order is that of [`Header`].
    #[inline]
    pub fn push(&mut self, header: &(impl IntoBytes + Immutable)) {
        let header = header.as_bytes();
        let end = self.length.wrapping_add(header.len());
        if let Some(to) = self.bytes.get_mut(self.length..end) {
            to.copy_from_slice(header);
            self.length = end;
        }
    }

    /// The base transport header.
    #[inline]
    pub fn bth(&self) -> Bth {
        view(&self.bytes, 0).copied().unwrap_or_default()
    }

    /// The bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }
}

/// The bytes of zeroes that make `length` bytes a multiple of 4.
#[inline]
pub const fn pad(length: u32) -> u8 {
    (length.wrapping_neg() & 3) as u8
}
