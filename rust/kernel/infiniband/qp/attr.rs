// SPDX-License-Identifier: GPL-2.0

//! The attributes of queue pairs.

use core::ops;

use kernel::prelude::*;

use crate::{
    bindings,
    port::Mtu,
    Access,
    AhAttr,
    GidAttr, //
};

/// A transport service: `enum ib_qp_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Subnet management, queue pair 0.
    Smi,
    /// General services, queue pair 1.
    Gsi,
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// The initiator of an extended reliable connection.
    XrcIni,
    /// The target of an extended reliable connection.
    XrcTgt,
    /// Raw Ethernet frames.
    RawPacket,
    /// A type of the driver's own.
    Driver,
}

impl Type {
    pub(super) fn from_raw(raw: bindings::ib_qp_type) -> Option<Self> {
        Some(match raw {
            bindings::ib_qp_type_IB_QPT_SMI => Type::Smi,
            bindings::ib_qp_type_IB_QPT_GSI => Type::Gsi,
            bindings::ib_qp_type_IB_QPT_RC => Type::Rc,
            bindings::ib_qp_type_IB_QPT_UC => Type::Uc,
            bindings::ib_qp_type_IB_QPT_UD => Type::Ud,
            bindings::ib_qp_type_IB_QPT_XRC_INI => Type::XrcIni,
            bindings::ib_qp_type_IB_QPT_XRC_TGT => Type::XrcTgt,
            bindings::ib_qp_type_IB_QPT_RAW_PACKET => Type::RawPacket,
            bindings::ib_qp_type_IB_QPT_DRIVER => Type::Driver,
            _ => return None,
        })
    }

    fn to_raw(self) -> bindings::ib_qp_type {
        match self {
            Type::Smi => bindings::ib_qp_type_IB_QPT_SMI,
            Type::Gsi => bindings::ib_qp_type_IB_QPT_GSI,
            Type::Rc => bindings::ib_qp_type_IB_QPT_RC,
            Type::Uc => bindings::ib_qp_type_IB_QPT_UC,
            Type::Ud => bindings::ib_qp_type_IB_QPT_UD,
            Type::XrcIni => bindings::ib_qp_type_IB_QPT_XRC_INI,
            Type::XrcTgt => bindings::ib_qp_type_IB_QPT_XRC_TGT,
            Type::RawPacket => bindings::ib_qp_type_IB_QPT_RAW_PACKET,
            Type::Driver => bindings::ib_qp_type_IB_QPT_DRIVER,
        }
    }
}

/// A state: `enum ib_qp_state` (IBA volume 1, 10.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Reset.
    #[default]
    Reset,
    /// Initialised.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// The send queue drains.
    Sqd,
    /// The send queue has an error.
    Sqe,
    /// Error.
    Err,
}

impl State {
    fn from_raw(raw: bindings::ib_qp_state) -> Option<Self> {
        Some(match raw {
            bindings::ib_qp_state_IB_QPS_RESET => State::Reset,
            bindings::ib_qp_state_IB_QPS_INIT => State::Init,
            bindings::ib_qp_state_IB_QPS_RTR => State::Rtr,
            bindings::ib_qp_state_IB_QPS_RTS => State::Rts,
            bindings::ib_qp_state_IB_QPS_SQD => State::Sqd,
            bindings::ib_qp_state_IB_QPS_SQE => State::Sqe,
            bindings::ib_qp_state_IB_QPS_ERR => State::Err,
            _ => return None,
        })
    }

    fn to_raw(self) -> bindings::ib_qp_state {
        match self {
            State::Reset => bindings::ib_qp_state_IB_QPS_RESET,
            State::Init => bindings::ib_qp_state_IB_QPS_INIT,
            State::Rtr => bindings::ib_qp_state_IB_QPS_RTR,
            State::Rts => bindings::ib_qp_state_IB_QPS_RTS,
            State::Sqd => bindings::ib_qp_state_IB_QPS_SQD,
            State::Sqe => bindings::ib_qp_state_IB_QPS_SQE,
            State::Err => bindings::ib_qp_state_IB_QPS_ERR,
        }
    }
}

