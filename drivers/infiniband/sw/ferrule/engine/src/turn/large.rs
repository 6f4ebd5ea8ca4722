// SPDX-License-Identifier: GPL-2.0

//! Segments of many bytes, which a copy job may copy while others own the shard.
//!
//! The peer judges the segments of an RDMA WRITE or READ when the job is made, and that counts: the
//! keys stay valid until the job has been carried out, and all that is left is the completion of
//! the requester. So a job may have several of these requests. A request that takes a receive
//! request, or that invalidates a key, is judged twice, and the judgement after the job counts. The
//! first one changes nothing, so the next segment cannot be judged before the job has been carried
//! out: such a segment is the last one of its job.
//!
//! Over an unreliable connection jobs copy RDMA WRITEs alone, without immediate data. A segment
//! that the peer drops is done without being copied.

use crate::{
    base::{
        attr::{
            QpType,
            State, //
        },
        budget::Budget,
        copy_job::{
            Ending,
            MIN_BYTES,
            MIN_BYTES_BESIDE_OTHERS, //
        },
        host::{
            Host,
            Job, //
        },
        status::Status, //
    },
    memory::{
        key_use::CheckedUse,
        outside::Outside, //
    },
    object::wr_opcode::{
        completion_opcode,
        Class,
        Extra,
        Receive, //
    },
    operation::{
        completion::complete_slot,
        ending::{
            enter_fatal_error,
            report_drained, //
        },
        local_wr::invalidate_own,
        request_segment::Response, //
    },
    queue_pair::{
        cx::Cx,
        qp::Qp,
        qp_core::QpCore,
        schedule::Qps,
        send_queue::{
            AfterCopy,
            SendQueue,
            Taken,
            Wait, //
        },
    },
    turn::{
        outcome::{
            acknowledged,
            fail,
            not_acknowledged,
            succeed, //
        },
        peer::{
            break_peer,
            Peer,
            SegmentSize, //
        },
    },
};

/// Whether a copy job may copy the next segment of the request at hand: the host can take one
/// along, and it is worth it.
#[inline(always)]
pub(crate) fn is_large<H: Host>(host: &mut H, sq: &SendQueue, size: SegmentSize) -> bool {
    size.length >= MIN_BYTES_BESIDE_OTHERS
        && (size.length >= MIN_BYTES || host.is_contended() && may_share_job(sq))
        && host.job_place().is_some()
}

/// Hands the peer the next segment of the request at hand, and those after it that the same job may
/// have.
#[inline(never)]
pub(crate) fn step<H: Host>(
    qps: &mut Qps<H>,
    cx: &mut Cx<'_, H>,
    qp: &mut Qp<H>,
    checked: CheckedUse,
) {
    if begin(qps, cx, qp, checked) {
        return;
    }
    let size = SegmentSize::next(&qp.sq, qp.core.attr.path_mtu, cx.allowance.bytes);
    hand_over(qps, cx, qp, size, Outside::AtOnce, size.length);
}

/// A job has copied the next segment, which has so many bytes: the peer judges it once more.
#[inline(never)]
pub(crate) fn judge_again<H: Host>(
    qps: &mut Qps<H>,
    cx: &mut Cx<'_, H>,
    qp: &mut Qp<H>,
    length: u32,
) {
    qp.sq.wait = Wait::Nothing;
    let size = SegmentSize::new(length, qp.core.attr.path_mtu);
    // The bytes of a job count where it is carried out.
    hand_over(qps, cx, qp, size, Outside::Done, Budget::PACKET);
}

/// A job has been carried out: the requests complete that it has finished, and the one after them
/// if that has failed.
pub(crate) fn end<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>, mut job: Job<H>) {
    let failed = qp.sq.end_copy();
    let mut completed = Ok(());
    job.empty(|ending| {
        completed = completed.and(complete_slot(
            cx,
            &qp.core,
            ending.index,
            ending.wr_id,
            ending.opcode,
            ending.length,
            Status::Success,
        ));
    });
    qp.job = Some(job);
    if completed.is_err() {
        enter_fatal_error(qps, cx, qp);
    }
    if let Some(status) = failed {
        fail(qps, cx, qp, status);
    } else if qp.core.state == State::Sqd && !qp.sq.busy {
        report_drained(cx.host, &qp.core);
    }
}

/// Hands the peer a segment, which counts for so many bytes of the turn, and acts on the response.
fn hand_over<H: Host>(
    qps: &mut Qps<H>,
    cx: &mut Cx<'_, H>,
    qp: &mut Qp<H>,
    size: SegmentSize,
    mut way: Outside<'_, H>,
    bytes: u32,
) {
    let Qp { core, sq, rq, .. } = &mut *qp;
    let response = match Peer::find(qps, core, rq) {
        Some(mut peer) if peer.core.answers(core.id.number, false) => {
            if sq.request.opcode.facts().class == Class::Send && !peer.rq.busy {
                // The receive request that the job has filled has gone with a reset: the message
                // takes another one.
                way = Outside::AtOnce;
            }
            hand(&mut peer, cx, core, sq, size, CheckedUse::NONE, &mut way)
        }
        _ => Response::None,
    };
    if response != Response::Acknowledge {
        return not_acknowledged(qps, cx, qp, response);
    }
    cx.allowance.take_bytes(bytes);
    if !acknowledged(core, sq, size) {
        return;
    }
    if invalidate_own(cx, core, &sq.request).is_err() {
        return fail(qps, cx, qp, Status::WindowBind);
    }
    succeed(qps, cx, qp);
}

