// SPDX-License-Identifier: GPL-2.0

//! What the requester knows of a repair that is under way, and of the peer: whether it keeps packets.

use crate::{
    base::psn,
    queue_pair::remote::record::Record, //
};

/// As often in turn a peer may miss the next packet, too, once it was seen to keep some.
const TRUST: u8 = 4;

/// And as often if it was not.
const PROBATION: u8 = 1;

/// After so many losses, a peer that keeps nothing is tried again.
const RETRY: u8 = 32;

/// Where the requester goes on.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) sending: u32,
    pub(crate) offset: u32,
    pub(crate) is_part_sent: bool,
}

/// What the requester knows of a repair, and of the peer.
#[derive(Clone, Copy)]
pub(crate) struct Repair {
    /// The next packet is sent alone: where it goes on after that.
    pub(crate) resume: Option<Place>,
    /// Which packet has arrived behind the missing data of reads.
    pub(crate) beyond: Option<u32>,
    /// The packet that was sent alone last, until more is known of it.
    pub(crate) alone: Option<u32>,
    /// How many packets the peer keeps behind that, for all that is known.
    pub(crate) kept: u32,
    /// The peer said that a packet was missing, and all is sent again.
    pub(crate) is_told: bool,
    pub(crate) trust: u8,
    pub(crate) losses: u8,
}

impl Repair {
    /// Nothing is known of the peer, which is worth a try.
    pub(crate) const NEW: Self = Repair {
        resume: None,
        beyond: None,
        alone: None,
        kept: 0,
        is_told: false,
        trust: PROBATION,
        losses: 0,
    };

    /// The next packet is sent alone.
    pub(crate) fn is_under_way(&self) -> bool {
        self.resume.is_some()
    }

    /// All before packet `number` has come, and so has what was to be sent alone.
    pub(crate) fn is_over(&self, number: u32) -> bool {
        let is_before = |beyond| psn::is_ahead(beyond, number);
        self.is_under_way() && !self.beyond.is_some_and(is_before)
    }

    /// All is sent again from the oldest packet on.
    pub(crate) fn give_up(&mut self) {
        self.resume = None;
        self.beyond = None;
        self.alone = None;
        self.kept = 0;
        self.is_told = false;
    }

    /// How many packets the peer keeps, for all that is known.
    pub(crate) fn kept(&self) -> u32 {
        self.kept
    }

    /// Up to which of its bytes a read is asked for again, if more has come behind that.
    pub(crate) fn end(&self, record: &Record, shift: u32) -> u32 {
        self.beyond
            .map(|beyond| psn::distance(record.psn, beyond))
            .filter(|&packets| packets < record.packets)
            .map_or(record.length, |packets| packets.wrapping_shl(shift))
    }

    /// All before packet `number` has been acknowledged.
    pub(crate) fn heard(&mut self, number: u32) {
        self.kept = 0;
        if let Some(alone) = self.alone {
            // It was sent alone, so the peer had what is behind it.
            if psn::is_ahead(number, psn::advance(alone, 1)) {
                self.trust = TRUST;
                self.alone = None;
            }
        }
    }

    /// More has been acknowledged than was sent since the requester went back.
    pub(crate) fn skipped(&mut self) {
        // Or else what it missed, and all behind that, would have had to come again. Where the network
        // only was late with it this may be wrong, and costs a few round trips.
        if self.is_told {
            self.trust = TRUST;
        }
    }

    /// The peer was seen to keep packets.
    pub(crate) fn is_known(&self) -> bool {
        self.trust > PROBATION
    }

    /// The peer misses packet `number`. Answers whether it is worth trying to send that alone.
    pub(crate) fn is_trusted(&mut self, number: u32) -> bool {
        if self
            .alone
            .is_some_and(|alone| psn::advance(alone, 1) == number)
        {
            self.trust = self.trust.saturating_sub(1);
        }
        if self.trust == 0 {
            self.losses = self.losses.wrapping_add(1);
            if self.losses % RETRY == 0 {
                self.trust = PROBATION;
            }
        }
        self.trust != 0
    }
}
