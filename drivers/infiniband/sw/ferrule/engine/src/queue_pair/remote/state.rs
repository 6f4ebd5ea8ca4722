// SPDX-License-Identifier: GPL-2.0

//! A queue pair's knowledge of its remote peer, and of the packets between them: state alone, and
//! the reorder buffers as far as they are state.

use crate::{
    base::{
        host::{
            Host,
            Reorder,
            Sends,
            Unsent, //
        },
        psn, //
    },
    congestion::WINDOW,
    packet::opcode::Kind,
    queue_pair::{
        remote::{
            completer_state::CompleterState,
            requester_state::{
                Record,
                RequesterState, //
            },
            responder_state::{
                Resource,
                ResponderState, //
            },
        },
        send_queue::SendQueue, //
    },
};

/// How far a packet in a reorder buffer may be ahead of the missing one: by as many as may be on
/// their way, and as many again that have come.
pub(crate) const REORDER_WINDOW: u32 = 2 * WINDOW;

/// Nanoseconds without progress after which the buffers are cleared. A peer that lives has sent the
/// missing packet long before, and buffered packets are pages of a network device, which wants them
/// back when it goes down.
const REORDER_TIMEOUT: u64 = 1_000_000_000;

/// Nanoseconds from one CNP of a queue pair to the next, as notification points of DCQCN have it.
const INTERVAL: u64 = 50_000;

/// The CNPs that a queue pair is to send.
#[derive(Clone, Copy, Default)]
pub(crate) struct Notification {
    /// One is to be sent.
    is_due: bool,
    /// But none before this time.
    not_before: u64,
}

impl Notification {
    /// A request has come with a mark.
    #[cold]
    pub(crate) fn marked(&mut self, now: u64) {
        self.is_due |= now >= self.not_before;
    }

    /// Whether one is to be sent.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.is_due
    }

    /// It has been sent.
    pub(crate) fn sent(&mut self, now: u64) {
        self.is_due = false;
        self.not_before = now.saturating_add(INTERVAL);
    }
}

/// The part of a queue pair that remote peers need beyond local ones.
pub(crate) struct Wire<H: Host> {
    /// The way to the peer, as the host has it.
    pub(crate) route: Option<H::Route>,
    pub(crate) requester: RequesterState<H>,
    pub(crate) completer: CompleterState<H>,
    pub(crate) responder: ResponderState<H>,
    /// The CNP that marks on the peer's requests call for.
    pub(crate) notification: Notification,
    /// The host had no space for a packet: until then nothing is sent, neither requests nor
    /// responses.
    pub(crate) tx_blocked_until: Option<u64>,
    /// The last turn ended before all responses were sent, so the next one begins with requests.
    pub(crate) is_requester_first: bool,
    /// The next packet in order, of either direction, waits for memory that is being brought in,
    /// until it is tried again.
    pub(crate) absent_until: Option<u64>,
    /// When both reorder buffers are cleared, unless a missing packet comes before.
    pub(crate) reorder_expires: Option<u64>,
}

impl<H: Host> Wire<H> {
    /// Of a queue pair that has not been used. Allocates, with [`Host::boxed`] and
    /// [`Host::boxed_array`]; `None` if there is no memory. It lies outside of the queue pair,
    /// since both together are too large for a stack frame.
    pub(crate) fn new() -> Option<H::Box<Self>> {
        let records = H::boxed_array(|_| Record::default())?;
        let resources = H::boxed_array(|_| Resource::default())?;
        H::boxed(|| Self {
            route: None,
            requester: RequesterState::new(records),
            completer: CompleterState::new(),
            responder: ResponderState::new(resources),
            notification: Notification::default(),
            tx_blocked_until: None,
            is_requester_first: false,
            absent_until: None,
            reorder_expires: None,
        })
    }

    /// Whether the responder has something to send: a response, an acknowledgement, or a
    /// notification of congestion.
    pub(crate) fn has_responses(&self) -> bool {
        let ResponderState {
            pending_ack,
            resources,
            ..
        } = &self.responder;
        pending_ack.is_some()
            || self.notification.is_due()
            || resources.iter().any(Resource::is_due)
    }

    /// Forgets all, as in RESET.
    pub(crate) fn reset(&mut self) {
        self.stop(0);
        self.requester.ssn = 0;
        self.requester.lsn = None;
        self.responder.reset();
        self.set_psn(0);
    }

    /// The requester begins with this sequence number.
    pub(crate) fn set_psn(&mut self, psn: u32) {
        self.requester.snd_una = psn;
        self.requester.snd_nxt = psn;
        self.requester.ack_requested = psn::before(psn);
    }

    /// Nothing is on its way any more; the next request is in slot `consumer`.
    pub(crate) fn stop(&mut self, consumer: u32) {
        self.requester.stop(consumer);
        self.completer.stop();
        self.clear_reorder_buffers();
        self.notification = Notification::default();
        self.tx_blocked_until = None;
        self.is_requester_first = false;
        self.absent_until = None;
        self.responder.stop();
    }

