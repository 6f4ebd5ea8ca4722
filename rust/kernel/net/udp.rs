// SPDX-License-Identifier: GPL-2.0

//! UDP ports of protocols in the kernel.
//!
//! C headers: `include/net/udp_tunnel.h`, `include/net/udp.h`.

use core::{
    marker::PhantomData,
    ops::Deref,
    ptr::NonNull, //
};

use kernel::{
    error::to_result,
    prelude::*,
    sync::Arc,
    types::{
        ForeignOwnable,
        Opaque, //
    },
};

use crate::{
    account::Charged,
    bindings,
    ip::{
        UdpHeaders,
        UDP_LEN, //
    },
    pernet::Lease,
    route::Route,
    skb::{
        NewSkBuff,
        OwnedSkBuff,
        PacketList, //
    },
    HeldNamespace,
    Namespace,
    NetDevice, //
};

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// A packet that was received.
///
/// The stack has found its lengths and checksums right. The checksum of UDP may have been missing.
pub struct Packet<'a> {
    /// The payload of UDP; the headers are in front
    /// ([`SkBuff::headers`](crate::skb::SkBuff::headers)).
    pub skb: OwnedSkBuff,
    /// The fields of the headers.
    pub headers: UdpHeaders,
    /// The device that it was received by: of packets in a VLAN, the VLAN's; of packets to a member
    /// of a bond, the bond's.
    pub device: &'a NetDevice,
}

/// A port to send from.
///
/// # Invariants
///
/// It is the socket of a [`UdpSocket`], which lives while this is borrowed.
#[repr(transparent)]
pub struct Port(Opaque<bindings::sock>);

// SAFETY: Sending takes no more than a shared reference in C.
unsafe impl Sync for Port {}

impl Port {
    /// # Safety
    ///
    /// `sk` is the socket of a `UdpSocket`, and is valid for the lifetime `'a`.
    #[inline]
    unsafe fn from_raw<'a>(sk: *mut bindings::sock) -> &'a Self {
        // SAFETY: By the requirements of this function; the type is transparent over `Opaque`.
        unsafe { &*sk.cast() }
    }

    /// The namespace that the port is of, unless that one is on its way out. Any context.
    #[inline]
    pub fn namespace(&self) -> Option<HeldNamespace> {
        // SAFETY: The socket is valid by the type invariants, and so is its namespace, for which it
        // has a lease.
        unsafe { Namespace::from_raw(bindings::sock_net(self.0.get())) }.try_hold()
    }

    /// The socket of the port, to charge packets to that nobody else is charged for.
    #[inline]
    pub fn charged(&self) -> &Charged {
        // SAFETY: By the type invariants, the socket is valid as long as `self` is.
        unsafe { Charged::from_raw(self.0.get()) }
    }

    /// Sends a packet, which begins with its IP header, by a route. Any context; RCU need not be
    /// locked. See [`UdpHeaders::write`] for the headers. Until it is gone, its memory is charged
    /// to `charged`.
    ///
    /// The stack fills in the length of the packet as it is, and the checksum of an IPv4 header; it
    /// sends as for any socket, through filters and the queueing discipline of the device.
    /// `priority` is what those go by; the device of a VLAN makes the priority in the packet's tag
    /// of it.
    ///
    /// # Errors
    ///
    /// The result tells the packet's fate as far as it is known at once; it may be lost later.
    ///
    /// - `ESTALE`: the route is no longer current; find another.
    /// - `EINVAL`: the packet does not begin with a header of the route's family.
    /// - `EMSGSIZE`: it is longer than the route's MTU.
    /// - `ENOBUFS`: the device's queue is full.
    /// - What a filter says, `EPERM` as a rule.
    #[inline]
    pub fn send(
        &self,
        packet: NewSkBuff,
        route: &Route,
        priority: u32,
        charged: &Charged,
    ) -> Result {
        self.transmit(packet.into(), route, priority, charged)
    }

