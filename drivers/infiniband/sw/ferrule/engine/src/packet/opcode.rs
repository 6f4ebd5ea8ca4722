// SPDX-License-Identifier: GPL-2.0

//! The opcodes of the base transport header, and the one table of what each of them means (IBA
//! volume 1, 9.2, table 35 and following; annexes A14, A17 and A19).
//!
//! An opcode has a service in its upper 3 bits and an operation in its lower 5.

/// Opcodes of RC. Those of UC, UD and XRC have another service in their upper bits.
#[allow(missing_docs)]
pub mod rc {
    pub const SEND_FIRST: u8 = 0x00;
    pub const SEND_MIDDLE: u8 = 0x01;
    pub const SEND_LAST: u8 = 0x02;
    pub const SEND_LAST_WITH_IMM: u8 = 0x03;
    pub const SEND_ONLY: u8 = 0x04;
    pub const SEND_ONLY_WITH_IMM: u8 = 0x05;
    pub const WRITE_FIRST: u8 = 0x06;
    pub const WRITE_MIDDLE: u8 = 0x07;
    pub const WRITE_LAST: u8 = 0x08;
    pub const WRITE_LAST_WITH_IMM: u8 = 0x09;
    pub const WRITE_ONLY: u8 = 0x0a;
    pub const WRITE_ONLY_WITH_IMM: u8 = 0x0b;
    pub const READ_REQUEST: u8 = 0x0c;
    pub const READ_RESPONSE_FIRST: u8 = 0x0d;
    pub const READ_RESPONSE_MIDDLE: u8 = 0x0e;
    pub const READ_RESPONSE_LAST: u8 = 0x0f;
    pub const READ_RESPONSE_ONLY: u8 = 0x10;
    pub const ACKNOWLEDGE: u8 = 0x11;
    pub const ATOMIC_ACKNOWLEDGE: u8 = 0x12;
    pub const COMPARE_SWAP: u8 = 0x13;
    pub const FETCH_ADD: u8 = 0x14;
    pub const SEND_LAST_WITH_INV: u8 = 0x16;
    pub const SEND_ONLY_WITH_INV: u8 = 0x17;
    pub const FLUSH: u8 = 0x1c;
    pub const ATOMIC_WRITE: u8 = 0x1d;
}

/// The opcode of a congestion notification packet (annex A17).
pub const CONGESTION: u8 = 0x81;

/// The transport services, with the bits that they have in an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Service {
    /// Reliable connection.
    Rc = 0x00,
    /// Unreliable connection.
    Uc = 0x20,
    /// Unreliable datagram.
    Ud = 0x60,
    /// Congestion notification, which is no service of a queue pair.
    Congestion = 0x80,
    /// Extended reliable connection.
    Xrc = 0xa0,
}

/// The kind of message that a packet is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A message for a receive request.
    Send,
    /// A write.
    Write,
    /// A read.
    ReadRequest,
    /// The data of an RDMA READ.
    ReadResponse,
    /// An acknowledgement of any kind.
    Acknowledge,
    /// The value that an atomic operation found.
    AtomicAcknowledge,
    /// An atomic compare and swap.
    CompareSwap,
    /// An atomic fetch and add.
    FetchAdd,
    /// A flush of memory.
    Flush,
    /// An atomic write.
    AtomicWrite,
    /// A congestion notification.
    Congestion,
}

impl Kind {
    /// The packet is of a request, or else of a response; a congestion notification is neither.
    #[inline]
    pub const fn is_request(self) -> bool {
        match self {
            Kind::Send
            | Kind::Write
            | Kind::ReadRequest
            | Kind::CompareSwap
            | Kind::FetchAdd
            | Kind::Flush
            | Kind::AtomicWrite => true,
            Kind::ReadResponse | Kind::Acknowledge | Kind::AtomicAcknowledge | Kind::Congestion => {
                false
            }
        }
    }

    /// The packet is of a request that is answered by a response of its own, and not by any
    /// acknowledgement.
    #[inline]
    pub const fn has_response(self) -> bool {
        match self {
            Kind::ReadRequest
            | Kind::CompareSwap
            | Kind::FetchAdd
            | Kind::Flush
            | Kind::AtomicWrite => true,
            Kind::Send | Kind::Write => false,
            Kind::ReadResponse | Kind::Acknowledge | Kind::AtomicAcknowledge | Kind::Congestion => {
                false
            }
        }
    }
}

/// Where in its message a packet stands. A first or middle one is followed by a middle or last
/// one of the same kind; a last or only one by whatever begins a message (C9-85, C9-86).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// There are more.
    First,
    /// There were some and there are more.
    Middle,
    /// The message ends.
    Last,
    /// The message is one packet.
    Only,
}

