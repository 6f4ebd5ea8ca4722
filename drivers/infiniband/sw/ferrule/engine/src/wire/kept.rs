// SPDX-License-Identifier: GPL-2.0

//! Keeps packets that come before one that is missing, and finds them again.

use crate::{
    base::{
        host::{
            Early,
            Host, //
        },
        psn, //
    },
    queue_pair::remote::state::{
        Wire,
        AHEAD, //
    },
};

/// Nanoseconds without progress after which nothing is kept any longer. A peer that lives has sent the missing
/// packet long before, and the kept ones are pages of a network device, which wants them back when it goes down.
const LINGER: u64 = 1_000_000_000;

impl<H: Host> Wire<H> {
    /// Keeps a request that is ahead of the `expected` one by less than [`AHEAD`].
    pub(super) fn keep_request(
        &mut self,
        expected: u32,
        number: u32,
        packet: &H::Packet,
        now: u64,
    ) {
        if psn::distance(expected, number) < AHEAD {
            self.responses.early.keep(number, packet);
            self.linger(now);
        }
    }

    /// Keeps an answer that is ahead of those that are missing by less than [`AHEAD`].
    pub(super) fn keep_answer(&mut self, number: u32, packet: &H::Packet, now: u64) {
        if psn::distance(self.requester.unacknowledged, number) < AHEAD {
            self.completer.early.keep(number, packet);
            self.linger(now);
        }
    }

    /// Something is kept from now on.
    fn linger(&mut self, now: u64) {
        self.early_until = self.early_until.or(Some(now.saturating_add(LINGER)));
    }

    /// Some has been taken: the peer lives, and what is still kept waits for the next packet that is missing.
    pub(super) fn took(&mut self, now: u64) {
        self.early_until = None;
        if !self.responses.early.is_empty() || !self.completer.early.is_empty() {
            self.linger(now);
        }
    }
}

/// The first number from `expected` on of which a packet is kept. What else there is has been overtaken
/// by the acknowledgement of something later, and goes.
pub(super) fn next<P>(early: &mut impl Early<P>, expected: u32) -> Option<u32> {
    if early.is_empty() {
        return None;
    }
    let next = early
        .first_from(expected)
        .filter(|&number| psn::within(number, expected, AHEAD));
    if next.is_none() {
        early.clear();
    }
    next
}
