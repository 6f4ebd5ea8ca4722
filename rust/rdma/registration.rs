// SPDX-License-Identifier: GPL-2.0

//! The driver as long as its module is loaded.
//!
//! C header: `include/linux/notifier.h`.

use core::marker::PhantomData;

use kernel::{
    error::to_result,
    prelude::*,
    types::Opaque, //
};
use kernel_ext::net::NetDevice;

use crate::{
    bindings,
    device::unregister_for,
    link::make_link_ops,
    Device,
    Driver, //
};

/// A driver that is ready to make devices.
///
/// It offers the link type [`Driver::NAME`], and follows the network devices: a device goes with its
/// network device. Dropping it ends the offer, and removes all devices of the driver: when that is
/// done, the core calls the driver no more.
///
/// # Invariants
///
/// `notifier` and `link` are registered, and they are no other driver's.
#[pin_data(PinnedDrop)]
pub struct Registration<D: Driver> {
    #[pin]
    notifier: Opaque<bindings::notifier_block>,
    #[pin]
    link: Opaque<bindings::rdma_link_ops>,
    _driver: PhantomData<fn() -> D>,
}

// SAFETY: Nothing of it is used between its making and its end.
unsafe impl<D: Driver> Send for Registration<D> {}

// SAFETY: As above.
unsafe impl<D: Driver> Sync for Registration<D> {}

impl<D: Driver> Registration<D> {
    /// Registers the driver.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            // Devices cannot be there before the notifier is.
            notifier <- Opaque::try_ffi_init(|slot: *mut bindings::notifier_block| {
                // SAFETY: `slot` is valid for writing and stays in place, and `PinnedDrop`
                // unregisters it. What is not set is zero, as it should be.
                unsafe {
                    slot.write_bytes(0, 1);
                    (*slot).notifier_call = Some(netdev_event::<D>);
                    to_result(bindings::register_netdevice_notifier(slot))
                }
            }),
            link <- Opaque::ffi_init(|slot: *mut bindings::rdma_link_ops| {
                // SAFETY: As above. A list of its own is what the entry is removed from if the core
                // refuses a type that is there already, which it does not tell.
                unsafe {
                    slot.write(make_link_ops::<D>());
                    let list = &raw mut (*slot).list;
                    (*list).next = list;
                    (*list).prev = list;
                    bindings::rdma_link_register(slot);
                }
            }),
            _driver: PhantomData,
        })
    }
}

#[pinned_drop]
impl<D: Driver> PinnedDrop for Registration<D> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariants. First nobody can make devices any more, and those who are
        // making one are waited for. Then all devices go, and so do removals that are queued. What
        // the notifier does in between is to queue removals.
        unsafe {
            bindings::rdma_link_unregister(self.link.get());
            bindings::ib_unregister_driver(D::ID);
            // It says nothing but that it was not registered.
            bindings::unregister_netdevice_notifier(self.notifier.get());
        }
    }
}

/// `notifier_call` for network devices. The RTNL is held.
///
/// # Safety
///
/// `info` is what the notifiers of network devices get.
unsafe extern "C" fn netdev_event<D: Driver>(
    _notifier: *mut bindings::notifier_block,
    event: c_ulong,
    info: *mut c_void,
) -> c_int {
    // SAFETY: By the requirements of this function. The caller keeps the device.
    let netdev = unsafe { NetDevice::from_raw(bindings::netdev_notifier_info_to_dev(info)) };
    match event as bindings::netdev_cmd {
        bindings::netdev_cmd_NETDEV_UNREGISTER => unregister_for::<D>(netdev),
        bindings::netdev_cmd_NETDEV_CHANGEMTU if D::HAS_NETDEV_MTU_CHANGED => {
            if let Some(device) = Device::<D>::lookup(netdev) {
                D::netdev_mtu_changed(&device, netdev);
            }
        }
        _ => return bindings::NOTIFY_DONE as c_int,
    }
    bindings::NOTIFY_OK as c_int
}
