// SPDX-License-Identifier: GPL-2.0

//! Packets on their way out: the route of a queue pair's, and the frame that one is written into.

use ferrule_engine::packet::ip::is_multicast;
use ferrule_engine::{Fault, Host, Outgoing, Path, Sink, Unsent};
use rustix::io::Errno;

use crate::frame::{self, Frame, Mac, HEADER};
use crate::region::Region;
use crate::roce::headers::{self, Headers, Way};
use crate::wire::Wire;

/// The way of a guest's packets to a peer elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    /// The guest's port.
    port: usize,
    headers: Headers,
}

impl Route {
    /// The way along a path, from the guest of a port, whose Ethernet address is `source`. `qpn`
    /// and `peer` are the numbers of the queue pairs at both ends, 0 where they are not known.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the addresses are of two families, or the next hop's is none.
    pub(crate) fn new(
        port: usize,
        source: Mac,
        path: &Path,
        (qpn, peer): (u32, u32),
    ) -> Result<Self, Errno> {
        let way = Way {
            source,
            destination: path.dmac,
            sgid: path.sgid,
            dgid: path.dgid,
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
            flow_label: path.flow_label,
        };
        let is_group = frame::is_group(&path.dmac);
        if path.dmac == Mac::default() || is_group != is_multicast(&path.dgid) {
            return Err(Errno::INVAL);
        }
        let headers = Headers::new(&way, qpn, peer).ok_or(Errno::INVAL)?;
        Ok(Self { port, headers })
    }

    /// The same way, for senders that send less when they hear of marks; the engine's reliable
    /// connections do.
    #[must_use]
    pub(crate) fn with_ecn(self) -> Self {
        Self {
            headers: self.headers.with_ecn(),
            ..self
        }
    }

    /// Sends a packet. The one copy of its payload is from the guest's memory into the frame.
    ///
    /// # Errors
    ///
    /// - [`Unsent::Busy`] while the queue of the port that it leaves by is full.
    /// - [`Unsent::Fault`] if its payload cannot be read.
    pub(crate) fn send<'a, H: Host<Region = Region>>(
        &self,
        wire: &Wire,
        packet: &mut impl Outgoing<'a, H>,
    ) -> Result<(), Unsent> {
        if !wire.accepts(self.port, self.headers.destination()) {
            return Err(Unsent::Busy);
        }
        let length = packet.length();
        let mut bytes = Vec::with_capacity(headers::MOST.saturating_add(length));
        // No packet is longer than IP allows.
        let Some(places) = self.headers.write(length, &mut bytes) else {
            return Ok(());
        };
        let mut front = [0; headers::MOST];
        if let Some(to) = front.get_mut(..bytes.len()) {
            to.copy_from_slice(&bytes);
        }
        let ip = front.get(HEADER..places.udp).unwrap_or_default();
        let udp = front.get(places.udp..places.packet).unwrap_or_default();
        let mut body = Body {
            frame: &mut bytes,
            front: places.packet,
        };
        packet
            .write(ip, udp, &mut body)
            .map_err(|Fault| Unsent::Fault)?;
        if let Some(frame) = Frame::new(bytes) {
            wire.send(self.port, &frame);
        }
        Ok(())
    }
}

/// The bytes behind the UDP header of a frame that is being made.
struct Body<'a> {
    frame: &'a mut Vec<u8>,
    /// The bytes in front of them.
    front: usize,
}

impl Sink<Region> for Body<'_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.frame.extend_from_slice(bytes);
        Ok(())
    }

    #[inline]
    fn put_memory(&mut self, from: &Region, offset: u64, length: usize) -> Result<(), Fault> {
        let before = self.frame.len();
        self.frame.resize(before.saturating_add(length), 0);
        let to = self.frame.get_mut(before..).unwrap_or_default();
        from.read(offset, to)
            .inspect_err(|Fault| self.frame.truncate(before))
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        self.frame.get(self.front..).unwrap_or_default()
    }
}
