// SPDX-License-Identifier: GPL-2.0

//! The state machine of queue pairs: which transitions there are, which attributes each needs and
//! which it may change (IBA volume 1, 10.3.1 and 11.2.5.2, table 92).

use crate::{
    base::{
        attr::{
            Attributes,
            Modify,
            QpType,
            State,
            MAX_RD_ATOMIC, //
        },
        error::Error,
        host::Host,
        psn, //
    },
    operation::ending::{
        enter_error,
        report_drained, //
    },
    queue_pair::{
        qp::{
            is_drained,
            Qp, //
        },
        schedule::Qps, //
    },
};

/// A set of attributes, one bit each.
mod mask {
    pub(super) const CUR_STATE: u32 = 1 << 0;
    pub(super) const EN_SQD_ASYNC_NOTIFY: u32 = 1 << 1;
    pub(super) const ACCESS: u32 = 1 << 2;
    pub(super) const PKEY_INDEX: u32 = 1 << 3;
    pub(super) const PORT: u32 = 1 << 4;
    pub(super) const QKEY: u32 = 1 << 5;
    pub(super) const PATH: u32 = 1 << 6;
    pub(super) const PATH_MTU: u32 = 1 << 7;
    pub(super) const TIMEOUT: u32 = 1 << 8;
    pub(super) const RETRY_CNT: u32 = 1 << 9;
    pub(super) const RNR_RETRY: u32 = 1 << 10;
    pub(super) const RQ_PSN: u32 = 1 << 11;
    pub(super) const MAX_RD_ATOMIC: u32 = 1 << 12;
    pub(super) const MAX_DEST_RD_ATOMIC: u32 = 1 << 13;
    pub(super) const MIN_RNR_TIMER: u32 = 1 << 14;
    pub(super) const SQ_PSN: u32 = 1 << 15;
    pub(super) const DEST_QPN: u32 = 1 << 16;
    pub(super) const ALT_PATH: u32 = 1 << 17;
    pub(super) const PATH_MIG_STATE: u32 = 1 << 18;
}

/// The attributes that a transition needs, and those that it may change besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Transition {
    required: u32,
    optional: u32,
}

/// The rule of a transition of a queue pair for frames, which has a port and no other attribute, as
/// Linux has it.
fn frame_rule(from: State, to: State) -> Option<Transition> {
    use State::*;

    let (required, optional) = match (from, to) {
        (_, Reset) => (0, 0),
        (Reset, Err) => return None,
        (Reset, Init) => (mask::PORT, 0),
        (_, Err) | (Init, Init | Rtr) | (Rtr | Rts | Sqd | Sqe, Rts) | (Rts | Sqd, Sqd) => (0, 0),
        _ => return None,
    };
    Some(Transition { required, optional })
}

/// The rule of a transition; `None` if there is no such transition.
fn rule(qp_type: QpType, from: State, to: State) -> Option<Transition> {
    use mask::*;
    use QpType::*;
    use State::*;

    // Not every service has every attribute.
    let of = |rc: u32, uc: u32, ud: u32| match qp_type {
        Rc | XrcIni | XrcTgt => rc,
        Uc => uc,
        Ud | RawPacket => ud,
    };
    // A side of XRC has those that are of the side of RC that it is.
    let side = match qp_type {
        Rc | Uc | Ud | RawPacket => u32::MAX,
        XrcIni => !(MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER),
        XrcTgt => !(RETRY_CNT | RNR_RETRY | MAX_RD_ATOMIC),
    };
    let migration = of(ALT_PATH | PATH_MIG_STATE, ALT_PATH | PATH_MIG_STATE, 0);
    let (required, optional) = match (from, to) {
        // RESET and ERR are reached from every state; from RESET there is nothing to fail.
        (_, Reset) => (0, 0),
        (Reset, Err) => return None,
        (_, Err) => (0, 0),
        (Reset, Init) => (PKEY_INDEX | PORT | of(ACCESS, ACCESS, QKEY), 0),
        (Init, Init) => (0, PKEY_INDEX | PORT | of(ACCESS, ACCESS, QKEY)),
        (Init, Rtr) => {
            let connection = PATH | PATH_MTU | DEST_QPN | RQ_PSN;
            (
                of(
                    connection | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER,
                    connection,
                    0,
                ),
                PKEY_INDEX | of(ALT_PATH | ACCESS, ALT_PATH | ACCESS, QKEY),
            )
        }
        (Rtr, Rts) => (
            SQ_PSN | of(TIMEOUT | RETRY_CNT | RNR_RETRY | MAX_RD_ATOMIC, 0, 0),
            CUR_STATE | migration | of(ACCESS | MIN_RNR_TIMER, ACCESS, QKEY),
        ),
        (Rts | Sqd, Rts) => (
            0,
            CUR_STATE | migration | of(ACCESS | MIN_RNR_TIMER, ACCESS, QKEY),
        ),
        // A send queue in error is of an unreliable service.
        (Sqe, Rts) => match qp_type {
            Rc | XrcIni | XrcTgt => return None,
            Uc => (0, CUR_STATE | ACCESS),
            Ud | RawPacket => (0, CUR_STATE | QKEY),
        },
        (Rts, Sqd) => (0, EN_SQD_ASYNC_NOTIFY),
        (Sqd, Sqd) => {
            let reliable = TIMEOUT
                | RETRY_CNT
                | RNR_RETRY
                | MAX_RD_ATOMIC
                | MAX_DEST_RD_ATOMIC
                | MIN_RNR_TIMER;
            // Linux adds the port to a path that a program gives here, whatever the service.
            let connected = PORT | PATH | ACCESS;
            (
                0,
                PKEY_INDEX | migration | of(connected | reliable, connected, QKEY),
            )
        }
        _ => return None,
    };
    Some(Transition {
        required: required & side,
        optional: optional & side,
    })
}

