// SPDX-License-Identifier: GPL-2.0

//! The probe: a packet that is sent again early, to learn what became of those on their way.
//!
//! As a rule what was lost shows by what comes after it. Where nothing comes after it (the last packet
//! of many, the request for a read, a NAK) both sides wait for the local ACK timeout, which is long
//! since a timeout is an error, and counted: 67 ms is usual. But the requester knows how long answers
//! take, and how much that varies (RFC 6298). When several times as long has passed without a sign, it sends
//! the oldest packet again, and nothing else before it hears of it, unless all that is behind that packet has
//! come or is with a peer that keeps it. A responder that has had the packet acknowledges it once more
//! (C9-105). The probe may be lost, too: it is sent again after twice the time, and so on. No retry is
//! counted, and if nothing comes of it, the timeout decides.

use crate::base::psn;

/// After so many round trips, an answer is waited for no longer. RFC 6298's retransmission timeout may be
/// longer, where answers vary much, and holds then.
const PATIENCE: u64 = 4;

/// The same where a probe that was sent in vain costs one packet and nothing else: as RFC 8985 has it, whose
/// probe likewise does not regard how much answers vary. Where packets are lost they vary by what is sent again,
/// and it is then that a probe should not be late.
const PATIENCE_ALONE: u64 = 2;

/// And not before so many nanoseconds: who answers may have to be scheduled first.
const LEAST: u64 = 500_000;

/// The time is doubled no more often than so.
const MOST: u32 = 8;

/// What a requester knows of the time that answers take, and of its probe.
#[derive(Clone, Copy, Default)]
pub(crate) struct Probe {
    /// Nanoseconds from a packet that asks for an answer to that, smoothed (SRTT of RFC 6298). 0 until one has
    /// come.
    srtt: u64,
    /// How far they differ from that, smoothed (RTTVAR).
    rttvar: u64,
    /// The packet whose answer is timed, and when it was sent.
    timed: Option<(u32, u64)>,
    /// It has been sent before: its answer may be that to the first one (RFC 6298, section 3).
    is_again: bool,
    /// When the probe is to be sent.
    pub(crate) due: Option<u64>,
    /// How often it was sent, and nothing was heard since.
    sent: u32,
    /// Nothing else is sent again, so what is new is sent beside it.
    is_alone: bool,
}

impl Probe {
    /// A packet that asks for an answer has been sent, perhaps again.
    pub(crate) fn asked(&mut self, number: u32, now: u64, is_again: bool) {
        if self.timed.is_none() {
            self.timed = Some((number, now));
            self.is_again = is_again;
        }
    }

    /// Packets are on their way for which an answer is `overdue` then. `is_alone`: of these, only the oldest
    /// would be sent again.
    pub(crate) fn expect(&mut self, now: u64, overdue: Option<u64>, is_alone: bool) {
        let after = if is_alone {
            self.srtt.saturating_mul(PATIENCE_ALONE)
        } else {
            let timeout = self.srtt.saturating_add(self.rttvar.saturating_mul(4));
            self.srtt.saturating_mul(PATIENCE).max(timeout)
        };
        let after = after.max(LEAST);
        let due = now.saturating_add(after.wrapping_shl(self.sent));
        self.due = (self.srtt != 0 && overdue.is_some_and(|overdue| due < overdue)).then_some(due);
    }

    /// It has been sent, and nothing else is before something is heard.
    pub(crate) fn holds_back(&self) -> bool {
        self.sent != 0 && !self.is_alone
    }

    /// It is sent, for the first time or again. `is_alone`: what is behind it needs not be sent again.
    pub(crate) fn send(&mut self, now: u64, overdue: Option<u64>, is_alone: bool) {
        self.timed = None;
        self.is_alone = is_alone;
        self.sent = self.sent.saturating_add(1).min(MOST);
        self.expect(now, overdue, is_alone);
    }

    /// All before packet `number` has been answered. Answers how long that took, of a packet that was sent once.
    pub(crate) fn heard(&mut self, number: u32, now: u64) -> Option<u64> {
        self.due = None;
        self.sent = 0;
        let is_answered = |&(timed, _): &(u32, u64)| psn::is_ahead(number, timed);
        let (_, sent) = self.timed.filter(is_answered)?;
        let rtt = now.saturating_sub(sent).max(1);
        self.measured(rtt);
        self.timed = None;
        (!self.is_again).then_some(rtt)
    }

    /// An answer has taken so long (RFC 6298, 2.2 and 2.3).
    fn measured(&mut self, rtt: u64) {
        if self.srtt == 0 {
            self.srtt = rtt;
            self.rttvar = rtt / 2;
            return;
        }
        let differs = self.srtt.abs_diff(rtt);
        self.rttvar = self
            .rttvar
            .saturating_sub(self.rttvar / 4)
            .saturating_add(differs / 4);
        self.srtt = self
            .srtt
            .saturating_sub(self.srtt / 8)
            .saturating_add(rtt / 8);
    }

    /// What is sent from now on was sent before: of its answers nobody can tell to what they are.
    pub(crate) fn begin_again(&mut self) {
        self.timed = None;
        self.due = None;
        self.sent = 0;
    }
}
