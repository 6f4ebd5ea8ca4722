// SPDX-License-Identifier: GPL-2.0

//! Network devices.
//!
//! C header: `include/linux/netdevice.h`.

use core::{
    net::{
        IpAddr,
        Ipv6Addr, //
    },
    ptr::{
        self,
        NonNull, //
    }, //
};

use kernel::{
    error::to_result,
    fmt,
    prelude::*,
    str::BStr,
    sync::{
        aref::{
            ARef,
            AlwaysRefCounted, //
        },
        rcu, //
    },
    types::Opaque, //
};

use crate::{
    bindings,
    HeldNamespace,
    Namespace,
    Rtnl, //
};

/// `ARPHRD_ETHER`.
const ARPHRD_ETHER: u16 = 1;

/// The length of an Ethernet address.
pub const ETH_ALEN: usize = 6;

/// The space for a name, with the end of it: `IFNAMSIZ`.
const NAME_LEN: usize = bindings::IFNAMSIZ as usize;

/// The name that a network device had.
pub struct Name([c_char; NAME_LEN]);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.split(|&byte| byte == 0).next().unwrap_or(&self.0);
        fmt::Display::fmt(BStr::from_bytes(name), f)
    }
}

/// A VLAN, of which a device of its own sends and receives the packets.
#[derive(Clone)]
pub struct Vlan {
    /// The VLAN identifier, 0 to 4094.
    pub id: u16,
    /// The device that carries the packets: never one of a VLAN.
    pub real_device: ARef<NetDevice>,
}

/// A network device: `struct net_device`.
///
/// The removal of a device waits for all references to be dropped: so a holder of one follows
/// [`notifier::DeviceEvent::Unregister`](crate::notifier::DeviceEvent::Unregister).
///
/// # Invariants
///
/// The device is a valid one, and a reference to it is held while this is borrowed.
#[repr(transparent)]
pub struct NetDevice(Opaque<bindings::net_device>);

// SAFETY: References to a network device may be counted and dropped by any thread.
unsafe impl Send for NetDevice {}

// SAFETY: All methods read what may be read at any time.
unsafe impl Sync for NetDevice {}

// SAFETY: `dev_hold` and `dev_put` count references, and a device with references is not freed.
unsafe impl AlwaysRefCounted for NetDevice {
    fn inc_ref(&self) {
        // SAFETY: `self` is valid by the type invariants.
        unsafe { bindings::dev_hold(self.as_raw()) };
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: The caller owns a reference, so the device is valid, and gives it up.
        unsafe { bindings::dev_put(obj.cast().as_ptr()) };
    }
}

impl NetDevice {
    /// Borrows a device that C code has handed in.
    ///
    /// # Safety
    ///
    /// `ptr` points to a valid device to which a reference is held for the lifetime `'a`.
    pub unsafe fn from_raw<'a>(ptr: *mut bindings::net_device) -> &'a Self {
        // SAFETY: By the requirements of this function; the type is transparent over `Opaque`.
        unsafe { &*ptr.cast() }
    }

    /// The C object.
    pub fn as_raw(&self) -> *mut bindings::net_device {
        self.0.get()
    }

    /// Takes a further reference.
    pub fn hold(&self) -> ARef<Self> {
        self.into()
    }

    /// The name as it is now, for messages: it may change at any time.
    pub fn name(&self) -> Name {
        let mut name = [0; NAME_LEN];
        // SAFETY: `self` is valid by the type invariants, and there is space for so many bytes.
        unsafe { bindings::netdev_copy_name(self.as_raw(), name.as_mut_ptr(), name.len()) };
        Name(name)
    }

    /// The largest packet in bytes, without the Ethernet header.
    pub fn mtu(&self) -> u32 {
        // SAFETY: `self` is valid by the type invariants.
        unsafe { bindings::netdev_mtu(self.as_raw()) }
    }

    /// The interface's index in its network namespace.
    pub fn ifindex(&self) -> u32 {
        // SAFETY: `self` is valid by the type invariants. An index is never negative.
        unsafe { bindings::netdev_ifindex(self.as_raw()) as u32 }
    }

