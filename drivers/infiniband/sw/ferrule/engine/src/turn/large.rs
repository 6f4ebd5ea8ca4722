// SPDX-License-Identifier: GPL-2.0

//! A step with a segment of many bytes, which a copy job may copy while others own the shard.
//!
//! The peer judges such a segment twice: before its job begins, and when it has been carried out. Whatever has changed
//! meanwhile, the second judgement is the one that counts. So a segment ends as one that was copied at once, at that time.

use crate::{
    base::{
        budget::Budget,
        copy_job::CopyJob,
        host::Host,
        status::Status, //
    },
    memory::outside::Outside,
    operation::{
        local_wr::invalidate_own,
        request_segment::Response, //
    },
    queue_pair::{
        cx::Cx,
        qp::Qp,
        schedule::Qps,
        send_queue::Wait, //
    },
    turn::{
        outcome::{
            acknowledged,
            fail,
            not_acknowledged,
            succeed, //
        },
        peer::{
            Peer,
            SegmentSize, //
        },
    },
};

/// Hands the peer the next segment of the request at hand, or again the one that has been copied.
#[inline(never)]
pub(crate) fn step<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    let Qp { core, sq, rq, .. } = &mut *qp;
    let mtu = core.attr.path_mtu;
    let is_copied = sq.wait == Wait::Copied;
    let size = if is_copied {
        sq.wait = Wait::Nothing;
        SegmentSize::new(sq.copying, mtu)
    } else {
        SegmentSize::next(sq, mtu, cx.allowance.bytes)
    };
    let Some(mut peer) =
        Peer::find(qps, core, rq).filter(|peer| peer.core.answers(core.id.number, false))
    else {
        return not_acknowledged(qps, cx, qp, Response::None);
    };
    let mut job = CopyJob::new();
    // A shared receive queue of XRC may go while one of its requests is at hand.
    let may_begin =
        core.uses.may_begin() && peer.core.uses.may_begin() && !peer.core.init.qp_type.is_target();
    let has_place = cx.host.job_place().is_some_and(|place| place.is_none());
    let mut way = if is_copied {
        Outside::Done
    } else if has_place && may_begin {
        Outside::Plan(&mut job)
    } else {
        Outside::Never
    };
    match peer.hand(cx, core, sq, size, &mut way) {
        Response::Acknowledge => (),
        Response::Later => {
            job.belongs_to(core.index(), peer.core.index());
            if let Some(place) = cx.host.job_place() {
                *place = Some(job);
            }
            sq.wait = Wait::Copy;
            sq.copying = size.length;
            return;
        }
        response => return not_acknowledged(qps, cx, qp, response),
    }
    // The bytes of a job count where it is carried out.
    let bytes = if is_copied {
        Budget::PACKET
    } else {
        size.length
    };
    cx.allowance.take_bytes(bytes);
    if !acknowledged(core, sq, size) {
        return;
    }
    if invalidate_own(cx, core, &sq.request).is_err() {
        return fail(qps, cx, qp, Status::WindowBind);
    }
    succeed(qps, cx, qp);
}
