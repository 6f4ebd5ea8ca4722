// SPDX-License-Identifier: GPL-2.0

//! The send window, and the timers that run while packets are on their way.

use crate::{
    base::{
        host::{
            Host,
            Reorder, //
        },
        psn, //
    },
    object::opcode::Opcode,
    queue_pair::{
        qp_core::QpCore,
        remote::{
            record::Record,
            state::{
                Wire,
                REORDER_WINDOW, //
            },
        },
    },
};

impl<H: Host> Wire<H> {
    /// How far ahead of the oldest packet that has not been acknowledged the next one may be at present.
    pub(super) fn send_window(&self) -> u32 {
        if self.requester.tlp.holds_back() {
            return 1;
        }
        // Packets that are buffered behind a loss are not in flight any more.
        let come = self
            .completer
            .reorder
            .count()
            .max(self.requester.retransmit.peer_buffered);
        self.requester
            .congestion
            .window()
            .saturating_add(come)
            .min(REORDER_WINDOW)
    }

    /// The responder has reported no receive request for this message.
    pub(super) fn exceeds_credits(&self, record: &Record, opcode: Opcode) -> bool {
        opcode.takes_receive()
            && self
                .requester
                .lsn
                .is_some_and(|lsn| psn::is_ahead(record.ssn, lsn))
    }

    /// Starts the local ACK timeout and the probe's; with a timeout of 0 neither runs (C9-141).
    pub(super) fn start_ack_timer(&mut self, core: &QpCore<H>, now: u64) {
        let timeout = core.attr.ack_timeout();
        self.requester.ack_deadline = timeout.map(|timeout| now.saturating_add(timeout));
        // Behind a part of a read nothing is sent, so nothing else shows that it was lost.
        let window = self.requester.congestion.window();
        let is_parted = |record: &Record| record.is_read() && record.packets > window;
        let is_selective =
            self.record(self.requester.oldest).is_some_and(is_parted) || self.is_selective();
        self.requester
            .tlp
            .arm(now, self.requester.ack_deadline, is_selective);
    }
}
