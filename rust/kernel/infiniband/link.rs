// SPDX-License-Identifier: GPL-2.0

//! The operations of `rdma link`.
//!
//! C header: `include/rdma/rdma_netlink.h`.

use core::marker::PhantomData;

use kernel::{
    error::{
        from_result,
        VTABLE_DEFAULT_ERROR, //
    },
    prelude::*,
    sync::Mutex, //
};
use net_ext::NetDevice;

use crate::{
    bindings,
    Device,
    Driver, //
};

/// A driver whose devices users make for network devices (`rdma link add`), and remove.
#[vtable]
pub trait Link: Driver {
    /// Makes a device for a network device (`rdma link add`), which is registered by `offered`. The
    /// RTNL is not held. No other call of it runs meanwhile in this module: a device that it does
    /// not find is not there until it has registered its own.
    ///
    /// # Errors
    ///
    /// Any error is the caller's answer.
    fn new_link(offered: &Offered<'_, Self>, name: &CStr, netdev: &NetDevice) -> Result;

    /// A device is about to be removed by `rdma link delete`.
    fn del_link(_dev: &Device<Self>) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// Proof that there is a [`Registration`](crate::Registration) of the driver, which does not go
/// during the lifetime `'a`: devices that are registered meanwhile go with it.
pub struct Offered<'a, D: Driver>(PhantomData<&'a ()>, PhantomData<fn() -> D>);

impl<D: Driver> Offered<'_, D> {
    /// # Safety
    ///
    /// There is a registration of the driver, and it does not go during the lifetime of the result.
    pub(crate) unsafe fn new() -> Self {
        Offered(PhantomData, PhantomData)
    }
}

/// The operations on links, as devices refer to them; the core only reads these.
pub(crate) fn link_ops<D: Link>() -> *const bindings::rdma_link_ops {
    struct Ops<D>(PhantomData<D>);

    impl<D: Link> Ops<D> {
        const OPS: &'static bindings::rdma_link_ops = &make_link_ops::<D>();
    }

    Ops::<D>::OPS
}

/// A copy of them, which may be registered.
pub(crate) const fn make_link_ops<D: Link>() -> bindings::rdma_link_ops {
    bindings::rdma_link_ops {
        type_: kernel::str::as_char_ptr_in_const_context(D::NAME),
        newlink: Some(newlink::<D>),
        dellink: if D::HAS_DEL_LINK {
            Some(dellink::<D>)
        } else {
            None
        },
        ..pin_init::zeroed()
    }
}

/// `newlink` of `struct rdma_link_ops`.
///
/// # Safety
///
/// `name` is a string, and the caller holds a reference to `netdev`.
unsafe extern "C" fn newlink<D: Link>(
    name: *const c_char,
    netdev: *mut bindings::net_device,
) -> c_int {
    from_result(|| {
        // The core lets several calls through at a time. The mutex comes before all other locks
        // that making a device takes, such as the RTNL: it is taken here alone, where the core
        // holds nothing but the list of link types, for reading.
        // SAFETY: The helper answers a mutex of this module that the compiler has initialised.
        let making = unsafe { Mutex::<()>::from_raw(bindings::new_link_mutex()) };
        let _making = making.lock();
        // SAFETY: By the requirements of this function.
        let (name, netdev) = unsafe { (CStr::from_char_ptr(name), NetDevice::from_raw(netdev)) };
        // SAFETY: The core calls this only for links that are registered, and does not let the
        // registration go before this returns (`link_ops_rwsem`).
        let offered = unsafe { Offered::new() };
        D::new_link(&offered, name, netdev)?;
        Ok(0)
    })
}

/// `dellink` of `struct rdma_link_ops`. It never fails, for the core would keep its reference to
/// the device if it did.
///
/// # Safety
///
/// `dev` is a device of the driver `D`, and the caller keeps it from going.
unsafe extern "C" fn dellink<D: Link>(dev: *mut bindings::ib_device) -> c_int {
    // SAFETY: By the requirements of this function.
    D::del_link(unsafe { Device::from_raw(dev) });
    0
}