    /// The peer was remote and is local now, or the other way round: requests that have not ended
    /// are begun anew.
    pub(crate) fn change_over(&mut self, sq: &mut SendQueue, was_remote: bool) {
        if was_remote && self.requester.outstanding(sq.consumer()) != 0 {
            sq.rewind(self.requester.oldest);
            sq.psn = self.requester.snd_una;
        } else if !was_remote && sq.busy {
            sq.rewind(sq.consumer().wrapping_sub(1));
        }
        self.stop(sq.consumer());
        self.set_psn(sq.psn);
    }

    /// No request is sent at present, whatever there is to be sent.
    pub(crate) fn is_paused(&self) -> bool {
        self.tx_blocked_until.is_some() || self.requester.is_paused()
    }

    /// A packet of a request or of a response was not sent: for a while nothing is; but responses
    /// are where the queue pair's own requests are too many.
    pub(crate) fn block_tx(&mut self, kind: Sends, unsent: Unsent, now: u64) {
        let until = Some(now.saturating_add(unsent.wait()));
        match (kind, unsent) {
            (Sends::Requests, Unsent::Full | Unsent::Absent) => self.requester.full_until = until,
            _ => self.tx_blocked_until = until,
        }
    }

    /// There may be space for packets again.
    pub(crate) fn unblock_tx(&mut self) {
        self.tx_blocked_until = None;
        self.requester.full_until = None;
    }

    /// A packet of this kind has met congestion on its way. Data of reads are what this side asked
    /// for; of a request the peer is told. Acknowledgements are small, and nobody sends fewer of
    /// them for a mark.
    #[cold]
    pub(crate) fn marked(&mut self, kind: Kind, now: u64) {
        match kind {
            Kind::ReadResponse => self.requester.congestion.on_mark(),
            Kind::Acknowledge | Kind::AtomicAcknowledge | Kind::Congestion => (),
            Kind::Send
            | Kind::Write
            | Kind::ReadRequest
            | Kind::CompareSwap
            | Kind::FetchAdd
            | Kind::Flush
            | Kind::AtomicWrite => self.notification.marked(now),
        }
    }

    /// Drops all out-of-order packets.
    pub(crate) fn clear_reorder_buffers(&mut self) {
        self.responder.reorder.clear();
        self.completer.reorder.clear();
        self.reorder_expires = None;
    }

    /// Buffers a request that is ahead of the `expected` one by less than [`REORDER_WINDOW`].
    pub(crate) fn reorder_request(
        &mut self,
        expected: u32,
        psn: u32,
        packet: &H::Packet,
        now: u64,
    ) {
        if psn::distance(expected, psn) < REORDER_WINDOW {
            let responder = &mut self.responder;
            // The peer has sent again all that was behind an earlier packet.
            if responder.reorder.is_empty() {
                responder.nak = responder.nak.filter(|&(refused, _)| refused == expected);
            }
            responder.reorder.insert(psn, packet);
            self.start_reorder_timer(now);
        }
    }

    /// Buffers a response that is ahead of the missing ones by less than [`REORDER_WINDOW`].
    pub(crate) fn reorder_response(&mut self, psn: u32, packet: &H::Packet, now: u64) {
        if psn::distance(self.requester.snd_una, psn) < REORDER_WINDOW {
            self.completer.reorder.insert(psn, packet);
            self.start_reorder_timer(now);
        }
    }

    /// The next packet in order, of number `psn`, waits in a reorder buffer for memory that is
    /// being brought in.
    #[cold]
    pub(crate) fn await_memory(&mut self, now: u64) {
        self.absent_until = Some(now.saturating_add(Unsent::Absent.wait()));
    }

    /// A packet has been buffered. The timer runs from the first one on.
    fn start_reorder_timer(&mut self, now: u64) {
        self.reorder_expires = self
            .reorder_expires
            .or(Some(now.saturating_add(REORDER_TIMEOUT)));
    }

    /// A missing packet has come, so the peer lives. The packets that are still buffered wait for
    /// another one.
    pub(crate) fn restart_reorder_timer(&mut self, now: u64) {
        self.reorder_expires = None;
        if !self.responder.reorder.is_empty() || !self.completer.reorder.is_empty() {
            self.start_reorder_timer(now);
        }
    }
}

/// The first packet from number `expected` on in a reorder buffer. If there is none, all others
/// have been overtaken by the acknowledgement of a later packet, and the buffer is cleared.
pub(crate) fn first_buffered<P>(reorder: &mut impl Reorder<P>, expected: u32) -> Option<u32> {
    if reorder.is_empty() {
        return None;
    }
    let first = reorder
        .first_from(expected)
        .filter(|&psn| psn::within(psn, expected, REORDER_WINDOW));
    if first.is_none() {
        reorder.clear();
    }
    first
}
