// SPDX-License-Identifier: GPL-2.0

//! The way to a peer: the headers of its packets, prepared, and the route that they take.

use core::net::{
    IpAddr,
    Ipv6Addr, //
};

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::error::code::ENETUNREACH;
use net_ext::{
    ip::{
        Addresses,
        UdpHeaders,
        MAX_LEN,
        UDP_LEN, //
    },
    route::Route,
    skb::{
        Appender,
        NewSkBuff,
        PacketList, //
    }, //
};
use rdma::{
    AhAttr,
    Gid,
    GidAttr, //
};

use super::{
    gso::{
        self,
        Pending, //
    },
    ports::{
        Ports,
        PORT, //
    },
    sender::Sender, //
};

/// The hop limit for those who have named none: that of other sockets.
const HOP_LIMIT: u8 = 64;

/// The way to a peer.
pub(crate) struct UdpPath {
    ports: Arc<Ports>,
    headers: UdpHeaders,
    /// The network device that has the own address, which may be the device of a VLAN.
    interface: u32,
    /// By this the device of a VLAN chooses the priority in the tag.
    priority: u32,
    /// As it was found last; the network may have changed since. It keeps no device from going.
    route: Option<Route>,
    /// Packets may leave in lists.
    with_gso: bool,
}

/// The address that a GID stands for (IBA volume 1, A17.4.5.1).
pub(super) fn address(gid: &Gid) -> IpAddr {
    match gid.to_ipv4() {
        Some(v4) => IpAddr::V4(v4.into()),
        None => IpAddr::V6(Ipv6Addr::from(gid.0)),
    }
}

/// The port to send from. A flow label that differs from connection to connection lets the network
/// spread them (IBA volume 1, A17.9.3); where the peers have agreed on none, their numbers make up
/// one that is the same at both ends. All of Linux's drivers compute it in this way.
fn source_port(flow_label: u32, qpn: u32, peer: u32) -> u16 {
    let label = match flow_label {
        0 => {
            let product = u64::from(qpn) * u64::from(peer);
            (product ^ product >> 20 ^ product >> 40) as u32
        }
        label => label,
    } & 0xf_ffff;
    0xc000 | (label ^ label >> 14) as u16 & 0x3fff
}

/// The priority of packets with a service level. Ethernet has eight; a program has the others from
/// a completion that told it by them of the kind of packet, as `ibv_init_ah_from_wc` copies them,
/// and asks for no priority.
fn priority(sl: u8) -> u32 {
    match sl {
        0..=7 => sl.into(),
        _ => 0,
    }
}

impl UdpPath {
    /// The way along an address vector, from one of the own addresses. The route is found at once.
    /// Process context.
    ///
    /// # Errors
    ///
    /// Those of [`UdpPath::without_route`].
    pub(crate) fn new(
        ports: &Arc<Ports>,
        av: &AhAttr,
        sgid: &GidAttr,
        qpn: u32,
        peer: u32,
    ) -> Result<Self> {
        let mut path = Self::without_route(ports, av, sgid, qpn, peer)?;
        // The first packet then has a route. There may be none as yet; then packets are lost, as
        // they may be anywhere on their way.
        let UdpPath {
            ports,
            headers,
            interface,
            route,
            ..
        } = &mut path;
        let _ = current(route, ports, headers, *interface);
        Ok(path)
    }

    /// The way along an address vector, from one of the own addresses. The route is found when the
    /// first packet is sent. Any context.
    ///
    /// `qpn` and `peer` are the numbers of the queue pairs at both ends, 0 where they are not
    /// known.
    ///
    /// # Errors
    ///
    /// - `EINVAL` if the addresses are of two families.
    /// - `ENODEV` if the device with the own address has gone, or is down, or is in another network
    ///   namespace than the port: so may be a device that is stacked on ours, such as one of a
    ///   macvlan.
    pub(crate) fn without_route(
        ports: &Arc<Ports>,
        av: &AhAttr,
        sgid: &GidAttr,
        qpn: u32,
        peer: u32,
    ) -> Result<Self> {
        let addresses = Addresses::new(address(&sgid.gid()), address(&av.dgid)).ok_or(EINVAL)?;
        let netdev = sgid.netdev().ok_or(ENODEV)?;
        let here = ports.with_port(addresses.is_ipv6(), |port| port.namespace().ok_or(ENODEV))?;
        if *netdev.namespace().ok_or(ENODEV)? != *here {
            return Err(ENODEV);
        }
        Ok(UdpPath {
            ports: ports.clone(),
            headers: UdpHeaders {
                addresses,
                traffic_class: av.traffic_class,
                hop_limit: match av.hop_limit {
                    0 => HOP_LIMIT,
                    limit => limit,
                },
                flow_label: if addresses.is_ipv6() {
                    av.flow_label & 0xf_ffff
                } else {
                    0
                },
                source_port: source_port(av.flow_label, qpn, peer),
                destination_port: PORT,
            },
            interface: netdev.ifindex(),
            priority: priority(av.sl),
            route: None,
            with_gso: false,
        })
    }