/// A state of automatic path migration: `enum ib_mig_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigState {
    /// Migrated.
    Migrated,
    /// Rearm.
    Rearm,
    /// Armed.
    Armed,
}

impl MigState {
    fn from_raw(raw: bindings::ib_mig_state) -> Option<Self> {
        Some(match raw {
            bindings::ib_mig_state_IB_MIG_MIGRATED => MigState::Migrated,
            bindings::ib_mig_state_IB_MIG_REARM => MigState::Rearm,
            bindings::ib_mig_state_IB_MIG_ARMED => MigState::Armed,
            _ => return None,
        })
    }
}

/// The sizes of a queue pair: `struct ib_qp_cap`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cap {
    /// Send requests.
    pub max_send_wr: u32,
    /// Receive requests.
    pub max_recv_wr: u32,
    /// Scatter/gather entries of a send request.
    pub max_send_sge: u32,
    /// Scatter/gather entries of a receive request.
    pub max_recv_sge: u32,
    /// Bytes of inline data of a send request.
    pub max_inline_data: u32,
}

impl Cap {
    pub(super) fn from_raw(raw: &bindings::ib_qp_cap) -> Self {
        Cap {
            max_send_wr: raw.max_send_wr,
            max_recv_wr: raw.max_recv_wr,
            max_send_sge: raw.max_send_sge,
            max_recv_sge: raw.max_recv_sge,
            max_inline_data: raw.max_inline_data,
        }
    }

    pub(super) fn write_to(&self, raw: &mut bindings::ib_qp_cap) {
        raw.max_send_wr = self.max_send_wr;
        raw.max_recv_wr = self.max_recv_wr;
        raw.max_send_sge = self.max_send_sge;
        raw.max_recv_sge = self.max_recv_sge;
        raw.max_inline_data = self.max_inline_data;
    }
}

/// A set of attributes: `enum ib_qp_attr_mask`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttrMask(u32);

impl AttrMask {
    /// The set with these bits of `enum ib_qp_attr_mask`.
    pub const fn from_bits(bits: u32) -> Self {
        AttrMask(bits)
    }

    /// The bits of `enum ib_qp_attr_mask`.
    pub const fn bits(self) -> u32 {
        self.0
    }

    fn has(self, bit: bindings::ib_qp_attr_mask) -> bool {
        self.0 & bit != 0
    }
}

impl ops::BitOr for AttrMask {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        AttrMask(self.0 | other.0)
    }
}

/// Whether a queue pair may change its state so, and with just these attributes
/// (IBA volume 1, 11.2.5.2).
pub fn modify_is_ok(cur: State, next: State, qp_type: Type, mask: AttrMask) -> bool {
    // SAFETY: The function has no preconditions.
    unsafe { bindings::ib_modify_qp_is_ok(cur.to_raw(), next.to_raw(), qp_type.to_raw(), mask.0) }
}

/// A change of attributes: `struct ib_qp_attr`. An attribute is there if its bit of the mask is
/// set.
#[derive(Default)]
pub struct ModifyAttr<'a> {
    /// The state to change to.
    pub state: Option<State>,
    /// The current state, as the caller knows it.
    pub cur_state: Option<State>,
    /// Whether an event tells that the send queue is drained.
    pub en_sqd_async_notify: Option<bool>,
    /// The access rights of a peer.
    pub access: Option<Access>,
    /// The index of the P_Key.
    pub pkey_index: Option<u16>,
    /// The port.
    pub port_num: Option<u8>,
    /// The Q_Key.
    pub qkey: Option<u32>,
    /// The address vector.
    pub av: Option<AhAttr>,
    /// The sender's GID of `av`.
    pub sgid_attr: Option<&'a GidAttr>,
    /// The MTU.
    pub path_mtu: Option<Mtu>,
    /// The local ACK timeout, coded as in IBA volume 1, 9.7.6.1.3.
    pub timeout: Option<u8>,
    /// The retry count.
    pub retry_cnt: Option<u8>,
    /// The RNR retry count; 7 is without end.
    pub rnr_retry: Option<u8>,
    /// The RQ PSN: the first one that is expected.
    pub rq_psn: Option<u32>,
    /// READs and atomic operations outstanding at the requester (`max_rd_atomic`).
    pub max_rd_atomic: Option<u8>,
    /// Whether an alternate path is given, which RoCE does not have.
    pub alt_path: bool,
    /// The minimum RNR NAK timer, coded as in IBA volume 1, 9.7.5.2.8.
    pub min_rnr_timer: Option<u8>,
    /// The SQ PSN: the first one that is sent.
    pub sq_psn: Option<u32>,
    /// READs and atomic operations outstanding at the responder (`max_dest_rd_atomic`).
    pub max_dest_rd_atomic: Option<u8>,
    /// The state of path migration.
    pub path_mig_state: Option<MigState>,
    /// The sizes.
    pub cap: Option<Cap>,
    /// The peer's queue pair number.
    pub dest_qp_num: Option<u32>,
    /// The rate not to be exceeded, in kilobits a second.
    pub rate_limit: Option<u32>,
    mask: AttrMask,
}

