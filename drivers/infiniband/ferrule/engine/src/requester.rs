// SPDX-License-Identifier: GPL-2.0

//! The requester: takes send requests in order, sends each in pieces, and waits for the answer.

use crate::{
    abi::wr_opcode,
    attr::{
        Attributes,
        Mtu,
        QpType,
        State, //
    },
    completer::complete_send,
    counters::Count,
    datagram,
    event::{
        QpEvent,
        Trace, //
    },
    fast::{
        self,
        Register, //
    },
    host::Host,
    local,
    message::{
        Bytes,
        Message, //
    },
    psn,
    qp::{
        Core,
        Qp, //
    },
    request::{
        Opcode,
        SendRequest, //
    },
    responder::Reply,
    schedule::{
        Bus,
        Next,
        Qps, //
    },
    sgl::{
        check_list,
        Cursor, //
    },
    status::Status,
    window::{
        Bind,
        BindError, //
    },
    wire::{
        self,
        Unsent, //
    },
};

/// The most bytes of a message that are sent in one piece: a multiple of every path MTU.
const PIECE: u32 = 256 * 1024;

/// What the shortest packet counts for, in bytes of a turn.
pub(crate) const PACKET: u32 = 64;

/// Nanoseconds that a receiver which is not ready asks for, by the code of the timer (IBA volume
/// 1, table 45).
const RNR_TIMER: [u64; 32] = [
    655_360_000,
    10_000,
    20_000,
    30_000,
    40_000,
    60_000,
    80_000,
    120_000,
    160_000,
    240_000,
    320_000,
    480_000,
    640_000,
    960_000,
    1_280_000,
    1_920_000,
    2_560_000,
    3_840_000,
    5_120_000,
    7_680_000,
    10_240_000,
    15_360_000,
    20_480_000,
    30_720_000,
    40_960_000,
    61_440_000,
    81_920_000,
    122_880_000,
    163_840_000,
    245_760_000,
    327_680_000,
    491_520_000,
];

/// What the requester waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Nothing,
    /// An acknowledgement that may not come.
    Acknowledgement,
    /// The time that a receiver which was not ready asked for.
    Receiver,
    /// Room for a packet.
    Host,
}

/// The send queue's side of a queue pair.
pub(crate) struct Requester {
    /// The next slot to be taken.
    consumer: u32,
    /// The producer index as last read.
    producer: u32,
    /// The producer index made no sense: nothing in the ring can be believed.
    broken: bool,
    /// A request is at hand: `request` is it.
    busy: bool,
    request: SendRequest,
    /// Bytes of the request that have been acknowledged.
    done: u32,
    cursor: Cursor,
    /// The sequence number of the next packet.
    psn: u32,
    wait: Wait,
    retries: u8,
    rnr_retries: u8,
}

/// What the ring gave.
pub(crate) enum Taken {
    Request,
    Nothing,
    Malformed(Status),
    Jump,
}

impl Requester {
    pub(crate) fn new() -> Self {
        Self {
            consumer: 0,
            producer: 0,
            broken: false,
            busy: false,
            request: SendRequest::new(),
            done: 0,
            cursor: Cursor::default(),
            psn: 0,
            wait: Wait::Nothing,
            retries: 0,
            rnr_retries: 0,
        }
    }

    /// Forgets all, as in RESET.
    pub(crate) fn reset(&mut self) {
        self.consumer = 0;
        self.producer = 0;
        self.broken = false;
        self.psn = 0;
        self.wait = Wait::Nothing;
        self.finish();
    }

    /// Goes on as if so many requests had been taken.
    #[cfg(test)]
    pub(crate) fn set_indices(&mut self, index: u32) {
        (self.consumer, self.producer) = (index, index);
    }

    /// The request at hand, or the last one.
    pub(crate) fn request(&self) -> &SendRequest {
        &self.request
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy
    }

    pub(crate) fn psn(&self) -> u32 {
        self.psn
    }

    pub(crate) fn set_psn(&mut self, psn: u32) {
        self.psn = psn;
    }

    pub(crate) fn consumer(&self) -> u32 {
        self.consumer
    }

    /// The request at hand has ended.
    pub(crate) fn finish(&mut self) {
        self.busy = false;
        self.begin_again();
    }

    /// Goes back to the start of the request at hand.
    pub(crate) fn begin_again(&mut self) {
        self.done = 0;
        self.cursor = Cursor::default();
    }

    /// Has all its retries again, as the attributes have them.
    pub(crate) fn refill_retries(&mut self, attr: &Attributes) {
        self.refill_transport_retries(attr);
        self.rnr_retries = attr.rnr_retry;
    }

