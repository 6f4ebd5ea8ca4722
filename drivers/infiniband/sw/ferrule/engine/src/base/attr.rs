// SPDX-License-Identifier: GPL-2.0

//! The attributes of queue pairs, typed.

use crate::{
    base::{
        error::Error,
        id::Vport, //
    },
    packet::opcode::Service,
};

/// The reads and atomics that a queue pair may have outstanding, in either direction.
pub const MAX_RD_ATOMIC: u8 = 16;

/// A global identifier, in the byte order of the wire.
pub type Gid = [u8; 16];

/// The states of a queue pair (IBA volume 1, 10.3.1), with the values of `enum ib_qp_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// As created.
    Reset = 0,
    /// Receive requests may be posted.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// The send queue drains, or has drained.
    Sqd = 4,
    /// The send queue is in error; not for RC.
    Sqe = 5,
    /// All work ends with a flush error.
    Err = 6,
}

impl State {
    /// All states, in the order of their values.
    pub const ALL: [State; 7] = [
        State::Reset,
        State::Init,
        State::Rtr,
        State::Rts,
        State::Sqd,
        State::Sqe,
        State::Err,
    ];
}

impl TryFrom<u32> for State {
    type Error = Error;

    /// # Errors
    ///
    /// [`Error::Invalid`] for a value that names no state.
    fn try_from(value: u32) -> Result<Self, Error> {
        match value {
            0 => Ok(State::Reset),
            1 => Ok(State::Init),
            2 => Ok(State::Rtr),
            3 => Ok(State::Rts),
            4 => Ok(State::Sqd),
            5 => Ok(State::Sqe),
            6 => Ok(State::Err),
            _ => Err(Error::Invalid),
        }
    }
}

/// The transport services that the engine offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Extended reliable connection, the side that sends requests (annex A14).
    XrcIni,
    /// Extended reliable connection, the side that takes them, for shared receive queues of its XRC
    /// domain.
    XrcTgt,
    /// Ethernet frames as they are (`IBV_QPT_RAW_PACKET`).
    RawPacket,
}

impl QpType {
    /// Its packets are acknowledged, and sent again until they are.
    #[inline(always)]
    pub(crate) fn is_reliable(self) -> bool {
        match self {
            QpType::Rc | QpType::XrcIni | QpType::XrcTgt => true,
            QpType::Uc | QpType::Ud | QpType::RawPacket => false,
        }
    }

    /// It takes requests over XRC, for shared receive queues that these name.
    #[inline(always)]
    pub(crate) fn is_target(self) -> bool {
        self == QpType::XrcTgt
    }

    /// The type that a peer has.
    #[inline(always)]
    pub(crate) fn peer(self) -> Self {
        match self {
            QpType::XrcIni => QpType::XrcTgt,
            QpType::XrcTgt => QpType::XrcIni,
            QpType::Rc | QpType::Uc | QpType::Ud | QpType::RawPacket => self,
        }
    }

    /// The service that is in the opcodes of its packets; frames have none.
    #[inline(always)]
    pub(crate) fn service(self) -> Option<Service> {
        match self {
            QpType::Rc => Some(Service::Rc),
            QpType::Uc => Some(Service::Uc),
            QpType::Ud => Some(Service::Ud),
            QpType::XrcIni | QpType::XrcTgt => Some(Service::Xrc),
            QpType::RawPacket => None,
        }
    }
}

/// Path MTU, with the values of `enum ib_mtu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes.
    Mtu256 = 1,
    /// 512 bytes.
    Mtu512 = 2,
    /// 1024 bytes.
    Mtu1024 = 3,
    /// 2048 bytes.
    Mtu2048 = 4,
    /// 4096 bytes.
    Mtu4096 = 5,
}

impl Mtu {
    /// The binary logarithm of the number of bytes.
    pub const fn shift(self) -> u32 {
        (self as u32).wrapping_add(7)
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u32 {
        1u32.wrapping_shl(self.shift())
    }
}

impl TryFrom<u32> for Mtu {
    type Error = Error;