/// The attributes that are to be changed.
fn given(modify: &Modify) -> u32 {
    let bits = [
        (modify.cur_state.is_some(), mask::CUR_STATE),
        (
            modify.en_sqd_async_notify.is_some(),
            mask::EN_SQD_ASYNC_NOTIFY,
        ),
        (modify.access.is_some(), mask::ACCESS),
        (modify.pkey_index.is_some(), mask::PKEY_INDEX),
        (modify.port.is_some(), mask::PORT),
        (modify.qkey.is_some(), mask::QKEY),
        (modify.path.is_some(), mask::PATH),
        (modify.path_mtu.is_some(), mask::PATH_MTU),
        (modify.timeout.is_some(), mask::TIMEOUT),
        (modify.retry_cnt.is_some(), mask::RETRY_CNT),
        (modify.rnr_retry.is_some(), mask::RNR_RETRY),
        (modify.rq_psn.is_some(), mask::RQ_PSN),
        (modify.max_rd_atomic.is_some(), mask::MAX_RD_ATOMIC),
        (
            modify.max_dest_rd_atomic.is_some(),
            mask::MAX_DEST_RD_ATOMIC,
        ),
        (modify.min_rnr_timer.is_some(), mask::MIN_RNR_TIMER),
        (modify.sq_psn.is_some(), mask::SQ_PSN),
        (modify.dest_qpn.is_some(), mask::DEST_QPN),
        (modify.alt_path, mask::ALT_PATH),
        (modify.path_mig_state, mask::PATH_MIG_STATE),
    ];
    bits.iter()
        .filter(|(is_given, _)| *is_given)
        .fold(0, |set, (_, bit)| set | bit)
}

/// Whether all values are within the ranges that the specification gives them.
fn in_range(modify: &Modify) -> bool {
    // Programs give a queue pair the access flags of their regions. Those that are no right of a
    // peer mean nothing here, and FLUSH_PERSISTENT grants nothing, since no region has it. The
    // flags of `enum ib_access_flags`: ten, and ten optional ones such as RELAXED_ORDERING.
    const ACCESS: u32 = 0x3ff | 0x3ff << 20;

    let below = |value: Option<u8>, limit: u8| value.is_none_or(|value| value <= limit);
    let number = |value: Option<u32>| value.is_none_or(|value| value <= psn::MASK);
    modify.access.is_none_or(|access| access.0 & !ACCESS == 0)
        && modify.pkey_index.is_none_or(|index| index == 0)
        && modify.port.is_none_or(|port| port == 1)
        && below(modify.timeout, 31)
        && below(modify.retry_cnt, 7)
        && below(modify.rnr_retry, 7)
        && below(modify.min_rnr_timer, 31)
        && below(modify.max_rd_atomic, MAX_RD_ATOMIC)
        && below(modify.max_dest_rd_atomic, MAX_RD_ATOMIC)
        && number(modify.rq_psn)
        && number(modify.sq_psn)
        && number(modify.dest_qpn)
}

