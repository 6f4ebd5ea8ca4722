// SPDX-License-Identifier: GPL-2.0

//! Commands about queue pairs.

use ferrule_engine::{
    abi, Access, Attributes, Capabilities, ContextId, Engine, Modify, Mtu, Qp, QpId, QpInit,
    QpType, QpUser, State, GSI, NO_CQ,
};
use rustix::io::Errno;
use zerocopy::FromZeros;

use super::layout::{answer, errno_of, zero, Answer, NOTHING};
use super::queue::{buffer, layout};
use crate::addresses::vector;
use crate::area::Queue;
use crate::guest::Guest;
use crate::host::{Handle, Nic};
use crate::interface::{
    self, event, qp_flag, qp_mask as mask, qp_type, AddressVector, CreateQp, ModifyQp,
    QpAttributes, QpCreated, QpInfo, NONE,
};
use crate::pages::Pages;
use crate::route::Route;

/// The attributes that a change may name: those without a gap, up to `DEST_QPN`, and one behind it.
const KNOWN: u32 = WITHOUT_GAP | mask::RATE_LIMIT;
const WITHOUT_GAP: u32 = (mask::DEST_QPN << 1) - 1;

/// Those that an answer has, but for `AV`.
const ANSWERED: u32 = WITHOUT_GAP & !(mask::AV | mask::ALT_PATH | mask::PATH_MIG_STATE);

/// The slots of the driver's addresses: where they begin and how many there are, if the buffer has
/// them.
fn destinations(asked: &CreateQp, pages: &Pages) -> Result<(u32, u32), Errno> {
    let (offset, depth) = (asked.destinations.get(), asked.sq.depth.get());
    if offset == NONE {
        return Ok((0, 0));
    }
    let length = u64::from(depth).saturating_mul(size_of::<AddressVector>() as u64);
    let end = u64::from(offset).saturating_add(length);
    let fits = offset % 8 == 0 && depth.is_power_of_two() && end <= pages.length();
    fits.then_some((offset, depth)).ok_or(Errno::INVAL)
}

/// The service of a number.
fn service(number: u32) -> Result<QpType, Errno> {
    Ok(match number {
        qp_type::RC => QpType::Rc,
        qp_type::UC => QpType::Uc,
        qp_type::UD => QpType::Ud,
        qp_type::XRC_INI => QpType::XrcIni,
        qp_type::XRC_TGT => QpType::XrcTgt,
        _ => return Err(Errno::INVAL),
    })
}

pub(super) fn create_qp(guest: &mut Guest, asked: &CreateQp) -> Answer {
    let flags = asked.flags.get();
    if flags & !(qp_flag::SQ_SIG_ALL | qp_flag::GSI | qp_flag::PRIVILEGED) != 0
        || asked.reserved != [0; 16]
    {
        return Err(Errno::INVAL);
    }
    guest.qps.check_limit()?;
    let srq = match asked.srq.get() {
        NONE => None,
        number => Some(guest.srqs.own(number)?),
    };
    let qp_type = service(asked.qp_type.get())?;
    // Each service has those that it needs, and the engine refuses others.
    let cq = |number: u32| match number {
        NONE => Ok(NO_CQ),
        number => guest.cqs.own(number),
    };
    let (send_cq, recv_cq) = (cq(asked.send_cq.get())?, cq(asked.recv_cq.get())?);
    let pd = match qp_type {
        QpType::XrcTgt => guest.xrcd(asked.pd.get())?,
        QpType::Rc | QpType::Uc | QpType::Ud | QpType::XrcIni | QpType::RawPacket => {
            guest.pd(asked.pd.get())?
        }
    };
    let pages = buffer(guest, &asked.area)?;
    let destinations = destinations(asked, &pages)?;
    let handle = Handle::new(guest.port, NONE);
    let qp = Qp::<Nic>::new(QpInit {
        user: QpUser::Context {
            id: ContextId::from_number(guest.contexts.own(asked.context.get())?),
            privileged: flags & qp_flag::PRIVILEGED != 0,
        },
        vport: guest.vport,
        pd,
        qp_type,
        gsi: flags & qp_flag::GSI != 0,
        send_cq,
        recv_cq,
        srq,
        cap: Capabilities {
            max_send_wr: asked.cap.max_send_wr.get(),
            max_recv_wr: asked.cap.max_recv_wr.get(),
            max_send_sge: asked.cap.max_send_sge.get(),
            max_recv_sge: asked.cap.max_recv_sge.get(),
            max_inline: asked.cap.max_inline.get(),
        },
        sq_sig_all: flags & qp_flag::SQ_SIG_ALL != 0,
        sq_ring: layout(&asked.sq)?,
        rq_ring: layout(&asked.rq)?,
        ctrl: asked.ctrl.get(),
        queue: Queue::new(pages, guest.port, destinations),
        handle: handle.clone(),
    });
    let told = |id: &QpId| handle.set_number(id.qpn());
    let id = guest
        .device
        .add(qp.map_err(errno_of)?, Engine::add_qp, told)?;
    guest.qps.add(id.qpn());
    if id.qpn() == GSI {
        guest.gsi = Some(id.number);
    }
    Ok(answer(&QpCreated {
        number: id.qpn().into(),
        generation: id.generation.into(),
        doorbell: (id.number & abi::DB_INDEX_MASK).into(),
        reserved: 0.into(),
    }))
}

