// SPDX-License-Identifier: GPL-2.0

//! Notifiers of network devices and of their addresses.
//!
//! C headers: `include/linux/notifier.h`, `include/linux/netdevice.h`,
//! `include/linux/inetdevice.h`, `include/net/addrconf.h`.

use core::{
    marker::PhantomData,
    net::{
        IpAddr,
        Ipv4Addr, //
    },
};

use kernel::{
    container_of,
    error::to_result,
    prelude::*,
    types::Opaque, //
};

use crate::{
    bindings,
    device::NetDevice,
    route::from_in6_addr, //
};

mod private {
    pub trait Sealed {}
}

/// Something that notifications are given of. It is one of the types of this module.
pub trait Chain: private::Sealed + 'static {
    /// The notices.
    type Notice<'a>;

    /// Puts a notification into the form for Rust; `None` is for what nobody wants to know.
    ///
    /// # Safety
    ///
    /// `event` and `info` are what a notifier of this chain was called with, for the time of the
    /// call.
    #[doc(hidden)]
    unsafe fn notice<'a>(event: c_ulong, info: *mut c_void) -> Option<Self::Notice<'a>>;

    /// # Safety
    ///
    /// `block` is complete, and stays as and where it is until it is unregistered.
    #[doc(hidden)]
    unsafe fn register(block: *mut bindings::notifier_block) -> Result;

    /// # Safety
    ///
    /// `block` is registered.
    #[doc(hidden)]
    unsafe fn unregister(block: *mut bindings::notifier_block);
}

/// Events of a device: `enum netdev_cmd`, as far as they are told here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// It is there.
    Register,
    /// It is going, or leaves the namespace: references to it are to be dropped.
    Unregister,
    /// It was set up.
    Up,
    /// It is about to be set down.
    GoingDown,
    /// It was set down.
    Down,
    /// Flags or the carrier have changed.
    Change,
    /// The MTU has changed.
    ChangeMtu,
    /// The hardware address has changed.
    ChangeAddress,
}

impl DeviceEvent {
    /// Whether the device may have become able to carry packets by it, or unable.
    pub fn changes_state(self) -> bool {
        matches!(
            self,
            DeviceEvent::Up | DeviceEvent::Down | DeviceEvent::Change
        )
    }
}

/// An event of a device.
pub struct DeviceNotice<'a> {
    /// The event.
    pub event: DeviceEvent,
    /// To whom.
    pub device: &'a NetDevice,
}

/// The network devices of all namespaces.
///
/// Process context; the RTNL is held. Registration calls the notifier for each device that there
/// is (`Register`, and `Up` if the device is up). Unregistration calls it for each device, too
/// (`Unregister`), as if the device went.
pub enum Devices {}

impl private::Sealed for Devices {}

impl Chain for Devices {
    type Notice<'a> = DeviceNotice<'a>;

    unsafe fn notice<'a>(event: c_ulong, info: *mut c_void) -> Option<DeviceNotice<'a>> {
        Some(DeviceNotice {
            event: match event as bindings::netdev_cmd {
                bindings::netdev_cmd_NETDEV_REGISTER => DeviceEvent::Register,
                bindings::netdev_cmd_NETDEV_UNREGISTER => DeviceEvent::Unregister,
                bindings::netdev_cmd_NETDEV_UP => DeviceEvent::Up,
                bindings::netdev_cmd_NETDEV_GOING_DOWN => DeviceEvent::GoingDown,
                bindings::netdev_cmd_NETDEV_DOWN => DeviceEvent::Down,
                bindings::netdev_cmd_NETDEV_CHANGE => DeviceEvent::Change,
                bindings::netdev_cmd_NETDEV_CHANGEMTU => DeviceEvent::ChangeMtu,
                bindings::netdev_cmd_NETDEV_CHANGEADDR => DeviceEvent::ChangeAddress,
                _ => return None,
            },
            // SAFETY: By the requirements of this function; the caller keeps the device.
            device: unsafe { NetDevice::from_raw(bindings::netdev_notifier_info_to_dev(info)) },
        })
    }

    unsafe fn register(block: *mut bindings::notifier_block) -> Result {
        // SAFETY: By the requirements of this function.
        to_result(unsafe { bindings::register_netdevice_notifier(block) })
    }

    unsafe fn unregister(block: *mut bindings::notifier_block) {
        // SAFETY: The caller has registered the block, and uses it no more. The status would only
        // say that it was not registered.
        unsafe { bindings::unregister_netdevice_notifier(block) };
    }
}

/// Events of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressEvent {
    /// It was added.
    Added,
    /// It was taken away.
    Removed,
}

impl AddressEvent {
    fn from_raw(event: c_ulong) -> Option<Self> {
        match event as bindings::netdev_cmd {
            bindings::netdev_cmd_NETDEV_UP => Some(AddressEvent::Added),
            bindings::netdev_cmd_NETDEV_DOWN => Some(AddressEvent::Removed),
            _ => None,
        }
    }
}

/// An event of an address.
pub struct AddressNotice<'a> {
    /// The event.
    pub event: AddressEvent,
    /// To which address.
    pub address: IpAddr,
    /// Of which device.
    pub device: &'a NetDevice,
}

/// The IPv4 addresses of all devices. Process context; the RTNL is held.
pub enum Ipv4Addresses {}

impl private::Sealed for Ipv4Addresses {}

impl Chain for Ipv4Addresses {
    type Notice<'a> = AddressNotice<'a>;

