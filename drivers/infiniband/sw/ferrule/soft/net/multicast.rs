// SPDX-License-Identifier: GPL-2.0

//! Multicast groups: joining one on the network device makes the network bring its packets here.

use kernel::prelude::*;
use net_ext::Rtnl;
use rdma::Gid;

use super::{
    lower::Lower,
    path::address, //
};

/// Lets a network device receive what is sent to a group, and tells the routers, by IGMP or MLD.
/// Each call needs a [`leave`] of its own. Process context.
///
/// # Errors
///
/// `ENODEV` of one that is lost, and those of [`net_ext::NetDevice::join_multicast`].
pub(crate) fn join(lower: &Lower, group: &Gid) -> Result {
    let rtnl = Rtnl::lock();
    if lower.is_lost(&rtnl) {
        return Err(ENODEV);
    }
    lower.join_multicast(&rtnl, address(group))
}

/// Undoes one [`join`]. A network device that is lost has left its groups: those that it is in now,
/// somebody else has joined. Process context.
pub(crate) fn leave(lower: &Lower, group: &Gid) {
    let rtnl = Rtnl::lock();
    if !lower.is_lost(&rtnl) {
        lower.leave_multicast(&rtnl, address(group));
    }
}
