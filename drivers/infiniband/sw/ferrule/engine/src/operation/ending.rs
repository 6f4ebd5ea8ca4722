// SPDX-License-Identifier: GPL-2.0

//! How the work of a queue pair ends: without retries, in error, or drained.

use crate::{
    base::{
        attr::State,
        counters::Count,
        event::{
            QpEvent,
            RetryReason,
            Trace, //
        },
        host::Host, //
    },
    queue_pair::{
        cx::Cx,
        qp::Qp,
        qp_core::QpCore,
        schedule::Qps, //
    },
};

/// Shows that a queue pair sends packets again.
#[cold]
pub(crate) fn trace_retry<H: Host>(host: &mut H, qp: &Qp<H>, reason: RetryReason) {
    host.trace(&Trace::Retry {
        qpn: qp.core.id.qpn(),
        psn: qp.wire.requester.snd_una,
        reason,
    });
}

/// Takes a retry, and counts it. Returns whether there was none left.
pub(crate) fn retries_exhausted<H: Host>(cx: &mut Cx<'_, H>, qp: &mut Qp<H>) -> bool {
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

/// The queue pair cannot complete its requests any more: it enters ERR, and an event says so.
#[cold]
pub(crate) fn enter_fatal_error<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
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

/// The send queue has drained in state SQD: raises the event, if that was asked for (C10-26).
pub(crate) fn report_drained<H: Host>(host: &mut H, core: &QpCore<H>) {
    if core.attr.en_sqd_async_notify {
        host.qp_event(&core.init.handle, QpEvent::SendQueueDrained);
    }
}