    unsafe fn notice<'a>(event: c_ulong, info: *mut c_void) -> Option<AddressNotice<'a>> {
        let event = AddressEvent::from_raw(event)?;
        let info = info.cast::<bindings::in_ifaddr>();
        // SAFETY: By the requirements of this function, it is a `struct in_ifaddr`, and the caller
        // keeps it and its device.
        let (address, device) = unsafe {
            (
                bindings::in_ifaddr_local(info),
                NetDevice::from_raw(bindings::in_ifaddr_dev(info)),
            )
        };
        Some(AddressNotice {
            event,
            address: Ipv4Addr::from(address.to_ne_bytes()).into(),
            device,
        })
    }

    unsafe fn register(block: *mut bindings::notifier_block) -> Result {
        // SAFETY: By the requirements of this function.
        to_result(unsafe { bindings::register_inetaddr_notifier(block) })
    }

    unsafe fn unregister(block: *mut bindings::notifier_block) {
        // SAFETY: By the requirements of this function.
        unsafe { bindings::unregister_inetaddr_notifier(block) };
    }
}

/// The IPv6 addresses of all devices, once they may be used. Any context: nothing may sleep.
pub enum Ipv6Addresses {}

impl private::Sealed for Ipv6Addresses {}

impl Chain for Ipv6Addresses {
    type Notice<'a> = AddressNotice<'a>;

    unsafe fn notice<'a>(event: c_ulong, info: *mut c_void) -> Option<AddressNotice<'a>> {
        let event = AddressEvent::from_raw(event)?;
        let info = info.cast::<bindings::inet6_ifaddr>();
        // SAFETY: By the requirements of this function, it is a `struct inet6_ifaddr`, and the
        // caller keeps it and its device.
        let (address, device) = unsafe {
            (
                from_in6_addr(&*bindings::inet6_ifaddr_addr(info)),
                NetDevice::from_raw(bindings::inet6_ifaddr_dev(info)),
            )
        };
        Some(AddressNotice {
            event,
            address: address.into(),
            device,
        })
    }

    unsafe fn register(block: *mut bindings::notifier_block) -> Result {
        // SAFETY: By the requirements of this function.
        to_result(unsafe { bindings::register_inet6addr_notifier(block) })
    }

    unsafe fn unregister(block: *mut bindings::notifier_block) {
        // SAFETY: By the requirements of this function.
        unsafe { bindings::unregister_inet6addr_notifier(block) };
    }
}

/// The watcher.
pub trait Watch<C: Chain>: Send + Sync + 'static {
    /// Those with a higher number are told before others; the kernel's own mostly have 0.
    const PRIORITY: c_int = 0;

    /// Something has happened. The context is that of the chain.
    fn notify(&self, notice: C::Notice<'_>);
}

/// A watcher that is being told. Dropping it ends that, and waits for calls that are under way;
/// process context.
///
/// # Examples
///
/// ```
/// use kernel::prelude::*;
/// use net_ext::notifier::{DeviceEvent, DeviceNotice, Devices, Notifier, Watch};
///
/// struct Printer;
///
/// impl Watch<Devices> for Printer {
///     fn notify(&self, notice: DeviceNotice<'_>) {
///         if notice.event == DeviceEvent::Up {
///             pr_debug!("{} is up\n", notice.device.name());
///         }
///     }
/// }
///
/// stack_pin_init!(let notifier = Notifier::<Devices, _>::new(Printer));
/// ```
///
/// # Invariants
///
/// `block` is registered with the chain `C`, and calls `Self::call`.
#[pin_data(PinnedDrop)]
pub struct Notifier<C: Chain, W: Watch<C>> {
    watch: W,
    #[pin]
    block: Opaque<bindings::notifier_block>,
    _chain: PhantomData<fn() -> C>,
}

// SAFETY: It may be unregistered by any thread, and the watcher is `Send`.
unsafe impl<C: Chain, W: Watch<C>> Send for Notifier<C, W> {}

// SAFETY: By a shared reference the watcher alone can be reached, and that is `Sync`.
unsafe impl<C: Chain, W: Watch<C>> Sync for Notifier<C, W> {}

impl<C: Chain, W: Watch<C>> Notifier<C, W> {
    /// Begins to tell `watch`. Process context, without the RTNL.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(watch: W) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            // It comes first, for calls come before the registration is done.
            watch,
            block <- Opaque::try_ffi_init(|slot: *mut bindings::notifier_block| {
                // SAFETY: `slot` is valid for writing and stays in place, and `PinnedDrop`
                // unregisters it. Fields that are not set are zero, as they should be.
                unsafe {
                    slot.write_bytes(0, 1);
                    (*slot).notifier_call = Some(Self::call);
                    (*slot).priority = W::PRIORITY;
                    C::register(slot)
                }
            }),
            _chain: PhantomData,
        })
    }

    /// The watcher.
    pub fn watch(&self) -> &W {
        &self.watch
    }

    /// # Safety
    ///
    /// To be called by the chain `C` only, with the `block` of a `Self`.
    unsafe extern "C" fn call(
        block: *mut bindings::notifier_block,
        event: c_ulong,
        info: *mut c_void,
    ) -> c_int {
        // SAFETY: By the requirements of this function.
        if let Some(notice) = unsafe { C::notice(event, info) } {
            let block: *mut Opaque<bindings::notifier_block> = block.cast();
            // SAFETY: By the requirements of this function, it is that of a `Self`, of which the
            // watcher is initialised: it was before the block was registered, and is dropped after
            // that has ended. The place is taken by itself since the rest may not be complete yet.
            let watch = unsafe { &(*container_of!(block, Self, block)).watch };
            watch.notify(notice);
        }
        bindings::NOTIFY_DONE as c_int
    }
}

#[pinned_drop]
impl<C: Chain, W: Watch<C>> PinnedDrop for Notifier<C, W> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: It is registered by the type invariants.
        unsafe { C::unregister(self.block.get()) };
    }
}