    /// Whether it speaks Ethernet.
    pub fn is_ethernet(&self) -> bool {
        // SAFETY: `self` is valid by the type invariants.
        unsafe { bindings::netdev_type(self.as_raw()) == ARPHRD_ETHER }
    }

    /// Whether it is running.
    pub fn is_up(&self) -> bool {
        // SAFETY: `self` is valid by the type invariants.
        unsafe { bindings::netif_running(self.as_raw()) }
    }

    /// The Ethernet address, or zeroes if it has none.
    pub fn address(&self) -> [u8; ETH_ALEN] {
        // SAFETY: `self` is valid by the type invariants.
        let len = unsafe { bindings::netdev_addr_len(self.as_raw()) };
        if usize::from(len) != ETH_ALEN {
            return [0; ETH_ALEN];
        }
        // SAFETY: `self` is valid by the type invariants, and its address has `len` bytes. It may
        // change meanwhile: then the bytes read are some of both, which is what every reader
        // without the RTNL gets.
        unsafe {
            bindings::netdev_dev_addr(self.as_raw())
                .cast::<[u8; ETH_ALEN]>()
                .read_volatile()
        }
    }

    /// The network namespace that it is in, unless that one is on its way out. A device that moves
    /// to another namespace is unregistered first. Any context.
    pub fn namespace(&self) -> Option<HeldNamespace> {
        let _rcu = rcu::read_lock();
        // SAFETY: `self` is valid by the type invariants, and RCU keeps the namespace.
        unsafe { Namespace::from_raw(bindings::dev_net_rcu(self.as_raw())) }.try_hold()
    }

    /// Whether it is there for all, and no `Unregister` has been told of it yet. Any context.
    pub fn is_registered(&self) -> bool {
        // SAFETY: `self` is valid by the type invariants.
        unsafe { bindings::netdev_is_registered(self.as_raw()) }
    }

    /// Whether it is a loopback device. Any context.
    pub fn is_loopback(&self) -> bool {
        // SAFETY: `self` is valid by the type invariants.
        unsafe { bindings::netdev_is_loopback(self.as_raw()) }
    }

    /// The Ethernet device in `net` that has this hardware address. Devices that are stacked on
    /// another one mostly have its address: one with hardware of its own comes first. Any context.
    pub fn by_address(net: &Namespace, address: [u8; ETH_ALEN]) -> Option<ARef<NetDevice>> {
        let _rcu = rcu::read_lock();
        // SAFETY: The namespace is valid, and RCU is read-locked: it keeps what is found until
        // there is a reference. The address has so many bytes.
        unsafe {
            let found = bindings::netdev_by_address_rcu(net.as_raw(), address.as_ptr());
            (!found.is_null()).then(|| Self::from_raw(found).hold())
        }
    }

    /// The device in the same namespace, of which there may be several, that has this address. Any
    /// context.
    pub fn sibling_with(&self, address: IpAddr) -> Option<ARef<NetDevice>> {
        let _rcu = rcu::read_lock();
        // SAFETY: `self` is valid by the type invariants, and RCU is read-locked: it keeps the
        // namespace, and what is found until there is a reference. Addresses of IPv6 are 16 bytes.
        unsafe {
            let net = bindings::dev_net_rcu(self.as_raw());
            let found = match address {
                IpAddr::V4(v4) => {
                    bindings::__ip_dev_find(net, u32::from_ne_bytes(v4.octets()), false)
                }
                IpAddr::V6(v6) => {
                    let address = v6.octets();
                    bindings::ipv6_dev_find_rcu(net, address.as_ptr().cast(), ptr::null_mut())
                }
            };
            (!found.is_null()).then(|| Self::from_raw(found).hold())
        }
    }

    /// Whether it has this address of IPv6 itself. Others in the same namespace may have the same
    /// one, if it is a link-local one. Any context.
    pub fn has_ipv6(&self, address: Ipv6Addr) -> bool {
        let _rcu = rcu::read_lock();
        let address = address.octets();
        // SAFETY: `self` is valid by the type invariants, and RCU is read-locked, so the namespace
        // is there. Addresses of IPv6 are 16 bytes.
        unsafe {
            let net = bindings::dev_net_rcu(self.as_raw());
            let found = bindings::ipv6_dev_find_rcu(net, address.as_ptr().cast(), self.as_raw());
            !found.is_null()
        }
    }

