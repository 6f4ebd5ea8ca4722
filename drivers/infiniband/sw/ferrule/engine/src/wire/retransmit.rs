// SPDX-License-Identifier: GPL-2.0

//! The packets that the requester sends again, and when: all from the oldest one on (go-back-N), or
//! that one alone.
//!
//! Selective retransmission sends the lost packet again, and not those behind it. A peer that says
//! that a packet is missing (NAK with a sequence error) drops those behind it, if it goes by the
//! specification's letter, and all has to be sent again from there (C9-139). A peer that is ferrule
//! itself [buffers them](super::reorder), and then only the one packet has to be sent. Nothing in a
//! packet tells which it is, so the requester finds out: it sends the one packet, resumes where it
//! was, and sees by the next acknowledgement how far the peer has come. If the peer misses the very
//! next packet, too, it has no reorder buffer, or that packet was lost as well; after a few such
//! cases all is sent again. A peer with a reorder buffer acknowledges more than has been sent
//! again, and is known by that.
//!
//! Until the retransmitted packet has been acknowledged, the peer buffers those behind it. They
//! would fill the window, and the wire would be idle for a round trip. So of a peer that was seen
//! to have a reorder buffer, the packets that had been sent are taken to have come, and as many
//! more may go.
//!
//! A read whose data do not come is asked for again in the part that is missing. Any peer answers
//! that (9.7.5.1.4), since the reorder buffer for responses is the requester's own.

use crate::{
    base::{
        attr::Mtu,
        host::{
            Host,
            Reorder, //
        },
        psn, //
    },
    queue_pair::{
        qp_core::QpCore,
        remote::{
            requester_state::Record,
            state::{
                first_buffered,
                Wire, //
            },
        },
        send_queue::SendQueue, //
    },
};

impl<H: Host> Wire<H> {
    /// The oldest packet that has not been acknowledged is sent next. No acknowledgement is
    /// owed before a packet asks again: those that asked may have been lost or refused.
    pub(super) fn seek_oldest(&mut self, consumer: u32, mtu: Mtu) {
        self.requester.retransmit.cancel();
        self.requester.ack_requested = psn::before(self.requester.snd_una);
        self.requester.seek(self.requester.snd_una, consumer, mtu);
    }

    /// Sends again from the oldest packet that has not been acknowledged.
    pub(super) fn go_back(&mut self, consumer: u32, mtu: Mtu) {
        self.requester.tlp.cancel();
        self.seek_oldest(consumer, mtu);
    }

    /// The oldest packet is sent again, alone if that may be enough: the peer misses it, or the
    /// data of reads that should have come before packet `hole_end` are missing.
    pub(super) fn retransmit(&mut self, core: &QpCore<H>, consumer: u32, hole_end: Option<u32>) {
        let mtu = core.attr.path_mtu;
        // Of reads, it is this side that has the reorder buffer.
        let is_selective =
            hole_end.is_some() || self.requester.retransmit.on_loss(self.requester.snd_una);
        self.requester.tlp.cancel();
        self.begin_retransmit(consumer, mtu, hole_end, is_selective, true);
        self.requester.retransmit.goes_back =
            hole_end.is_none() && !self.requester.retransmit.is_active();
    }

    /// It is known that the packets behind the oldest one have come, or that the peer buffers them.
    pub(super) fn is_selective(&self) -> bool {
        if self.awaits_data() {
            !self.completer.reorder.is_empty()
        } else {
            self.requester.retransmit.peer_reorders()
        }
    }

    /// The response to the oldest request has data.
    fn awaits_data(&self) -> bool {
        self.requester
            .record(self.requester.oldest)
            .is_some_and(Record::has_response)
    }

    /// The oldest packet is sent again as a probe, to see whether it arrived. Returns whether it is
    /// sent alone.
    pub(super) fn probe(&mut self, consumer: u32, mtu: Mtu) -> bool {
        let hole_end = if self.awaits_data() {
            first_buffered(&mut self.completer.reorder, self.requester.snd_una)
        } else {
            None
        };
        let is_selective = self.is_selective();
        self.begin_retransmit(consumer, mtu, hole_end, is_selective, false);
        self.requester.retransmit.is_active()
    }

    /// The oldest packet is sent next. If that `is_selective`, the requester then resumes where it
    /// was. The packet `is_lost`, or else only late for all that is known.
    fn begin_retransmit(
        &mut self,
        consumer: u32,
        mtu: Mtu,
        hole_end: Option<u32>,
        is_selective: bool,
        is_lost: bool,
    ) {
        let front = self.requester.front(consumer, mtu);
        let resume = self.requester.retransmit.resume.or(front);
        let resume = resume.filter(|_| is_selective);
        self.seek_oldest(consumer, mtu);
        let in_flight = psn::distance(self.requester.snd_una, self.requester.snd_nxt);
        let is_congestion = is_lost
            && self
                .requester
                .congestion
                .on_loss(in_flight, resume.is_some());
        if resume.is_none() {
            return;
        }
        self.requester.retransmit.resume = resume;
        self.requester.retransmit.hole_end = hole_end;
        if hole_end.is_none() && self.requester.retransmit.peer_reorders() {
            self.requester.retransmit.peer_buffered = if is_congestion {
                in_flight.saturating_sub(self.requester.congestion.window())
            } else {
                in_flight
            };
        }
    }

    /// Starts the local ACK timeout and the probe's; with a timeout of 0 neither runs (C9-141).
    pub(super) fn start_ack_timer(&mut self, core: &QpCore<H>, sq: &SendQueue, now: u64) {
        let timeout = sq.ack_timeout(&core.attr);
        self.requester.ack_deadline = timeout.map(|timeout| now.saturating_add(timeout));
        // Behind a part of a read nothing is sent, so nothing else shows that it was lost.
        let window = self.requester.congestion.window();
        let is_parted = |record: &Record| record.is_read() && record.packets > window;
        let is_selective = self
            .requester
            .record(self.requester.oldest)
            .is_some_and(is_parted)
            || self.is_selective();
        self.requester
            .tlp
            .arm(now, self.requester.ack_deadline, is_selective);
    }
}
