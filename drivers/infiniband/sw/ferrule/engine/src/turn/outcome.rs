// SPDX-License-Identifier: GPL-2.0

//! How the request at hand goes on after a step: it has ended, well or not, or waits, or goes on
//! with its next segment.

use crate::{
    base::{
        attr::{
            QpType,
            State, //
        },
        counters::Count,
        host::{
            Host,
            Unsent, //
        },
        psn,
        rnr_timer,
        status::Status, //
    },
    object::cq::Overrun,
    operation::{
        completion::complete_send,
        ending::{
            enter_error,
            enter_fatal_error,
            report_drained,
            retries_exhausted, //
        },
        request_segment::Response,
        unreliable::Unfinished, //
    },
    queue_pair::{
        cx::Cx,
        qp::Qp,
        qp_core::QpCore,
        schedule::Qps,
        send_queue::{
            SendQueue,
            Wait, //
        },
    },
    turn::peer::{
        break_peer,
        SegmentSize, //
    },
};

/// Acts on a response that is no acknowledgement.
#[cold]
pub(crate) fn not_acknowledged<H: Host>(
    qps: &mut Qps<H>,
    cx: &mut Cx<'_, H>,
    qp: &mut Qp<H>,
    response: Response,
) {
    match response {
        Response::Acknowledge => (),
        Response::RnrNak(code) => receiver_not_ready(qps, cx, qp, code),
        Response::SequenceError => {
            // The peer expects an earlier packet. To send again is all there is to do, as often as
            // the attributes allow (C9-103, C9-139).
            if retries_exhausted(cx, qp) {
                fail(qps, cx, qp, Status::RetryExceeded);
            }
        }
        Response::None => {
            cx.counters.unanswered.count(1);
            qp.sq.wait = Wait::Acknowledgement;
            if let Some(timeout) = qp.sq.ack_timeout(&qp.core.attr) {
                qps.set_timer(qp.core.index(), cx.now().saturating_add(timeout));
            }
        }
        Response::Nak(status) => {
            break_peer(qps, cx, qp);
            fail(qps, cx, qp, status);
        }
        Response::RequesterFault => fail(qps, cx, qp, Status::LocalProtection),
        // Memory of either side is being brought in: the same segment again after a while.
        Response::Absent => give_up(qps, cx, qp, Unsent::Absent.into()),
        // It waits for its job.
        Response::Later => (),
    }
}

/// Gives the segment up, for good or for a while.
pub(crate) fn give_up<H: Host>(
    qps: &mut Qps<H>,
    cx: &mut Cx<'_, H>,
    qp: &mut Qp<H>,
    unfinished: Unfinished,
) {
    match unfinished {
        Unfinished::Failed(status) => fail(qps, cx, qp, status),
        Unfinished::Later(wait) => {
            qp.sq.wait = Wait::Host;
            qps.set_timer(qp.core.index(), cx.now().saturating_add(wait));
        }
    }
}

/// A segment of an unreliable connection was sent, which is all that its requester waits for.
pub(crate) fn sent<H: Host>(
    qps: &mut Qps<H>,
    cx: &mut Cx<'_, H>,
    qp: &mut Qp<H>,
    size: SegmentSize,
) {
    if acknowledged(&qp.core, &mut qp.sq, size) {
        succeed(qps, cx, qp);
    }
}

/// A segment arrived. Returns whether it was the last, and the request has ended.
#[inline(always)]
pub(crate) fn acknowledged<H: Host>(
    core: &QpCore<H>,
    sq: &mut SendQueue,
    size: SegmentSize,
) -> bool {
    sq.psn = psn::advance(sq.psn, size.packets);
    sq.done = sq.done.wrapping_add(size.length);
    sq.refill_retries(&core.attr);
    sq.done == sq.request.length
}

/// The request at hand has done what it should: completes it.
///
/// # Errors
///
/// [`Overrun`]: the completion was lost, and the caller moves the queue pair to error.
#[inline(always)]
pub(crate) fn finish_request<H: Host>(
    cx: &mut Cx<'_, H>,
    core: &QpCore<H>,
    sq: &mut SendQueue,
) -> Result<(), Overrun> {
    let completed = complete_send(cx, core, sq, Status::Success);
    sq.finish();
    completed?;
    if core.state == State::Sqd {
        report_drained(cx.host, core);
    }
    Ok(())
}

/// [`finish_request`] where the caller does not move the queue pair to error.
pub(crate) fn succeed<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    if finish_request(cx, &qp.core, &mut qp.sq).is_err() {
        enter_fatal_error(qps, cx, qp);
    }
}

/// The receiver had no receive request: try again after the time it asked for (C9-155, C9-157).
#[cold]
pub(crate) fn receiver_not_ready<H: Host>(
    qps: &mut Qps<H>,
    cx: &mut Cx<'_, H>,
    qp: &mut Qp<H>,
    code: u8,
) {
    cx.counters.receiver_not_ready.count(1);
    if !qp.sq.take_rnr_retry(&qp.core.attr) {
        return fail(qps, cx, qp, Status::RnrRetryExceeded);
    }
    qp.sq.wait = Wait::Receiver;
    qps.set_timer(
        qp.core.index(),
        cx.now().saturating_add(rnr_timer::nanoseconds(code)),
    );
}

/// The request at hand ends with an error, and so does the work of the send queue.
///
/// A queue pair of a connected, reliable service is in error then; of the others, only its send
/// queue is (IBA volume 1, 10.3.1 and 9.9.2.1).
#[cold]
pub(crate) fn fail<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>, status: Status) {
    let Qp { core, sq, .. } = qp;
    let completed = complete_send(cx, core, sq, status);
    sq.finish();
    if completed.is_err() {
        return enter_fatal_error(qps, cx, qp);
    }
    match core.init.qp_type {
        QpType::Rc | QpType::XrcIni | QpType::XrcTgt => enter_error(qps, cx.host, core),
        // It may be in error by what it sent to itself.
        QpType::Uc | QpType::Ud | QpType::RawPacket if core.state == State::Err => (),
        QpType::Uc | QpType::Ud | QpType::RawPacket => {
            core.set_state(cx.host, State::Sqe);
            qps.activate(core.index());
        }
    }
}
