// SPDX-License-Identifier: GPL-2.0

//! How the work of a queue pair ends: without retries, in error, or drained.

use crate::{
    base::{
        attr::State,
        counters::Count,
        event::QpEvent,
        host::Host, //
    },
    queue_pair::{
        cx::Cx,
        qp::Qp,
        qp_core::QpCore,
        schedule::Qps, //
    },
};

/// Counts a retry; answers whether there are none left.
pub(crate) fn lost<H: Host>(cx: &mut Cx<'_, H>, qp: &mut Qp<H>) -> bool {
    if cx.retries_for_ever && qp.core.attr.retry_cnt == 7 {
        cx.counters.retries.count(1);
        return false;
    }
    match qp.sq.retries.checked_sub(1) {
        Some(left) => {
            qp.sq.retries = left;
            cx.counters.retries.count(1);
            false
        }
        None => true,
    }
}

/// The queue pair cannot tell any more how its requests end: it is in error, and says so.
#[cold]
pub(crate) fn break_down<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    if qp.core.state != State::Err {
        cx.host.qp_event(&qp.core.init.handle, QpEvent::Fatal);
        enter_error(qps, cx.host, &mut qp.core);
    }
}

/// Moves a queue pair to state ERR; its queues will be flushed at its next turns.
pub(crate) fn enter_error<H: Host>(qps: &mut Qps<H>, host: &mut H, core: &mut QpCore<H>) {
    core.set_state(host, State::Err);
    qps.stop(core.index());
}

/// The send queue has drained in state SQD: tells it, if that was asked for (C10-26).
pub(crate) fn tell_drained<H: Host>(host: &mut H, core: &QpCore<H>) {
    if core.attr.en_sqd_async_notify {
        host.qp_event(&core.init.handle, QpEvent::SendQueueDrained);
    }
}