    /// Has all those again that are for what is lost.
    pub(crate) fn refill_transport_retries(&mut self, attr: &Attributes) {
        self.retries = attr.retry_cnt;
    }

    /// Looks how many requests wait in the ring.
    fn waiting<H: Host>(&mut self, core: &Core<H>) -> Option<u32> {
        if self.broken {
            return Some(0);
        }
        let ring = &core.init.sq;
        if ring.depth == 0 {
            return Some(0);
        }
        if self.consumer == self.producer {
            self.producer = core.sq_producer();
        }
        ring.waiting(self.consumer, self.producer)
    }

    /// Takes the next request out of the ring.
    #[inline(always)]
    pub(crate) fn take<H: Host>(&mut self, bus: &mut Bus<'_, H>, core: &Core<H>) -> Taken {
        let looked = self.consumer == self.producer;
        match self.waiting(core) {
            None => {
                self.broken = true;
                return Taken::Jump;
            }
            Some(0) => return Taken::Nothing,
            Some(_) => (),
        }
        if looked {
            bus.host.trace(&Trace::Doorbell {
                qpn: core.id.number,
                producer: self.producer,
            });
        }
        let init = &core.init;
        let index = self.consumer;
        self.consumer = index.wrapping_add(1);
        self.busy = true;
        let judged = self.request.read(init, index);
        bus.counters.requests.count(1);
        bus.host.trace(&Trace::Request {
            qpn: core.id.number,
            wr_id: self.request.head.wr_id.get(),
            opcode: self.request.head.opcode,
            length: self.request.length,
        });
        if let Err(status) = judged {
            return Taken::Malformed(status);
        }
        // Without a resource for reads and atomics, none could ever be sent (IBA volume 1, 9.4.4).
        if self.request.opcode.is_answered_with_data() && core.attr.max_rd_atomic == 0 {
            return Taken::Malformed(Status::LocalOperation);
        }
        match self.check_keys(bus, core) {
            Ok(()) => Taken::Request,
            Err(status) => Taken::Malformed(status),
        }
    }

    /// Local keys are checked before anything is sent, so that a request which names memory that it
    /// must not is never begun (C10-57).
    #[inline(always)]
    fn check_keys<H: Host>(&self, bus: &mut Bus<'_, H>, core: &Core<H>) -> Result<(), Status> {
        let request = &self.request;
        let need = request.opcode.local_need();
        if request.is_inline() || check_list(bus.keys, core.init.pd, need, request.entries()) {
            Ok(())
        } else {
            Err(Status::LocalProtection)
        }
    }

    /// The request at hand is in the hands of the wire.
    pub(crate) fn let_go(&mut self) {
        self.finish();
    }

    /// The request that was copied last, and where its list goes on.
    pub(crate) fn at_hand(&mut self) -> (&SendRequest, &mut Cursor) {
        (&self.request, &mut self.cursor)
    }

    /// Copies a request that was taken before once more, and judges it as then.
    pub(crate) fn reload<H: Host>(
        &mut self,
        bus: &mut Bus<'_, H>,
        core: &Core<H>,
        index: u32,
    ) -> Result<&SendRequest, Status> {
        self.request.read(&core.init, index)?;
        self.check_keys(bus, core)?;
        Ok(&self.request)
    }

    /// Whether a request of the next ones in the ring will be sent before those before it have ended: so it
    /// asks for their answer. One that changes a key waits for that, and one that registers sends nothing.
    pub(crate) fn is_followed<H: Host>(&mut self, core: &Core<H>) -> bool {
        // Kernel users post a few registrations in front of a request.
        const LOOKS: u32 = 4;

        let init = &core.init;
        let waiting = self.waiting(core).unwrap_or(0).min(LOOKS);
        let next = (0..waiting)
            .map(|i| SendRequest::peek(&init.queue, &init.sq, self.consumer.wrapping_add(i)))
            .find(|&opcode| opcode != fast::WR_REGISTER);
        !matches!(next, None | Some(wr_opcode::LOCAL_INV | wr_opcode::BIND_MW))
    }

    /// Goes back to an earlier request.
    pub(crate) fn rewind(&mut self, index: u32) {
        self.consumer = index;
        self.finish();
    }

    /// Takes one of the retries after receiver not ready; answers whether there was one.
    pub(crate) fn take_rnr_retry(&mut self, attr: &Attributes) -> bool {
        // 7 stands for no limit.
        if attr.rnr_retry == 7 {
            return true;
        }
        match self.rnr_retries.checked_sub(1) {
            Some(left) => {
                self.rnr_retries = left;
                true
            }
            None => false,
        }
    }

