// SPDX-License-Identifier: GPL-2.0

//! Repair: what was lost is sent again alone, and what is behind it is not.
//!
//! A peer that says that a packet is missing (NAK with a sequence error) throws away what comes behind
//! it, if it goes by the letter, and all has to be sent again from there (C9-139). A peer that is
//! ferrule itself [buffers it](super::reorder), and then only the one packet has to be sent. Nothing in a
//! packet tells which it is, so the requester finds out: it sends the one packet, goes on where it was,
//! and sees by the next acknowledgement how far the peer has come. If the peer misses the very next
//! packet, too, it has not kept it, or that was lost as well; after a few such cases all is sent again.
//! Who keeps packets then acknowledges more than has been sent again, and is known by that.
//!
//! The last packet that was sent is sent again alone, too, if the requester waits and nothing that it has
//! sent asks to be acknowledged: what came next was not to be sent, or had to wait, and that showed too late.
//!
//! Until the repair has been acknowledged, the peer holds what is behind the loss. The window would be full
//! of that, and the wire idle for as long as a packet and its answer take. So from a peer that was seen to
//! keep packets, those that had been sent are taken to have come, and as many more may go.
//!
//! A read whose data do not come is asked for again in the part that is missing. Any peer answers that
//! (9.7.5.1.4), and it is the requester that keeps what has come.

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
        core::Core,
        remote::{
            record::Record,
            repair::Place,
            state::Wire, //
        },
    },
    wire::reorder::first_buffered, //
};

impl<H: Host> Wire<H> {
    /// Where the requester goes on, if it has nothing to send again.
    fn front(&self, consumer: u32, mtu: Mtu) -> Option<Place> {
        let is_front = self.requester.sending == consumer
            || self.requester.is_part_sent
            || self
                .record(self.requester.sending)
                .is_some_and(|record| self.next_number(record, mtu) == self.requester.used);
        is_front.then_some(self.place())
    }

    /// Where the requester is.
    fn place(&self) -> Place {
        Place {
            sending: self.requester.sending,
            offset: self.requester.offset,
            is_part_sent: self.requester.is_part_sent,
        }
    }

    /// The oldest packet is sent again, alone if that may be enough: the peer misses it, or the data of
    /// reads that should have come before packet `beyond` are missing.
    pub(super) fn repair(&mut self, core: &Core<H>, consumer: u32, beyond: Option<u32>) {
        let mtu = core.attr.path_mtu;
        // Of reads, it is this side that keeps what has come.
        let is_enough = beyond.is_some()
            || self
                .requester
                .repair
                .is_trusted(self.requester.unacknowledged);
        self.requester.probe.begin_again();
        self.begin(consumer, mtu, beyond, is_enough, true);
        self.requester.repair.is_told = beyond.is_none() && !self.requester.repair.is_under_way();
    }

    /// What is behind the oldest packet is known to have come, or is with a peer that keeps it.
    pub(super) fn is_alone_enough(&self) -> bool {
        if self.awaits_data() {
            !self.completer.reorder.is_empty()
        } else {
            self.requester.repair.is_known()
        }
    }

    /// The oldest request is answered with data.
    fn awaits_data(&self) -> bool {
        self.record(self.requester.oldest)
            .is_some_and(Record::is_answered_with_data)
    }

    /// The oldest packet is sent again, to see what became of it. Answers whether it is sent alone.
    pub(super) fn look(&mut self, consumer: u32, mtu: Mtu) -> bool {
        let beyond = if self.awaits_data() {
            first_buffered(&mut self.completer.reorder, self.requester.unacknowledged)
        } else {
            None
        };
        let is_enough = self.is_alone_enough();
        self.begin(consumer, mtu, beyond, is_enough, false);
        self.requester.repair.is_under_way()
    }

    /// Sends go on with the oldest packet. If that `is_enough`, they then go on where they were. It `is_lost`, or else
    /// only late for all that is known.
    fn begin(
        &mut self,
        consumer: u32,
        mtu: Mtu,
        beyond: Option<u32>,
        is_enough: bool,
        is_lost: bool,
    ) {
        let front = self.front(consumer, mtu);
        let place = self.requester.repair.resume.or(front).filter(|_| is_enough);
        self.seek_oldest(consumer, mtu);
        let in_flight = psn::distance(self.requester.unacknowledged, self.requester.used);
        let is_congestion = is_lost
            && self
                .requester
                .congestion
                .on_loss(in_flight, place.is_some());
        if place.is_none() {
            return;
        }
        self.requester.repair.resume = place;
        self.requester.repair.beyond = beyond;
        if beyond.is_none() && self.requester.repair.is_known() {
            self.requester.repair.kept = if is_congestion {
                in_flight.saturating_sub(self.requester.congestion.window())
            } else {
                in_flight
            };
        }
    }

    /// The requester has to wait. Unless a packet is on its way that asks to be acknowledged, or one that
    /// is answered with data, the last one is sent again to ask, or else nobody would hear of it. Answers
    /// whether it is.
    pub(super) fn ask_again(&mut self, consumer: u32, mtu: Mtu) -> bool {
        let next = match self.record(self.requester.sending) {
            _ if self.requester.sending == consumer => self.requester.used,
            // Nothing is sent again of a request that has failed.
            Some(failed) if failed.failed.is_some() => failed.psn,
            Some(record) => self.next_number(record, mtu),
            None => return false,
        };
        let sent = psn::distance(self.requester.unacknowledged, next);
        if sent == 0
            || self.requester.repair.is_under_way()
            || psn::within(self.requester.asked, self.requester.unacknowledged, sent)
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
        if self
            .record(index)
            .is_some_and(Record::is_answered_with_data)
        {
            return false;
        }
        let place = self.place();
        self.seek(last, consumer, mtu);
        self.requester.repair.resume = Some(place);
        true
    }

    /// The requester goes on where it was, if it was at a repair: packet `number` has been sent, or
    /// `None` of it is needed any more. Answers whether it was.
    pub(super) fn end_repair(&mut self, number: Option<u32>) -> bool {
        let Some(place) = self.requester.repair.resume.take() else {
            return false;
        };
        // The newest packet has nothing behind it that the peer could have kept.
        if number.is_none_or(|number| psn::advance(number, 1) != self.requester.used) {
            self.requester.repair.alone = number.filter(|_| self.requester.repair.beyond.is_none());
        }
        self.requester.repair.beyond = None;
        self.requester.sending = place.sending;
        self.requester.offset = place.offset;
        // The part may have come meanwhile.
        self.requester.is_part_sent = place.is_part_sent && self.requester.part.is_some();
        self.requester.loaded = None;
        true
    }
}
