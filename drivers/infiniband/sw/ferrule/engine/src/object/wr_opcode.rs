// SPDX-License-Identifier: GPL-2.0

//! The operations of send requests, and the one table of what each of them is.
//!
//! [`WrOpcode::facts`] has a row for each. The rest of the engine matches on what the row says, and
//! no match over operations has an arm for all others: for a new one, the compiler names every
//! place that has to know it.

use crate::{
    base::{
        abi::{
            wc_opcode,
            wr_opcode, //
        },
        attr::{
            Access,
            QpType, //
        },
    },
    memory::fast,
    packet::opcode::{
        rc,
        Kind,
        Position, //
    },
};

/// The bytes that an atomic operation works on.
pub(crate) const WORD: u32 = 8;

/// The operation that a send request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WrOpcode {
    Send,
    SendWithImm,
    Write,
    WriteWithImm,
    Read,
    ReadWithInv,
    CompareSwap,
    FetchAdd,
    SendWithInv,
    LocalInv,
    BindWindow,
    Register,
    Flush,
    AtomicWrite,
}

/// How an operation is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Bytes for a receive request of the peer.
    Send,
    /// Bytes for the peer's memory.
    Write,
    /// Bytes of the peer's memory, which come back in responses.
    Read,
    /// A change of 8 bytes of the peer's memory. Their former value comes back in the response.
    Atomic(Atomic),
    /// 8 bytes for the peer's memory, which are in the request, and which the memory has all at
    /// once.
    AtomicWrite,
    /// The peer makes the bytes that were written before visible to all, or persistent.
    Flush,
    /// A change of a key of the requester's own side. The peer hears nothing of it.
    Key(KeyChange),
}

/// The atomic operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Atomic {
    CompareSwap,
    FetchAdd,
}

/// The changes of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyChange {
    /// Requests before it may still need the key.
    Invalidate,
    /// As for `Invalidate`.
    Bind,
    /// The region opens nothing before, so no request needs the key yet.
    Register,
}

/// The immediate data or key that a request has beside its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extra {
    None,
    /// Immediate data.
    Immediate,
    /// The key that the responder is to invalidate.
    Invalidate,
    /// Nothing on the way: the key is the requester's, which invalidates it when the message has
    /// ended.
    InvalidateOwn,
}

/// The packet of a message that takes a receive request of the responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receive {
    None,
    First,
    Last,
}

/// A row of the table.
pub(crate) struct Facts {
    pub(crate) class: Class,
    /// The transport services that have it, as bits of [`service`] (ibv_post_send(3); IBA volume 1,
    /// C10-87 and table 46). XRC has all but those of annex A19 (annex A14).
    pub(super) services: u8,
    /// Only queue pairs of privileged users have it.
    pub(super) is_privileged: bool,
    /// [`SendWqe::extra`](crate::abi::SendWqe) has words for it.
    pub(crate) has_words: bool,
    pub(crate) receive: Receive,
    pub(crate) extra: Extra,
    /// The `abi::wc_opcode` of its completion.
    pub(crate) completion: u8,
    /// The opcodes of its packets on RC, by [`Position`]. An operation without packets is never
    /// asked for them.
    packets: &'static [u8; 4],
}

/// The bit of a queue pair's transport service. The provider's table names the services by the same
/// words.
pub(super) const fn service(qp_type: QpType) -> u8 {
    match qp_type {
        QpType::Rc => RC,
        QpType::Uc => UC,
        QpType::Ud => UD,
        // A target has no send queue.
        QpType::XrcIni | QpType::XrcTgt => XRC,
        QpType::RawPacket => RAW,
    }
}

const RC: u8 = 1 << 0;
const UC: u8 = 1 << 1;
const UD: u8 = 1 << 2;
const XRC: u8 = 1 << 3;
const RAW: u8 = 1 << 4;

/// Of an operation that is one packet.
const fn only(opcode: u8) -> [u8; 4] {
    [opcode; 4]
}