    /// Sends several packets as one, as [`send`](Self::send) does one. Any context. See
    /// [`Route::takes_lists`] for where that does no harm.
    ///
    /// # Errors
    ///
    /// Those of [`send`](Self::send), for all of the list; of which some may have left all the
    /// same, if the device has no queue.
    #[inline]
    pub fn send_list(
        &self,
        list: PacketList,
        route: &Route,
        priority: u32,
        charged: &Charged,
    ) -> Result {
        self.transmit(list.into_head(), route, priority, charged)
    }

    #[inline]
    fn transmit(
        &self,
        packet: OwnedSkBuff,
        route: &Route,
        priority: u32,
        charged: &Charged,
    ) -> Result {
        let (dst, cookie, ipv6) = route.raw();
        let header = packet.linear();
        // The version, and for IPv4 the length of the header: no options.
        let (len, right) = match header.first() {
            Some(first) if ipv6 => (40, first >> 4 == 6),
            Some(first) => (20, *first == 0x45),
            None => (0, false),
        };
        if !right || header.len() < len + UDP_LEN {
            return Err(EINVAL);
        }
        let skb = packet.into_raw();
        let (from, charged) = (self.0.get(), charged.as_raw());
        // SAFETY: The buffer is ours alone and is given up; it begins with a header as it should.
        // Both sockets and the route are valid by their invariants.
        to_result(unsafe {
            bindings::ip_xmit(skb.as_ptr(), from, charged, dst, cookie, ipv6, priority)
        })
    }
}

/// The receiver of the packets of a port.
pub trait Receive: Send + Sync + 'static {
    /// A packet has come. Softirq context; RCU is read-locked. Several processors may call at once.
    ///
    /// The packet may be kept, the device may not. An answer may be sent at once, from `port`.
    fn receive(&self, port: &Port, packet: Packet<'_>);
}

/// A port of a namespace, by one version of IP, at all addresses.
///
/// Dropping it waits until nobody receives from the port any more (for a grace period of RCU), and
/// frees it; process context. Packets that were sent may still be on their way: no code of ours is
/// reached from them. The namespace is not held, and its end waits for the socket: keep it in
/// [`pernet`](crate::pernet) data.
///
/// # Examples
///
/// ```
/// use kernel::{prelude::*, sync::Arc};
/// use net_ext::{pernet::Lease, udp::{Family, Packet, Port, Receive, UdpSocket}};
///
/// /// Takes packets and does nothing about them.
/// struct Sink;
///
/// impl Receive for Sink {
///     fn receive(&self, _port: &Port, _packet: Packet<'_>) {}
/// }
///
/// fn discard(lease: Lease) -> Result<UdpSocket<Sink>> {
///     UdpSocket::new(lease, Family::V4, 9, Arc::new(Sink, GFP_KERNEL)?)
/// }
/// ```
///
/// # Invariants
///
/// `sk` is the socket of the port, which we own, in the namespace of `_lease`. Its user data is
/// that of `receiver`.
pub struct UdpSocket<R: Receive> {
    sk: NonNull<bindings::sock>,
    receiver: NonNull<c_void>,
    _receiver: PhantomData<Arc<R>>,
    /// Dropped after the socket.
    _lease: Lease,
}

// SAFETY: A socket belongs to no thread, and the receiver is `Send`.
unsafe impl<R: Receive> Send for UdpSocket<R> {}

// SAFETY: By a shared reference the port alone can be reached, which is `Sync`.
unsafe impl<R: Receive> Sync for UdpSocket<R> {}

