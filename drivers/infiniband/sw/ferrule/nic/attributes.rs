// SPDX-License-Identifier: GPL-2.0

//! The attributes of queue pairs, as commands have them.

use ferrule_engine::{
    Access,
    Attributes,
    Capabilities,
    Modify,
    Mtu,
    QpInfo,
    QpType,
    State, //
};
use kernel::prelude::*;
use kernel_ext::error::code::EOPNOTSUPP;
use zerocopy::FromZeros;

use super::{
    address,
    interface::{
        self,
        qp_flag,
        qp_mask,
        qp_type,
        QpAttributes, //
    }, //
};

/// A change of attributes, but for the address.
pub(super) fn change(change: &Modify) -> QpAttributes {
    let mut attributes = QpAttributes::new_zeroed();
    let mut mask = 0;
    macro_rules! set {
        ($($bit:ident: $field:ident = $value:expr;)*) => {$(
            if let Some(value) = $value {
                attributes.$field = u32::from(value).into();
                mask |= qp_mask::$bit;
            }
        )*};
    }
    set! {
        STATE: state = change.state.map(|state| state as u8);
        CUR_STATE: cur_state = change.cur_state.map(|state| state as u8);
        EN_SQD_ASYNC_NOTIFY: en_sqd_async_notify = change.en_sqd_async_notify;
        ACCESS_FLAGS: access = change.access.map(|access| access.0);
        PKEY_INDEX: pkey_index = change.pkey_index;
        PORT: port = change.port;
        QKEY: qkey = change.qkey;
        PATH_MTU: path_mtu = change.path_mtu.map(|mtu| mtu as u8);
        TIMEOUT: timeout = change.timeout;
        RETRY_CNT: retry_cnt = change.retry_cnt;
        RNR_RETRY: rnr_retry = change.rnr_retry;
        RQ_PSN: rq_psn = change.rq_psn;
        SQ_PSN: sq_psn = change.sq_psn;
        MAX_QP_RD_ATOMIC: max_rd_atomic = change.max_rd_atomic;
        MAX_DEST_RD_ATOMIC: max_dest_rd_atomic = change.max_dest_rd_atomic;
        MIN_RNR_TIMER: min_rnr_timer = change.min_rnr_timer;
        DEST_QPN: dest_qpn = change.dest_qpn;
    }
    for (is_there, bit) in [
        (change.alt_path, qp_mask::ALT_PATH),
        (change.path_mig_state, qp_mask::PATH_MIG_STATE),
        (change.cap, qp_mask::CAP),
        (change.rate_limit, qp_mask::RATE_LIMIT),
    ] {
        if is_there {
            mask |= bit;
        }
    }
    attributes.mask = mask.into();
    attributes
}

/// The device's answer about a queue pair.
///
/// # Errors
///
/// `EIO` if an attribute has a value that it cannot have.
pub(super) fn info(info: &interface::QpInfo) -> Result<QpInfo> {
    let told = &info.attributes;
    let state = State::try_from(told.state.get()).map_err(|_| EIO)?;
    let path_mtu = Mtu::try_from(told.path_mtu.get()).map_err(|_| EIO)?;
    let has_address = told.mask.get() & qp_mask::AV != 0;
    let byte = |value: zerocopy::little_endian::U32| u8::try_from(value.get()).map_err(|_| EIO);
    Ok(QpInfo {
        state,
        sq_draining: info.sq_draining.get() != 0,
        qp_type: match info.qp_type.get() {
            qp_type::RC => QpType::Rc,
            qp_type::UC => QpType::Uc,
            qp_type::UD => QpType::Ud,
            qp_type::XRC_INI => QpType::XrcIni,
            qp_type::XRC_TGT => QpType::XrcTgt,
            _ => return Err(EIO),
        },
        cap: Capabilities {
            max_send_wr: info.cap.max_send_wr.get(),
            max_recv_wr: info.cap.max_recv_wr.get(),
            max_send_sge: info.cap.max_send_sge.get(),
            max_recv_sge: info.cap.max_recv_sge.get(),
            max_inline: info.cap.max_inline.get(),
        },
        sq_sig_all: info.flags.get() & qp_flag::SQ_SIG_ALL != 0,
        attr: Attributes {
            en_sqd_async_notify: told.en_sqd_async_notify.get() != 0,
            access: Access(told.access.get()),
            pkey_index: u16::try_from(told.pkey_index.get()).map_err(|_| EIO)?,
            port: told.port.get(),
            qkey: told.qkey.get(),
            path: has_address.then(|| address::path(&info.to)),
            path_mtu,
            timeout: byte(told.timeout)?,
            retry_cnt: byte(told.retry_cnt)?,
            rnr_retry: byte(told.rnr_retry)?,
            rq_psn: told.rq_psn.get(),
            sq_psn: told.sq_psn.get(),
            max_rd_atomic: byte(told.max_rd_atomic)?,
            max_dest_rd_atomic: byte(told.max_dest_rd_atomic)?,
            min_rnr_timer: byte(told.min_rnr_timer)?,
            dest_qpn: told.dest_qpn.get(),
        },
        sq_consumer: info.sq_consumer.get(),
        rq_consumer: info.rq_consumer.get(),
    })
}

/// A transport service.
///
/// # Errors
///
/// `EOPNOTSUPP` for one that the device does not have.
pub(super) fn service(service: QpType) -> Result<u32> {
    match service {
        QpType::Rc => Ok(qp_type::RC),
        QpType::Uc => Ok(qp_type::UC),
        QpType::Ud => Ok(qp_type::UD),
        QpType::XrcIni => Ok(qp_type::XRC_INI),
        QpType::XrcTgt => Ok(qp_type::XRC_TGT),
        QpType::RawPacket => Err(EOPNOTSUPP),
    }
}
