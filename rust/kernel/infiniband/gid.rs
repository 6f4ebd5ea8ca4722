// SPDX-License-Identifier: GPL-2.0

//! GIDs and the table of them that the core keeps for each port.
//!
//! C header: `include/rdma/ib_cache.h`.

use core::{
    marker::PhantomData,
    ops::Deref,
    ptr::NonNull, //
};

use kernel::{
    fmt,
    prelude::*,
    sync::{
        aref::ARef,
        rcu, //
    },
    types::Opaque, //
};
use net_ext::NetDevice;

use crate::{
    bindings,
    port::PORT, //
};

/// A GID, in network order: `union ib_gid`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The IPv4 address that it stands for, if it does for one (`::ffff:a.b.c.d`).
    pub fn to_ipv4(&self) -> Option<[u8; 4]> {
        match self.0 {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => Some([a, b, c, d]),
            _ => None,
        }
    }

    pub(crate) fn to_raw(self) -> bindings::ib_gid {
        // SAFETY: `union ib_gid` is 16 bytes in network order, whatever they are.
        unsafe { core::mem::transmute(self) }
    }

    pub(crate) fn from_raw(raw: &bindings::ib_gid) -> Self {
        // SAFETY: `union ib_gid` is 16 bytes, whatever they are, and bytes have no alignment.
        unsafe { *(&raw const *raw).cast() }
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, pair) in self.0.chunks_exact(2).enumerate() {
            if index > 0 {
                f.write_str(":")?;
            }
            for byte in pair {
                write!(f, "{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// The format of packets with a GID: `enum ib_gid_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidType {
    /// InfiniBand.
    Ib,
    /// RoCE on Ethernet.
    RoceV1,
    /// RoCE on UDP.
    RoceV2,
}

impl GidType {
    fn to_raw(self) -> bindings::ib_gid_type {
        match self {
            GidType::Ib => bindings::ib_gid_type_IB_GID_TYPE_IB,
            GidType::RoceV1 => bindings::ib_gid_type_IB_GID_TYPE_ROCE,
            GidType::RoceV2 => bindings::ib_gid_type_IB_GID_TYPE_ROCE_UDP_ENCAP,
        }
    }
}

/// The kind of address that a GID stands for: `enum rdma_network_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkType {
    /// InfiniBand.
    Ib,
    /// RoCE on Ethernet.
    RoceV1,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// An entry of a port's GID table: `struct ib_gid_attr`.
///
/// The entry stays as it is while a reference is held, even if the address is taken away meanwhile.
/// It refers to its table, and that goes with the device whatever references there are: so an entry
/// is lent for a time in which the device is known to be there ([`HeldGidAttr`]), and cannot be
/// kept longer.
///
/// # Invariants
///
/// The entry is valid, and a reference to it is held while this is borrowed.
#[repr(transparent)]
pub struct GidAttr(Opaque<bindings::ib_gid_attr>);

// SAFETY: The fields that the methods read do not change, but for `ndev`, which they read under
// RCU.
unsafe impl Sync for GidAttr {}

impl GidAttr {
    /// Borrows an entry that C code has handed in.
    ///
    /// # Safety
    ///
    /// `raw` is valid, and a reference to it is held for the lifetime `'a`.
    pub(crate) unsafe fn from_raw<'a>(raw: *const bindings::ib_gid_attr) -> &'a Self {
        // SAFETY: By the requirements of this function; the type is transparent over `Opaque`.
        unsafe { &*raw.cast() }
    }

    /// Whether a device has a table: it gets one while it is being registered.
    ///
    /// # Safety
    ///
    /// `device` is valid.
    unsafe fn has_table(device: *mut bindings::ib_device) -> bool {
        // SAFETY: By the requirements of this function. Ports are counted from 1.
        unsafe {
            let ports = (*device).port_data;
            !ports.is_null() && !(*ports.add(PORT as usize)).cache.gid.is_null()
        }
    }

    /// Looks an entry up.
    ///
    /// # Safety
    ///
    /// `device` is valid for the lifetime `'a`.
    pub(crate) unsafe fn find<'a>(
        device: *mut bindings::ib_device,
        gid: &Gid,
        kind: GidType,
    ) -> Result<HeldGidAttr<'a>> {
        // SAFETY: By the requirements of this function.
        if !unsafe { Self::has_table(device) } {
            return Err(ENOENT);
        }
        let gid = gid.to_raw();
        // SAFETY: By the requirements of this function, and there is a table.
        let attr = unsafe {
            bindings::rdma_find_gid_by_port(
                device,
                &gid,
                kind.to_raw(),
                PORT,
                core::ptr::null_mut(),
            )
        };
        let attr = kernel::error::from_err_ptr(attr.cast_mut())?;
        // INVARIANT: The function has returned an entry with a reference, which is ours now. Its
        // device is there for `'a`.
        Ok(HeldGidAttr {
            attr: NonNull::new(attr).ok_or(ENOENT)?,
            _device: PhantomData,
        })
    }

    /// The GID.
    pub fn gid(&self) -> Gid {
        // SAFETY: `self` is valid by the type invariants.
        Gid::from_raw(unsafe { &(*self.0.get()).gid })
    }

    /// The format of packets.
    pub fn gid_type(&self) -> GidType {
        // SAFETY: `self` is valid by the type invariants.
        match unsafe { (*self.0.get()).gid_type } {
            bindings::ib_gid_type_IB_GID_TYPE_ROCE_UDP_ENCAP => GidType::RoceV2,
            bindings::ib_gid_type_IB_GID_TYPE_ROCE => GidType::RoceV1,
            _ => GidType::Ib,
        }
    }

    /// The place in the table.
    pub fn index(&self) -> u16 {
        // SAFETY: `self` is valid by the type invariants.
        unsafe { (*self.0.get()).index }
    }

    /// The kind of address.
    pub fn network_type(&self) -> NetworkType {
        // SAFETY: `self` is valid by the type invariants.
        match unsafe { bindings::rdma_gid_attr_network_type(self.0.get()) } {
            bindings::rdma_network_type_RDMA_NETWORK_IPV4 => NetworkType::Ipv4,
            bindings::rdma_network_type_RDMA_NETWORK_IPV6 => NetworkType::Ipv6,
            bindings::rdma_network_type_RDMA_NETWORK_ROCE_V1 => NetworkType::RoceV1,
            _ => NetworkType::Ib,
        }
    }

    /// The identifier of the VLAN that packets to the address are in.
    pub fn vlan(&self) -> Option<u16> {
        /// No VLAN.
        const NONE: u16 = 0xffff;

        let mut vlan = NONE;
        // SAFETY: `self` is valid by the type invariants. The function writes one of the two
        // places, if there is a network device.
        let _ = unsafe {
            bindings::rdma_read_gid_l2_fields(self.0.get(), &mut vlan, core::ptr::null_mut())
        };
        (vlan != NONE).then_some(vlan)
    }

    /// The network device that has the address, if there still is one and it is up.
    pub fn netdev(&self) -> Option<ARef<NetDevice>> {
        let _rcu = rcu::read_lock();
        // SAFETY: `self` is valid by the type invariants, and RCU is read-locked.
        let netdev = unsafe { bindings::rdma_read_gid_attr_ndev_rcu(self.0.get()) };
        let netdev = kernel::error::from_err_ptr(netdev).ok()?;
        if netdev.is_null() {
            return None;
        }
        // SAFETY: RCU keeps the network device until a reference is taken.
        Some(unsafe { NetDevice::from_raw(netdev) }.hold())
    }
}

/// A reference to an entry of a device's GID table, which cannot outlive the device.
///
/// # Invariants
///
/// The entry is valid, and we own a reference to it. Its device is there for `'a`.
pub struct HeldGidAttr<'a> {
    attr: NonNull<bindings::ib_gid_attr>,
    _device: PhantomData<&'a GidAttr>,
}

// SAFETY: References to an entry may be given up by any thread.
unsafe impl Send for HeldGidAttr<'_> {}

// SAFETY: By a shared reference the entry alone can be reached, which is `Sync`.
unsafe impl Sync for HeldGidAttr<'_> {}

impl Deref for HeldGidAttr<'_> {
    type Target = GidAttr;

    fn deref(&self) -> &GidAttr {
        // SAFETY: By the type invariants, there is a reference as long as `self` is borrowed.
        unsafe { GidAttr::from_raw(self.attr.as_ptr()) }
    }
}

impl Drop for HeldGidAttr<'_> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, there is a reference to give up, and the table is there.
        unsafe { bindings::rdma_put_gid_attr(self.attr.as_ptr()) };
    }
}
