// SPDX-License-Identifier: GPL-2.0

//! A turn of the send queue: takes send requests in order, sends each in segments, and waits for the response.
//!
//! No packet is made where the peer of a connection is a queue pair of the same engine. A peer observes the same as on
//! the wire: sequence numbers, receiver not ready, refusals, silence, and the order of completions.

use crate::{
    base::{
        attr::{
            Mtu,
            PathKind,
            QpType,
            State, //
        },
        budget::Budget,
        counters::Count,
        host::{
            Host,
            Unsent, //
        },
        psn,
        rnr_timer,
        status::Status, //
    },
    memory::bind::BindError,
    object::cq::Overrun,
    operation::{
        accept,
        completion::complete_send,
        ending::{
            enter_error,
            enter_fatal_error,
            report_drained,
            retries_exhausted, //
        },
        local_wr::{
            change_key,
            invalidate_own, //
        },
        message::{
            Message,
            Response, //
        },
        uc_receive,
        unreliable::Unfinished, //
    },
    queue_pair::{
        cx::{
            Cx,
            Next, //
        },
        qp::Qp,
        qp_core::QpCore,
        receive_queue::ReceiveQueue,
        schedule::Qps,
        send_queue::{
            SendQueue,
            Taken,
            Wait, //
        },
    },
    turn::ud_send,
    wire, //
};

/// The most bytes of a message that are sent in one segment: a multiple of every path MTU.
const MAX_SEGMENT: u32 = 256 * 1024;

/// A turn of the send queue, in state RTS or SQD.
///
/// This is one function, without the rare steps: a request goes from the ring to the peer's memory without a call, so
/// with few registers to be saved, and its code lies together.
#[inline(never)]
pub(crate) fn run<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) -> Next {
    while matches!(qp.core.state, State::Rts | State::Sqd) {
        match serve(qps, cx, qp) {
            Stop::Idle => return Next::Idle,
            Stop::Spent => return Next::Again,
            Stop::Malformed(status) => fail(qps, cx, qp, status),
            Stop::Jump => {
                cx.counters.producer_jumps.count(1);
                enter_fatal_error(qps, cx, qp);
            }
            Stop::Overrun => enter_fatal_error(qps, cx, qp),
            Stop::KeyChange => match change_key(cx, qp) {
                Ok(()) => succeed(qps, cx, qp),
                Err(BindError) => fail(qps, cx, qp, Status::WindowBind),
            },
            Stop::NoPeer => match qp.core.init.qp_type {
                QpType::Uc => step_unreliable(qps, cx, qp),
                QpType::Ud => step_datagram(qps, cx, qp),
                QpType::RawPacket => step_frame(qps, cx, qp),
                QpType::Rc | QpType::XrcIni | QpType::XrcTgt => {
                    not_acknowledged(qps, cx, qp, Response::None)
                }
            },
            Stop::Response(response) => not_acknowledged(qps, cx, qp, response),
        }
    }
    // In error the queues are flushed, in turns of their own.
    Next::Again
}

/// Why requests do not simply go on, one after the other, to the peer of a reliable connection.
enum Stop {
    /// The queue is empty, or waits.
    Idle,
    /// The turn's budget is spent.
    Spent,
    /// The request at hand ends at once, with this status.
    Malformed(Status),
    /// The ring is broken.
    Jump,
    /// The completion queue is full.
    Overrun,
    /// The request at hand changes a key.
    KeyChange,
    /// The request at hand is not for a peer that acknowledges: the queue pair has none.
    NoPeer,
    /// The peer has answered anything but an acknowledgement.
    Response(Response),
}

/// Sends the requests of a reliable connection, as long as each is acknowledged. So the peer is looked up once.
#[inline(always)]
fn serve<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) -> Stop {
    let Qp { core, sq, rq, .. } = qp;
    let mut peer = match core.init.qp_type {
        QpType::Rc | QpType::XrcIni => Peer::find(qps, core, rq)
            .filter(|peer| accept::answers(peer.core, core.id.number, false)),
        QpType::Uc | QpType::Ud | QpType::XrcTgt | QpType::RawPacket => None,
    };
    if sq.wait != Wait::Nothing {
        return Stop::Idle;
    }
    loop {
        if cx.allowance.is_spent() {
            return Stop::Spent;
        }
        if !sq.busy {
            if core.state == State::Sqd {
                return Stop::Idle;
            }
            match sq.take(cx, core) {
                Taken::Request => cx.allowance.take_request(),
                Taken::Nothing => return Stop::Idle,
                Taken::Malformed(status) => {
                    cx.allowance.take_request();
                    return Stop::Malformed(status);
                }
                Taken::Jump => return Stop::Jump,
            }
        }
        if sq.request.opcode.is_local() {
            return Stop::KeyChange;
        }
        let Some(peer) = &mut peer else {
            return Stop::NoPeer;
        };
        let segment = Segment::next(sq, core.attr.path_mtu, cx.allowance.bytes);
        let response = peer.hand(cx, core, sq, segment, accept::receive);
        if response != Response::Acknowledge {
            return Stop::Response(response);
        }
        cx.allowance.take_bytes(segment.length);
        if !acknowledge(core, sq, segment) {
            continue;
        }
        if invalidate_own(cx, core, &sq.request).is_err() {
            return Stop::Malformed(Status::WindowBind);
        }
        if complete(cx, core, sq).is_err() {
            return Stop::Overrun;
        }
    }
}

