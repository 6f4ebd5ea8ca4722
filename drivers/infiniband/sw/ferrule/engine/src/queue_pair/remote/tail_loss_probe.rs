// SPDX-License-Identifier: GPL-2.0

//! The tail-loss probe (TLP): a packet that is sent again soon, to learn whether those on their way
//! were lost.
//!
//! As a rule a loss shows by the packets behind it. Where none comes (the last packet of many, the
//! request for a read, a NAK) both sides wait for the local ACK timeout, which is long since a
//! timeout is an error, and counted: 67 ms is usual. But the requester knows how long responses
//! take, and how much that varies (RFC 6298). When several times as long has passed without a sign,
//! it sends the oldest packet again, and nothing else before a response comes, unless all that is
//! behind that packet has come or is in the peer's reorder buffer. A responder that has had the
//! packet acknowledges it once more (C9-105). The probe may be lost, too: it is sent again after
//! twice the time, and so on. No retry is counted, and if nothing comes of it, the timeout decides.

use crate::base::psn;

/// A probe is sent after 4 smoothed round trips, or after RFC 6298's retransmission timeout if that
/// is longer, which it is where round trips vary much.
const ROUND_TRIPS: u64 = 4;

/// A probe is sent after 2 smoothed round trips where a needless one costs a single packet, however
/// much they vary (RFC 8985, 7.2). Retransmissions make round trips vary, and that is when a probe
/// should not be late.
const ROUND_TRIPS_SELECTIVE: u64 = 2;

/// And not before so many nanoseconds: the responder may have to be scheduled first.
const MIN_TIMEOUT: u64 = 500_000;

/// The time is doubled no more often than so.
const MAX_BACKOFF: u32 = 8;

/// The round-trip time that a requester has measured, and its probe.
#[derive(Clone, Copy, Default)]
pub(crate) struct TailLossProbe {
    /// Nanoseconds from a packet that asks for a response to that, smoothed (SRTT of RFC 6298). 0
    /// until one has come.
    srtt: u64,
    /// How far they differ from that, smoothed (RTTVAR).
    rttvar: u64,
    /// The packet whose response is timed, and when it was sent.
    sample: Option<(u32, u64)>,
    /// It has been sent before: its response may be that to the first one (RFC 6298, section 3).
    is_retransmit: bool,
    /// When the probe is to be sent.
    pub(crate) deadline: Option<u64>,
    /// How often it was sent, and nothing has come since.
    backoff: u32,
    /// Nothing else is sent again, so new packets are sent beside it.
    is_selective: bool,
}

impl TailLossProbe {
    /// A packet that asks for a response has been sent, perhaps again. It is timed, unless another
    /// one is.
    pub(crate) fn start_sample(&mut self, psn: u32, now: u64, is_retransmit: bool) {
        if self.sample.is_none() {
            self.sample = Some((psn, now));
            self.is_retransmit = is_retransmit;
        }
    }

    /// Packets are on their way, and their acknowledgement is due at `ack_deadline`.
    /// `is_selective`: of these, only the oldest would be sent again.
    pub(crate) fn arm(&mut self, now: u64, ack_deadline: Option<u64>, is_selective: bool) {
        let after = if is_selective {
            self.srtt.saturating_mul(ROUND_TRIPS_SELECTIVE)
        } else {
            let timeout = self.srtt.saturating_add(self.rttvar.saturating_mul(4));
            self.srtt.saturating_mul(ROUND_TRIPS).max(timeout)
        };
        let after = after.max(MIN_TIMEOUT);
        let deadline = now.saturating_add(after.wrapping_shl(self.backoff));
        let is_sooner = ack_deadline.is_some_and(|ack_deadline| deadline < ack_deadline);
        self.deadline = (self.srtt != 0 && is_sooner).then_some(deadline);
    }

    /// It has been sent, and nothing else is before a response comes.
    pub(crate) fn holds_back(&self) -> bool {
        self.backoff != 0 && !self.is_selective
    }

    /// It is sent, for the first time or again. `is_selective`: packets behind it need not be sent
    /// again.
    pub(crate) fn sent(&mut self, now: u64, ack_deadline: Option<u64>, is_selective: bool) {
        self.sample = None;
        self.is_selective = is_selective;
        self.backoff = self.backoff.saturating_add(1).min(MAX_BACKOFF);
        self.arm(now, ack_deadline, is_selective);
    }

    /// All before packet `psn` has been acknowledged. Returns how long that took, of a packet that
    /// was sent once.
    pub(crate) fn on_ack(&mut self, psn: u32, now: u64) -> Option<u64> {
        self.deadline = None;
        self.backoff = 0;
        let is_acked = |&(packet, _): &(u32, u64)| psn::is_ahead(psn, packet);
        let (_, sent) = self.sample.filter(is_acked)?;
        let rtt = now.saturating_sub(sent).max(1);
        self.update_rtt(rtt);
        self.sample = None;
        (!self.is_retransmit).then_some(rtt)
    }

    /// A response has taken so long (RFC 6298, 2.2 and 2.3).
    fn update_rtt(&mut self, rtt: u64) {
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

    /// Packets are sent again from now on, and nobody can tell which of two copies a response is
    /// to; or the response waits for memory.
    pub(crate) fn cancel(&mut self) {
        self.sample = None;
        self.deadline = None;
        self.backoff = 0;
    }
}
