// SPDX-License-Identifier: GPL-2.0

//! The RDMA devices of other drivers.
//!
//! C header: `include/rdma/ib_verbs.h`.

use kernel::{
    prelude::*,
    str::CString, //
};
use net_ext::Namespace;

use crate::bindings;

/// The number of Linux's driver `rdma_rxe`: `RDMA_DRIVER_RXE`.
pub const RXE: u32 = bindings::rdma_driver_id_RDMA_DRIVER_RXE;

/// The name of a device of a driver which is bound to a network device in `net`, if there is one;
/// of several, of any. Process context.
pub fn find(net: &Namespace, driver: u32) -> Option<CString> {
    let mut name = [0; bindings::IB_DEVICE_NAME_MAX as usize];
    // SAFETY: The namespace is valid, and there is space for a name, terminated.
    if !unsafe { bindings::ib_device_name_in_net(net.as_raw(), driver, name.as_mut_ptr()) } {
        return None;
    }
    let name = CStr::from_bytes_until_nul(&name).ok()?;
    CString::try_from(name).ok()
}
