// SPDX-License-Identifier: GPL-2.0

//! A segment of a message on its way to the responder, whether it came through memory or by packet,
//! and the responses to it.

use crate::{
    base::{
        abi::{
            self,
            wr_flags, //
        },
        attr::Access,
        counters::{
            Cells,
            Count, //
        },
        host::{
            Host,
            Presence, //
        },
        status::Status, //
    },
    memory::{
        copy,
        key::Keys,
        key_use::{
            CheckedUse,
            KeyUse, //
        },
        sgl::{
            InPacket,
            Side, //
        },
    },
    object::{
        request::SendRequest,
        wr_opcode::WrOpcode, //
    },
    queue_pair::{
        qp_core::QpCore,
        send_queue::SendQueue, //
    },
};

/// Where the requester has its side of a segment.
pub(crate) enum Bytes<'a, H: Host> {
    /// In the memory of a queue pair on the same engine, as its request names it.
    Request {
        request: &'a SendRequest,
        /// The protection domain of the request's keys.
        pd: u32,
        /// The use of that memory, if it was checked just now.
        checked: CheckedUse,
    },
    /// In a packet. Data that it asks for go back by packets, later.
    Packet {
        packet: &'a H::Packet,
        /// Where the payload begins.
        start: usize,
    },
}

impl<H: Host> Clone for Bytes<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H: Host> Copy for Bytes<'_, H> {}

/// A segment of a message, as the responder sees it.
pub(crate) struct RequestSegment<'a, H: Host> {
    /// The sender's number.
    pub(crate) from: u32,
    pub(crate) opcode: WrOpcode,
    /// The sender's request: of interest are address, key, data, operands and `SOLICITED`.
    pub(crate) head: &'a abi::SendWqe,
    /// The bytes of the whole message. As far as they are known: the packets of a SEND do not tell
    /// before the last one, and until then these are the bytes up to the end of this segment.
    pub(crate) total: u32,
    /// The bytes of the message before this segment.
    pub(crate) offset: u32,
    /// The bytes of this segment.
    pub(crate) length: u32,
    /// The segment begins the message.
    pub(crate) is_first: bool,
    /// The segment ends the message.
    pub(crate) is_last: bool,
    /// The sequence number of the first packet, and how many packets the segment takes.
    pub(crate) psn: u32,
    pub(crate) packets: u32,
    pub(crate) bytes: Bytes<'a, H>,
    /// The protection domain by which the responder judges its keys; the responder sets it.
    pub(crate) pd: u32,
}

impl<H: Host> Clone for RequestSegment<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

// Functions take a copy, so that none of it has to be in memory where a function is inlined.
impl<H: Host> Copy for RequestSegment<'_, H> {}

impl<'a, H: Host> RequestSegment<'a, H> {
    /// The next segment of the request at hand, of `length` bytes in so many packets.
    #[inline(always)]
    pub(crate) fn next(sq: &'a SendQueue, core: &QpCore<H>, length: u32, packets: u32) -> Self {
        Self::next_checked(sq, core, length, packets, CheckedUse::NONE)
    }

    /// As [`RequestSegment::next`], and the use of its memory was checked just now.
    #[inline(always)]
    pub(crate) fn next_checked(
        sq: &'a SendQueue,
        core: &QpCore<H>,
        length: u32,
        packets: u32,
        checked: CheckedUse,
    ) -> Self {
        let request = &sq.request;
        Self {
            from: core.id.number,
            opcode: request.opcode,
            head: &request.slot.head,
            total: request.length,
            offset: sq.done,
            length,
            is_first: sq.done == 0,
            is_last: sq.done.wrapping_add(length) == request.length,
            psn: sq.psn,
            packets,
            bytes: Bytes::Request {
                request,
                pd: core.init.pd,
                checked,
            },
            pd: 0,
        }
    }

    /// It came by packet.
    pub(crate) fn is_packet(&self) -> bool {
        matches!(self.bytes, Bytes::Packet { .. })
    }

    /// The receiver's completion is a solicited one.
    pub(crate) fn is_solicited(&self) -> bool {
        self.head.flags & wr_flags::SOLICITED != 0
    }

    /// The bytes of the peer's memory that the whole message names.
    pub(crate) fn remote(&self, core: &QpCore<H>, need: Access) -> KeyUse {
        KeyUse {
            pd: self.pd,
            key: self.head.rkey.get(),
            need,
            addr: self.head.remote_addr.get(),
            length: u64::from(self.total),
            peer_of: Some(core.id),
        }
    }

    /// Counts the segment, which the responder has taken, unless it came by packet: that counts as
    /// it came.
    #[inline(always)]
    pub(crate) fn count_taken(&self, counters: &Cells) {
        if !self.is_packet() {
            // One packet is the request, and the others are the response.
            if self.is_first && self.opcode.has_response() {
                counters.local_packets.count(1);
            }
            counters.local_packets.count(self.packets.into());
            counters.local_bytes.count(self.length.into());
        }
    }

    /// The requester's side of the copy: where the bytes of the segment lie, or where they belong.
    ///
    /// It is told when it is needed: a copy that follows is then compiled for the kinds alone that
    /// it may be.
    #[inline(always)]
    pub(crate) fn local(&self) -> Side<'_, H> {
        match self.bytes {
            Bytes::Request { request, pd, .. } => request.side(pd, self.offset),
            Bytes::Packet { packet, start } => Side::Packet(InPacket {
                packet,
                offset: start,
            }),
        }
    }

    /// The use of the memory of the requester's side, if it was checked just now.
    #[inline(always)]
    pub(crate) fn checked(&self) -> CheckedUse {
        match self.bytes {
            Bytes::Request { checked, .. } => checked,
            Bytes::Packet { .. } => CheckedUse::NONE,
        }
    }

    /// Whether the place for the response's data is in memory. Where it is not, the host brings it
    /// there.
    #[cold]
    pub(crate) fn page_in(&self, keys: &Keys<H>, length: u32) -> Presence {
        match self.bytes {
            Bytes::Request { .. } => copy::page_in(keys, self.local(), length),
            Bytes::Packet { .. } => Presence::Present,
        }
    }
}

/// The responder's answer to a segment of the requester's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Response {
    /// An acknowledgement: the segment has arrived.
    Acknowledge,
    /// An RNR NAK: there is no receive request. The code of the time to wait.
    RnrNak(u8),
    /// A NAK: an earlier packet was expected (PSN sequence error).
    SequenceError,
    /// Any other NAK: how the request ends at the requester. The responder is in error.
    Nak(Status),
    /// Nothing.
    None,
    /// The requester's own memory could not be reached.
    RequesterFault,
    /// Memory of either side is being brought in: nothing has changed, and the same segment is to
    /// be handed over again.
    Absent,
    /// A job copies the bytes: the same segment is to be handed over again, when it has been
    /// carried out.
    Later,
}

/// Why a message is refused.
pub(crate) enum Refusal {
    /// The request is not one that this queue pair takes (NAK Invalid Request).
    InvalidRequest,
    /// The peer may not access the memory (NAK Remote Access Error).
    Access,
    /// The receive request at hand ends in error, and the peer is told why.
    Receive { local: Status, remote: Status },
    /// The queue pair is broken (NAK Remote Operational Error).
    Broken,
}
