// SPDX-License-Identifier: GPL-2.0

//! The state of the port, which all datagram queue pairs share.

use crate::{
    base::{
        attr::Mtu,
        host::Host,
        id::Vport, //
    },
    object::{
        address::Ahs,
        multicast::Groups, //
    },
};

/// The port.
pub(crate) struct Port<H: Host> {
    /// The path MTU of each virtual port.
    mtus: [Mtu; Vport::LIMIT as usize],
    pub(crate) ahs: Ahs<H>,
    pub(crate) groups: Groups<H>,
}

impl<H: Host> Port<H> {
    pub(crate) fn new(random: u32) -> Self {
        Self {
            mtus: [Mtu::Mtu256; Vport::LIMIT as usize],
            ahs: Ahs::new(),
            groups: Groups::new(random),
        }
    }

    /// The path MTU of a virtual port: the most bytes of a datagram.
    pub(crate) fn mtu(&self, vport: Vport) -> Mtu {
        let mtu = self.mtus.get(usize::from(vport.0));
        mtu.copied().unwrap_or(Mtu::Mtu256)
    }

    /// Changes it.
    pub(crate) fn set_mtu(&mut self, vport: Vport, mtu: Mtu) {
        if let Some(old) = self.mtus.get_mut(usize::from(vport.0)) {
            *old = mtu;
        }
    }
}
