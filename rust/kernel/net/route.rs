// SPDX-License-Identifier: GPL-2.0

//! Routes.
//!
//! C headers: `include/net/dst.h`, `include/net/route.h`, `include/net/ip6_route.h`.

use core::{
    net::{
        IpAddr,
        Ipv4Addr,
        Ipv6Addr, //
    },
    ptr::NonNull,
};

use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    prelude::*,
    sync::{
        aref::ARef,
        rcu, //
    },
};
use kernel_ext::error::code::ENETUNREACH;

use crate::{
    bindings,
    device::{
        NetDevice,
        ETH_ALEN, //
    },
    ip::UdpHeaders,
    pernet::Lease, //
};

/// The way that packets to a destination take: a `struct dst_entry` with what tells whether it is
/// still the way.
///
/// A route is found once and used for many packets. When routes, addresses or devices change, it is
/// no longer current; it does no harm then, and keeps no device from going, but packets are not
/// sent by it any more. The end of its namespace, whose tables count it, waits for it.
///
/// # Examples
///
/// ```
/// use kernel::prelude::*;
/// use net_ext::{ip::UdpHeaders, pernet::Lease, route::Route};
///
/// /// Keeps a route as long as it is current.
/// fn route<'a>(net: &Lease, headers: &UdpHeaders, kept: &'a mut Option<Route>) -> Result<&'a Route> {
///     if !kept.as_ref().is_some_and(Route::is_current) {
///         *kept = Some(Route::find(net, headers, 0)?);
///     }
///     kept.as_ref().ok_or(ENETUNREACH)
/// }
/// ```
///
/// # Invariants
///
/// `dst` is valid, and we own a reference to it. It is one of IPv6 exactly if `ipv6` says so, and
/// `cookie` is what it was found with. It is of the namespace of `lease`.
pub struct Route {
    dst: NonNull<bindings::dst_entry>,
    cookie: u32,
    ipv6: bool,
    source: IpAddr,
    is_loopback: bool,
    /// Dropped after the reference.
    lease: Lease,
}

// SAFETY: References may be given back by any thread.
unsafe impl Send for Route {}

// SAFETY: All methods read what the stack changes in a way that readers need not be locked out.
unsafe impl Sync for Route {}

