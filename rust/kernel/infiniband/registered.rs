// SPDX-License-Identifier: GPL-2.0

//! Registered devices that belong to another device, such as a PCI function.
//!
//! A device of `rdma link` is removed by whoever asks for that. These are removed by their driver
//! alone, when it is unbound from the device below.

use core::{
    marker::PhantomData,
    ptr::{
        null_mut,
        NonNull, //
    },
};

use kernel::{
    device,
    devres::Devres,
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    }, //
};
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
    device::Held,
    gate::Gate,
    port::PORT,
    Device,
    Driver, //
};

/// A device that may not be registered yet, or not any more.
///
/// # Invariants
///
/// `raw` is a device of the driver `D`, and `_device` is a reference to it.
struct Known<D: Driver> {
    raw: NonNull<bindings::ib_device>,
    _device: ARef<device::Device>,
    _driver: PhantomData<fn() -> D>,
}

// SAFETY: References to a device may be counted by any thread.
unsafe impl<D: Driver> Send for Known<D> {}

// SAFETY: All that can be done by a shared reference is to ask whether the device is registered.
unsafe impl<D: Driver> Sync for Known<D> {}

impl<D: Driver> Known<D> {
    /// # Safety
    ///
    /// `raw` is a device of the driver `D`, and valid during the call.
    unsafe fn new(raw: NonNull<bindings::ib_device>) -> Self {
        // INVARIANT: By the requirements of this function.
        Known {
            raw,
            // SAFETY: By the requirements of this function.
            _device: unsafe {
                device::Device::get_device((*raw.as_ptr()).__bindgen_anon_1.dev.as_mut())
            },
            _driver: PhantomData,
        }
    }

    /// The device, if it is registered. Any context.
    fn get(&self) -> Option<Held<D>> {
        // SAFETY: By the type invariants, the memory is there.
        unsafe { Held::try_new(self.raw) }
    }
}

impl<D: Driver> Clone for Known<D> {
    fn clone(&self) -> Self {
        // INVARIANT: It is the same device, and there is another reference.
        Known {
            raw: self.raw,
            _device: self._device.clone(),
            _driver: PhantomData,
        }
    }
}

/// A handle to a device that was registered, and may not be any more.
pub struct Handle<D: Driver>(Known<D>);

impl<D: Driver> Handle<D> {
    /// The device, which cannot go until the result is dropped. `None` if it has gone, and for a
    /// moment while it gets another network namespace (`rdma dev set`). Any context.
    pub fn device(&self) -> Option<Held<D>> {
        self.0.get()
    }
}

/// Has a device of `rdma link` unregistered, some time later: its network device goes, or leaves
/// its network namespace. The RTNL is held.
pub(crate) fn unregister_lost<D: Driver>(device: &Device<D>) {
    if D::HAS_NETDEV_LOST {
        D::netdev_lost(device);
    }
    device.unregister_later();
}

/// Follows the network devices for one device.
pub(crate) struct Follow<D: Driver>(Known<D>);

impl<D: Driver> Follow<D> {
    /// The network device has gone, if it is the device's.
    pub(crate) fn lose(device: &Device<D>, netdev: &NetDevice) {
        if Self::is_of(device, netdev) {
            // SAFETY: The device is valid and registered, and has such a port. It has port data, so
            // nothing is allocated and this cannot fail.
            unsafe { bindings::ib_device_set_netdev(device.as_raw(), null_mut(), PORT) };
        }
    }

    /// A network device has come, or was set up; perhaps it is the device's, which has none.
    /// Whether it is.
    pub(crate) fn gain(device: &Device<D>, netdev: &NetDevice) -> bool {
        if device.netdev().is_some() || !D::wants_netdev(device, netdev) {
            return false;
        }
        // SAFETY: Both devices are valid and registered, and the device has such a port, with port
        // data: nothing is allocated, and this cannot fail.
        unsafe { bindings::ib_device_set_netdev(device.as_raw(), netdev.as_raw(), PORT) };
        if D::HAS_NETDEV_MTU_CHANGED {
            D::netdev_mtu_changed(device, netdev);
        }
        true
    }

