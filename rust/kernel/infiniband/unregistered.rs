// SPDX-License-Identifier: GPL-2.0

//! Devices before they are registered.

use core::{
    marker::PhantomData,
    mem,
    ptr::NonNull, //
};

use kernel::{
    error::to_result,
    prelude::*,
    types::ScopeGuard, //
};
use net_ext::{
    HeldNamespace,
    NetDevice, //
};

use crate::{
    bindings,
    device::{
        unregister_for,
        Extra,
        Info, //
    },
    link::{
        link_ops,
        Offered, //
    },
    object::Object,
    ops::device_ops,
    port::PORT,
    uapi::Tree,
    Device,
    Driver, //
};

/// A device that nobody sees yet. Dropping it frees it.
///
/// # Invariants
///
/// The device refers to `_net`, if to any namespace but the first one.
pub struct UnregisteredDevice<D: Driver> {
    device: Allocated<D>,
    _net: HeldNamespace,
}

/// A device that is freed when this is dropped.
///
/// # Invariants
///
/// The device is not registered, its data and operations are set, and nobody else has it.
struct Allocated<D: Driver>(NonNull<bindings::ib_device>, PhantomData<D>);

impl<D: Driver> UnregisteredDevice<D> {
    /// Makes a device with the driver's `data`.
    ///
    /// In the mode in which RDMA devices belong to network namespaces (`rdma system set netns
    /// exclusive`), it belongs to `net`, and is moved to the first namespace when that one ends. Else
    /// it is seen in all of them. The namespace does not end before the device is registered.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or the error of `data`.
    pub fn new<E>(net: HeldNamespace, info: Info, data: impl PinInit<D::Data, E>) -> Result<Self>
    where
        Error: From<E>,
    {
        let size = Object::<bindings::ib_device, Extra, D::Data>::SIZE;
        // SAFETY: The size is at least that of `struct ib_device`, and the namespace is valid.
        let raw = unsafe { bindings::_ib_alloc_device(size, net.as_raw()) };
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        let unfinished = ScopeGuard::new(|| {
            // SAFETY: The device has no operations yet, so the driver's data are left alone.
            unsafe { bindings::ib_dealloc_device(raw.as_ptr()) }
        });

        let this = raw
            .as_ptr()
            .cast::<Object<bindings::ib_device, Extra, D::Data>>();
        // SAFETY: The memory has the size of the object, stays in place, and nobody else uses it. This
        // crate's part needs no dropping.
        unsafe {
            Object::begin(this, Extra::new::<D>());
            Object::init_data(this, data)
        }?;
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
            // A user has asked for the name and shall keep it (`ib_mark_name_assigned_by_user()`).
            (*dev).name_assign_type = bindings::rdma_nl_name_assign_type_RDMA_NAME_ASSIGN_TYPE_USER;
            if !D::METHODS.is_empty() {
                let methods = &raw const (*Object::extra_ptr(this)).methods;
                (*dev).driver_def = Tree::describe::<D>(methods);
            }
        }
        // INVARIANT: All is set, and the device is in no list. It refers to this namespace, or to the first.
        Ok(UnregisteredDevice {
            device: Allocated(raw, PhantomData),
            _net: net,
        })
    }

    /// Sets the network device of the port.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn set_netdev(&mut self, netdev: &NetDevice) -> Result {
        // SAFETY: Both devices are valid. The function takes a reference of its own.
        to_result(unsafe {
            bindings::ib_device_set_netdev(self.device.0.as_ptr(), netdev.as_raw(), PORT)
        })
    }

    /// Makes the device known to all. From then on it belongs to the core, and may be gone again when
    /// this returns. It is gone when the driver's registration is.
    ///
    /// `name` may have one `%d`, which becomes a number.
    ///
    /// # Errors
    ///
    /// `ENFILE` if the name is in use, `EINVAL` if it has a `%` of another kind, and those of the driver's
    /// `query_device` and `query_port`.
    pub fn register(self, _offered: &Offered<'_, D>, name: &CStr) -> Result {
        let UnregisteredDevice { device, _net } = self;
        // The core takes it for the format of a number.
        let mut formats = name.to_bytes().split(|&byte| byte == b'%').skip(1);
        if formats
            .next()
            .is_some_and(|format| !format.starts_with(b"d"))
            || formats.next().is_some()
        {
            return Err(EINVAL);
        }
        let raw = device.0.as_ptr();
        // SAFETY: The device is valid.
        let netdev = unsafe { Device::<D>::from_raw(raw) }.netdev();
        // SAFETY: The device is ours, and complete, and its namespace is held. The registration of its
        // driver is there, and removes the device when it goes. Without a DMA device, the core takes the
        // processor for it.
        to_result(unsafe {
            bindings::ib_register_device(raw, name.as_char_ptr(), core::ptr::null_mut())
        })?;
        mem::forget(device);

        // If the network device went before the device was known, the notifier has missed it.
        if let Some(netdev) = netdev {
            if !netdev.is_registered() {
                unregister_for::<D>(&netdev);
            }
        }
        Ok(())
    }
}

impl<D: Driver> Drop for Allocated<D> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants. This drops the driver's data, too (`dealloc_driver`).
        unsafe { bindings::ib_dealloc_device(self.0.as_ptr()) };
    }
}