impl Route {
    /// Finds the way for packets with such headers, by the device with the index `interface` unless
    /// that is 0. Any context; may allocate.
    ///
    /// # Errors
    ///
    /// The errors of the stack, among others:
    /// - `ENETUNREACH`, `EHOSTUNREACH`, `EACCES`: there is no way;
    /// - `EINVAL`, `EADDRNOTAVAIL`: the source is no address of this namespace;
    /// - `ENODEV`: there is no such device, or it is down;
    /// - `EAFNOSUPPORT`: the kernel has no IPv6.
    pub fn find(net: &Lease, headers: &UdpHeaders, interface: u32) -> Result<Self> {
        let interface = c_int::try_from(interface).map_err(|_| ENODEV)?;
        let (sport, dport) = (
            headers.source_port.to_be(),
            headers.destination_port.to_be(),
        );
        let mut cookie = 0;
        let (dst, source) = match (headers.addresses.source(), headers.addresses.destination()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut source = u32::from_ne_bytes(source.octets());
                // SAFETY: The namespace is valid.
                let dst = unsafe {
                    bindings::route4(
                        net.as_raw(),
                        &mut source,
                        u32::from_ne_bytes(destination.octets()),
                        interface,
                        headers.traffic_class,
                        sport,
                        dport,
                    )
                };
                (dst, IpAddr::V4(Ipv4Addr::from(source.to_ne_bytes())))
            }
            (IpAddr::V6(mut source), IpAddr::V6(destination)) => {
                // SAFETY: The namespace is valid. Addresses are 16 bytes, and the C type's need for
                // alignment is met below.
                let dst = unsafe {
                    let mut raw_source = in6_addr(&source);
                    let dst = bindings::route6(
                        net.as_raw(),
                        &mut raw_source,
                        &in6_addr(&destination),
                        interface,
                        headers.traffic_class,
                        headers.flow_label & 0xf_ffff,
                        sport,
                        dport,
                        &mut cookie,
                    );
                    source = from_in6_addr(&raw_source);
                    dst
                };
                (dst, IpAddr::V6(source))
            }
            // The two are of one family.
            _ => return Err(EINVAL),
        };
        let dst = NonNull::new(from_err_ptr(dst)?).ok_or(ENETUNREACH)?;
        // INVARIANT: The function has returned a route with a reference, and its cookie.
        let mut route = Route {
            dst,
            cookie,
            ipv6: headers.addresses.is_ipv6(),
            source,
            is_loopback: false,
            lease: net.clone(),
        };
        route.is_loopback = route.device().is_loopback();
        Ok(route)
    }

    /// Whether it is still the way. Any context.
    #[inline]
    pub fn is_current(&self) -> bool {
        let _rcu = rcu::read_lock();
        // SAFETY: By the type invariants.
        unsafe { bindings::dst_is_current(self.dst.as_ptr(), self.cookie) }
    }

    /// The address to send from: that of the headers, or one that suits if that was unspecified.
    pub fn source(&self) -> IpAddr {
        self.source
    }

    /// Whether it ends on this machine, by the loopback device. Any context.
    #[inline]
    pub fn is_loopback(&self) -> bool {
        self.is_loopback
    }

    /// The largest packet that passes, with its IP header, as far as is known. Any context.
    pub fn mtu(&self) -> usize {
        let _rcu = rcu::read_lock();
        // SAFETY: By the type invariants.
        unsafe { bindings::dst_mtu(self.dst.as_ptr()) as usize }
    }

    /// The bytes that a packet needs in front of its IP header, for the link. Any context.
    pub fn headroom(&self) -> usize {
        // SAFETY: By the type invariants.
        unsafe { bindings::dst_headroom(self.dst.as_ptr()) as usize }
    }

    /// Whether a [`PacketList`](crate::skb::PacketList) may go this way: it is cut before the
    /// driver of the device has it, or by the receiving socket behind a veth, and nothing is set up
    /// before that which may want to see, drop or change each packet by itself: no filter, no
    /// queueing discipline but the one that devices begin with, no capture of the veth, no tunnel.
    /// Any context.
    ///
    /// One that goes another way is delivered, too, but a filter that changes its headers changes
    /// those of the first packet alone.
    pub fn takes_lists(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::dst_takes_lists(self.dst.as_ptr(), self.ipv6) }
    }

    /// Whether both are the same, by which packets with the same headers take the same way. Any
    /// context.
    #[inline]
    pub fn is_same(&self, other: &Route) -> bool {
        self.dst == other.dst && self.cookie == other.cookie
    }

    /// The device that packets leave by. Any context.
    ///
    /// It is some stand-in if the device has gone.
    pub fn device(&self) -> ARef<NetDevice> {
        let _rcu = rcu::read_lock();
        // SAFETY: By the type invariants; RCU keeps the device until there is a reference.
        unsafe { NetDevice::from_raw(bindings::dst_dev_rcu(self.dst.as_ptr())) }.hold()
    }

    /// The Ethernet address of the next hop towards `destination`, which is that of the route. Any
    /// context.
    ///
    /// # Errors
    ///
    /// - `EAGAIN`: it is not known yet; the network has been asked.
    /// - `EHOSTUNREACH`: nobody has answered.
    /// - `EOPNOTSUPP`: the link has addresses of another kind.
    /// - `EINVAL`: `destination` is of another family.
    pub fn resolve(&self, destination: IpAddr) -> Result<[u8; ETH_ALEN]> {
        let mut address = [0; ETH_ALEN];
        let mut octets = [0; 16];
        match destination {
            IpAddr::V4(v4) if !self.ipv6 => octets[..4].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) if self.ipv6 => octets = v6.octets(),
            _ => return Err(EINVAL),
        }
        let _rcu = rcu::read_lock();
        // SAFETY: By the type invariants; the destination is of the family, and of 4 or 16 bytes.
        // An Ethernet address has the length of `address`.
        to_result(unsafe {
            bindings::dst_resolve(
                self.dst.as_ptr(),
                octets.as_ptr().cast(),
                address.as_mut_ptr(),
            )
        })?;
        Ok(address)
    }

    /// The C object, its cookie, and whether it is one of IPv6.
    #[inline]
    pub(crate) fn raw(&self) -> (*mut bindings::dst_entry, u32, bool) {
        (self.dst.as_ptr(), self.cookie, self.ipv6)
    }
}

fn in6_addr(address: &Ipv6Addr) -> bindings::in6_addr {
    // SAFETY: `struct in6_addr` is 16 bytes in network order, whatever they are.
    unsafe { core::mem::transmute(address.octets()) }
}

pub(crate) fn from_in6_addr(raw: &bindings::in6_addr) -> Ipv6Addr {
    // SAFETY: `struct in6_addr` is 16 bytes, whatever they are, and bytes have no alignment.
    unsafe { *(&raw const *raw).cast::<[u8; 16]>() }.into()
}

impl Clone for Route {
    fn clone(&self) -> Self {
        // SAFETY: By the type invariants, there is a reference, so there may be another.
        unsafe { bindings::dst_hold(self.dst.as_ptr()) };
        // INVARIANT: As just done.
        Route {
            lease: self.lease.clone(),
            ..*self
        }
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, we own a reference, which is given up.
        unsafe { bindings::dst_release(self.dst.as_ptr()) };
    }
}
