// SPDX-License-Identifier: GPL-2.0

//! Packets that leave together.
//!
//! The packets of a long message have one size and one way. Put into a list, they pass the routing,
//! the filters and the queueing discipline once, and the device's driver gets them in one go, with
//! one doorbell for all of them. Each has its own headers and its own invariant CRC, so nothing has
//! to be written when the list is cut. This is what Linux does with packets that GRO has put
//! together. [`Route::takes_lists`] tells on which routes no filter and no capture sees a
//! difference.
//!
//! A list waits only as long as packets of its kind follow at once: whatever does not fit into it
//! lets it leave first, so packets keep their order, and so does the end of the call into the
//! engine. An error of the network then comes too late for the engine, which takes it for a loss.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use net_ext::{
    ip::UdpHeaders,
    route::Route,
    skb::{
        NewSkBuff,
        PacketList, //
    },
};

use super::{
    ports::Ports,
    sender::{
        Charge,
        Sender, //
    }, //
};

/// Packets with less behind the UDP header are in no list: acknowledgements and requests, which
/// come one at a time and are waited for, and what is left of a message.
pub(super) const WORTHY: usize = 1024;

/// Packets of one queue pair and one way.
struct List {
    ports: Arc<Ports>,
    charge: Charge,
    headers: UdpHeaders,
    priority: u32,
    route: Route,
    packets: PacketList,
}

/// The packets that have not left yet.
#[derive(Default)]
pub(crate) struct Pending {
    list: Option<List>,
    /// How many lists of more than one packet have left.
    lists: u32,
    /// Packets that were lost on the way to the network device, after they had been taken.
    lost: u32,
}

impl Pending {
    /// Takes a packet along if it goes where those go that wait. If not, lets those leave, and has
    /// this one be the first of others that wait, if any may follow. Else it is given back, to
    /// leave at once.
    #[inline]
    pub(super) fn add(
        &mut self,
        ports: &Arc<Ports>,
        sender: &Sender,
        headers: &UdpHeaders,
        priority: u32,
        route: &Route,
        packet: NewSkBuff,
    ) -> Result<(), NewSkBuff> {
        let packet = match &mut self.list {
            Some(list) if list.goes(sender, headers, priority, route) => {
                match list.packets.push(packet) {
                    Ok(()) => {
                        if list.packets.is_full() {
                            self.flush();
                        }
                        return Ok(());
                    }
                    Err(packet) => packet,
                }
            }
            _ => packet,
        };
        self.flush();
        if !route.takes_lists() {
            return Err(packet);
        }
        self.list = Some(List {
            ports: ports.clone(),
            charge: sender.for_later(),
            headers: *headers,
            priority,
            route: route.clone(),
            packets: PacketList::new(packet)?,
        });
        Ok(())
    }

    /// Lets them leave. Not inlined: each verb that has had the shard ends with this, and its frame
    /// would have all that a list takes.
    #[inline(never)]
    pub(crate) fn flush(&mut self) {
        if let Some(list) = self.list.take() {
            self.lists = self.lists.wrapping_add((list.packets.count() > 1).into());
            self.lost = self.lost.wrapping_add(list.flush());
        }
    }

    /// How many lists of more than one packet have left.
    pub(crate) fn lists(&self) -> u32 {
        self.lists
    }

    /// How many packets were lost after they had been taken.
    pub(crate) fn lost(&self) -> u32 {
        self.lost
    }
}

impl List {
    /// Whether such a packet is of the same queue pair and goes the same way. Two devices may have
    /// the same addresses at both ends, as a VLAN's and the one below have by their link-local
    /// ones, so headers do not tell all of it.
    #[inline]
    fn goes(&self, sender: &Sender, headers: &UdpHeaders, priority: u32, route: &Route) -> bool {
        self.charge.is_of(sender)
            && self.headers == *headers
            && self.priority == priority
            && self.route.is_same(route)
    }

    /// Returns how many packets were lost. If it is refused, that is said to be all of them, though
    /// some may have left where a device without a queue has refused the others.
    fn flush(self) -> u32 {
        let List {
            ports,
            charge,
            headers,
            priority,
            route,
            packets,
        } = self;
        let count = packets.count() as u32;
        let sent = ports.with_port(headers.addresses.is_ipv6(), |port| {
            port.send_list(packets, &route, priority, charge.charged())
        });
        charge.sent();
        if sent.is_ok() {
            0
        } else {
            count
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.flush();
    }
}