    /// # Errors
    ///
    /// [`Error::Invalid`] for a value that names no MTU.
    fn try_from(value: u32) -> Result<Self, Error> {
        match value {
            1 => Ok(Mtu::Mtu256),
            2 => Ok(Mtu::Mtu512),
            3 => Ok(Mtu::Mtu1024),
            4 => Ok(Mtu::Mtu2048),
            5 => Ok(Mtu::Mtu4096),
            _ => Err(Error::Invalid),
        }
    }
}

/// A set of rights to memory or of a queue pair, with the bits of `enum ib_access_flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(pub u32);

impl Access {
    /// No right but that to read locally, which every region gives.
    pub const NONE: Access = Access(0);
    /// The owner may write.
    pub const LOCAL_WRITE: Access = Access(1);
    /// A peer may write.
    pub const REMOTE_WRITE: Access = Access(1 << 1);
    /// A peer may read.
    pub const REMOTE_READ: Access = Access(1 << 2);
    /// A peer may do atomic operations.
    pub const REMOTE_ATOMIC: Access = Access(1 << 3);
    /// The rights that a peer may be given.
    pub(crate) const REMOTE: Access = Access::REMOTE_WRITE
        .or(Access::REMOTE_READ)
        .or(Access::REMOTE_ATOMIC)
        .or(Access::FLUSH_GLOBAL);
    /// Memory windows may be bound to the region.
    pub const MW_BIND: Access = Access(1 << 4);
    /// Peers name the first byte of a memory window by the address 0.
    pub const ZERO_BASED: Access = Access(1 << 5);
    /// The bytes need not be in memory, and are brought there when they are used.
    pub const ON_DEMAND: Access = Access(1 << 6);
    /// A peer may flush what was written until all see it.
    pub const FLUSH_GLOBAL: Access = Access(1 << 8);
    /// A peer may flush what was written until it persists.
    pub const FLUSH_PERSISTENT: Access = Access(1 << 9);
    /// Both rights to flush.
    pub(crate) const FLUSH: Access = Access::FLUSH_GLOBAL.or(Access::FLUSH_PERSISTENT);

    /// Whether all rights of `need` are in this set.
    pub const fn allows(self, need: Access) -> bool {
        self.0 & need.0 == need.0
    }

    /// The rights that are in both sets.
    pub(crate) const fn and(self, other: Access) -> Access {
        Access(self.0 & other.0)
    }

    /// Whether some of these rights are given.
    pub(crate) fn allows_some(self, of: Access) -> bool {
        self.0 & of.0 != 0
    }

    /// The rights of both sets.
    pub const fn or(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

/// Where the peer of a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// On this virtual port of this engine: bytes go from memory to memory.
    Local(Vport),
    /// Elsewhere: bytes go over the wire.
    Remote,
}

/// The way to a peer: an address vector, resolved by the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Where the peer is; the host judges by `dgid`.
    pub kind: PathKind,
    /// Index of `sgid` in the port's table.
    pub sgid_index: u8,
    /// The own address.
    pub sgid: Gid,
    /// The peer's address.
    pub dgid: Gid,
    /// The Ethernet address of the next hop.
    pub dmac: [u8; 6],
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Service level.
    pub sl: u8,
    /// Static rate, `enum ib_rate`.
    pub static_rate: u8,
}

impl Path {
    /// The peer is on another engine, and packets go there.
    #[inline]
    pub(crate) fn is_remote(&self) -> bool {
        self.kind == PathKind::Remote
    }
}

/// The capacities of a queue pair, fixed at its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Send requests that may be outstanding. At most the depth of the ring.
    pub max_send_wr: u32,
    /// Receive requests that may be outstanding. At most the depth of the ring.
    pub max_recv_wr: u32,
    /// Scatter/gather entries of a send request.
    pub max_send_sge: u32,
    /// Scatter/gather entries of a receive request.
    pub max_recv_sge: u32,
    /// Bytes of inline data.
    pub max_inline: u32,
}

