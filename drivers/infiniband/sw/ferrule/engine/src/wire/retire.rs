// SPDX-License-Identifier: GPL-2.0

//! How requests end: in order, with a completion where one is due.

use crate::{
    base::{
        abi,
        attr::State,
        host::Host,
        status::Status, //
    },
    object::{
        cq::Overrun,
        opcode::completion_opcode, //
    },
    operation::{
        completion::complete,
        ending::{
            enter_error,
            enter_fatal_error,
            report_drained, //
        },
    },
    queue_pair::{
        cx::Cx,
        qp::Qp,
        schedule::Qps, //
    },
};

/// Ends the oldest request, and so writes its completion where one is due.
fn end<H: Host>(cx: &mut Cx<'_, H>, qp: &mut Qp<H>, status: Status) -> Result<(), Overrun> {
    let Qp { core, wire, .. } = qp;
    let index = wire.requester.oldest;
    let Some(&record) = wire.record(index) else {
        return Ok(());
    };
    wire.requester.oldest = index.wrapping_add(1);
    let is_due = record.flags & abi::wr_flags::SIGNALED != 0 || core.init.sq_sig_all;
    if status == Status::Success && !is_due {
        return Ok(());
    }
    complete(
        cx,
        core,
        index,
        record.wr_id,
        completion_opcode(record.opcode),
        record.length,
        status,
    )
}

/// The oldest request has done what it should, and so have those behind it that have registered regions
/// meanwhile. If it is the one to be sent next, the one after it is.
pub(super) fn retire<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    let completed = loop {
        let wire = &mut qp.wire;
        if wire.requester.sending == wire.requester.oldest {
            wire.advance();
        }
        let completed = end(cx, qp, Status::Success);
        let wire = &qp.wire;
        let is_next_done = wire.outstanding(qp.sq.consumer()) != 0
            && wire
                .record(wire.requester.oldest)
                .is_some_and(|next| next.is_registered());
        if completed.is_err() || !is_next_done {
            break completed;
        }
    };
    if qp.wire.outstanding(qp.sq.consumer()) == 0 {
        qp.wire.requester.ack_deadline = None;
        if qp.core.state == State::Sqd {
            report_drained(cx.host, &qp.core);
        }
    }
    if completed.is_err() {
        enter_fatal_error(qps, cx, qp);
    }
}

/// The oldest request ends with an error, and so does the work of the queue pair.
pub(super) fn fail<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>, status: Status) {
    if qp.wire.outstanding(qp.sq.consumer()) == 0 {
        return;
    }
    if end(cx, qp, status).is_err() {
        return enter_fatal_error(qps, cx, qp);
    }
    enter_error(qps, cx.host, &mut qp.core);
}
