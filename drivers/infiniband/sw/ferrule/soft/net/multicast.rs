// SPDX-License-Identifier: GPL-2.0

//! Multicast groups: joining one on the network device makes the network bring its packets here.

use kernel::prelude::*;
use net_ext::{
    NetDevice,
    Rtnl, //
};
use rdma::Gid;

use super::path::address;

/// Lets a network device receive what is sent to a group, and tells the routers, by IGMP or MLD.
/// Each call needs a [`leave`] of its own. Process context.
///
/// # Errors
///
/// Those of [`NetDevice::join_multicast`].
pub(crate) fn join(netdev: &NetDevice, group: &Gid) -> Result {
    netdev.join_multicast(&Rtnl::lock(), address(group))
}

/// Undoes one [`join`]. Process context.
pub(crate) fn leave(netdev: &NetDevice, group: &Gid) {
    netdev.leave_multicast(&Rtnl::lock(), address(group));
}
