// SPDX-License-Identifier: GPL-2.0

//! Where the requester stands: which packet it sends next, and how it goes back.

use crate::{
    base::{
        attr::Mtu,
        host::Host,
        psn, //
    },
    queue_pair::remote::{
        record::Record,
        state::Wire, //
    },
};

impl<H: Host> Wire<H> {
    /// The sequence number of the next packet, which is one of this request.
    pub(super) fn next_number(&self, record: &Record, mtu: Mtu) -> u32 {
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
                .is_some_and(|record| self.next_number(record, mtu) == self.requester.snd_una)
    }

    /// Sends again from the oldest packet that has not been acknowledged.
    pub(super) fn go_back(&mut self, consumer: u32, mtu: Mtu) {
        self.requester.tlp.cancel();
        self.seek_oldest(consumer, mtu);
    }
}
