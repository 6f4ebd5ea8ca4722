// SPDX-License-Identifier: GPL-2.0

//! The wire: queue pairs whose peer is elsewhere, by packets of RoCEv2.
//!
//! Requests are judged, keys checked, bytes placed and completions written by the same code as for
//! local peers; what stands here is what packets add: cutting messages, sequence numbers,
//! acknowledgements, and doing again what was lost (IBA volume 1, 9.7).
//!
//! [`requester`] sends requests and does so again, with [`headers`] made as each says; [`completer`] takes
//! what comes back for them. [`responder`] takes requests of the peer and answers them, and what it keeps
//! of them is a [`response`]. Where packets were lost, [`early`] keeps those that come before them,
//! [`repair`] sends only what was lost, and [`probe`] looks where no sign comes. [`congestion`] limits how much is
//! in flight, and [`cnp`] tells the peer of marks. Of the unreliable services, [`uc`] and
//! [`ud`] are both sides. All state beyond that of a local queue pair is one [`Wire`], of bounded size (less
//! than 8 KiB) and allocated with the queue pair.
//!
//! # What is read again
//!
//! A request stays in its slot of the ring until it has ended, and is copied out of it again when
//! its packets have to be sent again, or when data come back for it. The program may have written
//! the slot meanwhile. So what shapes the packets (sequence numbers, opcode, flags, length) is kept
//! in a [`Record`] that no program can reach; each copy is judged as the first one was, and one
//! that does not fit its record ends the queue pair's work with an error. What else may differ
//! (addresses, keys, data) changes what the program itself says, as it could by changing the data.

mod cnp;
mod completer;
pub(crate) mod congestion;
mod early;
mod headers;
mod probe;
mod repair;
mod requester;
mod responder;
mod response;
mod transmit;
pub(crate) mod uc;
pub(crate) mod ud;

use crate::{
    attr::{
        Gid,
        Path,
        PathKind,
        QpType,
        State, //
    },
    bus::{
        Bus,
        Next, //
    },
    counters::Count,
    host::{
        Host,
        Packet as _,
        Sends,
        Unsent, //
    },
    packet::{
        self,
        icrc,
        opcode::{
            Kind,
            Service, //
        },
        Malformed,
        Packet, //
    },
    psn,
    qp::Qp,
    qp_core::Core,
    request::SendRequest,
    schedule::Qps,
    send_queue::SendQueue,
    sgl::Cursor,
    wire::{
        cnp::Notification,
        congestion::{
            Congestion,
            WINDOW, //
        },
        probe::Probe,
        repair::Repair,
        requester::Record,
        response::Responses, //
    },
};

/// Requests that may be on their way at a time. A power of two.
const REQUESTS: u32 = 64;

/// How far the newest packet may be ahead of one that is missing: as many as may be on their way, and as
/// many again that have come.
const AHEAD: u32 = 2 * WINDOW;

/// A packet that has come to port 4791.
pub struct Datagram<'a, H: Host> {
    /// The IP header: version 4 without options, or version 6 without extensions.
    pub ip: &'a [u8],
    /// The UDP header.
    pub udp: &'a [u8],
    /// All of what follows.
    pub packet: &'a H::Packet,
    /// The last 4 bytes of that, which are the invariant CRC.
    pub icrc: [u8; icrc::LENGTH],
    /// The service level that the completion of a datagram tells.
    pub sl: u8,
}

impl<H: Host> Datagram<'_, H> {
    /// The addresses as GIDs, from where and to where, and whether congestion was met.
    fn addresses(&self) -> Option<(Gid, Gid, bool)> {
        const CE: u8 = 3;

        let array = |from: usize, length: usize| self.ip.get(from..from.wrapping_add(length));
        if self.ip.len() == 20 {
            let mapped = |from| {
                let mut gid = [0; 16];
                gid.get_mut(10..12)?.fill(0xff);
                gid.get_mut(12..)?.copy_from_slice(array(from, 4)?);
                Some(gid)
            };
            let marked = self.ip.get(1)? & 3 == CE;
            Some((mapped(12)?, mapped(16)?, marked))
        } else {
            let gid = |from| Gid::try_from(array(from, 16)?).ok();
            let marked = self.ip.get(1)?.wrapping_shr(4) & 3 == CE;
            Some((gid(8)?, gid(24)?, marked))
        }
    }
}

/// What is known of packets that did not come.
#[derive(Clone, Copy, Default)]
struct Gap {
    /// The peer has been told, and sends them again.
    told: bool,
    /// The first of those behind them that has come since.
    beyond: Option<u32>,
}

