// SPDX-License-Identifier: GPL-2.0

//! Path MTUs, of the engine and of the verbs.

use ferrule_engine::Mtu;
use net_ext::NetDevice;
use rdma::port;

/// The path MTU of a port on this network device.
pub(crate) fn port_mtu(netdev: &NetDevice) -> Mtu {
    engine_mtu(port::Mtu::for_ethernet(netdev.mtu()))
}

/// As the engine has it.
pub(super) fn engine_mtu(mtu: port::Mtu) -> Mtu {
    match mtu {
        port::Mtu::B256 => Mtu::Mtu256,
        port::Mtu::B512 => Mtu::Mtu512,
        port::Mtu::B1024 => Mtu::Mtu1024,
        port::Mtu::B2048 => Mtu::Mtu2048,
        port::Mtu::B4096 => Mtu::Mtu4096,
    }
}

/// As the verbs have it.
pub(super) fn verbs_mtu(mtu: Mtu) -> port::Mtu {
    match mtu {
        Mtu::Mtu256 => port::Mtu::B256,
        Mtu::Mtu512 => port::Mtu::B512,
        Mtu::Mtu1024 => port::Mtu::B1024,
        Mtu::Mtu2048 => port::Mtu::B2048,
        Mtu::Mtu4096 => port::Mtu::B4096,
    }
}