impl WrOpcode {
    /// The operation that a byte of the ring names.
    #[inline(always)]
    pub(crate) const fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            wr_opcode::SEND => WrOpcode::Send,
            wr_opcode::SEND_WITH_IMM => WrOpcode::SendWithImm,
            wr_opcode::RDMA_WRITE => WrOpcode::Write,
            wr_opcode::RDMA_WRITE_WITH_IMM => WrOpcode::WriteWithImm,
            wr_opcode::RDMA_READ => WrOpcode::Read,
            wr_opcode::ATOMIC_CMP_AND_SWP => WrOpcode::CompareSwap,
            wr_opcode::ATOMIC_FETCH_AND_ADD => WrOpcode::FetchAdd,
            wr_opcode::SEND_WITH_INV => WrOpcode::SendWithInv,
            wr_opcode::LOCAL_INV => WrOpcode::LocalInv,
            wr_opcode::BIND_MW => WrOpcode::BindWindow,
            wr_opcode::FLUSH => WrOpcode::Flush,
            wr_opcode::ATOMIC_WRITE => WrOpcode::AtomicWrite,
            fast::WR_REGISTER => WrOpcode::Register,
            fast::WR_READ_WITH_INV => WrOpcode::ReadWithInv,
            // A byte that names nothing. Without an arm above, a new operation is never
            // constructed, and the compiler says so.
            _ => return None,
        })
    }

    /// The table. A new operation needs a row here, and a new column a value in each row.
    #[inline(always)]
    pub(crate) const fn facts(self) -> Facts {
        match self {
            WrOpcode::Send => Facts {
                class: Class::Send,
                services: RC | UC | UD | XRC | RAW,
                is_privileged: false,
                has_words: false,
                receive: Receive::First,
                extra: Extra::None,
                completion: wc_opcode::SEND,
                packets: &[
                    rc::SEND_FIRST,
                    rc::SEND_MIDDLE,
                    rc::SEND_LAST,
                    rc::SEND_ONLY,
                ],
            },
            WrOpcode::SendWithImm => Facts {
                class: Class::Send,
                services: RC | UC | UD | XRC,
                is_privileged: false,
                has_words: false,
                receive: Receive::First,
                extra: Extra::Immediate,
                completion: wc_opcode::SEND,
                packets: &[
                    rc::SEND_FIRST,
                    rc::SEND_MIDDLE,
                    rc::SEND_LAST_WITH_IMM,
                    rc::SEND_ONLY_WITH_IMM,
                ],
            },
            // The manual page names UC, too, which has no opcode for it (9.2, table 35).
            WrOpcode::SendWithInv => Facts {
                class: Class::Send,
                services: RC | XRC,
                is_privileged: false,
                has_words: false,
                receive: Receive::First,
                extra: Extra::Invalidate,
                completion: wc_opcode::SEND,
                packets: &[
                    rc::SEND_FIRST,
                    rc::SEND_MIDDLE,
                    rc::SEND_LAST_WITH_INV,
                    rc::SEND_ONLY_WITH_INV,
                ],
            },
            WrOpcode::Write => Facts {
                class: Class::Write,
                services: RC | UC | XRC,
                is_privileged: false,
                has_words: false,
                receive: Receive::None,
                extra: Extra::None,
                completion: wc_opcode::RDMA_WRITE,
                packets: &[
                    rc::WRITE_FIRST,
                    rc::WRITE_MIDDLE,
                    rc::WRITE_LAST,
                    rc::WRITE_ONLY,
                ],
            },
            WrOpcode::WriteWithImm => Facts {
                class: Class::Write,
                services: RC | UC | XRC,
                is_privileged: false,
                has_words: false,
                receive: Receive::Last,
                extra: Extra::Immediate,
                completion: wc_opcode::RDMA_WRITE,
                packets: &[
                    rc::WRITE_FIRST,
                    rc::WRITE_MIDDLE,
                    rc::WRITE_LAST_WITH_IMM,
                    rc::WRITE_ONLY_WITH_IMM,
                ],
            },
            WrOpcode::Read => Facts {
                class: Class::Read,
                services: RC | XRC,
                is_privileged: false,
                has_words: false,
                receive: Receive::None,
                extra: Extra::None,
                completion: wc_opcode::RDMA_READ,
                packets: &const { only(rc::READ_REQUEST) },
            },
            WrOpcode::ReadWithInv => Facts {
                class: Class::Read,
                services: RC | XRC,
                is_privileged: true,
                has_words: false,
                receive: Receive::None,
                extra: Extra::InvalidateOwn,
                completion: wc_opcode::RDMA_READ,
                packets: &const { only(rc::READ_REQUEST) },
            },
            WrOpcode::CompareSwap => Facts {
                class: Class::Atomic(Atomic::CompareSwap),
                services: RC | XRC,
                is_privileged: false,
                has_words: true,
                receive: Receive::None,
                extra: Extra::None,
                completion: wc_opcode::COMP_SWAP,
                packets: &const { only(rc::COMPARE_SWAP) },
            },
            WrOpcode::FetchAdd => Facts {
                class: Class::Atomic(Atomic::FetchAdd),
                services: RC | XRC,
                is_privileged: false,
                has_words: true,
                receive: Receive::None,
                extra: Extra::None,
                completion: wc_opcode::FETCH_ADD,
                packets: &const { only(rc::FETCH_ADD) },
            },
            WrOpcode::LocalInv => Facts {
                class: Class::Key(KeyChange::Invalidate),
                services: RC | UC | XRC,
                is_privileged: false,
                has_words: false,
                receive: Receive::None,
                extra: Extra::None,
                completion: wc_opcode::LOCAL_INV,
                packets: &[0; 4],
            },
            WrOpcode::BindWindow => Facts {
                class: Class::Key(KeyChange::Bind),
                services: RC | UC | XRC,
                is_privileged: false,
                has_words: true,
                receive: Receive::None,
                extra: Extra::None,
                completion: wc_opcode::BIND_MW,
                packets: &[0; 4],
            },
            WrOpcode::Register => Facts {
                class: Class::Key(KeyChange::Register),
                services: RC | UC | XRC,
                is_privileged: true,
                has_words: true,
                receive: Receive::None,
                extra: Extra::None,
                completion: fast::WC_REGISTER,
                packets: &[0; 4],
            },
            WrOpcode::Flush => Facts {
                class: Class::Flush,
                services: RC,
                is_privileged: false,
                has_words: true,
                receive: Receive::None,
                extra: Extra::None,
                completion: wc_opcode::FLUSH,
                packets: &const { only(rc::FLUSH) },
            },
            WrOpcode::AtomicWrite => Facts {
                class: Class::AtomicWrite,
                services: RC,
                is_privileged: false,
                has_words: true,
                receive: Receive::None,
                extra: Extra::None,
                completion: wc_opcode::ATOMIC_WRITE,
                packets: &const { only(rc::ATOMIC_WRITE) },
            },
        }
    }

    /// The opcode of a packet in its message, of a reliable connection.
    #[inline]
    pub(crate) fn packet(self, position: Position) -> u8 {
        let [first, middle, last, only] = *self.facts().packets;
        match position {
            Position::First => first,
            Position::Middle => middle,
            Position::Last => last,
            Position::Only => only,
        }
    }

    /// The response of its own that it is answered by, which takes one of the responder's resources
    /// (IBA volume 1, 9.4.4; annex A19.4.3). Any acknowledgement answers a request that has none.
    #[inline(always)]
    pub(crate) fn response(self) -> Option<Kind> {
        match self.facts().class {
            Class::Read | Class::AtomicWrite | Class::Flush => Some(Kind::ReadResponse),
            Class::Atomic(_) => Some(Kind::AtomicAcknowledge),
            Class::Send | Class::Write | Class::Key(_) => None,
        }
    }

    /// It has a [`response`](Self::response).
    #[inline(always)]
    pub(crate) fn has_response(self) -> bool {
        self.response().is_some()
    }

    /// The bytes that the response brings, where the message has `length`.
    #[inline(always)]
    pub(crate) fn response_length(self, length: u32) -> u32 {
        match self.facts().class {
            Class::Read | Class::Atomic(_) => length,
            Class::Send | Class::Write | Class::AtomicWrite | Class::Flush | Class::Key(_) => 0,
        }
    }

    /// The bytes that the packet of a request has which is answered by a response of its own.
    #[inline(always)]
    pub(crate) fn request_length(self) -> u32 {
        match self.facts().class {
            Class::AtomicWrite => WORD,
            Class::Send
            | Class::Write
            | Class::Read
            | Class::Atomic(_)
            | Class::Flush
            | Class::Key(_) => 0,
        }
    }

    /// Bytes come back from the responder.
    #[inline(always)]
    pub(crate) fn has_response_data(self) -> bool {
        match self.facts().class {
            Class::Read | Class::Atomic(_) => true,
            Class::Send | Class::Write | Class::AtomicWrite | Class::Flush | Class::Key(_) => false,
        }
    }

    /// A scatter/gather list or inline data are part of it.
    #[inline(always)]
    pub(crate) fn has_list(self) -> bool {
        match self.facts().class {
            Class::Send | Class::Write | Class::Read | Class::Atomic(_) => true,
            Class::AtomicWrite | Class::Flush | Class::Key(_) => false,
        }
    }

    /// An operation of the requester alone, of which the peer hears nothing.
    #[inline(always)]
    pub(crate) fn is_local(self) -> bool {
        match self.facts().class {
            Class::Key(_) => true,
            Class::Send
            | Class::Write
            | Class::Read
            | Class::Atomic(_)
            | Class::AtomicWrite
            | Class::Flush => false,
        }
    }

    /// An operation on [`WORD`] bytes of the peer's memory, of which the former value comes back.
    #[inline(always)]
    pub(crate) fn is_atomic(self) -> bool {
        match self.facts().class {
            Class::Atomic(_) => true,
            Class::Send
            | Class::Write
            | Class::Read
            | Class::AtomicWrite
            | Class::Flush
            | Class::Key(_) => false,
        }
    }

    /// The message takes a receive request of the responder.
    #[inline(always)]
    pub(crate) fn takes_receive(self) -> bool {
        match self.facts().receive {
            Receive::First | Receive::Last => true,
            Receive::None => false,
        }
    }

    /// It may be carried out before the requests before it have ended, and sends nothing.
    #[inline(always)]
    pub(crate) fn may_be_early(self) -> bool {
        match self.facts().class {
            Class::Key(KeyChange::Register) => true,
            Class::Key(KeyChange::Bind | KeyChange::Invalidate) => false,
            Class::Send
            | Class::Write
            | Class::Read
            | Class::Atomic(_)
            | Class::AtomicWrite
            | Class::Flush => false,
        }
    }

    /// The right to its own memory that the requester needs.
    #[inline(always)]
    pub(crate) fn local_need(self) -> Access {
        if self.has_response_data() {
            Access::LOCAL_WRITE
        } else {
            Access::NONE
        }
    }
}

/// The `abi::wc_opcode` of a send request, also of one that names no operation.
#[inline(always)]
pub(crate) fn completion_opcode(opcode: Option<WrOpcode>) -> u8 {
    opcode.map_or(wc_opcode::SEND, |opcode| opcode.facts().completion)
}
