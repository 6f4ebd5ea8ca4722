// SPDX-License-Identifier: GPL-2.0

//! What a queue pair knows of its peer elsewhere, and of what is on its way between them: state alone.

use crate::{
    base::{
        host::{
            Early,
            Host,
            Sends,
            Unsent, //
        },
        psn, //
    },
    congestion::{
        Congestion,
        WINDOW, //
    },
    memory::sgl::Cursor,
    object::request::SendRequest,
    packet::opcode::Kind,
    queue_pair::{
        remote::{
            gap::Gap,
            notification::Notification,
            probe::Probe,
            record::Record,
            repair::Repair,
            response::Responses, //
        },
        send_queue::SendQueue, //
    },
};

/// Requests that may be on their way at a time. A power of two.
pub(crate) const REQUESTS: u32 = 64;

/// How far the newest packet may be ahead of one that is missing: as many as may be on their way, and as
/// many again that have come.
pub(crate) const AHEAD: u32 = 2 * WINDOW;

/// A request's room. As [`Qp`](crate::Qp)'s own, it is made in a frame of its own.
#[inline(never)]
fn reply<H: Host>() -> Option<H::Box<SendRequest>> {
    H::boxed(SendRequest::new)
}

/// What a queue pair needs for the wire, beyond what it needs for local peers.
pub(crate) struct Wire<H: Host> {
    /// The way to the peer, as the host has it.
    pub(crate) route: Option<H::Route>,

    pub(crate) records: H::Box<[Record; REQUESTS as usize]>,
    /// The slot of the oldest request that has not ended.
    pub(crate) oldest: u32,
    /// The slot of the request whose packets are sent next, and how many of its bytes were sent.
    pub(crate) sending: u32,
    pub(crate) offset: u32,
    /// The slot of which the requester has a copy at hand.
    pub(crate) loaded: Option<u32>,
    /// The sequence number of the oldest packet that has not been acknowledged.
    pub(crate) unacknowledged: u32,
    /// The sequence number after the last one that was ever used.
    pub(crate) used: u32,
    /// Messages sent so far (24 bits).
    pub(crate) ssn: u32,
    /// Up to which message the responder has receive requests; `None`: no limit.
    pub(crate) limit: Option<u32>,
    /// When an acknowledgement is overdue.
    pub(crate) overdue: Option<u64>,
    /// The receiver was not ready: until then no request is sent.
    pub(crate) rnr_until: Option<u64>,
    /// The packet of which that was said.
    pub(crate) rnr_psn: u32,
    /// The host had no room for a packet: until then nothing is sent, neither requests nor answers.
    pub(crate) tx_blocked_until: Option<u64>,
    /// So many requests are on their way that none is sent until then. Answers are.
    pub(crate) full_until: Option<u64>,
    /// Up to which byte the data of the oldest request, a read, have been asked for. It stays until
    /// they have come: for all that is known, the responder heard of that part alone, and then what
    /// is asked for again must not reach beyond it.
    pub(crate) part: Option<u32>,
    /// That part has been asked for, and nothing is sent until it has come.
    pub(crate) is_part_sent: bool,
    /// Answers are missing.
    pub(crate) missed: Gap,
    /// Answers to requests behind those whose data are missing.
    pub(crate) early_answers: H::Early,
    /// Until when these, and early requests, are kept.
    pub(crate) early_until: Option<u64>,
    pub(crate) repair: Repair,
    /// How many packets may be in flight, in either direction, beside those that have come behind a loss.
    pub(crate) congestion: Congestion,
    /// The CNP that marks on the peer's requests call for.
    pub(crate) notification: Notification,
    pub(crate) probe: Probe,
    /// Packets since an acknowledgement was last asked for, and the sequence number of that.
    pub(crate) unasked: u32,
    pub(crate) asked: u32,
    /// The request for which data come back.
    pub(crate) reply: H::Box<SendRequest>,
    pub(crate) reply_index: Option<u32>,
    pub(crate) reply_cursor: Cursor,

    pub(crate) responses: Responses<H>,
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
    pub(crate) fn is_paused(&self) -> bool {
        self.rnr_until.is_some() || self.tx_blocked_until.is_some() || self.full_until.is_some()
    }

    /// A packet of a request or of an answer was not sent: for a while nothing is; but answers are where the
    /// queue pair's own requests are too many.
    pub(crate) fn block_tx(&mut self, kind: Sends, unsent: Unsent, now: u64) {
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
    pub(crate) fn marked(&mut self, kind: Kind, now: u64) {
        match kind {
            Kind::ReadResponse => self.congestion.on_mark(),
            Kind::Acknowledge | Kind::AtomicAcknowledge => (),
            _ => self.notification.marked(now),
        }
    }

    pub(crate) fn record(&self, index: u32) -> Option<&Record> {
        self.records
            .get((index & REQUESTS.wrapping_sub(1)) as usize)
    }

    pub(crate) fn record_mut(&mut self, index: u32) -> Option<&mut Record> {
        self.records
            .get_mut((index & REQUESTS.wrapping_sub(1)) as usize)
    }

    /// Keeps nothing any longer.
    pub(crate) fn drop_early(&mut self) {
        self.responses.early.clear();
        self.early_answers.clear();
        self.early_until = None;
    }
}