    /// Whether it is the device of a VLAN. Any context.
    pub fn is_vlan(&self) -> bool {
        // SAFETY: `self` is valid by the type invariants.
        unsafe { bindings::is_vlan_dev(self.as_raw()) }
    }

    /// The VLAN that it is the device of, if it is one. Any context.
    pub fn vlan(&self) -> Option<Vlan> {
        if !self.is_vlan() {
            return None;
        }
        // SAFETY: `self` is the valid device of a VLAN, which holds the real device.
        unsafe {
            Some(Vlan {
                id: bindings::vlan_dev_vlan_id(self.as_raw()),
                real_device: Self::from_raw(bindings::vlan_dev_real_dev(self.as_raw())).hold(),
            })
        }
    }

    /// The identifier of the VLAN that packets to addresses of this device are in, be it the device
    /// of one or stacked on that. Any context.
    pub fn vlan_of_addresses(&self) -> Option<u16> {
        let _rcu = rcu::read_lock();
        // SAFETY: `self` is valid by the type invariants, and RCU is read-locked.
        unsafe { bindings::netdev_vlan_rcu(self.as_raw()) }.checked_sub(1)
    }

    /// Whether `upper` is stacked on this device, directly or over others: as a VLAN, a bond, a
    /// bridge. Any context.
    pub fn has_upper(&self, upper: &NetDevice) -> bool {
        let _rcu = rcu::read_lock();
        // SAFETY: Both are valid by the type invariants, and RCU is read-locked.
        unsafe { bindings::netdev_has_upper(self.as_raw(), upper.as_raw()) }
    }

    /// Receives what is sent to the multicast group, in addition to all others who have joined it
    /// here, and tells the routers (IGMP, MLD). Process context.
    ///
    /// Each call needs a [`leave_multicast`](Self::leave_multicast) of its own, before the device
    /// is unregistered or moves to another network namespace: all memberships end then.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: it is no multicast address.
    /// - `ENODEV`: the device does not speak this version of IP.
    /// - `ENOMEM`, for IPv6; for IPv4 nobody tells.
    pub fn join_multicast(&self, _rtnl: &Rtnl, group: IpAddr) -> Result {
        if !group.is_multicast() {
            return Err(EINVAL);
        }
        // SAFETY: `self` is valid by the type invariants, and the RTNL is held. Addresses of IPv6
        // are 16 bytes.
        to_result(unsafe {
            match group {
                IpAddr::V4(v4) => {
                    bindings::netdev_join4(self.as_raw(), u32::from_ne_bytes(v4.octets()))
                }
                IpAddr::V6(v6) => {
                    bindings::netdev_join6(self.as_raw(), v6.octets().as_ptr().cast())
                }
            }
        })
    }

    /// Undoes one [`join_multicast`](Self::join_multicast). Process context.
    pub fn leave_multicast(&self, _rtnl: &Rtnl, group: IpAddr) {
        // SAFETY: `self` is valid by the type invariants, and the RTNL is held. Addresses of IPv6
        // are 16 bytes. A group that was not joined is not found.
        unsafe {
            match group {
                IpAddr::V4(v4) => {
                    bindings::netdev_leave4(self.as_raw(), u32::from_ne_bytes(v4.octets()))
                }
                IpAddr::V6(v6) => {
                    bindings::netdev_leave6(self.as_raw(), v6.octets().as_ptr().cast())
                }
            }
        }
    }

    /// Whether it has an Ethernet address.
    pub fn has_address(&self) -> bool {
        self.address() != [0; ETH_ALEN]
    }
}

/// The EUI-64 of an Ethernet address, as RoCE ports have it (IBA volume 1, A16.4.1), in CPU order.
pub const fn eui64_from_mac(mac: [u8; ETH_ALEN]) -> u64 {
    u64::from_be_bytes([
        mac[0] ^ 2,
        mac[1],
        mac[2],
        0xff,
        0xfe,
        mac[3],
        mac[4],
        mac[5],
    ])
}