    /// Takes the next request to be flushed: first the one at hand, then those in the ring.
    pub(crate) fn take_for_flush<H: Host>(&mut self, core: &Core<H>) -> bool {
        if self.busy {
            return true;
        }
        match self.waiting(core) {
            Some(0) => false,
            Some(_) => {
                let index = self.consumer;
                self.consumer = index.wrapping_add(1);
                self.request
                    .read_head(&core.init.queue, &core.init.sq, index);
                self.busy = true;
                true
            }
            None => {
                self.broken = true;
                false
            }
        }
    }

    /// The bytes of the next piece: as many as the turn allows, and whole packets but for the last.
    #[inline]
    fn piece(&self, mtu: Mtu, allowed: u64) -> u32 {
        let rest = self.request.length.wrapping_sub(self.done);
        let allowed = allowed.min(u64::from(PIECE)) as u32;
        if rest <= allowed {
            return rest;
        }
        let whole = allowed & !mtu.bytes().wrapping_sub(1);
        rest.min(whole.max(mtu.bytes()))
    }

    /// The next piece of the request at hand, of `length` bytes.
    pub(crate) fn message<H: Host>(&mut self, core: &Core<H>, length: u32) -> Message<'_, H> {
        let request = &self.request;
        Message {
            from: core.id.number,
            opcode: request.opcode,
            head: &request.head,
            total: request.length,
            offset: self.done,
            length,
            is_first: self.done == 0,
            is_last: self.done.wrapping_add(length) == request.length,
            psn: self.psn,
            packets: psn::packets(length, core.attr.path_mtu),
            bytes: Bytes::Request {
                request,
                pd: core.init.pd,
                cursor: &mut self.cursor,
            },
        }
    }
}

/// A turn of the requester, in state RTS or SQD.
///
/// This is one function, and what is rare is none of it: a request goes from the ring to the peer's memory without
/// a call, so with few registers to be saved, and its code lies together.
#[inline(never)]
pub(crate) fn run<H: Host>(qps: &mut Qps<H>, bus: &mut Bus<'_, H>, qp: &mut Qp<H>) -> Next {
    while matches!(qp.core.state, State::Rts | State::Sqd) {
        if qp.sq.wait != Wait::Nothing {
            return Next::Idle;
        }
        if bus.allowance.is_spent() {
            return Next::Again;
        }
        if !qp.sq.busy {
            if qp.core.state == State::Sqd {
                return Next::Idle;
            }
            match qp.sq.take(bus, &qp.core) {
                Taken::Request => bus.allowance.take_request(),
                Taken::Nothing => return Next::Idle,
                Taken::Malformed(status) => {
                    bus.allowance.take_request();
                    fail(qps, bus, qp, status);
                    continue;
                }
                Taken::Jump => {
                    bus.counters.producer_jumps.count(1);
                    break_down(qps, bus, qp);
                    continue;
                }
            }
        }
        step(qps, bus, qp);
    }
    // In error the queues are flushed, in turns of their own.
    Next::Again
}

/// Sends one piece of the request at hand and does what the answer says.
#[inline(always)]
fn step<H: Host>(qps: &mut Qps<H>, bus: &mut Bus<'_, H>, qp: &mut Qp<H>) {
    if qp.sq.request.opcode.is_local() {
        return match change_key(bus, qp) {
            Ok(()) => succeed(qps, bus, qp),
            Err(BindError) => fail(qps, bus, qp, Status::WindowBind),
        };
    }
    match qp.core.init.qp_type {
        QpType::Rc => (),
        QpType::Uc => return step_unreliable(qps, bus, qp),
        QpType::Ud => return step_datagram(qps, bus, qp),
    }
    let length = qp.sq.piece(qp.core.attr.path_mtu, bus.allowance.bytes);
    match local::deliver(qps, bus, qp, length) {
        Reply::Acknowledge => {
            bus.allowance.take_bytes(length);
            acknowledge(qps, bus, qp, length);
        }
        Reply::NotReady(code) => receiver_not_ready(qps, bus, qp, code),
        Reply::OutOfSequence => {
            // The peer expects an earlier packet. To send again is all there is to do, as often as
            // the attributes allow (C9-103, C9-139).
            if lost(bus, qp) {
                fail(qps, bus, qp, Status::RetryExceeded);
            }
        }
        Reply::Silence => {
            bus.counters.unanswered.count(1);
            qp.sq.wait = Wait::Acknowledgement;
            // A timeout of 0 waits for ever (C9-141).
            let timeout = qp.core.attr.timeout;
            if timeout != 0 {
                let wait = 4096u64.wrapping_shl(u32::from(timeout));
                qps.set_timer(qp.core.index(), bus.now.saturating_add(wait));
            }
        }
        Reply::Refuse(status) => fail(qps, bus, qp, status),
        Reply::LocalLost => fail(qps, bus, qp, Status::LocalProtection),
    }
}

