// SPDX-License-Identifier: GPL-2.0

//! The network device below a device.
//!
//! Its groups and the addresses that it receives are counted, and what a device of ours has added
//! it takes away again. That ends when the network device goes or moves to another network
//! namespace: Linux then forgets all of them, and counts anew. The device of ours is removed some
//! time after that, by a queue, so it may not take away any more then.

use core::ops::Deref;

use kernel::sync::{
    aref::ARef,
    atomic::{
        Atomic,
        Relaxed, //
    }, //
};
use net_ext::{
    NetDevice,
    Rtnl, //
};

/// A network device, which is lost when it goes or leaves its network namespace.
pub(crate) struct Lower {
    netdev: ARef<NetDevice>,
    /// Changes and is asked for under the RTNL.
    lost: Atomic<bool>,
}

impl Lower {
    pub(crate) fn new(netdev: &NetDevice) -> Self {
        Lower {
            netdev: netdev.hold(),
            lost: Atomic::new(false),
        }
    }

    /// It is lost from now on. The RTNL is held.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Relaxed);
    }

    /// Whether it is lost.
    pub(crate) fn is_lost(&self, _rtnl: &Rtnl) -> bool {
        self.lost.load(Relaxed)
    }
}

impl Deref for Lower {
    type Target = NetDevice;

    fn deref(&self) -> &NetDevice {
        &self.netdev
    }
}