    /// The same way, by which packets may leave in lists. To a group they go one by one: the
    /// network layer copies each for the members on this machine.
    pub(crate) fn with_gso(self) -> Self {
        UdpPath {
            with_gso: !self.headers.addresses.destination().is_multicast(),
            ..self
        }
    }

    /// The same way, for packets that are marked where they meet congestion instead of dropped:
    /// ECT(0) of RFC 3168, whatever the traffic class said of that. It is for senders that send
    /// less when they hear of marks, and the engine's reliable connections do.
    pub(crate) fn with_ecn(mut self) -> Self {
        const ECN: u8 = 3;
        const ECT_0: u8 = 2;

        self.headers.traffic_class = self.headers.traffic_class & !ECN | ECT_0;
        self
    }

    /// The same way, without a route. Any context.
    pub(crate) fn clone_without_route(&self) -> Self {
        UdpPath {
            ports: self.ports.clone(),
            headers: self.headers,
            interface: self.interface,
            priority: self.priority,
            route: None,
            with_gso: self.with_gso,
        }
    }

    /// Whether packets come back to this machine by the loopback device, as far as is known.
    #[inline]
    pub(crate) fn is_loopback(&self) -> bool {
        self.route.as_ref().is_some_and(Route::is_loopback)
    }

    /// Sends a packet with `length` bytes behind the UDP header. `fill` gets the IP header, the UDP
    /// header, both as they are on the wire but for the checksum of IPv4, and the packet, to which
    /// it adds those bytes.
    ///
    /// It may be left to `pending`, for packets that follow to go with it; losses are counted there
    /// then. Until it is gone, it is charged to `sender`. Any context; nothing waits.
    ///
    /// # Errors
    ///
    /// - `ENOBUFS` if the queue of a device is full, `ENOMEM`: try again later.
    /// - `EMSGSIZE` if the packet is longer than the way allows.
    /// - `ENODEV` if the namespace has come to its end.
    /// - `EINVAL` if `fill` adds fewer bytes.
    /// - Those of [`Route::find`] and of `fill`, and what filters say.
    #[inline]
    pub(crate) fn send<E: From<Error>>(
        &mut self,
        pending: &mut Pending,
        sender: &Sender,
        length: usize,
        fill: impl FnOnce(&[u8], &[u8], &mut Appender<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let UdpPath {
            ports,
            headers,
            interface,
            priority,
            route,
            with_gso,
        } = self;
        ports.with_port(headers.addresses.is_ipv6(), |port| {
            let route = current(route, ports, headers, *interface)?;
            let total = headers.len() + length;
            if total > route.mtu() {
                return Err(EMSGSIZE.into());
            }
            let in_list = *with_gso && length >= gso::WORTHY;
            let headroom = if in_list {
                route.headroom().max(PacketList::HEADROOM)
            } else {
                route.headroom()
            };
            let mut packet = NewSkBuff::new(headroom, total)?;
            packet.append_with(total, |to| {
                let mut front = [0; MAX_LEN];
                let (front, _) = front.split_at_mut(headers.len());
                headers.write(length, front)?;
                to.append(front)?;
                let (ip, udp) = front.split_at(headers.len() - UDP_LEN);
                fill(ip, udp, to)
            })?;
            if packet.len() != total {
                return Err(EINVAL.into());
            }
            let packet = if in_list {
                match pending.add(ports, sender, headers, *priority, route, packet) {
                    Ok(()) => return Ok(()),
                    Err(packet) => packet,
                }
            } else {
                pending.flush();
                packet
            };
            let sent = port.send(packet, route, *priority, sender.charged());
            sender.sent();
            Ok(sent?)
        })
    }
}

/// The route, which is found anew if that of the last time is no longer current.
///
/// There is none in a namespace that has begun to end: nobody would take the route back in time,
/// and the devices of the namespace would wait for it.
fn current<'a>(
    route: &'a mut Option<Route>,
    ports: &Ports,
    headers: &UdpHeaders,
    interface: u32,
) -> Result<&'a Route> {
    if !route.as_ref().is_some_and(Route::is_current) {
        *route = None;
        *route = Some(Route::find(&ports.lease()?, headers, interface)?);
    }
    route.as_ref().ok_or(ENETUNREACH)
}
