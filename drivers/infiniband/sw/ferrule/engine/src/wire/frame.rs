// SPDX-License-Identifier: GPL-2.0

//! Ethernet frames of raw packet queue pairs: the bytes of a request are one, from the Ethernet
//! header on.

use crate::{
    base::{
        abi,
        counters::Count,
        host::{
            Fault,
            Host,
            Outgoing,
            Sends,
            Sink,
            Unsent, //
        },
        status::Status, //
    },
    memory::{
        copy,
        key::Keys,
        sgl::Side, //
    },
    object::wr_opcode::WrOpcode,
    operation::{
        request_segment::{
            Bytes,
            RequestSegment, //
        },
        ud_receive,
        unreliable::Unfinished, //
    },
    queue_pair::{
        cx::Cx,
        qp::Qp,
        schedule::Qps, //
    },
};

/// The bytes of an Ethernet header: both addresses and the type.
const HEADER: u32 = 14;

/// A frame that a queue pair sends.
struct TxFrame<'a, H: Host> {
    bytes: Side<'a, H>,
    length: u32,
    keys: &'a Keys<H>,
    /// The buffer of the queue pair that sends it.
    queue: &'a H::Queue,
    /// `false`, and `true` once the bytes were found not to be in memory.
    is_absent: bool,
}

impl<'a, H: Host> Outgoing<'a, H> for TxFrame<'a, H> {
    fn queue(&self) -> &'a H::Queue {
        self.queue
    }

    fn kind(&self) -> Sends {
        Sends::Requests
    }

    fn length(&self) -> usize {
        self.length as usize
    }

    fn write(
        &mut self,
        _ip: &[u8],
        _udp: &[u8],
        to: &mut impl Sink<H::Region>,
    ) -> Result<(), Fault> {
        copy::gather(
            self.keys,
            &mut self.bytes,
            to,
            self.length,
            &mut self.is_absent,
        )
    }
}

/// Sends the request at hand. The source address is the program's business, as with an adapter: the
/// host gives such queue pairs to programs with the right to send any frame alone.
///
/// # Errors
///
/// [`Unfinished`]: nothing was sent. A frame without an Ethernet header, or longer than the network
/// device sends, ends with a local length error.
pub(crate) fn send<H: Host>(cx: &mut Cx<'_, H>, qp: &mut Qp<H>) -> Result<(), Unfinished> {
    let Qp { core, sq, .. } = qp;
    let length = sq.request.length;
    let limit = cx.host.frame_limit(&core.init.queue);
    if !(HEADER..=limit).contains(&length) {
        return Err(Status::LocalLength.into());
    }
    cx.take_packet(length);
    let segment = RequestSegment::next(sq, core, length, 1);
    let mut frame = TxFrame {
        bytes: segment.local(),
        length,
        keys: cx.keys,
        queue: &core.init.queue,
        is_absent: false,
    };
    let sent = cx.host.transmit_frame(&mut frame);
    match sent {
        Ok(()) => {
            cx.counters.packets_sent.count(1);
            cx.counters.bytes_sent.count(length.into());
        }
        Err(Unsent::Full) => cx.counters.send_waits.count(1),
        Err(Unsent::Fault) if frame.is_absent => return Err(Unsent::Absent.into()),
        Err(_) => (),
    }
    Ok(sent?)
}

/// Hands a frame of `length` bytes to the queue pair of a number.
pub(crate) fn receive<H: Host>(
    qps: &mut Qps<H>,
    cx: &mut Cx<'_, H>,
    receiver: u32,
    frame: &H::Packet,
    length: u32,
) {
    let qp = qps.get(receiver);
    if let Some(qp) = qp {
        cx.counters = cx.ports.of(qp.core.counted_at);
    }
    cx.counters.packets_received.count(1);
    cx.counters.bytes_received.count(length.into());
    if qp.is_none() {
        return cx.counters.unknown_queue_pairs.count(1);
    }
    let head = abi::SendWqe::default();
    let segment = RequestSegment {
        from: 0,
        pd: 0,
        opcode: WrOpcode::Send,
        head: &head,
        total: length,
        offset: 0,
        length,
        is_first: true,
        is_last: true,
        psn: 0,
        packets: 1,
        bytes: Bytes::Packet {
            packet: frame,
            start: 0,
        },
    };
    ud_receive::arrive(qps, cx, receiver, segment, None);
}
