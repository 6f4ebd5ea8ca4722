// SPDX-License-Identifier: GPL-2.0

//! Ports.

use crate::bindings;

/// The number of the port. Ports are counted from 1, and our devices have one.
pub(crate) const PORT: u32 = 1;

/// The largest payload of a packet: `enum ib_mtu`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mtu {
    /// 256 bytes.
    #[default]
    B256,
    /// 512 bytes.
    B512,
    /// 1024 bytes.
    B1024,
    /// 2048 bytes.
    B2048,
    /// 4096 bytes.
    B4096,
}

impl Mtu {
    /// The bytes.
    pub const fn bytes(self) -> u32 {
        match self {
            Mtu::B256 => 256,
            Mtu::B512 => 512,
            Mtu::B1024 => 1024,
            Mtu::B2048 => 2048,
            Mtu::B4096 => 4096,
        }
    }

    /// The largest one for which a network device with this MTU has space beside the headers, or
    /// the smallest one if even that does not fit.
    pub fn for_ethernet(mtu: u32) -> Self {
        let mtu = i32::try_from(mtu).unwrap_or(i32::MAX);
        // SAFETY: The function has no preconditions.
        Self::from_raw(unsafe { bindings::iboe_get_mtu(mtu) }).unwrap_or(Mtu::B256)
    }

    pub(crate) fn from_raw(raw: bindings::ib_mtu) -> Option<Self> {
        match raw {
            bindings::ib_mtu_IB_MTU_256 => Some(Mtu::B256),
            bindings::ib_mtu_IB_MTU_512 => Some(Mtu::B512),
            bindings::ib_mtu_IB_MTU_1024 => Some(Mtu::B1024),
            bindings::ib_mtu_IB_MTU_2048 => Some(Mtu::B2048),
            bindings::ib_mtu_IB_MTU_4096 => Some(Mtu::B4096),
            _ => None,
        }
    }

    pub(crate) fn to_raw(self) -> bindings::ib_mtu {
        match self {
            Mtu::B256 => bindings::ib_mtu_IB_MTU_256,
            Mtu::B512 => bindings::ib_mtu_IB_MTU_512,
            Mtu::B1024 => bindings::ib_mtu_IB_MTU_1024,
            Mtu::B2048 => bindings::ib_mtu_IB_MTU_2048,
            Mtu::B4096 => bindings::ib_mtu_IB_MTU_4096,
        }
    }
}

/// The state of a port's link: `enum ib_port_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No packets pass.
    Down,
    /// Only management packets pass.
    Init,
    /// As `Init`, and ready to be activated.
    Armed,
    /// Packets pass.
    Active,
}

impl State {
    pub(crate) fn to_raw(self) -> bindings::ib_port_state {
        match self {
            State::Down => bindings::ib_port_state_IB_PORT_DOWN,
            State::Init => bindings::ib_port_state_IB_PORT_INIT,
            State::Armed => bindings::ib_port_state_IB_PORT_ARMED,
            State::Active => bindings::ib_port_state_IB_PORT_ACTIVE,
        }
    }
}

/// The state below the link: `enum ib_port_phys_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhysState {
    /// Looking for the other end.
    Polling,
    /// Switched off.
    Disabled,
    /// Up.
    LinkUp,
}

impl PhysState {
    pub(crate) fn to_raw(self) -> u8 {
        (match self {
            PhysState::Polling => bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_POLLING,
            PhysState::Disabled => bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_DISABLED,
            PhysState::LinkUp => bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_LINK_UP,
        }) as u8
    }
}

/// A port, as programs are told of it: `struct ib_port_attr`.
#[derive(Clone, Debug)]
pub struct Attr {
    /// The state of the link.
    pub state: State,
    /// The state below the link.
    pub phys_state: PhysState,
    /// The largest MTU.
    pub max_mtu: Mtu,
    /// The MTU in use.
    pub active_mtu: Mtu,
    /// Entries of the GID table.
    pub gid_tbl_len: i32,
    /// Entries of the P_Key table.
    pub pkey_tbl_len: u16,
    /// The virtual lanes, coded as VLCap of PortInfo (IBA volume 1, 14.2.5.6).
    pub max_vl_num: u8,
    /// The longest message in bytes.
    pub max_msg_sz: u32,
    /// Packets with a P_Key that is not in the table.
    pub bad_pkey_cntr: u32,
    /// Datagrams with a wrong Q_Key.
    pub qkey_viol_cntr: u32,
    /// The lanes in use: `enum ib_port_width`.
    pub active_width: u8,
    /// The speed of a lane: `enum ib_port_speed`.
    pub active_speed: u16,
    /// Bits of the capability mask of PortInfo (IBA volume 1, 14.2.5.6).
    pub port_cap_flags: u32,
    /// Whether GIDs are IP addresses.
    pub ip_gids: bool,
}

impl Attr {
    /// Copies this to where the core reads it.
    pub(crate) fn write_to(&self, raw: &mut bindings::ib_port_attr) {
        raw.state = self.state.to_raw();
        raw.phys_state = self.phys_state.to_raw();
        raw.max_mtu = self.max_mtu.to_raw();
        raw.active_mtu = self.active_mtu.to_raw();
        raw.phys_mtu = self.active_mtu.bytes();
        raw.gid_tbl_len = self.gid_tbl_len;
        raw.pkey_tbl_len = self.pkey_tbl_len;
        raw.max_vl_num = self.max_vl_num;
        raw.max_msg_sz = self.max_msg_sz;
        raw.bad_pkey_cntr = self.bad_pkey_cntr;
        raw.qkey_viol_cntr = self.qkey_viol_cntr;
        raw.active_width = self.active_width;
        raw.active_speed = self.active_speed;
        raw.port_cap_flags = self.port_cap_flags;
        raw.set_ip_gids(self.ip_gids.into());
    }
}