    fn is_of(device: &Device<D>, netdev: &NetDevice) -> bool {
        (device.netdev()).is_some_and(|own| own.as_raw() == netdev.as_raw())
    }
}

impl<D: Driver> Watch<Devices> for Follow<D> {
    /// Before the core, which looks for the RDMA devices of a network device, gives them their GIDs
    /// and tells of their ports.
    const PRIORITY: c_int = 1;

    fn notify(&self, notice: DeviceNotice<'_>) {
        let Some(device) = self.0.get() else {
            return;
        };
        match notice.event {
            DeviceEvent::Unregister => Self::lose(&device, notice.device),
            DeviceEvent::Register | DeviceEvent::Up if D::HAS_WANTS_NETDEV => {
                Self::gain(&device, notice.device);
            }
            DeviceEvent::ChangeMtu
                if D::HAS_NETDEV_MTU_CHANGED && Self::is_of(&device, notice.device) =>
            {
                D::netdev_mtu_changed(&device, notice.device);
            }
            _ => (),
        }
        if notice.event.changes_state() && Self::is_of(&device, notice.device) {
            device.tell_bond_state(notice.device);
        }
    }
}

/// The registration of a device, or of one that is not registered yet.
///
/// # Invariants
///
/// The parent of the device is bound.
pub(crate) struct Registration<D: Driver> {
    device: Known<D>,
    /// Dropped after the device is unregistered: at its own end it is told of all network devices
    /// as if they went.
    _notifier: Pin<KBox<Notifier<Devices, Follow<D>>>>,
    /// For those who use the parent on behalf of the device, beyond its registration.
    parent: Arc<Gate>,
}

impl<D: Driver> Registration<D> {
    /// Prepares the registration of a device.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Safety
    ///
    /// `raw` is a device of the driver `D`, and valid. `parent` is its parent. Its users are verbs,
    /// and callers that have passed the gate `users`.
    pub(crate) unsafe fn new(
        raw: NonNull<bindings::ib_device>,
        parent: &device::Device<device::Bound>,
        users: Arc<Gate>,
    ) -> Result<Devres<Self>> {
        // SAFETY: By the requirements of this function.
        let (device, follow) = unsafe { (Known::new(raw), Follow(Known::new(raw))) };
        let registration = Registration {
            device,
            // Nothing is done for a device that is not registered yet.
            _notifier: KBox::pin_init(Notifier::new(follow), GFP_KERNEL)?,
            parent: users,
        };
        // INVARIANT: `Devres` drops it before the parent is unbound.
        Devres::new(parent, registration)
    }
}

impl<D: Driver> Drop for Registration<D> {
    fn drop(&mut self) {
        // Calls of it wait for each other, and leave a device alone that is not registered, not yet
        // or not any more. So this may come after the end of the link registration of the same
        // driver, which unregisters all its devices (`ib_unregister_driver()`), or meanwhile.
        //
        // SAFETY: By the invariants of `Known`, the memory is there.
        unsafe { bindings::ib_unregister_device(self.device.raw.as_ptr()) };
        // No verb runs any more, and all objects of the device are gone. Parts of them that the
        // driver still holds must not use the parent.
        self.parent.close();
    }
}

/// A device that is registered until this is dropped, or its parent is unbound.
///
/// The device loses its network device when that goes, and the driver is told when its MTU changes.
///
/// Unregistering the device ends the work of all users. Those in the kernel are waited for. The
/// objects of programs are destroyed, and later calls of the programs fail with `EIO`. Then the
/// driver's data are dropped.
pub struct Registered<D: Driver>(pub(crate) Devres<Registration<D>>);

impl<D: Driver> Registered<D> {
    /// The device, which cannot go until the result is dropped: so that must come before `self` is.
    /// `None` if it has gone: with its parent, or with the link registration of the driver. Any
    /// context.
    pub fn device(&self) -> Option<Held<D>> {
        self.0.try_access_with(|this| this.device.get())?
    }

    /// A handle to the device. `None` if it has gone. Any context.
    pub fn handle(&self) -> Option<Handle<D>> {
        self.0.try_access_with(|this| Handle(this.device.clone()))
    }
}