/// Binds a window, registers a region or invalidates a key. All requests before have ended, so none
/// still needs it; or it registers a region, which opens nothing yet.
pub(crate) fn change_key<H: Host>(bus: &mut Bus<'_, H>, qp: &mut Qp<H>) -> Result<(), BindError> {
    let Qp { core, sq, .. } = qp;
    let head = &sq.request.head;
    match sq.request.opcode {
        Opcode::BindWindow => bus.keys.bind(core.init.pd, core.id, &Bind::from(head)),
        Opcode::Register => bus.keys.register(core.init.pd, &Register::from(head)),
        _ => {
            let key = u32::from_le_bytes(head.imm_or_inv);
            bus.keys.invalidate(core.init.pd, core.id, key)
        }
    }
}

/// Sends a piece of a message of an unreliable connection. Nobody answers: what was sent is done,
/// whatever became of it (IBA volume 1, 9.8.2.1).
#[inline(never)]
fn step_unreliable<H: Host>(qps: &mut Qps<H>, bus: &mut Bus<'_, H>, qp: &mut Qp<H>) {
    let mtu = qp.core.attr.path_mtu;
    if qp.core.remote_path().is_none() {
        let length = qp.sq.piece(mtu, bus.allowance.bytes);
        if local::deliver(qps, bus, qp, length) == Reply::LocalLost {
            return fail(qps, bus, qp, Status::LocalProtection);
        }
        bus.allowance.take_bytes(length);
        return acknowledge(qps, bus, qp, length);
    }
    let length = qp.sq.piece(mtu, mtu.bytes().into());
    let begin = qp.sq.cursor;
    match wire::uc::send(bus, qp, length) {
        Ok(()) => {
            bus.allowance.take_bytes(length.max(PACKET));
            acknowledge(qps, bus, qp, length);
        }
        Err(unsent) => {
            qp.sq.cursor = begin;
            give_up(qps, bus, qp, unsent.into());
        }
    }
}

/// Sends the datagram at hand, which is done with that.
#[inline(never)]
fn step_datagram<H: Host>(qps: &mut Qps<H>, bus: &mut Bus<'_, H>, qp: &mut Qp<H>) {
    match datagram::send(qps, bus, qp) {
        Ok(()) => {
            qp.sq.psn = psn::advance(qp.sq.psn, 1);
            succeed(qps, bus, qp);
        }
        Err(unfinished) => give_up(qps, bus, qp, unfinished),
    }
}

/// Why a piece of an unreliable service was not sent.
pub(crate) enum Unfinished {
    /// The request ends with an error.
    Failed(Status),
    /// The host has no room for a packet: the same piece again later.
    Later,
}

impl From<Status> for Unfinished {
    fn from(status: Status) -> Self {
        Unfinished::Failed(status)
    }
}

impl From<Unsent> for Unfinished {
    fn from(unsent: Unsent) -> Self {
        match unsent {
            Unsent::Fault => Unfinished::Failed(Status::LocalProtection),
            Unsent::Busy => Unfinished::Later,
        }
    }
}

/// Gives the piece up, for good or for a while.
fn give_up<H: Host>(
    qps: &mut Qps<H>,
    bus: &mut Bus<'_, H>,
    qp: &mut Qp<H>,
    unfinished: Unfinished,
) {
    match unfinished {
        Unfinished::Failed(status) => fail(qps, bus, qp, status),
        Unfinished::Later => {
            qp.sq.wait = Wait::Host;
            qps.set_timer(qp.core.index(), bus.now.saturating_add(wire::BUSY));
        }
    }
}

/// A piece arrived: the request has ended if it was the last.
#[inline(always)]
fn acknowledge<H: Host>(qps: &mut Qps<H>, bus: &mut Bus<'_, H>, qp: &mut Qp<H>, length: u32) {
    let Qp { core, sq, .. } = qp;
    sq.psn = psn::advance(sq.psn, psn::packets(length, core.attr.path_mtu));
    sq.done = sq.done.wrapping_add(length);
    sq.refill_retries(&core.attr);
    if sq.done == sq.request.length {
        succeed(qps, bus, qp);
    }
}

