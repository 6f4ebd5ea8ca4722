// SPDX-License-Identifier: GPL-2.0

//! Packets on their way out: the form in which the host gets them, and the base transport header.

use crate::{
    base::{
        counters::{
            Cells,
            Count, //
        },
        event::Trace,
        host::{
            Fault,
            Host,
            Outgoing,
            Sends,
            Sink,
            Unsent, //
        },
        id::QpId,
    },
    memory::{
        copy,
        key::Keys,
        sgl::Side, //
    },
    packet::{
        self,
        icrc,
        Bth,
        Headers, //
    },
    queue_pair::{
        cx::Cx,
        qp_core::QpCore, //
    },
};

/// A packet that a queue pair sends.
pub(crate) struct TxPacket<'a, H: Host> {
    pub(super) headers: Headers,
    pub(super) payload: Side<'a, H>,
    pub(super) length: u32,
    pub(super) keys: &'a Keys<H>,
    /// The buffer of the queue pair that sends it.
    pub(super) queue: &'a H::Queue,
    pub(super) kind: Sends,
    /// 0, and once the packet has been written, its bytes from the IP header on.
    pub(super) written: usize,
    /// `false`, and `true` once the payload was found not to be in memory.
    pub(super) is_absent: bool,
}

impl<'a, H: Host> Outgoing<'a, H> for TxPacket<'a, H> {
    fn queue(&self) -> &'a H::Queue {
        self.queue
    }

    fn kind(&self) -> Sends {
        self.kind
    }

    fn length(&self) -> usize {
        (self.length as usize)
            .wrapping_add(self.headers.as_bytes().len())
            .wrapping_add(usize::from(packet::pad(self.length)))
            .wrapping_add(icrc::LENGTH)
    }

    #[inline]
    fn write(&mut self, ip: &[u8], udp: &[u8], to: &mut impl Sink<H::Region>) -> Result<(), Fault> {
        to.put(self.headers.as_bytes())?;
        copy::gather(
            self.keys,
            &mut self.payload,
            to,
            self.length,
            &mut self.is_absent,
        )?;
        let pad = usize::from(packet::pad(self.length));
        if pad != 0 {
            to.put([0; 3].get(..pad).ok_or(Fault)?)?;
        }
        let crc = icrc::icrc(H::crc32, ip, udp, to.bytes()).ok_or(Fault)?;
        to.put(&crc)?;
        let network = ip.len().wrapping_add(udp.len());
        self.written = network.wrapping_add(self.length());
        Ok(())
    }
}

impl<H: Host> TxPacket<'_, H> {
    /// Hands the packet to the host.
    ///
    /// `from`: the queue pair that sends it.
    pub(super) fn send(
        mut self,
        from: QpId,
        host: &mut H,
        counters: &Cells,
        route: Option<&mut H::Route>,
    ) -> Result<(), Unsent> {
        // Without a route there is no way to anybody, and the packet is lost.
        let Some(route) = route else {
            return Ok(());
        };
        let sent = host.transmit(route, &mut self);
        match sent {
            Ok(()) => {
                counters.packets_sent.count(1);
                counters.bytes_sent.count(self.written as u64);
                host.trace(&Trace::PacketSent {
                    qpn: from.qpn(),
                    bth: self.headers.bth(),
                    length: self.length,
                });
            }
            Err(Unsent::Full) => counters.send_waits.count(1),
            Err(Unsent::Fault) if self.is_absent => return Err(Unsent::Absent),
            Err(_) => (),
        }
        sent
    }
}

/// Hands a packet of a queue pair to the host.
pub(super) fn transmit<H: Host>(
    cx: &mut Cx<'_, H>,
    core: &QpCore<H>,
    kind: Sends,
    route: &mut Option<H::Route>,
    headers: Headers,
    payload: Side<'_, H>,
    length: u32,
) -> Result<(), Unsent> {
    let packet = TxPacket {
        headers,
        payload,
        length,
        keys: cx.keys,
        queue: &core.init.queue,
        kind,
        written: 0,
        is_absent: false,
    };
    packet.send(core.id, cx.host, cx.counters, route.as_mut())
}

/// The base transport header of a packet to the peer, without payload, by the opcode that it has on
/// RC.
pub(super) fn bth<H: Host>(core: &QpCore<H>, opcode: u8, psn: u32) -> Bth {
    let service = core
        .init
        .qp_type
        .service()
        .map_or(0, |service| service as u8);
    Bth::to(core.attr.dest_qpn, opcode | service, psn)
}
