// SPDX-License-Identifier: GPL-2.0

//! What a queue pair knows of its remote peer, and of what is on its way between them: state alone.

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
            notification::Notification,
            record::Record,
            requester_state::{
                RequesterState,
                REQUESTS, //
            },
            responder_state::ResponderState, //
        },
        send_queue::SendQueue, //
    },
};

/// How far a packet in a reorder buffer may be ahead of the missing one: by as many as may be on their way, and
/// as many again that have come.
pub(crate) const REORDER_WINDOW: u32 = 2 * WINDOW;

/// What a queue pair needs for a remote peer, beyond what it needs for local ones.
pub(crate) struct Wire<H: Host> {
    /// The way to the peer, as the host has it.
    pub(crate) route: Option<H::Route>,
    pub(crate) requester: RequesterState<H>,
    pub(crate) completer: CompleterState<H>,
    pub(crate) responder: ResponderState<H>,
    /// The CNP that marks on the peer's requests call for.
    pub(crate) notification: Notification,
    /// The host had no room for a packet: until then nothing is sent, neither requests nor responses.
    pub(crate) tx_blocked_until: Option<u64>,
    /// When both reorder buffers are cleared, unless a missing packet comes before.
    pub(crate) reorder_expires: Option<u64>,
}

impl<H: Host> Wire<H> {
    /// Allocates, with [`Host::boxed`]; `None` if there is no memory.
    pub(crate) fn new() -> Option<Self> {
        Some(Self {
            route: None,
            requester: RequesterState::new()?,
            completer: CompleterState::new()?,
            responder: ResponderState::new()?,
            notification: Notification::default(),
            tx_blocked_until: None,
            reorder_expires: None,
        })
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
        self.requester.ack_requested = psn::advance(psn, psn::MASK);
    }

    /// Requests that are on their way, the next one to be taken being in slot `consumer`.
    pub(crate) fn outstanding(&self, consumer: u32) -> u32 {
        consumer.wrapping_sub(self.requester.oldest)
    }

    /// The slot of the oldest request that has not ended: where a flush begins.
    pub(crate) fn oldest(&self) -> u32 {
        self.requester.oldest
    }

    /// Nothing is on its way any more; the next request is in slot `consumer`.
    pub(crate) fn stop(&mut self, consumer: u32) {
        self.requester.stop(consumer);
        self.completer.stop();
        self.clear_reorder_buffers();
        self.notification = Notification::default();
        self.tx_blocked_until = None;
        self.responder.stop();
    }

    /// The peer was remote and is local now, or the other way round: what has not ended is
    /// begun anew.
    pub(crate) fn change_over(&mut self, sq: &mut SendQueue, was_remote: bool) {
        if was_remote && self.outstanding(sq.consumer()) != 0 {
            sq.rewind(self.requester.oldest);
            sq.set_psn(self.requester.snd_una);
        } else if !was_remote && sq.is_busy() {
            sq.rewind(sq.consumer().wrapping_sub(1));
        }
        self.stop(sq.consumer());
        self.set_psn(sq.psn());
    }

    /// No request is sent at present, whatever there is to be sent.
    pub(crate) fn is_paused(&self) -> bool {
        self.requester.rnr_until.is_some()
            || self.tx_blocked_until.is_some()
            || self.requester.full_until.is_some()
    }

    /// A packet of a request or of a response was not sent: for a while nothing is; but responses are where the
    /// queue pair's own requests are too many.
    pub(crate) fn block_tx(&mut self, kind: Sends, unsent: Unsent, now: u64) {
        let until = Some(now.saturating_add(unsent.wait()));
        match (kind, unsent) {
            (Sends::Requests, Unsent::Full) => self.requester.full_until = until,
            _ => self.tx_blocked_until = until,
        }
    }

    /// There may be room for packets again.
    pub(crate) fn unblock_tx(&mut self) {
        self.tx_blocked_until = None;
        self.requester.full_until = None;
    }

    /// A packet of this kind has met congestion on its way. Data of reads are what this side asked for; of a request
    /// the peer is told. Acknowledgements are small, and nobody sends fewer of them for a mark.
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

    pub(crate) fn record(&self, index: u32) -> Option<&Record> {
        self.requester
            .records
            .get((index & REQUESTS.wrapping_sub(1)) as usize)
    }

    pub(crate) fn record_mut(&mut self, index: u32) -> Option<&mut Record> {
        self.requester
            .records
            .get_mut((index & REQUESTS.wrapping_sub(1)) as usize)
    }

    /// Drops all out-of-order packets.
    pub(crate) fn clear_reorder_buffers(&mut self) {
        self.responder.reorder.clear();
        self.completer.reorder.clear();
        self.reorder_expires = None;
    }
}