/// The peer of a connection, on the same engine.
struct Peer<'a, H: Host> {
    core: &'a QpCore<H>,
    rq: &'a mut ReceiveQueue,
}

impl<'a, H: Host> Peer<'a, H> {
    /// The peer, which may be the queue pair itself. `None` without a way to it, or by the wire: nothing comes there.
    #[inline(always)]
    fn find(qps: &'a mut Qps<H>, core: &'a QpCore<H>, rq: &'a mut ReceiveQueue) -> Option<Self> {
        let Some(PathKind::Local(vport)) = core.attr.path.map(|path| path.kind) else {
            return None;
        };
        let number = core.attr.dest_qpn;
        let peer = if number == core.id.number {
            Peer { core, rq }
        } else {
            let Qp { core, rq, .. } = qps.get_mut(number)?;
            Peer { core, rq }
        };
        let init = &peer.core.init;
        (init.qp_type == core.init.qp_type.peer() && init.vport == vport).then_some(peer)
    }

    /// Hands it a segment of the request at hand, which `receive` takes, and brings the response.
    #[inline(always)]
    fn hand(
        &mut self,
        cx: &mut Cx<'_, H>,
        core: &QpCore<H>,
        sq: &SendQueue,
        segment: Segment,
        receive: impl FnOnce(&mut Cx<'_, H>, &QpCore<H>, &mut ReceiveQueue, Message<'_, H>) -> Response,
    ) -> Response {
        let message = sq.message(core, segment.length, segment.packets);
        // A message counts where it is taken, which mostly is where the sender counts, too.
        let own = cx.counters;
        let counted_at = self.core.counted_at;
        if counted_at != core.counted_at {
            cx.counters = cx.ports.of(counted_at);
        }
        let response = receive(cx, self.core, self.rq, message);
        cx.counters = own;
        response
    }
}

/// The peer has answered with a NAK, and is in error.
#[cold]
fn break_peer<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    let number = qp.core.attr.dest_qpn;
    let core = if number == qp.core.id.number {
        &mut qp.core
    } else {
        let Some(peer) = qps.get_mut(number) else {
            return;
        };
        &mut peer.core
    };
    core.set_state(cx.host, State::Err);
    let index = core.index();
    qps.stop(index);
}

/// Does what a response says that is no acknowledgement.
#[cold]
fn not_acknowledged<H: Host>(
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
            if let Some(timeout) = qp.core.attr.ack_timeout() {
                qps.set_timer(qp.core.index(), cx.now.saturating_add(timeout));
            }
        }
        Response::Nak(status) => {
            break_peer(qps, cx, qp);
            fail(qps, cx, qp, status);
        }
        Response::RequesterFault => fail(qps, cx, qp, Status::LocalProtection),
        // Memory of either side is being brought in: the same segment again after a while.
        Response::Absent => give_up(qps, cx, qp, Unsent::Absent.into()),
    }
}

/// A segment of the request at hand.
#[derive(Clone, Copy)]
struct Segment {
    /// Its bytes.
    length: u32,
    /// The packets that it takes.
    packets: u32,
}

impl Segment {
    /// The next segment: as many bytes as the turn allows, and whole packets but for the last.
    #[inline]
    fn next(sq: &SendQueue, mtu: Mtu, allowed: u64) -> Self {
        let rest = sq.request.length.wrapping_sub(sq.done);
        let allowed = allowed.min(u64::from(MAX_SEGMENT)) as u32;
        let length = if rest <= allowed {
            rest
        } else {
            let whole = allowed & !mtu.bytes().wrapping_sub(1);
            rest.min(whole.max(mtu.bytes()))
        };
        Self {
            length,
            packets: psn::packets(length, mtu),
        }
    }
}