impl Gap {
    /// Packet `number` has come, and one before it is missing. Answers whether the peer is to be told.
    ///
    /// It is told once (C9-112), since all that is on its way would say the same. But when the first packet
    /// behind the gap comes again, the peer has begun again, and what is missing was lost again. Without
    /// being told it would have to wait until its timer fires. No other packet is such a sign: that it comes
    /// again may be the network's doing, and a peer that is told in vain spends a retry. Where the first one
    /// is lost as well, the peer's probe or its timer finds the loss.
    fn is_news(&mut self, number: u32) -> bool {
        let is_news = !self.told || self.beyond == Some(number);
        self.told = true;
        self.beyond = self.beyond.or(Some(number));
        is_news
    }
}

/// A request's room. As [`Qp`]'s own, it is made in a frame of its own.
#[inline(never)]
fn reply<H: Host>() -> Option<H::Box<SendRequest>> {
    H::boxed(SendRequest::new)
}

/// What a queue pair needs for the wire, beyond what it needs for local peers.
pub(crate) struct Wire<H: Host> {
    /// The way to the peer, as the host has it.
    pub(crate) route: Option<H::Route>,

    records: H::Box<[Record; REQUESTS as usize]>,
    /// The slot of the oldest request that has not ended.
    oldest: u32,
    /// The slot of the request whose packets are sent next, and how many of its bytes were sent.
    sending: u32,
    offset: u32,
    /// The slot of which the requester has a copy at hand.
    loaded: Option<u32>,
    /// The sequence number of the oldest packet that has not been acknowledged.
    unacknowledged: u32,
    /// The sequence number after the last one that was ever used.
    used: u32,
    /// Messages sent so far (24 bits).
    ssn: u32,
    /// Up to which message the responder has receive requests; `None`: no limit.
    limit: Option<u32>,
    /// When an acknowledgement is overdue.
    overdue: Option<u64>,
    /// The receiver was not ready: until then no request is sent.
    rnr_until: Option<u64>,
    /// The packet of which that was said.
    rnr_psn: u32,
    /// The host had no room for a packet: until then nothing is sent, neither requests nor answers.
    tx_blocked_until: Option<u64>,
    /// So many requests are on their way that none is sent until then. Answers are.
    full_until: Option<u64>,
    /// Up to which byte the data of the oldest request, a read, have been asked for. It stays until
    /// they have come: for all that is known, the responder heard of that part alone, and then what
    /// is asked for again must not reach beyond it.
    part: Option<u32>,
    /// That part has been asked for, and nothing is sent until it has come.
    is_part_sent: bool,
    /// Answers are missing.
    missed: Gap,
    /// Answers to requests behind those whose data are missing.
    early_answers: H::Early,
    /// Until when these, and early requests, are kept.
    early_until: Option<u64>,
    repair: Repair,
    /// How many packets may be in flight, in either direction, beside those that have come behind a loss.
    congestion: Congestion,
    /// The CNP that marks on the peer's requests call for.
    notification: Notification,
    probe: Probe,
    /// Packets since an acknowledgement was last asked for, and the sequence number of that.
    unasked: u32,
    asked: u32,
    /// The request for which data come back.
    reply: H::Box<SendRequest>,
    reply_index: Option<u32>,
    reply_cursor: Cursor,

    responses: Responses<H>,
}

impl<H: Host> Wire<H> {
    /// Allocates, with [`Host::boxed`]; `None` if there is no memory.
    pub(crate) fn new() -> Option<Self> {
        Some(Self {
            route: None,
            records: H::boxed_array(|_| Record::default())?,
            oldest: 0,
            sending: 0,
            offset: 0,
            loaded: None,
            unacknowledged: 0,
            used: 0,
            ssn: 0,
            limit: None,
            overdue: None,
            rnr_until: None,
            rnr_psn: 0,
            tx_blocked_until: None,
            full_until: None,
            part: None,
            is_part_sent: false,
            missed: Gap::default(),
            early_answers: H::Early::default(),
            early_until: None,
            repair: Repair::NEW,
            congestion: Congestion::NEW,
            notification: Notification::default(),
            probe: Probe::default(),
            unasked: 0,
            asked: 0,
            reply: reply::<H>()?,
            reply_index: None,
            reply_cursor: Cursor::default(),
            responses: Responses::new()?,
        })
    }

    /// Forgets all, as in RESET.
    pub(crate) fn reset(&mut self) {
        self.stop(0);
        self.ssn = 0;
        self.limit = None;
        self.responses.reset();
        self.set_psn(0);
    }

    /// The requester begins with this sequence number.
    pub(crate) fn set_psn(&mut self, psn: u32) {
        self.unacknowledged = psn;
        self.used = psn;
        self.asked = psn::advance(psn, psn::MASK);
    }

    /// Requests that are on their way, the next one to be taken being in slot `consumer`.
    pub(crate) fn outstanding(&self, consumer: u32) -> u32 {
        consumer.wrapping_sub(self.oldest)
    }