/// Decides whether a change is allowed in state `current`, and which state it leads to.
fn judge(qp_type: QpType, current: State, modify: &Modify) -> Result<State, Error> {
    if let Some(believed) = modify.cur_state {
        let tellable = matches!(believed, State::Rtr | State::Rts | State::Sqd | State::Sqe);
        if !tellable || believed != current {
            return Err(Error::Invalid);
        }
    }
    let next = modify.state.unwrap_or(current);
    let rule = match qp_type {
        QpType::RawPacket => frame_rule(current, next),
        _ => rule(qp_type, current, next),
    }
    .ok_or(Error::Invalid)?;
    let given = given(modify);
    if given & rule.required != rule.required
        || given & !(rule.required | rule.optional) != 0
        || modify.cap
        || modify.rate_limit
        || !in_range(modify)
    {
        return Err(Error::Invalid);
    }
    if modify.alt_path || modify.path_mig_state {
        return Err(Error::NotSupported);
    }
    Ok(next)
}

/// Takes over what is to be changed, beside the state.
fn apply(attr: &mut Attributes, modify: &Modify) {
    fn set<T: Copy>(to: &mut T, from: Option<T>) {
        if let Some(value) = from {
            *to = value;
        }
    }

    set(&mut attr.access, modify.access);
    set(&mut attr.pkey_index, modify.pkey_index);
    set(&mut attr.port, modify.port);
    set(&mut attr.qkey, modify.qkey);
    if modify.path.is_some() {
        attr.path = modify.path;
    }
    set(&mut attr.path_mtu, modify.path_mtu);
    set(&mut attr.timeout, modify.timeout);
    set(&mut attr.retry_cnt, modify.retry_cnt);
    set(&mut attr.rnr_retry, modify.rnr_retry);
    set(&mut attr.max_rd_atomic, modify.max_rd_atomic);
    set(&mut attr.max_dest_rd_atomic, modify.max_dest_rd_atomic);
    set(&mut attr.min_rnr_timer, modify.min_rnr_timer);
    set(&mut attr.dest_qpn, modify.dest_qpn);
}

/// Changes attributes and state of a queue pair that has been taken out of the table.
///
/// Nothing is changed unless all is allowed.
pub(crate) fn modify<H: Host>(
    qps: &mut Qps<H>,
    host: &mut H,
    qp: &mut Qp<H>,
    modify: &Modify,
) -> Result<(), Error> {
    let Qp {
        core, sq, rq, wire, ..
    } = qp;
    let before = core.state;
    let next = judge(core.init.qp_type, before, modify)?;
    let was_acknowledged = core.is_acknowledged();
    let was_for = core.attr.path.map(|path| path.dgid);
    let is_drained = is_drained(core, sq, wire);
    apply(&mut core.attr, modify);
    // Asked for with each move to SQD anew (IBA volume 1, 11.2.5.2), and not taken back by a change
    // there.
    if before != State::Sqd && next == State::Sqd {
        core.attr.en_sqd_async_notify = modify.en_sqd_async_notify.unwrap_or(false);
    }
    if was_acknowledged != core.is_acknowledged() {
        wire.change_over(sq, was_acknowledged);
    } else if was_for != core.attr.path.map(|path| path.dgid) {
        wire.requester.forget_path();
    }
    if let Some(psn) = modify.sq_psn {
        sq.psn = psn;
        wire.set_psn(psn);
    }
    if let Some(psn) = modify.rq_psn {
        rq.psn = psn;
    }
    if modify.retry_cnt.is_some() || modify.rnr_retry.is_some() {
        sq.refill_retries(&core.attr);
    }
    match next {
        State::Reset => {
            // As created: requests in the rings are forgotten, and indices begin with 0.
            core.set_state(host, State::Reset);
            core.attr = Attributes::RESET;
            sq.reset();
            rq.reset();
            wire.reset();
            qps.clear_timer(core.index());
        }
        State::Err => enter_error(qps, host, core),
        State::Rts => {
            core.set_state(host, State::Rts);
            if before == State::Sqe {
                sq.begin_flush(core);
            }
            // Requests posted in SQD have waited for this.
            qps.activate(core.index());
        }
        State::Sqd => {
            core.set_state(host, State::Sqd);
            // Requests that have begun will end first; without any, it has drained already.
            if before == State::Rts && is_drained {
                report_drained(host, core);
            }
        }
        State::Init | State::Rtr | State::Sqe => core.set_state(host, next),
    }
    Ok(())
}
