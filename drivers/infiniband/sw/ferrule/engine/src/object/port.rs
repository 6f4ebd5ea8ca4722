// SPDX-License-Identifier: GPL-2.0

//! What belongs to the port, and to all of its datagram queue pairs.

use crate::{
    base::{
        attr::Mtu,
        host::Host, //
    },
    object::{
        address::Ahs,
        multicast::Groups, //
    },
};

/// The port.
pub(crate) struct Port<H: Host> {
    /// The most bytes of a datagram.
    pub(crate) mtu: Mtu,
    pub(crate) ahs: Ahs<H>,
    pub(crate) groups: Groups<H>,
}

impl<H: Host> Port<H> {
    pub(crate) fn new(random: u32) -> Self {
        Self {
            mtu: Mtu::Mtu256,
            ahs: Ahs::new(),
            groups: Groups::new(random),
        }
    }
}