/// The changes that [`Engine::modify_qp`](crate::Engine::modify_qp) is asked for: `None` is
/// unchanged.
///
/// The fields are those of `struct ib_qp_attr`, and `Some` stands for the bit in the mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modify {
    /// `IB_QP_STATE`. Without it, the state stays and attributes change as far as it allows.
    pub state: Option<State>,
    /// `IB_QP_CUR_STATE`: the state that the caller believes the queue pair to be in.
    pub cur_state: Option<State>,
    /// `IB_QP_EN_SQD_ASYNC_NOTIFY`.
    pub en_sqd_async_notify: Option<bool>,
    /// `IB_QP_ACCESS_FLAGS`: the rights of a peer through this queue pair.
    pub access: Option<Access>,
    /// `IB_QP_PKEY_INDEX`: 0 alone is valid.
    pub pkey_index: Option<u16>,
    /// `IB_QP_PORT`: 1 alone is valid.
    pub port: Option<u32>,
    /// `IB_QP_QKEY`.
    pub qkey: Option<u32>,
    /// `IB_QP_AV`.
    pub path: Option<Path>,
    /// `IB_QP_PATH_MTU`.
    pub path_mtu: Option<Mtu>,
    /// `IB_QP_TIMEOUT`: 4.096 us × 2^timeout; 0 is for ever; at most 31. A retry takes up to four
    /// times as long.
    pub timeout: Option<u8>,
    /// `IB_QP_RETRY_CNT`: at most 7, which is seven retries, but see `Config::retries_for_ever`.
    pub retry_cnt: Option<u8>,
    /// `IB_QP_RNR_RETRY`: at most 7, which is for ever.
    pub rnr_retry: Option<u8>,
    /// `IB_QP_RQ_PSN`: 24 bits.
    pub rq_psn: Option<u32>,
    /// `IB_QP_MAX_QP_RD_ATOMIC`: reads and atomics that this side may have outstanding.
    pub max_rd_atomic: Option<u8>,
    /// `IB_QP_MAX_DEST_RD_ATOMIC`: reads and atomics that the peer may have outstanding.
    pub max_dest_rd_atomic: Option<u8>,
    /// `IB_QP_MIN_RNR_TIMER`: a code of IBA volume 1, table 45; at most 31.
    pub min_rnr_timer: Option<u8>,
    /// `IB_QP_SQ_PSN`: 24 bits.
    pub sq_psn: Option<u32>,
    /// `IB_QP_DEST_QPN`: 24 bits.
    pub dest_qpn: Option<u32>,
    /// `IB_QP_ALT_PATH` is in the mask: not supported.
    pub alt_path: bool,
    /// `IB_QP_PATH_MIG_STATE` is in the mask: not supported.
    pub path_mig_state: bool,
    /// `IB_QP_CAP` is in the mask: queues are not resized, so not valid in any transition.
    pub cap: bool,
    /// `IB_QP_RATE_LIMIT` is in the mask: not valid for these transport services.
    pub rate_limit: bool,
}

/// The attributes of a queue pair that [`Modify`] changes, as they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Notify when the send queue has drained.
    pub en_sqd_async_notify: bool,
    /// The rights that the peer has through this queue pair.
    pub access: Access,
    /// Index of the partition key.
    pub pkey_index: u16,
    /// The port; 0 before it was given.
    pub port: u32,
    /// The Q_Key of a datagram queue pair.
    pub qkey: u32,
    /// The way to the peer.
    pub path: Option<Path>,
    /// Path MTU.
    pub path_mtu: Mtu,
    /// Exponent of the acknowledgement timer.
    pub timeout: u8,
    /// Retries after a lost message.
    pub retry_cnt: u8,
    /// Retries after receiver not ready.
    pub rnr_retry: u8,
    /// The next PSN that the responder expects.
    pub rq_psn: u32,
    /// The next PSN that the requester sends.
    pub sq_psn: u32,
    /// Reads and atomics that this side may have outstanding.
    pub max_rd_atomic: u8,
    /// Reads and atomics that the peer may have outstanding.
    pub max_dest_rd_atomic: u8,
    /// Code of the time that the peer waits when no receive request is there.
    pub min_rnr_timer: u8,
    /// The peer's number.
    pub dest_qpn: u32,
}

impl Attributes {
    /// The attributes of a queue pair in state RESET.
    pub const RESET: Attributes = Attributes {
        en_sqd_async_notify: false,
        access: Access::NONE,
        pkey_index: 0,
        port: 0,
        qkey: 0,
        path: None,
        path_mtu: Mtu::Mtu256,
        timeout: 0,
        retry_cnt: 0,
        rnr_retry: 0,
        rq_psn: 0,
        sq_psn: 0,
        max_rd_atomic: 0,
        max_dest_rd_atomic: 0,
        min_rnr_timer: 0,
        dest_qpn: 0,
    };

    /// Whether the peer may send requests that need this right and take a responder resource: a
    /// queue pair that promised no resources has none to respond from (IBA volume 1, 9.4.4 and
    /// 9.4.5).
    #[inline(always)]
    pub(crate) fn responds_to(&self, need: Access) -> bool {
        self.access.allows(need) && self.max_dest_rd_atomic != 0
    }
}

/// The answer of [`Engine::query_qp`](crate::Engine::query_qp).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpInfo {
    /// The state.
    pub state: State,
    /// In state SQD: requests that were begun have not ended.
    pub sq_draining: bool,
    /// The transport service.
    pub qp_type: QpType,
    /// The capacities of the queue pair.
    pub cap: Capabilities,
    /// Every send request completes with a completion.
    pub sq_sig_all: bool,
    /// The attributes that can be modified.
    pub attr: Attributes,
    /// The next send request to be taken from the ring, for debugging.
    pub sq_consumer: u32,
    /// The next receive request to be taken from the ring, for debugging.
    pub rq_consumer: u32,
}
