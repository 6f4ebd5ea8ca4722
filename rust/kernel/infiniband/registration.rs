// SPDX-License-Identifier: GPL-2.0

//! The driver as long as its module is loaded.
//!
//! C header: `include/rdma/rdma_netlink.h`.

use core::{
    marker::PhantomData,
    ptr::null_mut, //
};

use kernel::{
    error::to_result,
    prelude::*,
    types::Opaque, //
};
use kernel_ext::error::code::EOPNOTSUPP;
use net_ext::{
    notifier::{
        DeviceEvent,
        DeviceNotice,
        Devices,
        Notifier,
        Watch, //
    },
    NetDevice, //
};

use crate::{
    bindings,
    device::{
        Extra,
        Held, //
    },
    link::{
        make_link_ops,
        Link,
        Offered, //
    },
    registered::unregister_lost,
    Device,
    Driver, //
};

/// A driver that is ready to make devices.
///
/// It offers the link type [`Driver::NAME`], and follows the network devices: a device goes with
/// its network device. Dropping it ends the offer, and removes all devices of the driver: when that
/// is done, the core calls the driver no more.
///
/// # Invariants
///
/// `link` is registered, and it is no other driver's.
#[pin_data(PinnedDrop)]
pub struct Registration<D: Link> {
    #[pin]
    _notifier: Notifier<Devices, Follow<D>>,
    /// Registered if the driver follows its devices' names.
    #[pin]
    client: Opaque<bindings::ib_client>,
    #[pin]
    link: Opaque<bindings::rdma_link_ops>,
    _driver: PhantomData<fn() -> D>,
}

// SAFETY: Nothing of it is used between its making and its end, which may be in any thread.
unsafe impl<D: Link> Send for Registration<D> {}

// SAFETY: Nothing of it can be reached by a shared reference.
unsafe impl<D: Link> Sync for Registration<D> {}

impl<D: Link> Registration<D> {
    /// That this is there, for registering devices.
    pub fn offered(&self) -> Offered<'_, D> {
        // SAFETY: It does not go as long as it is borrowed.
        unsafe { Offered::new() }
    }

    /// Registers the driver.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            // Devices cannot be there before the notifier is.
            _notifier <- Notifier::new(Follow(PhantomData)),
            client <- Opaque::try_ffi_init(|slot: *mut bindings::ib_client| {
                if !D::HAS_NAMED {
                    return Ok(());
                }
                // SAFETY: `slot` is valid for writing and stays in place, and `PinnedDrop`
                // unregisters it. Zeroes are a client without operations.
                unsafe {
                    slot.write_bytes(0, 1);
                    (*slot).name = D::NAME.as_char_ptr();
                    (*slot).add = Some(client_add::<D>);
                    (*slot).rename = Some(client_rename::<D>);
                    (*slot).remove = Some(client_remove::<D>);
                    to_result(bindings::ib_register_client(slot))
                }
            }),
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
impl<D: Link> PinnedDrop for Registration<D> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariants. First nobody can make devices any more, and those who are
        // making one are waited for. Then all devices go, and so do removals that are queued. The
        // notifier only queues removals in between, and when it goes itself after this.
        unsafe {
            bindings::rdma_link_unregister(self.link.get());
            bindings::ib_unregister_driver(D::ID);
            if D::HAS_NAMED {
                bindings::ib_unregister_client(self.client.get());
            }
        }
    }
}

/// `add` of `struct ib_client`. It refuses the devices of other drivers, so the core makes no more
/// calls about them.
///
/// # Safety
///
/// `dev` is a device, and the caller keeps it from going.
unsafe extern "C" fn client_add<D: Driver>(dev: *mut bindings::ib_device) -> c_int {
    // SAFETY: The core tells of devices that are registered.
    if !unsafe { Extra::is_of::<D>(dev) } {
        return EOPNOTSUPP.to_errno();
    }
    // SAFETY: The device is one of the driver `D`, and the core renames none while it adds one to
    // its clients.
    unsafe { client_rename::<D>(dev, null_mut()) };
    0
}

/// `rename` of `struct ib_client`.
///
/// # Safety
///
/// `dev` is a device that [`client_add`] has taken, and the caller keeps it from going, and from
/// getting another name.
unsafe extern "C" fn client_rename<D: Driver>(dev: *mut bindings::ib_device, _data: *mut c_void) {
    // SAFETY: The device is one of the driver `D`. Its name is a string, and stays what it is until
    // the caller goes on.
    let (dev, name) = unsafe {
        (
            Device::<D>::from_raw(dev),
            CStr::from_char_ptr((&raw const (*dev).name).cast()),
        )
    };
    D::named(dev, Some(name));
}

/// `remove` of `struct ib_client`: the device goes, or leaves its network namespace, where its name
/// is free then.
///
/// # Safety
///
/// `dev` is a device that [`client_add`] has taken, and the caller keeps it from going.
unsafe extern "C" fn client_remove<D: Driver>(dev: *mut bindings::ib_device, _data: *mut c_void) {
    // SAFETY: The device is one of the driver `D`.
    D::named(unsafe { Device::<D>::from_raw(dev) }, None);
}

/// The device of `rdma link` that belongs to `netdev`, if there is one. Those that have a parent
/// follow the network devices themselves.
fn lookup_link<D: Driver>(netdev: &NetDevice) -> Option<Held<D>> {
    Device::<D>::lookup(netdev).filter(|device| device.parent().is_none())
}

/// Removes the device of `rdma link` that belongs to `netdev`, if there is one, some time later.
/// The RTNL is held, and `netdev` goes, or leaves its network namespace.
fn unregister_for<D: Driver>(netdev: &NetDevice) {
    if let Some(device) = lookup_link::<D>(netdev) {
        unregister_lost(&device);
    }
}

/// Follows the network devices for a driver.
struct Follow<D>(PhantomData<fn() -> D>);

impl<D: Driver> Watch<Devices> for Follow<D> {
    fn notify(&self, notice: DeviceNotice<'_>) {
        match notice.event {
            DeviceEvent::Unregister => unregister_for::<D>(notice.device),
            DeviceEvent::ChangeMtu if D::HAS_NETDEV_MTU_CHANGED => {
                if let Some(device) = lookup_link::<D>(notice.device) {
                    D::netdev_mtu_changed(&device, notice.device);
                }
            }
            event if event.changes_state() => {
                if let Some(device) = lookup_link::<D>(notice.device) {
                    device.tell_bond_state(notice.device);
                }
            }
            _ => (),
        }
    }
}