impl Position {
    /// Of a packet that begins or does not begin, and ends or does not end, its message.
    pub const fn of(begins: bool, ends: bool) -> Self {
        match (begins, ends) {
            (true, false) => Position::First,
            (false, false) => Position::Middle,
            (false, true) => Position::Last,
            (true, true) => Position::Only,
        }
    }

    /// The packet begins a message.
    pub const fn begins(self) -> bool {
        matches!(self, Position::First | Position::Only)
    }

    /// The packet ends a message.
    pub const fn ends(self) -> bool {
        matches!(self, Position::Last | Position::Only)
    }
}

/// The headers that may follow the base transport header, in the order in which they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Header {
    /// [`XrcEth`](super::XrcEth).
    Xrceth,
    /// [`Deth`](super::Deth).
    Deth,
    /// [`Feth`](super::Feth).
    Feth,
    /// [`Reth`](super::Reth).
    Reth,
    /// [`AtomicEth`](super::AtomicEth).
    Atomic,
    /// [`Aeth`](super::Aeth).
    Aeth,
    /// [`AtomicAckEth`](super::AtomicAckEth).
    AtomicAck,
    /// [`ImmDt`](super::ImmDt).
    Imm,
    /// [`Ieth`](super::Ieth).
    Ieth,
}

impl Header {
    /// All of them, in order.
    pub const ALL: [Header; 9] = [
        Header::Xrceth,
        Header::Deth,
        Header::Feth,
        Header::Reth,
        Header::Atomic,
        Header::Aeth,
        Header::AtomicAck,
        Header::Imm,
        Header::Ieth,
    ];

    /// The bytes that the header takes.
    pub const fn length(self) -> usize {
        match self {
            Header::Xrceth | Header::Feth | Header::Aeth | Header::Imm | Header::Ieth => 4,
            Header::Deth | Header::AtomicAck => 8,
            Header::Reth => 16,
            Header::Atomic => 28,
        }
    }

    const fn bit(self) -> u16 {
        1u16.wrapping_shl(self as u32)
    }
}

/// The payload that a packet may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// None.
    None,
    /// As many bytes as the path MTU.
    Full,
    /// At least one byte, and no more than the path MTU.
    Some,
    /// No more than the path MTU.
    Any,
    /// So many bytes.
    Exactly(u8),
}

impl Payload {
    /// Whether so many bytes are allowed where the path MTU is `mtu`.
    #[inline]
    pub fn fits(self, length: usize, mtu: u32) -> bool {
        let mtu = mtu as usize;
        match self {
            Payload::None => length == 0,
            Payload::Full => length == mtu,
            Payload::Some => length != 0 && length <= mtu,
            Payload::Any => length <= mtu,
            Payload::Exactly(bytes) => length == usize::from(bytes),
        }
    }

    /// Whether so many bytes are allowed with any path MTU, from 256 to 4096.
    #[inline]
    pub fn fits_some_mtu(self, length: usize) -> bool {
        match self {
            Payload::Full => length.is_power_of_two() && (256..=4096).contains(&length),
            _ => self.fits(length, 4096),
        }
    }
}

/// The meaning of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpcodeInfo {
    /// The service.
    pub service: Service,
    /// The kind of message that the packet is part of.
    pub kind: Kind,
    /// Where in its message it stands.
    pub position: Position,
    /// The bits of the headers that follow the base transport header.
    headers: u16,
    /// The bytes of all headers, with the base transport header.
    length: u8,
    /// The payload that it may have.
    pub payload: Payload,
}

/// The bytes of the base transport header.
const BTH: usize = 12;

