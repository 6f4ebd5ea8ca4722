// SPDX-License-Identifier: GPL-2.0

//! The reorder buffers: out-of-order packets, one buffer for requests and one for responses.

use crate::{
    base::{
        host::{
            Host,
            Reorder, //
        },
        psn, //
    },
    queue_pair::remote::state::{
        Wire,
        REORDER_WINDOW, //
    },
};

/// Nanoseconds without progress after which the buffers are cleared. A peer that lives has sent the missing packet
/// long before, and buffered packets are pages of a network device, which wants them back when it goes down.
const TIMEOUT: u64 = 1_000_000_000;

impl<H: Host> Wire<H> {
    /// Buffers a request that is ahead of the `expected` one by less than [`REORDER_WINDOW`].
    pub(super) fn reorder_request(
        &mut self,
        expected: u32,
        number: u32,
        packet: &H::Packet,
        now: u64,
    ) {
        if psn::distance(expected, number) < REORDER_WINDOW {
            self.responder.reorder.insert(number, packet);
            self.start_reorder_timer(now);
        }
    }

    /// Buffers a response that is ahead of the missing ones by less than [`REORDER_WINDOW`].
    pub(super) fn reorder_response(&mut self, number: u32, packet: &H::Packet, now: u64) {
        if psn::distance(self.requester.snd_una, number) < REORDER_WINDOW {
            self.completer.reorder.insert(number, packet);
            self.start_reorder_timer(now);
        }
    }

    /// A packet has been buffered. The timer runs from the first one on.
    fn start_reorder_timer(&mut self, now: u64) {
        self.reorder_expires = self.reorder_expires.or(Some(now.saturating_add(TIMEOUT)));
    }

    /// A missing packet has come, so the peer lives. The packets that are still buffered wait for another one.
    pub(super) fn restart_reorder_timer(&mut self, now: u64) {
        self.reorder_expires = None;
        if !self.responder.reorder.is_empty() || !self.completer.reorder.is_empty() {
            self.start_reorder_timer(now);
        }
    }
}

/// The first packet from number `expected` on in a reorder buffer. If there is none, all others have been
/// overtaken by the acknowledgement of a later packet, and the buffer is cleared.
pub(super) fn first_buffered<P>(reorder: &mut impl Reorder<P>, expected: u32) -> Option<u32> {
    if reorder.is_empty() {
        return None;
    }
    let first = reorder
        .first_from(expected)
        .filter(|&number| psn::within(number, expected, REORDER_WINDOW));
    if first.is_none() {
        reorder.clear();
    }
    first
}
