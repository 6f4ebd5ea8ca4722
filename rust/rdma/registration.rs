// SPDX-License-Identifier: GPL-2.0

//! The driver as long as its module is loaded.
//!
//! C header: `include/rdma/rdma_netlink.h`.

use core::marker::PhantomData;

use kernel::{
    prelude::*,
    types::Opaque, //
};
use net_ext::notifier::{
    DeviceEvent,
    DeviceNotice,
    Devices,
    Notifier,
    Watch, //
};

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
/// `link` is registered, and it is no other driver's.
#[pin_data(PinnedDrop)]
pub struct Registration<D: Driver> {
    #[pin]
    _notifier: Notifier<Devices, Follow<D>>,
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
            _notifier <- Notifier::new(Follow(PhantomData)),
            link <- Opaque::ffi_init(|slot: *mut bindings::rdma_link_ops| {
                // SAFETY: `slot` is valid for writing and stays in place, and `PinnedDrop`
                // unregisters it. A list of its own is what the entry is removed from if the core
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
        // the notifier does in between, and when it goes itself after this, is to queue removals.
        unsafe {
            bindings::rdma_link_unregister(self.link.get());
            bindings::ib_unregister_driver(D::ID);
        }
    }
}

/// Follows the network devices for a driver.
struct Follow<D>(PhantomData<fn() -> D>);

impl<D: Driver> Watch<Devices> for Follow<D> {
    fn notify(&self, notice: DeviceNotice<'_>) {
        match notice.event {
            DeviceEvent::Unregister => unregister_for::<D>(notice.device),
            DeviceEvent::ChangeMtu if D::HAS_NETDEV_MTU_CHANGED => {
                if let Some(device) = Device::<D>::lookup(notice.device) {
                    D::netdev_mtu_changed(&device, notice.device);
                }
            }
            _ => (),
        }
    }
}