/// The changes that a guest asks for, without the path.
fn modify(attributes: &QpAttributes) -> Result<Modify, Errno> {
    let a = attributes;
    let given = a.mask.get();
    if given & !KNOWN != 0 {
        return Err(Errno::INVAL);
    }
    let has = |bit: u32| given & bit != 0;
    let word = |bit: u32, value: u32| has(bit).then_some(value);
    let byte = |bit: u32, value: u32| {
        word(bit, value)
            .map(u8::try_from)
            .transpose()
            .map_err(|_| Errno::INVAL)
    };
    let state = |bit: u32, value: u32| {
        word(bit, value)
            .map(State::try_from)
            .transpose()
            .map_err(errno_of)
    };
    let pkey_index = word(mask::PKEY_INDEX, a.pkey_index.get()).map(u16::try_from);
    let path_mtu = word(mask::PATH_MTU, a.path_mtu.get()).map(Mtu::try_from);
    let notify = word(mask::EN_SQD_ASYNC_NOTIFY, a.en_sqd_async_notify.get());
    Ok(Modify {
        state: state(mask::STATE, a.state.get())?,
        cur_state: state(mask::CUR_STATE, a.cur_state.get())?,
        en_sqd_async_notify: notify.map(|notify| notify != 0),
        access: word(mask::ACCESS_FLAGS, a.access.get()).map(Access),
        pkey_index: pkey_index.transpose().map_err(|_| Errno::INVAL)?,
        port: word(mask::PORT, a.port.get()),
        qkey: word(mask::QKEY, a.qkey.get()),
        path: None,
        path_mtu: path_mtu.transpose().map_err(errno_of)?,
        timeout: byte(mask::TIMEOUT, a.timeout.get())?,
        retry_cnt: byte(mask::RETRY_CNT, a.retry_cnt.get())?,
        rnr_retry: byte(mask::RNR_RETRY, a.rnr_retry.get())?,
        rq_psn: word(mask::RQ_PSN, a.rq_psn.get()),
        max_rd_atomic: byte(mask::MAX_QP_RD_ATOMIC, a.max_rd_atomic.get())?,
        max_dest_rd_atomic: byte(mask::MAX_DEST_RD_ATOMIC, a.max_dest_rd_atomic.get())?,
        min_rnr_timer: byte(mask::MIN_RNR_TIMER, a.min_rnr_timer.get())?,
        sq_psn: word(mask::SQ_PSN, a.sq_psn.get()),
        dest_qpn: word(mask::DEST_QPN, a.dest_qpn.get()),
        alt_path: has(mask::ALT_PATH),
        path_mig_state: has(mask::PATH_MIG_STATE),
        cap: has(mask::CAP),
        rate_limit: has(mask::RATE_LIMIT),
    })
}