impl ModifyAttr<'_> {
    /// The attributes that are there.
    pub fn mask(&self) -> AttrMask {
        self.mask
    }

    /// # Errors
    ///
    /// `EINVAL` if an attribute has an unknown value.
    ///
    /// # Safety
    ///
    /// A reference to the GID of the address vector is held for the lifetime of the result.
    pub(super) unsafe fn from_raw(raw: &bindings::ib_qp_attr, mask: AttrMask) -> Result<Self> {
        let mut attr = ModifyAttr {
            mask,
            ..Default::default()
        };

        if mask.has(bindings::ib_qp_attr_mask_IB_QP_STATE) {
            attr.state = Some(State::from_raw(raw.qp_state).ok_or(EINVAL)?);
        }
        if mask.has(bindings::ib_qp_attr_mask_IB_QP_CUR_STATE) {
            attr.cur_state = Some(State::from_raw(raw.cur_qp_state).ok_or(EINVAL)?);
        }
        if mask.has(bindings::ib_qp_attr_mask_IB_QP_EN_SQD_ASYNC_NOTIFY) {
            attr.en_sqd_async_notify = Some(raw.en_sqd_async_notify != 0);
        }
        if mask.has(bindings::ib_qp_attr_mask_IB_QP_ACCESS_FLAGS) {
            attr.access = Some(Access::from_bits(raw.qp_access_flags as u32));
        }
        if mask.has(bindings::ib_qp_attr_mask_IB_QP_PKEY_INDEX) {
            attr.pkey_index = Some(raw.pkey_index);
        }
        if mask.has(bindings::ib_qp_attr_mask_IB_QP_PORT) {
            attr.port_num = Some(u8::try_from(raw.port_num)?);
        }
        if mask.has(bindings::ib_qp_attr_mask_IB_QP_QKEY) {
            attr.qkey = Some(raw.qkey);
        }
        if mask.has(bindings::ib_qp_attr_mask_IB_QP_AV) {
            attr.av = Some(AhAttr::from_raw(&raw.ah_attr));
            let sgid_attr = raw.ah_attr.grh.sgid_attr;
            if !sgid_attr.is_null() {
                // SAFETY: By the requirements of this function.
                attr.sgid_attr = Some(unsafe { GidAttr::from_raw(sgid_attr) });
            }
        }
        if mask.has(bindings::ib_qp_attr_mask_IB_QP_PATH_MTU) {
            attr.path_mtu = Some(Mtu::from_raw(raw.path_mtu).ok_or(EINVAL)?);
        }
        if mask.has(bindings::ib_qp_attr_mask_IB_QP_TIMEOUT) {
            attr.timeout = Some(raw.timeout);
        }
        if mask.has(bindings::ib_qp_attr_mask_IB_QP_RETRY_CNT) {
            attr.retry_cnt = Some(raw.retry_cnt);
        }
        if mask.has(bindings::ib_qp_attr_mask_IB_QP_RNR_RETRY) {
            attr.rnr_retry = Some(raw.rnr_retry);
        }
        if mask.has(bindings::ib_qp_attr_mask_IB_QP_RQ_PSN) {
            attr.rq_psn = Some(raw.rq_psn);
        }
        if mask.has(bindings::ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC) {
            attr.max_rd_atomic = Some(raw.max_rd_atomic);
        }
        attr.alt_path = mask.has(bindings::ib_qp_attr_mask_IB_QP_ALT_PATH);
        if mask.has(bindings::ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER) {
            attr.min_rnr_timer = Some(raw.min_rnr_timer);
        }
        if mask.has(bindings::ib_qp_attr_mask_IB_QP_SQ_PSN) {
            attr.sq_psn = Some(raw.sq_psn);
        }
        if mask.has(bindings::ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC) {
            attr.max_dest_rd_atomic = Some(raw.max_dest_rd_atomic);
        }
        if mask.has(bindings::ib_qp_attr_mask_IB_QP_PATH_MIG_STATE) {
            attr.path_mig_state = Some(MigState::from_raw(raw.path_mig_state).ok_or(EINVAL)?);
        }
        if mask.has(bindings::ib_qp_attr_mask_IB_QP_CAP) {
            attr.cap = Some(Cap::from_raw(&raw.cap));
        }
        if mask.has(bindings::ib_qp_attr_mask_IB_QP_DEST_QPN) {
            attr.dest_qp_num = Some(raw.dest_qp_num);
        }
        if mask.has(bindings::ib_qp_attr_mask_IB_QP_RATE_LIMIT) {
            attr.rate_limit = Some(raw.rate_limit);
        }
        Ok(attr)
    }
}