    /// The slot of the oldest request that has not ended: where a flush begins.
    pub(crate) fn oldest(&self) -> u32 {
        self.oldest
    }

    /// Nothing is on its way any more; the next request is in slot `consumer`.
    pub(crate) fn stop(&mut self, consumer: u32) {
        self.oldest = consumer;
        self.sending = consumer;
        self.offset = 0;
        self.loaded = None;
        self.overdue = None;
        self.rnr_until = None;
        self.tx_blocked_until = None;
        self.full_until = None;
        self.part = None;
        self.is_part_sent = false;
        self.missed = Gap::default();
        self.drop_early();
        self.repair = Repair::NEW;
        self.congestion = Congestion::NEW;
        self.notification = Notification::default();
        self.probe = Probe::default();
        self.unasked = 0;
        self.reply_index = None;
        self.responses.stop();
    }

    /// The peer was elsewhere, or was not, and now it is the other way round: what has not ended is
    /// begun anew.
    pub(crate) fn change_over(&mut self, sq: &mut SendQueue, was_remote: bool) {
        if was_remote && self.outstanding(sq.consumer()) != 0 {
            sq.rewind(self.oldest);
            sq.set_psn(self.unacknowledged);
        } else if !was_remote && sq.is_busy() {
            sq.rewind(sq.consumer().wrapping_sub(1));
        }
        self.stop(sq.consumer());
        self.set_psn(sq.psn());
    }

    /// No request is sent at present, whatever there is to be sent.
    fn is_paused(&self) -> bool {
        self.rnr_until.is_some() || self.tx_blocked_until.is_some() || self.full_until.is_some()
    }

    /// A packet of a request or of an answer was not sent: for a while nothing is; but answers are where the
    /// queue pair's own requests are too many.
    fn block_tx(&mut self, kind: Sends, unsent: Unsent, now: u64) {
        let until = Some(now.saturating_add(unsent.wait()));
        match (kind, unsent) {
            (Sends::Requests, Unsent::Full) => self.full_until = until,
            _ => self.tx_blocked_until = until,
        }
    }

    /// There may be room for packets again.
    pub(crate) fn unblock_tx(&mut self) {
        self.tx_blocked_until = None;
        self.full_until = None;
    }

    /// A packet of this kind has met congestion on its way. Data of reads are what this side asked for; of a request
    /// the peer is told. Acknowledgements are small, and nobody sends fewer of them for a mark.
    #[cold]
    fn marked(&mut self, kind: Kind, now: u64) {
        match kind {
            Kind::ReadResponse => self.congestion.on_mark(),
            Kind::Acknowledge | Kind::AtomicAcknowledge => (),
            _ => self.notification.marked(now),
        }
    }

    fn record(&self, index: u32) -> Option<&Record> {
        self.records
            .get((index & REQUESTS.wrapping_sub(1)) as usize)
    }

    fn record_mut(&mut self, index: u32) -> Option<&mut Record> {
        self.records
            .get_mut((index & REQUESTS.wrapping_sub(1)) as usize)
    }
}

impl<H: Host> Core<H> {
    /// The way to the peer, if it is elsewhere.
    #[inline]
    pub(crate) fn remote_path(&self) -> Option<&Path> {
        let path = self.attr.path.as_ref()?;
        (path.kind == PathKind::Remote).then_some(path)
    }

    /// The peer is elsewhere, and acknowledges what it gets.
    #[inline]
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.init.qp_type == QpType::Rc && self.remote_path().is_some()
    }
}

/// A turn of a queue pair whose peer is elsewhere: first answers, then requests.
pub(crate) fn run<H: Host>(qps: &mut Qps<H>, bus: &mut Bus<'_, H>, qp: &mut Qp<H>) -> Next {
    let next = match responder::run(qps, bus, qp) {
        Next::Idle if matches!(qp.core.state, State::Rts | State::Sqd) => {
            requester::run(qps, bus, qp)
        }
        next => next,
    };
    set_timer(qps, qp);
    if qp.core.state == State::Err {
        return Next::Again;
    }
    next
}

/// Lets the timer fire when the first of what is waited for is due. A timer that fires too early
/// does no harm; so it is not set anew each time that something is put off.
fn set_timer<H: Host>(qps: &mut Qps<H>, qp: &Qp<H>) {
    if qp.core.state == State::Err {
        return;
    }
    let wire = &qp.wire;
    // A probe is sent no earlier than anything else.
    let probe = wire.probe.due.filter(|_| !wire.is_paused());
    let dues = [
        wire.congestion.paced(),
        wire.overdue,
        wire.rnr_until,
        wire.tx_blocked_until,
        wire.full_until,
        probe,
        wire.early_until,
    ];
    if let Some(due) = dues.into_iter().flatten().min() {
        qps.set_timer_before(qp.core.index(), due);
    }
}

