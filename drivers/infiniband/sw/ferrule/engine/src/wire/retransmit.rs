// SPDX-License-Identifier: GPL-2.0

//! Where the requester stands, and what it sends again: all from the oldest packet on (go-back-N), or that one alone.
//!
//! Selective retransmission sends the lost packet again, and not those behind it.
//! A peer that says that a packet is missing (NAK with a sequence error) drops those behind it, if it goes by the
//! specification's letter, and all has to be sent again from there (C9-139). A peer that is ferrule itself
//! [buffers them](super::reorder), and then only the one packet has to be sent. Nothing in a packet tells which it
//! is, so the requester finds out: it sends the one packet, resumes where it was, and sees by the next
//! acknowledgement how far the peer has come. If the peer misses the very next packet, too, it has no reorder
//! buffer, or that packet was lost as well; after a few such cases all is sent again. A peer with a reorder buffer
//! acknowledges more than has been sent again, and is known by that.
//!
//! If the requester has to wait and no packet in flight asks for an acknowledgement, it sends the last packet again
//! with AckReq set: when it first sent that packet it could not know that it would wait.
//!
//! Until the retransmitted packet has been acknowledged, the peer buffers those behind it. They would fill the
//! window, and the wire would be idle for a round trip. So of a peer that was seen to have a reorder buffer, the
//! packets that had been sent are taken to have come, and as many more may go.
//!
//! A read whose data do not come is asked for again in the part that is missing. Any peer answers that
//! (9.7.5.1.4), since the reorder buffer for responses is the requester's own.

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
            record::Record,
            retransmit_state::SendPosition,
            state::Wire, //
        },
    },
    wire::reorder::first_buffered, //
};

impl<H: Host> Wire<H> {
    /// The sequence number of the next packet, which is one of this request.
    pub(super) fn next_psn(&self, record: &Record, mtu: Mtu) -> u32 {
        let sent = if record.has_response_data() {
            record.done
        } else {
            self.requester.offset
        };
        psn::advance(record.psn, sent.wrapping_shr(mtu.shift()))
    }

    /// The packet of this sequence number, which has not been acknowledged, is sent next.
    pub(super) fn seek(&mut self, psn: u32, consumer: u32, mtu: Mtu) {
        self.requester.loaded = None;
        let mut index = self.requester.oldest;
        while index != consumer {
            let Some(record) = self.record(index) else {
                break;
            };
            let ahead = psn::distance(record.psn, psn);
            let is_waiting = record.is_local() && !record.is_registered();
            if is_waiting || record.failed.is_some() || ahead < record.packets {
                let sends_bytes = !record.is_local() && !record.has_response_data();
                self.requester.offset = if sends_bytes && record.failed.is_none() {
                    ahead.wrapping_shl(mtu.shift())
                } else {
                    0
                };
                break;
            }
            index = index.wrapping_add(1);
        }
        if index == consumer {
            self.requester.offset = 0;
        }
        self.requester.sending = index;
        self.requester.is_part_sent = false;
    }

    /// The next request is sent next.
    pub(super) fn advance(&mut self) {
        self.requester.sending = self.requester.sending.wrapping_add(1);
        self.requester.offset = 0;
        self.requester.loaded = None;
    }

    /// The oldest packet that has not been acknowledged is sent next.
    pub(super) fn seek_oldest(&mut self, consumer: u32, mtu: Mtu) {
        self.requester.retransmit.cancel();
        self.seek(self.requester.snd_una, consumer, mtu);
    }

    /// Whether the oldest packet that has not been acknowledged is the next one to be sent.
    pub(super) fn is_back(&self, mtu: Mtu) -> bool {
        self.requester.sending == self.requester.oldest
            && !self.requester.is_part_sent
            && self
                .record(self.requester.sending)
                .is_some_and(|record| self.next_psn(record, mtu) == self.requester.snd_una)
    }