/// Sends a segment of a message of an unreliable connection. Nobody answers: a segment that was sent is done, even if
/// it gets lost (IBA volume 1, 9.8.2.1).
#[inline(never)]
fn step_unreliable<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    let mtu = qp.core.attr.path_mtu;
    if qp.core.remote_path().is_none() {
        let segment = Segment::next(&qp.sq, mtu, cx.allowance.bytes);
        let Qp { core, sq, rq, .. } = &mut *qp;
        let response = match Peer::find(qps, core, rq) {
            Some(mut peer) => peer.hand(cx, core, sq, segment, |cx, core, rq, message| {
                uc_receive::receive(cx, core, rq, message).unwrap_or(Response::None)
            }),
            None => Response::None,
        };
        if let Response::Nak(_) = response {
            break_peer(qps, cx, qp);
        }
        if response == Response::Absent {
            return give_up(qps, cx, qp, Unsent::Absent.into());
        }
        if response == Response::RequesterFault {
            return fail(qps, cx, qp, Status::LocalProtection);
        }
        cx.allowance.take_bytes(segment.length);
        return sent(qps, cx, qp, segment);
    }
    let segment = Segment::next(&qp.sq, mtu, mtu.bytes().into());
    match wire::uc::send(cx, qp, segment.length) {
        Ok(()) => {
            cx.allowance.take_bytes(segment.length.max(Budget::PACKET));
            sent(qps, cx, qp, segment);
        }
        Err(unsent) => give_up(qps, cx, qp, unsent.into()),
    }
}

/// Sends the datagram at hand, which is done with that.
#[inline(never)]
fn step_datagram<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    match ud_send::send(qps, cx, qp) {
        Ok(()) => {
            qp.sq.psn = psn::advance(qp.sq.psn, 1);
            succeed(qps, cx, qp);
        }
        Err(unfinished) => give_up(qps, cx, qp, unfinished),
    }
}

/// Sends the frame at hand, which is done with that.
#[inline(never)]
fn step_frame<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    match wire::frame::send(cx, qp) {
        Ok(()) => succeed(qps, cx, qp),
        Err(unfinished) => give_up(qps, cx, qp, unfinished),
    }
}

/// Gives the segment up, for good or for a while.
fn give_up<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>, unfinished: Unfinished) {
    match unfinished {
        Unfinished::Failed(status) => fail(qps, cx, qp, status),
        Unfinished::Later(wait) => {
            qp.sq.wait = Wait::Host;
            qps.set_timer(qp.core.index(), cx.now.saturating_add(wait));
        }
    }
}

/// A segment of an unreliable connection was sent, which is all that its requester waits for.
fn sent<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>, segment: Segment) {
    if acknowledge(&qp.core, &mut qp.sq, segment) {
        succeed(qps, cx, qp);
    }
}

/// A segment arrived. Answers whether it was the last, and the request has ended.
#[inline(always)]
fn acknowledge<H: Host>(core: &QpCore<H>, sq: &mut SendQueue, segment: Segment) -> bool {
    sq.psn = psn::advance(sq.psn, segment.packets);
    sq.done = sq.done.wrapping_add(segment.length);
    sq.refill_retries(&core.attr);
    sq.done == sq.request.length
}

/// The request at hand has done what it should: completes it.
///
/// # Errors
///
/// [`Overrun`]: the completion was lost, and the caller moves the queue pair to error.
#[inline(always)]
fn complete<H: Host>(
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

/// [`complete`] of a request that is no message of a reliable connection.
fn succeed<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    if complete(cx, &qp.core, &mut qp.sq).is_err() {
        enter_fatal_error(qps, cx, qp);
    }
}

/// The receiver had no receive request: try again after the time it asked for (C9-155, C9-157).
#[cold]
fn receiver_not_ready<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>, code: u8) {
    cx.counters.receiver_not_ready.count(1);
    if !qp.sq.take_rnr_retry(&qp.core.attr) {
        return fail(qps, cx, qp, Status::RnrRetryExceeded);
    }
    qp.sq.wait = Wait::Receiver;
    qps.set_timer(
        qp.core.index(),
        cx.now.saturating_add(rnr_timer::nanoseconds(code)),
    );
}

/// The timer of a queue pair has fired: it tries again, if it may.
pub(crate) fn timer_fired<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    if qp.core.is_acknowledged() {
        return wire::timer_fired(qps, cx, qp);
    }
    let wait = core::mem::replace(&mut qp.sq.wait, Wait::Nothing);
    if wait == Wait::Acknowledgement && retries_exhausted(cx, qp) {
        fail(qps, cx, qp, Status::RetryExceeded);
    }
    qps.activate(qp.core.index());
}

/// The request at hand ends with an error, and so does the work of the send queue.
///
/// A queue pair of a connected, reliable service is in error then; of the others, only its send
/// queue is (IBA volume 1, 10.3.1 and 9.9.2.1).
#[cold]
fn fail<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>, status: Status) {
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