impl<R: Receive> UdpSocket<R> {
    /// Takes the port and begins to receive. Process context.
    ///
    /// Packets without a checksum are received, for IPv6, too.
    ///
    /// # Errors
    ///
    /// - `EADDRINUSE`: somebody else has the port.
    /// - `EAFNOSUPPORT`: the kernel has no IPv6, or it is disabled.
    /// - `ENOMEM`.
    pub fn new(net: Lease, family: Family, port: u16, receiver: Arc<R>) -> Result<Self> {
        // The stack keeps flags in the lowest three bits of the pointer.
        const { assert!(<Arc<R> as ForeignOwnable>::FOREIGN_ALIGN >= 8) };

        let ipv6 = family == Family::V6;
        let config = Opaque::<bindings::udp_port_cfg>::uninit();
        // SAFETY: The function initialises what it is given.
        to_result(unsafe { bindings::udp_any_port_cfg(config.get(), ipv6, port.to_be()) })?;
        let mut socket = core::ptr::null_mut();
        // SAFETY: The namespace is valid, and the description is complete.
        to_result(unsafe { bindings::udp_sock_create(net.as_raw(), config.get(), &mut socket) })?;
        // SAFETY: The function has made a socket.
        let sk = NonNull::new(unsafe { (*socket).sk }).ok_or(ENOMEM)?;

        let receiver = NonNull::new(receiver.into_foreign()).ok_or(ENOMEM)?;
        let mut config = bindings::udp_tunnel_sock_cfg {
            sk_user_data: receiver.as_ptr(),
            encap_type: 1, // any but 0; the names of the others are those of protocols
            encap_rcv: Some(Self::encap_rcv),
            ..pin_init::zeroed()
        };
        // SAFETY: Socket and namespace are valid, and the user data is what `encap_rcv` expects.
        unsafe { bindings::setup_udp_tunnel_sock(net.as_raw(), sk.as_ptr(), &mut config) };
        // INVARIANT: The socket was made in the namespace, and its user data has just been set.
        Ok(UdpSocket {
            sk,
            receiver,
            _receiver: PhantomData,
            _lease: net,
        })
    }

    /// `encap_rcv` of the socket.
    ///
    /// # Safety
    ///
    /// To be called by the stack only, for a socket of [`new`](Self::new), with a packet that it
    /// gives up, whose start is the UDP header, in one piece. RCU is read-locked.
    unsafe extern "C" fn encap_rcv(sk: *mut bindings::sock, skb: *mut bindings::sk_buff) -> c_int {
        // SAFETY: By the requirements of this function; the device is there as long as RCU is
        // locked, and detaching gives back all else that is.
        let (user_data, device, skb) = unsafe {
            let device = bindings::skb_dev(skb);
            bindings::skb_detach(skb);
            let skb = OwnedSkBuff::from_raw(NonNull::new_unchecked(skb));
            let user_data = bindings::rcu_dereference_sk_user_data(sk);
            (user_data, device, skb)
        };
        // The packets of a socket that is being released find no receiver.
        if user_data.is_null() || device.is_null() {
            return 0;
        }
        // SAFETY: The user data is a foreign `Arc<R>`, which is taken back only after a grace
        // period of RCU.
        let receiver = unsafe { <Arc<R> as ForeignOwnable>::borrow(user_data) };
        // SAFETY: RCU keeps the device.
        let device = unsafe { NetDevice::from_raw(device) };
        if let Some(packet) = Self::packet(skb, device) {
            // SAFETY: The socket is one of `new`, and the caller keeps it.
            receiver.receive(unsafe { Port::from_raw(sk) }, packet);
        }
        0
    }

    #[inline]
    fn packet(mut skb: OwnedSkBuff, device: &NetDevice) -> Option<Packet<'_>> {
        let headers = UdpHeaders::parse(skb.headers(), skb.linear())?;
        skb.pull(UDP_LEN).ok()?;
        Some(Packet {
            skb,
            headers,
            device,
        })
    }
}

impl<R: Receive> Deref for UdpSocket<R> {
    type Target = Port;

    #[inline]
    fn deref(&self) -> &Port {
        // SAFETY: By the type invariants, the socket is valid as long as `self` is.
        unsafe { Port::from_raw(self.sk.as_ptr()) }
    }
}

impl<R: Receive> Drop for UdpSocket<R> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, the socket is ours, and nobody else releases it.
        //
        // `udp_tunnel_sock_release` does not wait for receivers. One that still runs may send from
        // the socket, whose last reference the release gives up: RCU keeps its memory, but a packet
        // must not be charged to it any more. So receivers end first. All that had seen the user
        // data are gone then, and the reference that it stood for is ours again.
        unsafe {
            bindings::udp_sock_stop(self.sk.as_ptr());
            bindings::udp_tunnel_sock_release(self.sk.as_ptr());
            drop(<Arc<R> as ForeignOwnable>::from_foreign(
                self.receiver.as_ptr(),
            ));
        }
    }
}