impl OpcodeInfo {
    const fn new(service: Service, operation: u8) -> Option<Self> {
        use Header::*;
        use Position::*;

        let (kind, position, headers, payload): (_, _, &[Header], _) = match operation {
            rc::SEND_FIRST => (Kind::Send, First, &[], Payload::Full),
            rc::SEND_MIDDLE => (Kind::Send, Middle, &[], Payload::Full),
            rc::SEND_LAST => (Kind::Send, Last, &[], Payload::Some),
            rc::SEND_LAST_WITH_IMM => (Kind::Send, Last, &[Imm], Payload::Some),
            rc::SEND_ONLY => (Kind::Send, Only, &[], Payload::Any),
            rc::SEND_ONLY_WITH_IMM => (Kind::Send, Only, &[Imm], Payload::Any),
            rc::WRITE_FIRST => (Kind::Write, First, &[Reth], Payload::Full),
            rc::WRITE_MIDDLE => (Kind::Write, Middle, &[], Payload::Full),
            rc::WRITE_LAST => (Kind::Write, Last, &[], Payload::Some),
            rc::WRITE_LAST_WITH_IMM => (Kind::Write, Last, &[Imm], Payload::Some),
            rc::WRITE_ONLY => (Kind::Write, Only, &[Reth], Payload::Any),
            rc::WRITE_ONLY_WITH_IMM => (Kind::Write, Only, &[Reth, Imm], Payload::Any),
            rc::READ_REQUEST => (Kind::ReadRequest, Only, &[Reth], Payload::None),
            rc::READ_RESPONSE_FIRST => (Kind::ReadResponse, First, &[Aeth], Payload::Full),
            rc::READ_RESPONSE_MIDDLE => (Kind::ReadResponse, Middle, &[], Payload::Full),
            rc::READ_RESPONSE_LAST => (Kind::ReadResponse, Last, &[Aeth], Payload::Some),
            rc::READ_RESPONSE_ONLY => (Kind::ReadResponse, Only, &[Aeth], Payload::Any),
            rc::ACKNOWLEDGE => (Kind::Acknowledge, Only, &[Aeth], Payload::None),
            rc::ATOMIC_ACKNOWLEDGE => (
                Kind::AtomicAcknowledge,
                Only,
                &[Aeth, AtomicAck],
                Payload::None,
            ),
            rc::COMPARE_SWAP => (Kind::CompareSwap, Only, &[Atomic], Payload::None),
            rc::FETCH_ADD => (Kind::FetchAdd, Only, &[Atomic], Payload::None),
            rc::SEND_LAST_WITH_INV => (Kind::Send, Last, &[Ieth], Payload::Some),
            rc::SEND_ONLY_WITH_INV => (Kind::Send, Only, &[Ieth], Payload::Any),
            rc::FLUSH => (Kind::Flush, Only, &[Feth, Reth], Payload::None),
            rc::ATOMIC_WRITE => (Kind::AtomicWrite, Only, &[Reth], Payload::Exactly(8)),
            _ => return None,
        };
        let in_service = match service {
            Service::Rc => true,
            // Unreliable connections have messages and writes, and nothing that is answered.
            Service::Uc => operation <= rc::WRITE_ONLY_WITH_IMM,
            Service::Ud => matches!(operation, rc::SEND_ONLY | rc::SEND_ONLY_WITH_IMM),
            // The annexes of XRC and of memory that is persistent do not know each other.
            Service::Xrc => !matches!(kind, Kind::Flush | Kind::AtomicWrite),
            Service::Congestion => false,
        };
        if !in_service {
            return None;
        }
        let own = match service {
            Service::Ud => Deth.bit(),
            Service::Xrc if kind.is_request() => Xrceth.bit(),
            _ => 0,
        };
        Some(Self::with(service, kind, position, own, headers, payload))
    }

    /// Adds up the headers.
    #[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)] // At compile time.
    const fn with(
        service: Service,
        kind: Kind,
        position: Position,
        mut bits: u16,
        headers: &[Header],
        payload: Payload,
    ) -> Self {
        let mut i = 0;
        while i < headers.len() {
            bits |= headers[i].bit();
            i += 1;
        }
        let mut length = BTH;
        i = 0;
        while i < Header::ALL.len() {
            if bits & Header::ALL[i].bit() != 0 {
                length += Header::ALL[i].length();
            }
            i += 1;
        }
        Self {
            service,
            kind,
            position,
            headers: bits,
            length: length as u8,
            payload,
        }
    }

    /// The bytes of all headers, with the base transport header.
    #[inline]
    pub fn length(&self) -> usize {
        usize::from(self.length)
    }

    /// Whether the packet has a header.
    #[inline]
    pub const fn has(&self, header: Header) -> bool {
        self.headers & header.bit() != 0
    }

    /// Where a header begins, if the packet has it.
    #[inline]
    pub(super) fn offset(&self, header: Header) -> Option<usize> {
        if !self.has(header) {
            return None;
        }
        let before = Header::ALL
            .iter()
            .take(header as usize)
            .filter(|before| self.has(**before));
        Some(before.fold(BTH, |sum, before| sum.wrapping_add(before.length())))
    }
}

/// The table: a rule for each opcode that there is.
static TABLE: [Option<OpcodeInfo>; 256] = table();

#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)] // At compile time.
const fn table() -> [Option<OpcodeInfo>; 256] {
    const SERVICES: [Service; 4] = [Service::Rc, Service::Uc, Service::Ud, Service::Xrc];

    let mut table = [const { None }; 256];
    let mut i = 0;
    while i < SERVICES.len() {
        let mut operation = 0;
        while operation < 32 {
            let opcode = SERVICES[i] as u8 | operation;
            table[opcode as usize] = OpcodeInfo::new(SERVICES[i], operation);
            operation += 1;
        }
        i += 1;
    }
    table[CONGESTION as usize] = Some(OpcodeInfo::with(
        Service::Congestion,
        Kind::Congestion,
        Position::Only,
        0,
        &[],
        Payload::Exactly(16),
    ));
    table
}

/// The meaning of an opcode, if there is such an opcode.
#[inline]
pub fn info(opcode: u8) -> Option<&'static OpcodeInfo> {
    TABLE.get(usize::from(opcode))?.as_ref()
}