/// The request at hand has done what it should.
#[inline(always)]
fn succeed<H: Host>(qps: &mut Qps<H>, bus: &mut Bus<'_, H>, qp: &mut Qp<H>) {
    let Qp { core, sq, .. } = qp;
    let told = complete_send(bus, core, sq, Status::Success);
    sq.finish();
    if told.is_err() {
        break_down(qps, bus, qp);
    } else if core.state == State::Sqd {
        tell_drained(bus.host, core);
    }
}

/// The receiver had no receive request: try again after the time it asked for (C9-155, C9-157).
#[cold]
fn receiver_not_ready<H: Host>(qps: &mut Qps<H>, bus: &mut Bus<'_, H>, qp: &mut Qp<H>, code: u8) {
    bus.counters.receiver_not_ready.count(1);
    if !qp.sq.take_rnr_retry(&qp.core.attr) {
        return fail(qps, bus, qp, Status::RnrRetryExceeded);
    }
    qp.sq.wait = Wait::Receiver;
    qps.set_timer(qp.core.index(), bus.now.saturating_add(rnr_wait(code)));
}

/// Nanoseconds that a receiver which is not ready asks for by a code of the timer.
pub(crate) fn rnr_wait(code: u8) -> u64 {
    RNR_TIMER.get(usize::from(code & 31)).copied().unwrap_or(0)
}

/// Counts a retry; answers whether there are none left.
pub(crate) fn lost<H: Host>(bus: &mut Bus<'_, H>, qp: &mut Qp<H>) -> bool {
    if bus.retries_for_ever && qp.core.attr.retry_cnt == 7 {
        bus.counters.retries.count(1);
        return false;
    }
    match qp.sq.retries.checked_sub(1) {
        Some(left) => {
            qp.sq.retries = left;
            bus.counters.retries.count(1);
            false
        }
        None => true,
    }
}

/// The timer of a queue pair has fired: it tries again, if it may.
pub(crate) fn timer_fired<H: Host>(qps: &mut Qps<H>, bus: &mut Bus<'_, H>, qp: &mut Qp<H>) {
    if qp.core.is_acknowledged() {
        return wire::timer_fired(qps, bus, qp);
    }
    let wait = core::mem::replace(&mut qp.sq.wait, Wait::Nothing);
    if wait == Wait::Acknowledgement && lost(bus, qp) {
        fail(qps, bus, qp, Status::RetryExceeded);
    }
    qps.activate(qp.core.index());
}

/// The request at hand ends with an error, and so does the work of the send queue.
///
/// A queue pair of a connected, reliable service is in error then; of the others, only its send
/// queue is (IBA volume 1, 10.3.1 and 9.9.2.1).
#[cold]
fn fail<H: Host>(qps: &mut Qps<H>, bus: &mut Bus<'_, H>, qp: &mut Qp<H>, status: Status) {
    let Qp { core, sq, .. } = qp;
    let told = complete_send(bus, core, sq, status);
    sq.finish();
    if told.is_err() {
        return break_down(qps, bus, qp);
    }
    match core.init.qp_type {
        QpType::Rc => enter_error(qps, bus.host, core),
        // It may be in error by what it sent to itself.
        QpType::Uc | QpType::Ud if core.state == State::Err => (),
        QpType::Uc | QpType::Ud => {
            core.set_state(bus.host, State::Sqe);
            qps.activate(core.index());
        }
    }
}

/// The queue pair cannot tell any more how its requests end: it is in error, and says so.
#[cold]
pub(crate) fn break_down<H: Host>(qps: &mut Qps<H>, bus: &mut Bus<'_, H>, qp: &mut Qp<H>) {
    if qp.core.state != State::Err {
        bus.host.qp_event(&qp.core.init.handle, QpEvent::Fatal);
        enter_error(qps, bus.host, &mut qp.core);
    }
}

/// Moves a queue pair to state ERR; its queues will be flushed at its next turns.
pub(crate) fn enter_error<H: Host>(qps: &mut Qps<H>, host: &mut H, core: &mut Core<H>) {
    core.set_state(host, State::Err);
    qps.stop(core.index());
}

/// The send queue has drained in state SQD: tells it, if that was asked for (C10-26).
pub(crate) fn tell_drained<H: Host>(host: &mut H, core: &Core<H>) {
    if core.attr.en_sqd_async_notify {
        host.qp_event(&core.init.handle, QpEvent::SendQueueDrained);
    }
}
