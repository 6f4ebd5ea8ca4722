// SPDX-License-Identifier: GPL-2.0

//! Gaps in the sequence numbers, and whether to report one to the peer.

/// A gap: packets are missing before those that have come.
#[derive(Clone, Copy, Default)]
pub(crate) struct Gap {
    /// It has been reported, and the peer sends the missing packets again.
    pub(crate) reported: bool,
    /// The first packet behind it that has come since.
    end: Option<u32>,
}

impl Gap {
    /// Packet `psn` has come, and one before it is missing. Returns whether to report the gap.
    ///
    /// A gap is reported once (C9-112), since all that is on its way would say the same. But when
    /// the first packet behind the gap comes again, the peer has begun again, and the missing
    /// packet was lost again. Without a report the peer would have to wait until its timer fires.
    /// No other packet is such a sign: that it comes again may be the network's doing, and a report
    /// in vain costs the peer a retry. Where the first one is lost as well, the peer's probe or its
    /// timer finds the loss.
    pub(crate) fn should_report(&mut self, psn: u32) -> bool {
        let should_report = !self.reported || self.end == Some(psn);
        self.reported = true;
        self.end = self.end.or(Some(psn));
        should_report
    }
}