/// The timer of a queue pair has fired.
pub(crate) fn timer_fired<H: Host>(qps: &mut Qps<H>, bus: &mut Bus<'_, H>, qp: &mut Qp<H>) {
    if qp.wire.early_until.is_some_and(|until| until <= bus.now) {
        qp.wire.drop_early();
    }
    requester::timer_fired(qps, bus, qp);
    set_timer(qps, qp);
    qps.activate(qp.core.index());
}

/// Takes the headers of a packet apart.
fn parse<H: Host>(bytes: &H::Packet) -> Result<Packet<'_>, Malformed> {
    let (headers, length) = (bytes.headers(), bytes.length());
    let first = headers.len().min(length);
    Packet::parse(headers.get(..first).unwrap_or(&[]), length)
}

/// Whether the invariant CRC of a packet is right.
fn is_intact<H: Host>(datagram: &Datagram<'_, H>, headers: &[u8]) -> bool {
    let Some(begun) = icrc::begin(H::crc32, datagram.ip, datagram.udp, headers) else {
        return false;
    };
    let rest = datagram.packet.length().wrapping_sub(headers.len());
    let whole = datagram.packet.crc32(begun, headers.len(), rest);
    whole.is_ok_and(|crc| icrc::end(crc) == datagram.icrc)
}

/// Looks at a packet and hands it to the queue pair that it is for.
///
/// Nothing is placed before the invariant CRC has been found right.
pub(crate) fn receive<H: Host>(qps: &mut Qps<H>, bus: &mut Bus<'_, H>, datagram: &Datagram<'_, H>) {
    bus.counters.packets_received.count(1);
    let packet = match parse::<H>(datagram.packet) {
        Ok(packet) => packet,
        Err(malformed) => {
            let counter = match malformed {
                Malformed::Short => &mut bus.counters.malformed_short,
                Malformed::Version => &mut bus.counters.malformed_version,
                Malformed::Opcode => &mut bus.counters.malformed_opcode,
                Malformed::Length => &mut bus.counters.malformed_length,
            };
            return counter.count(1);
        }
    };
    if !is_intact(datagram, packet.headers()) {
        return bus.counters.icrc_errors.count(1);
    }
    let Some((from, to, marked)) = datagram.addresses() else {
        return bus.counters.malformed_short.count(1);
    };
    let bth = packet.bth();
    // Full members of the default partition, and limited ones, are the members there are (10.9.3).
    if bth.pkey.get() & 0x7fff != packet::DEFAULT_PKEY & 0x7fff {
        return bus.counters.pkey_errors.count(1);
    }
    if marked {
        bus.counters.congestion_marks.count(1);
    }
    let rule = packet.rule();
    if rule.kind == Kind::Congestion {
        bus.counters.congestion_notifications.count(1);
    }
    if rule.service == Service::Ud {
        let Some(deth) = packet.deth() else {
            return bus.counters.malformed_short.count(1);
        };
        return ud::receive(qps, bus, datagram, &packet, deth, &to);
    }
    let Some(mut qp) = qps.take(bth.dest_qp.get()) else {
        return bus.counters.unknown_queue_pairs.count(1);
    };
    let is_of_peer = qp
        .core
        .remote_path()
        .is_some_and(|path| path.sgid == to && path.dgid == from);
    match (rule.service, qp.core.init.qp_type) {
        (Service::Rc, QpType::Rc) if is_of_peer => {
            if marked {
                qp.wire.marked(rule.kind, bus.now);
            }
            match rule.kind {
                Kind::Acknowledge | Kind::ReadResponse | Kind::AtomicAcknowledge => {
                    let before = qp.wire.unacknowledged;
                    completer::receive(qps, bus, &mut qp, &packet, datagram.packet);
                    early::answers(qps, bus, &mut qp, before);
                }
                _ => {
                    let before = qp.rq.psn();
                    responder::receive(bus, &mut qp, &packet, datagram.packet, false);
                    early::requests(bus, &mut qp, before, bth.wants_acknowledge());
                }
            }
            set_timer(qps, &qp);
            qps.activate(qp.core.index());
        }
        (Service::Uc, QpType::Uc) if is_of_peer => {
            uc::receive(qps, bus, &mut qp, &packet, datagram.packet);
        }
        (Service::Congestion, QpType::Rc) if is_of_peer => {
            bus.counters.congestion_notifications_handled.count(1);
            qp.wire.congestion.on_mark();
        }
        // UC has no acknowledgements, and so no window.
        (Service::Congestion, QpType::Uc) if is_of_peer => (),
        _ => bus.counters.misdirected.count(1),
    }
    qps.put_back(qp);
}