/// The attributes as they are: `struct ib_qp_attr`. See [`ModifyAttr`] for the coding.
#[derive(Clone, Debug, Default)]
pub struct QueryAttr {
    /// The state.
    pub state: State,
    /// The state, again.
    pub cur_state: State,
    /// The MTU.
    pub path_mtu: Mtu,
    /// The Q_Key.
    pub qkey: u32,
    /// The RQ PSN: the next one that is expected.
    pub rq_psn: u32,
    /// The SQ PSN: the next one that is sent.
    pub sq_psn: u32,
    /// The peer's queue pair number.
    pub dest_qp_num: u32,
    /// The access rights of a peer.
    pub access: Access,
    /// The sizes.
    pub cap: Cap,
    /// The address vector.
    pub av: Option<AhAttr>,
    /// The index of the P_Key.
    pub pkey_index: u16,
    /// Whether the send queue is draining.
    pub sq_draining: bool,
    /// READs and atomic operations outstanding at the requester (`max_rd_atomic`).
    pub max_rd_atomic: u8,
    /// READs and atomic operations outstanding at the responder (`max_dest_rd_atomic`).
    pub max_dest_rd_atomic: u8,
    /// The minimum RNR NAK timer.
    pub min_rnr_timer: u8,
    /// The port.
    pub port_num: u8,
    /// The local ACK timeout.
    pub timeout: u8,
    /// The retry count.
    pub retry_cnt: u8,
    /// The RNR retry count.
    pub rnr_retry: u8,
}

impl QueryAttr {
    /// Copies this to where the core reads it, which is all zeroes.
    pub(super) fn write_to(&self, raw: &mut bindings::ib_qp_attr) {
        raw.qp_state = self.state.to_raw();
        raw.cur_qp_state = self.cur_state.to_raw();
        raw.path_mtu = self.path_mtu.to_raw();
        raw.path_mig_state = bindings::ib_mig_state_IB_MIG_MIGRATED;
        raw.qkey = self.qkey;
        raw.rq_psn = self.rq_psn;
        raw.sq_psn = self.sq_psn;
        raw.dest_qp_num = self.dest_qp_num;
        raw.qp_access_flags = self.access.bits() as c_int;
        self.cap.write_to(&mut raw.cap);
        self.av.unwrap_or_default().write_to(&mut raw.ah_attr);
        AhAttr::default().write_to(&mut raw.alt_ah_attr);
        raw.pkey_index = self.pkey_index;
        raw.sq_draining = self.sq_draining.into();
        raw.max_rd_atomic = self.max_rd_atomic;
        raw.max_dest_rd_atomic = self.max_dest_rd_atomic;
        raw.min_rnr_timer = self.min_rnr_timer;
        raw.port_num = self.port_num.into();
        raw.timeout = self.timeout;
        raw.retry_cnt = self.retry_cnt;
        raw.rnr_retry = self.rnr_retry;
    }
}
