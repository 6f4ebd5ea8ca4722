// SPDX-License-Identifier: GPL-2.0

//! Devices before they are registered.

use core::{
    marker::PhantomData,
    mem,
    ptr::NonNull, //
};

use kernel::{
    device,
    error::to_result,
    prelude::*,
    sync::Arc,
    types::ScopeGuard, //
};
use kernel_ext::device::as_raw;
use net_ext::{
    HeldNamespace,
    NetDevice, //
};

use crate::{
    bindings,
    device::{
        Extra,
        Info, //
    },
    gate::Gate,
    link::{
        link_ops,
        Link,
        Offered, //
    },
    object::Object,
    ops::device_ops,
    port::PORT,
    registered::{
        Registered,
        Registration, //
    },
    uapi::Tree,
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
    /// exclusive`), it belongs to `net`, and is moved to the first namespace when that one ends.
    /// Else it is seen in all of them. The namespace does not end before the device is registered.
    /// The network device of the port, if there is one, is in it: in another one, it counts as gone
    /// when the device is registered.
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
        // SAFETY: The memory has the size of the object, stays in place, and nobody else uses it.
        // This crate's part needs no dropping as it is here.
        unsafe {
            Object::begin(this, Extra::new::<D>(&net));
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
            if !D::METHODS.is_empty() {
                let methods = &raw const (*Object::extra_ptr(this)).methods;
                (*dev).driver_def = Tree::describe::<D>(methods);
            }
        }
        // INVARIANT: All is set, and the device is in no list. It refers to this namespace, or to
        // the first.
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

    /// Makes the device known to all. From then on it belongs to the core, and may be gone again
    /// when this returns. It is gone when the driver's registration is.
    ///
    /// `name` may have one `%d`, which becomes a number.
    ///
    /// # Errors
    ///
    /// `ENFILE` if the name is in use, `EINVAL` if it has a `%` of another kind, and those of the
    /// driver's `query_device` and `query_port`.
    pub fn register(self, _offered: &Offered<'_, D>, name: &CStr) -> Result
    where
        D: Link,
    {
        let UnregisteredDevice { device, _net } = self;
        check_name(name)?;
        let raw = device.0.as_ptr();
        // SAFETY: The device is ours.
        unsafe {
            (*raw).link_ops = link_ops::<D>();
            // A user has asked for the name and shall keep it (`ib_mark_name_assigned_by_user()`).
            (*raw).name_assign_type = bindings::rdma_nl_name_assign_type_RDMA_NAME_ASSIGN_TYPE_USER;
        }
        // SAFETY: The device is ours, and complete, and its namespace is held. The registration of
        // its driver is there, and removes the device when it goes. Without a DMA device, the core
        // takes the processor for it.
        to_result(unsafe {
            bindings::ib_register_device(raw, name.as_char_ptr(), core::ptr::null_mut())
        })?;
        mem::forget(device);
        Ok(())
    }

    /// Makes the device known to all, as one that belongs to `parent`: it reaches memory by the DMA
    /// addresses of that one, and goes before that one is unbound. No user can remove it.
    ///
    /// `name` may have one `%d`, which becomes a number.
    ///
    /// # Errors
    ///
    /// As for [`UnregisteredDevice::register`]; `EINVAL` if `parent` cannot do DMA; `ENOMEM`.
    pub fn register_on(
        self,
        parent: &device::Device<device::Bound>,
        name: &CStr,
    ) -> Result<Registered<D>> {
        let UnregisteredDevice { device, _net } = self;
        check_name(name)?;
        let dma_device = as_raw(parent);
        // The core takes the parameters for granted, and the DMA API the mask.
        //
        // SAFETY: The parent is valid, and bound: its driver changes these no more.
        if unsafe { (*dma_device).dma_parms.is_null() || (*dma_device).dma_mask.is_null() } {
            return Err(EINVAL);
        }
        let users = Arc::pin_init(Gate::new(), GFP_KERNEL)?;
        let raw = device.0;
        // SAFETY: The device is ours, and its parts are initialised.
        unsafe {
            let dev = raw.as_ptr();
            (*dev).__bindgen_anon_1.dev.as_mut().parent = dma_device;
            let object = dev.cast::<Object<bindings::ib_device, Extra, D::Data>>();
            (*Object::extra_ptr(object)).parent = Some(users.clone());
        }
        // It is there before the device is, so that nothing of the device can be missed, and
        // nothing can fail when the device is known.
        //
        // SAFETY: The device is ours and has this parent. Pinned memory passes the gate (`Pin`),
        // and all else that uses the parent for the device are verbs.
        let registered = Registered(unsafe { Registration::<D>::new(raw, parent, users) }?);
        // SAFETY: The device is ours, and complete, and its namespace is held. `registered` removes
        // the device before the parent is unbound, or if this fails finds that it is not
        // registered.
        to_result(unsafe {
            bindings::ib_register_device(raw.as_ptr(), name.as_char_ptr(), dma_device)
        })?;
        mem::forget(device);
        Ok(registered)
    }
}

/// Checks a name, which the core takes for the format of a number.
///
/// # Errors
///
/// `EINVAL` if it has a `%` that is not that of a `%d`, or two.
fn check_name(name: &CStr) -> Result {
    let mut formats = name.to_bytes().split(|&byte| byte == b'%').skip(1);
    if formats
        .next()
        .is_some_and(|format| !format.starts_with(b"d"))
        || formats.next().is_some()
    {
        return Err(EINVAL);
    }
    Ok(())
}

impl<D: Driver> Drop for Allocated<D> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants. This drops the driver's data, too (`dealloc_driver`).
        unsafe { bindings::ib_dealloc_device(self.0.as_ptr()) };
    }
}