pub(super) fn modify_qp(guest: &Guest, asked: &ModifyQp) -> Answer {
    zero(asked.reserved.get())?;
    let qpn = guest.qpn(asked.number.get())?;
    let mut change = modify(&asked.attributes)?;
    let to = (asked.attributes.mask.get() & mask::AV != 0).then_some(&asked.to);
    guest.device.command(|engine, host| {
        let mut route = None;
        if let Some(to) = to {
            let ends = (qpn, change.dest_qpn.unwrap_or(0));
            let (path, way) = host.resolve(guest.port, to, ends)?;
            let qp_type = engine.query_qp(qpn).map_err(errno_of)?.qp_type;
            change.path = Some(path);
            route = match qp_type {
                QpType::Rc | QpType::XrcIni | QpType::XrcTgt => way.map(Route::with_ecn),
                QpType::Uc | QpType::Ud | QpType::RawPacket => way,
            };
        }
        engine
            .modify_qp(host, qpn, &change, &mut route)
            .map_err(errno_of)
    })?;
    NOTHING
}

fn attributes(state: State, a: &Attributes) -> QpAttributes {
    let path = if a.path.is_some() { mask::AV } else { 0 };
    QpAttributes {
        state: (state as u32).into(),
        cur_state: (state as u32).into(),
        en_sqd_async_notify: u32::from(a.en_sqd_async_notify).into(),
        access: a.access.0.into(),
        pkey_index: u32::from(a.pkey_index).into(),
        port: a.port.into(),
        qkey: a.qkey.into(),
        path_mtu: (a.path_mtu as u32).into(),
        timeout: u32::from(a.timeout).into(),
        retry_cnt: u32::from(a.retry_cnt).into(),
        rnr_retry: u32::from(a.rnr_retry).into(),
        rq_psn: a.rq_psn.into(),
        sq_psn: a.sq_psn.into(),
        max_rd_atomic: u32::from(a.max_rd_atomic).into(),
        max_dest_rd_atomic: u32::from(a.max_dest_rd_atomic).into(),
        min_rnr_timer: u32::from(a.min_rnr_timer).into(),
        dest_qpn: a.dest_qpn.into(),
        mask: (ANSWERED | path).into(),
    }
}

pub(super) fn query_qp(guest: &Guest, number: u32) -> Answer {
    let qpn = guest.qpn(number)?;
    let info = guest.device.command(|engine, _| engine.query_qp(qpn));
    let info = info.map_err(errno_of)?;
    let signal = if info.sq_sig_all {
        qp_flag::SQ_SIG_ALL
    } else {
        0
    };
    let gsi = if number == GSI { qp_flag::GSI } else { 0 };
    Ok(answer(&QpInfo {
        attributes: attributes(info.state, &info.attr),
        to: match &info.attr.path {
            Some(path) => vector(path),
            None => AddressVector::new_zeroed(),
        },
        sq_draining: u32::from(info.sq_draining).into(),
        qp_type: match info.qp_type {
            QpType::Rc => qp_type::RC,
            QpType::Uc => qp_type::UC,
            QpType::Ud => qp_type::UD,
            QpType::XrcIni => qp_type::XRC_INI,
            QpType::XrcTgt => qp_type::XRC_TGT,
            // No guest can make one.
            QpType::RawPacket => return Err(Errno::INVAL),
        }
        .into(),
        flags: (signal | gsi).into(),
        cap: interface::Capabilities {
            max_send_wr: info.cap.max_send_wr.into(),
            max_recv_wr: info.cap.max_recv_wr.into(),
            max_send_sge: info.cap.max_send_sge.into(),
            max_recv_sge: info.cap.max_recv_sge.into(),
            max_inline: info.cap.max_inline.into(),
        },
        sq_consumer: info.sq_consumer.into(),
        rq_consumer: info.rq_consumer.into(),
        reserved: [0; 8],
    }))
}

pub(super) fn destroy_qp(guest: &mut Guest, number: u32) -> Answer {
    let qpn = guest.qpn(number)?;
    let gone = guest.device.command(|engine, _| engine.remove_qp(qpn));
    gone.map_err(errno_of)?;
    guest.qps.remove(number);
    guest.forget(&[event::QP], number);
    NOTHING
}
