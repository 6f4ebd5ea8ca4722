// SPDX-License-Identifier: GPL-2.0

//! State of selective retransmission: the packet that is sent again, and whether the peer has a reorder buffer.

use crate::{
    base::psn,
    queue_pair::remote::record::Record, //
};

/// Selective retransmits in turn behind which the peer may miss the next packet, too, if it was seen to have a
/// reorder buffer.
const ATTEMPTS: u8 = 4;

/// The same if it was not.
const FIRST_ATTEMPTS: u8 = 1;

/// After so many losses, a peer without a reorder buffer is tried again.
const RETRY_LOSSES: u8 = 32;

/// Where the requester stands.
#[derive(Clone, Copy)]
pub(crate) struct SendPosition {
    pub(crate) sending: u32,
    pub(crate) offset: u32,
    pub(crate) is_part_sent: bool,
}

/// What the requester knows of a selective retransmit, and of the peer.
#[derive(Clone, Copy)]
pub(crate) struct RetransmitState {
    /// The next packet is retransmitted alone: where the requester resumes after that.
    pub(crate) resume: Option<SendPosition>,
    /// The first response that has come behind missing data of reads.
    pub(crate) hole_end: Option<u32>,
    /// The packet that was retransmitted alone last, until more is known of it.
    pub(crate) retransmitted: Option<u32>,
    /// How many packets behind that the peer has in its reorder buffer, for all that is known.
    pub(crate) peer_buffered: u32,
    /// The peer said that a packet was missing, and all is sent again.
    pub(crate) goes_back: bool,
    pub(crate) attempts: u8,
    pub(crate) losses: u8,
}

impl RetransmitState {
    /// Nothing is known of the peer, which is worth an attempt.
    pub(crate) const NEW: Self = RetransmitState {
        resume: None,
        hole_end: None,
        retransmitted: None,
        peer_buffered: 0,
        goes_back: false,
        attempts: FIRST_ATTEMPTS,
        losses: 0,
    };

    /// The next packet is retransmitted alone.
    pub(crate) fn is_active(&self) -> bool {
        self.resume.is_some()
    }

    /// All before packet `psn` has come, and so has what was to be retransmitted.
    pub(crate) fn is_complete(&self, psn: u32) -> bool {
        let is_before = |hole_end| psn::is_ahead(hole_end, psn);
        self.is_active() && !self.hole_end.is_some_and(is_before)
    }

    /// All is sent again from the oldest packet on.
    pub(crate) fn cancel(&mut self) {
        self.resume = None;
        self.hole_end = None;
        self.retransmitted = None;
        self.peer_buffered = 0;
        self.goes_back = false;
    }

    /// Up to which of its bytes a read is asked for again, if more has come behind that.
    pub(crate) fn read_end(&self, record: &Record, shift: u32) -> u32 {
        self.hole_end
            .map(|hole_end| psn::distance(record.psn, hole_end))
            .filter(|&packets| packets < record.packets)
            .map_or(record.length, |packets| packets.wrapping_shl(shift))
    }

    /// All before packet `psn` has been acknowledged.
    pub(crate) fn on_ack(&mut self, psn: u32) {
        self.peer_buffered = 0;
        if let Some(retransmitted) = self.retransmitted {
            // It was sent alone, so the peer had what is behind it.
            if psn::is_ahead(psn, psn::advance(retransmitted, 1)) {
                self.attempts = ATTEMPTS;
                self.retransmitted = None;
            }
        }
    }

    /// More has been acknowledged than was sent since the requester went back.
    pub(crate) fn on_ack_beyond_sent(&mut self) {
        // Or else what it missed, and all behind that, would have had to come again. Where the network
        // only was late with it this may be wrong, and costs a few round trips.
        if self.goes_back {
            self.attempts = ATTEMPTS;
        }
    }

    /// The peer was seen to have a reorder buffer.
    pub(crate) fn peer_reorders(&self) -> bool {
        self.attempts > FIRST_ATTEMPTS
    }

    /// The peer misses packet `psn`. Answers whether a selective retransmit is worth an attempt.
    pub(crate) fn on_loss(&mut self, psn: u32) -> bool {
        if self
            .retransmitted
            .is_some_and(|retransmitted| psn::advance(retransmitted, 1) == psn)
        {
            self.attempts = self.attempts.saturating_sub(1);
        }
        if self.attempts == 0 {
            self.losses = self.losses.wrapping_add(1);
            if self.losses % RETRY_LOSSES == 0 {
                self.attempts = FIRST_ATTEMPTS;
            }
        }
        self.attempts != 0
    }
}
