// SPDX-License-Identifier: GPL-2.0

//! Devices before they are registered.

use core::{
    marker::PhantomData,
    mem::ManuallyDrop,
    ptr::NonNull, //
};

use kernel::{
    error::to_result,
    prelude::*,
    types::ScopeGuard, //
};
use net_ext::{
    Namespace,
    NetDevice, //
};

use crate::{
    bindings,
    device::{
        unregister_for,
        Info, //
    },
    kick::Kick,
    link::link_ops,
    object::Object,
    ops::device_ops,
    port::PORT,
    Device,
    Driver, //
};

/// A device that nobody sees yet. Dropping it frees it.
///
/// # Invariants
///
/// The device is not registered, its data and operations are set, and nobody else has it.
pub struct UnregisteredDevice<D: Driver>(NonNull<bindings::ib_device>, PhantomData<D>);

impl<D: Driver> UnregisteredDevice<D> {
    /// Makes a device with the driver's `data`.
    ///
    /// In the mode in which RDMA devices belong to network namespaces (`rdma system set netns
    /// exclusive`), it belongs to `net`, and is moved to the first namespace when that one ends. Else
    /// it is seen in all of them. The namespace must not end before the device is registered.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or the error of `data`.
    pub fn new<E>(net: &Namespace, info: Info, data: impl PinInit<D::Data, E>) -> Result<Self>
    where
        Error: From<E>,
    {
        let size = Object::<bindings::ib_device, Kick, D::Data>::SIZE;
        // SAFETY: The size is at least that of `struct ib_device`, and the namespace is valid.
        let raw = unsafe { bindings::_ib_alloc_device(size, net.as_raw()) };
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        let unfinished = ScopeGuard::new(|| {
            // SAFETY: The device has no operations yet, so the driver's data are left alone.
            unsafe { bindings::ib_dealloc_device(raw.as_ptr()) }
        });

        let this = raw
            .as_ptr()
            .cast::<Object<bindings::ib_device, Kick, D::Data>>();
        // SAFETY: The memory has the size of the object, stays in place, and nobody else uses it.
        unsafe { Object::init_data(this, data) }?;
        unfinished.dismiss();

        let ops = device_ops::<D>();
        // SAFETY: The device is ours. The operations fit to what is in the memory behind it; they
        // are copied.
        unsafe {
            let dev = raw.as_ptr();
            bindings::ib_set_device_ops(dev, &ops);

            (*dev).node_type = bindings::RDMA_NODE_IB_CA as u8;
            (*dev).phys_port_cnt = PORT;
            (*dev).num_comp_vectors = info.num_comp_vectors as c_int;
            (*dev).node_guid = info.node_guid.to_be();
            let name = D::NAME.to_bytes();
            for (to, from) in (*dev).node_desc.iter_mut().zip(name) {
                *to = *from;
            }
            (*dev).link_ops = link_ops::<D>();
            // Whoever has asked for a name shall keep it (`ib_mark_name_assigned_by_user()`).
            (*dev).name_assign_type = bindings::rdma_nl_name_assign_type_RDMA_NAME_ASSIGN_TYPE_USER;
            if let Some(method) = D::KICK_METHOD {
                (*dev).driver_def = Kick::describe::<D>(Object::extra_ptr(this), method);
            }
        }
        // INVARIANT: All is set, and the device is in no list.
        Ok(UnregisteredDevice(raw, PhantomData))
    }

    /// Sets the network device of the port.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn set_netdev(&mut self, netdev: &NetDevice) -> Result {
        // SAFETY: Both devices are valid. The function takes a reference of its own.
        to_result(unsafe { bindings::ib_device_set_netdev(self.0.as_ptr(), netdev.as_raw(), PORT) })
    }

    /// Makes the device known to all. From then on it belongs to the core, and may be gone again when
    /// this returns.
    ///
    /// `name` may have one `%d`, which becomes a number.
    ///
    /// # Errors
    ///
    /// `ENFILE` if the name is in use, and those of the driver's `query_device` and `query_port`.
    pub fn register(self, name: &CStr) -> Result {
        // SAFETY: The device is valid.
        let netdev = unsafe { Device::<D>::from_raw(self.0.as_ptr()) }.netdev();
        // SAFETY: The device is ours, and complete. Without a DMA device, the core takes the
        // processor for it.
        to_result(unsafe {
            bindings::ib_register_device(self.0.as_ptr(), name.as_char_ptr(), core::ptr::null_mut())
        })?;
        let _ = ManuallyDrop::new(self);

        // If the network device went before the device was known, the notifier has missed it.
        if let Some(netdev) = netdev {
            if !netdev.is_registered() {
                unregister_for::<D>(&netdev);
            }
        }
        Ok(())
    }
}

impl<D: Driver> Drop for UnregisteredDevice<D> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants. This drops the driver's data, too (`dealloc_driver`).
        unsafe { bindings::ib_dealloc_device(self.0.as_ptr()) };
    }
}