/// [`Peer::hand`], or what an unreliable connection has in its place, compiled once for the ways of
/// large segments.
#[inline(never)]
fn hand<H: Host>(
    peer: &mut Peer<'_, H>,
    cx: &mut Cx<'_, H>,
    core: &QpCore<H>,
    sq: &SendQueue,
    size: SegmentSize,
    checked: CheckedUse,
    way: &mut Outside<'_, H>,
) -> Response {
    if is_unreliable(core) {
        return peer.hand_unreliable(cx, core, sq, size, way);
    }
    peer.hand(cx, core, sq, size, checked, way)
}

/// Whether the requests of a queue pair are done when they have been sent.
fn is_unreliable<H: Host>(core: &QpCore<H>) -> bool {
    core.init.qp_type == QpType::Uc
}

/// Leaves a job in the host's place, if there can be one, or acts on the peer's refusal. Returns
/// `false` where the segment is to be copied at once.
pub(crate) fn begin<H: Host>(
    qps: &mut Qps<H>,
    cx: &mut Cx<'_, H>,
    qp: &mut Qp<H>,
    checked: CheckedUse,
) -> bool {
    let Qp {
        core,
        sq,
        rq,
        job: own,
        ..
    } = &mut *qp;
    let may_answer =
        |peer: &Peer<'_, H>| is_unreliable(core) || peer.core.answers(core.id.number, false);
    let Some(mut peer) = Peer::find(qps, core, rq).filter(may_answer) else {
        return false;
    };
    // A shared receive queue of XRC may go while one of its requests is at hand.
    if sq.request.is_inline()
        || is_unreliable(core) && !may_share_job(sq)
        || !cx.keys.uses.may_begin()
        || !core.uses.may_begin()
        || !peer.core.uses.may_begin()
        || peer.core.init.qp_type.is_target()
        || cx.host.job_place().is_none_or(|place| place.is_some())
    {
        return false;
    }
    let Some(mut job) = own.take() else {
        return false;
    };
    let filled = fill(cx, &mut peer, core, sq, checked, &mut job);
    if let (Err(response), true) = (filled, job.is_empty()) {
        *own = Some(job);
        if response == Response::Later {
            return false;
        }
        not_acknowledged(qps, cx, qp, response);
        return true;
    }
    job.belongs_to(core.index(), peer.core.index());
    if let Some(place) = cx.host.job_place() {
        *place = Some(job);
    }
    sq.begin_copy(match filled {
        Ok(after) => after,
        Err(Response::Nak(status)) => AfterCopy::Fail(status),
        Err(Response::RequesterFault) => AfterCopy::Fail(Status::LocalProtection),
        Err(_) => AfterCopy::GoOn,
    });
    if let Err(Response::Nak(_)) = filled {
        break_peer(qps, cx, qp);
    }
    true
}

/// Fills a job with the next segments, and says what is to become of the request that is at hand
/// then.
///
/// # Errors
///
/// The response to a segment of which the job has nothing.
fn fill<H: Host>(
    cx: &mut Cx<'_, H>,
    peer: &mut Peer<'_, H>,
    core: &QpCore<H>,
    sq: &mut SendQueue,
    mut checked: CheckedUse,
    job: &mut Job<H>,
) -> Result<AfterCopy, Response> {
    loop {
        let size = SegmentSize::next(sq, core.attr.path_mtu, job.space().into());
        let before = job.size();
        let is_judged_again = is_judged_again(sq);
        let mut way = Outside::Job {
            job,
            is_judged_again,
        };
        let is_dropped = match hand(peer, cx, core, sq, size, checked, &mut way) {
            Response::Acknowledge => false,
            Response::None if is_unreliable(core) => true,
            Response::Later if job.size() != before => {
                return Ok(AfterCopy::JudgeAgain(size.length))
            }
            response => return Err(response),
        };
        // It was the use of the first segment's memory.
        checked = CheckedUse::NONE;
        // The bytes of a job count where it is carried out.
        cx.allowance.take_bytes(Budget::PACKET);
        if acknowledged(core, sq, size) {
            if core.reports_success(sq.request.slot.head.flags) {
                job.add_ending(Ending {
                    wr_id: sq.request.slot.head.wr_id.get(),
                    index: sq.request.index,
                    length: sq.request.length,
                    opcode: completion_opcode(Some(sq.request.opcode)),
                });
            }
            sq.finish();
            if is_dropped || cx.allowance.is_spent() || core.state == State::Sqd {
                return Ok(AfterCopy::GoOn);
            }
            match sq.take(cx, core) {
                Taken::Request(used) => {
                    checked = used;
                    cx.allowance.take_request();
                }
                Taken::Malformed(status) => {
                    cx.allowance.take_request();
                    return Ok(AfterCopy::Fail(status));
                }
                // The ring stays broken, and the next look finds that.
                Taken::Nothing | Taken::Jump => return Ok(AfterCopy::GoOn),
            }
        }
        if is_dropped || job.space() == 0 || !may_share_job(sq) {
            return Ok(AfterCopy::GoOn);
        }
    }
}

/// Whether the peer judges a segment of the request at hand once more after the job.
fn is_judged_again(sq: &SendQueue) -> bool {
    let facts = sq.request.opcode.facts();
    facts.receive != Receive::None || facts.extra != Extra::None
}

/// Whether the request at hand may have the same job as the one before it, or the next one.
fn may_share_job(sq: &SendQueue) -> bool {
    matches!(sq.request.opcode.facts().class, Class::Write | Class::Read)
        && !is_judged_again(sq)
        && !sq.request.is_inline()
}