    /// Sends again from the oldest packet that has not been acknowledged.
    pub(super) fn go_back(&mut self, consumer: u32, mtu: Mtu) {
        self.requester.tlp.cancel();
        self.seek_oldest(consumer, mtu);
    }

    /// Where the requester stands, if it has nothing to send again.
    fn front(&self, consumer: u32, mtu: Mtu) -> Option<SendPosition> {
        let is_front = self.requester.sending == consumer
            || self.requester.is_part_sent
            || self
                .record(self.requester.sending)
                .is_some_and(|record| self.next_psn(record, mtu) == self.requester.snd_nxt);
        is_front.then_some(self.position())
    }

    /// Where the requester stands.
    fn position(&self) -> SendPosition {
        SendPosition {
            sending: self.requester.sending,
            offset: self.requester.offset,
            is_part_sent: self.requester.is_part_sent,
        }
    }

    /// The oldest packet is sent again, alone if that may be enough: the peer misses it, or the data of
    /// reads that should have come before packet `hole_end` are missing.
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
        self.record(self.requester.oldest)
            .is_some_and(Record::has_response_data)
    }

    /// The oldest packet is sent again as a probe, to see what became of it. Answers whether it is sent alone.
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

    /// The oldest packet is sent next. If that `is_selective`, the requester then resumes where it was. The packet
    /// `is_lost`, or else only late for all that is known.
    fn begin_retransmit(
        &mut self,
        consumer: u32,
        mtu: Mtu,
        hole_end: Option<u32>,
        is_selective: bool,
        is_lost: bool,
    ) {
        let front = self.front(consumer, mtu);
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

    /// The requester has to wait. Unless a packet is on its way that asks for an acknowledgement, or one whose
    /// response has data, the last one is sent again to ask, or else no acknowledgement would come. Answers
    /// whether it is.
    pub(super) fn request_ack(&mut self, consumer: u32, mtu: Mtu) -> bool {
        let next = match self.record(self.requester.sending) {
            _ if self.requester.sending == consumer => self.requester.snd_nxt,
            // Nothing is sent again of a request that has failed.
            Some(failed) if failed.failed.is_some() => failed.psn,
            Some(record) => self.next_psn(record, mtu),
            None => return false,
        };
        let sent = psn::distance(self.requester.snd_una, next);
        if sent == 0
            || self.requester.retransmit.is_active()
            || psn::within(self.requester.ack_requested, self.requester.snd_una, sent)
        {
            return false;
        }
        let last = psn::advance(next, psn::MASK);
        let is_of = |record: &Record| psn::within(last, record.psn, record.packets);
        let mut index = self.requester.sending;
        while index == consumer || !self.record(index).is_some_and(is_of) {
            if index == self.requester.oldest {
                return false;
            }
            index = index.wrapping_sub(1);
        }
        if self.record(index).is_some_and(Record::has_response_data) {
            return false;
        }
        let position = self.position();
        self.seek(last, consumer, mtu);
        self.requester.retransmit.resume = Some(position);
        true
    }

    /// Ends a selective retransmit, if there is one: packet `psn` has been sent, or `None` of it is needed any
    /// more. The requester resumes where it was. Answers whether there was one.
    pub(super) fn end_retransmit(&mut self, psn: Option<u32>) -> bool {
        let Some(position) = self.requester.retransmit.resume.take() else {
            return false;
        };
        // The newest packet has nothing behind it that the peer could have buffered.
        if psn.is_none_or(|psn| psn::advance(psn, 1) != self.requester.snd_nxt) {
            self.requester.retransmit.retransmitted =
                psn.filter(|_| self.requester.retransmit.hole_end.is_none());
        }
        self.requester.retransmit.hole_end = None;
        self.requester.sending = position.sending;
        self.requester.offset = position.offset;
        // The part may have come meanwhile.
        self.requester.is_part_sent = position.is_part_sent && self.requester.part.is_some();
        self.requester.loaded = None;
        true
    }
}
