// SPDX-License-Identifier: GPL-2.0

//! A packet that has come from the network.

use ferrule_engine::{
    host::{
        Fault,
        Host,
        PacketBytes, //
    },
    packet::{
        icrc,
        MAX_HEADERS, //
    },
    Block,
    RxPacket,
    Vport, //
};
use kernel::prelude::*;
use net_ext::{
    ip::UDP_LEN,
    skb::{
        OwnedSkBuff,
        Queue, //
    },
};

use crate::soft::memory::Registered;

/// The bytes of a packet behind its UDP header, with the headers of IP and UDP in front; or an
/// Ethernet frame.
pub(crate) struct Received(OwnedSkBuff);

impl Received {
    /// A packet of RoCEv2. Linearizes the headers, which the engine parses. `None` if it is too
    /// short, or has more in front than the two headers: options of IPv4, extensions of IPv6.
    pub(crate) fn new(mut skb: OwnedSkBuff) -> Option<Self> {
        let length = skb.len().checked_sub(icrc::LENGTH)?;
        skb.make_linear(length.min(MAX_HEADERS)).ok()?;
        let simple = matches!(
            (skb.headers().first()? >> 4, skb.headers().len()),
            (4, 28) | (6, 48)
        );
        simple.then_some(Received(skb))
    }

    /// The block of the queue pair that it is for.
    pub(crate) fn block(&self) -> Block {
        Block::of_packet(self.0.linear())
    }

    /// An Ethernet frame, from its header on, that is steered to a queue pair.
    pub(crate) fn frame(mut skb: OwnedSkBuff, qpn: u32) -> Self {
        skb.set_mark(qpn);
        Received(skb)
    }

    /// The queue pair that a frame is steered to.
    pub(crate) fn steered_to(&self) -> u32 {
        self.0.mark()
    }

    /// The bytes of a frame.
    pub(crate) fn frame_length(&self) -> u32 {
        self.0.len() as u32
    }

    /// The same packet once more. Any context; allocates without sleeping.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn try_clone(&self) -> Result<Self> {
        Ok(Received(self.0.try_clone()?))
    }

    /// The packet as the engine takes it. `None` if bytes cannot be reached.
    pub(crate) fn rx_packet<H: Host<Packet = Self>>(&self) -> Option<RxPacket<'_, H>> {
        let Received(skb) = self;
        let headers = skb.headers();
        let (ip, udp) = headers.split_at_checked(headers.len().checked_sub(UDP_LEN)?)?;
        let length = skb.len().checked_sub(icrc::LENGTH)?;
        let mut icrc = [0; icrc::LENGTH];
        skb.copy_bits(length, &mut icrc).ok()?;
        Some(RxPacket {
            ip,
            udp,
            packet: self,
            icrc,
            sl: 0,
            vport: Vport::default(),
        })
    }
}

/// How many packets wait for the owner of the shard at most. A batch of a fast device is 64.
const WAITING: usize = 1024;

/// The packets that wait for the owner of the shard, first in, first out.
#[pin_data]
pub(crate) struct Inbox {
    #[pin]
    queue: Queue,
}

impl Inbox {
    /// An empty one.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self { queue <- Queue::new() })
    }

    /// Whether nothing waits at the moment. Any context.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.len() == 0
    }

    /// Adds a packet, and returns whether there was space for it. Any context.
    #[inline]
    pub(crate) fn push(&self, packet: Received) -> bool {
        self.queue.push(packet.0, WAITING).is_ok()
    }

    /// Takes the oldest packet. Any context.
    #[inline]
    pub(crate) fn pop(&self) -> Option<Received> {
        self.queue.pop().map(Received)
    }
}

impl PacketBytes<Registered> for Received {
    #[inline]
    fn headers(&self) -> &[u8] {
        self.0.linear()
    }

    #[inline]
    fn length(&self) -> usize {
        self.0.len().saturating_sub(icrc::LENGTH)
    }

    #[inline]
    fn crc32(&self, crc: u32, offset: usize, length: usize) -> Result<u32, Fault> {
        self.0.crc32(crc, offset, length).map_err(|_| Fault)
    }

    #[inline]
    fn copy(
        &self,
        offset: usize,
        to: &Registered,
        to_offset: u64,
        length: usize,
    ) -> Result<(), Fault> {
        to.write_packet(to_offset, &self.0, offset, length)
    }

    fn vlan(&self) -> u16 {
        self.0.mark() as u16
    }
}
