// SPDX-License-Identifier: GPL-2.0

//! A segment of a message on its way to the responder, whether it came through memory or by packet.

use crate::{
    base::{
        abi::{
            self,
            wr_flags, //
        },
        attr::{
            Access,
            PathKind, //
        },
        host::Host,
        psn, //
    },
    memory::{
        key_use::KeyUse,
        sgl::{
            Cursor,
            InPacket,
            Side, //
        },
    },
    object::{
        opcode::Opcode,
        request::SendRequest, //
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
        /// Where the scatter/gather list goes on.
        cursor: &'a mut Cursor,
    },
    /// In a packet. What is asked for goes back by packets, later.
    Packet {
        packet: &'a H::Packet,
        /// Where the payload begins.
        start: usize,
        /// What an atomic operation found.
        found: u64,
    },
}

/// A segment of a message, as the responder sees it.
pub(crate) struct Message<'a, H: Host> {
    /// The sender's number.
    pub(crate) from: u32,
    pub(crate) opcode: Opcode,
    /// What the sender asks for: of interest are address, key, data, operands and `SOLICITED`.
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
}

impl<H: Host> Message<'_, H> {
    /// It came by packet.
    pub(crate) fn is_packet(&self) -> bool {
        matches!(self.bytes, Bytes::Packet { .. })
    }

    /// It came from the queue pair that this one is connected to, by the way that leads there.
    #[inline]
    pub(crate) fn is_from_peer(&self, core: &QpCore<H>) -> bool {
        let is_way = |kind| matches!(kind, PathKind::Remote) == self.is_packet();
        core.attr.dest_qpn == self.from && core.attr.path.is_some_and(|path| is_way(path.kind))
    }

    /// The receiver's completion is a solicited one.
    pub(crate) fn is_solicited(&self) -> bool {
        self.head.flags & wr_flags::SOLICITED != 0
    }

    /// The bytes of the peer's memory that the whole message names.
    pub(crate) fn remote(&self, core: &QpCore<H>, need: Access) -> KeyUse {
        KeyUse {
            pd: core.init.pd,
            key: self.head.rkey.get(),
            need,
            addr: self.head.remote_addr.get(),
            length: u64::from(self.total),
            peer_of: Some(core.id),
        }
    }

    /// The requester's side of the copy: where the bytes of the segment lie, or where they belong.
    #[inline(always)]
    pub(crate) fn local(&mut self) -> Side<'_, H> {
        match &mut self.bytes {
            Bytes::Request {
                request,
                pd,
                cursor,
            } => request.side(*pd, self.offset, cursor),
            Bytes::Packet { packet, start, .. } => Side::Packet(InPacket {
                packet,
                offset: *start,
            }),
        }
    }
}

impl SendQueue {
    /// The next segment of the request at hand, of `length` bytes.
    pub(crate) fn message<H: Host>(&mut self, core: &QpCore<H>, length: u32) -> Message<'_, H> {
        let request = &self.request;
        Message {
            from: core.id.number,
            opcode: request.opcode,
            head: &request.head,
            total: request.length,
            offset: self.done,
            length,
            is_first: self.done == 0,
            is_last: self.done.wrapping_add(length) == request.length,
            psn: self.psn,
            packets: psn::packets(length, core.attr.path_mtu),
            bytes: Bytes::Request {
                request,
                pd: core.init.pd,
                cursor: &mut self.cursor,
            },
        }
    }
}
