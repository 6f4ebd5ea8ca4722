// SPDX-License-Identifier: GPL-2.0

//! State of the requester: which requests are on their way, where it stands, and how much it may send.

use crate::{
    base::host::Host,
    congestion::Congestion,
    queue_pair::remote::{
        record::Record,
        retransmit_state::RetransmitState,
        tail_loss_probe::TailLossProbe, //
    },
};

/// Requests that may be on their way at a time. A power of two.
pub(crate) const REQUESTS: u32 = 64;

/// What the requester knows of its requests and of the way to the peer.
pub(crate) struct RequesterState<H: Host> {
    pub(crate) records: H::Box<[Record; REQUESTS as usize]>,
    /// The slot of the oldest request that has not ended.
    pub(crate) oldest: u32,
    /// The slot of the request whose packets are sent next, and how many of its bytes were sent.
    pub(crate) sending: u32,
    pub(crate) offset: u32,
    /// The slot of which the requester has a copy at hand.
    pub(crate) loaded: Option<u32>,
    /// The sequence number of the oldest packet that has not been acknowledged (SND.UNA of TCP).
    pub(crate) snd_una: u32,
    /// The sequence number after the newest one that was ever sent (SND.NXT of TCP). What is sent again does not
    /// change it.
    pub(crate) snd_nxt: u32,
    /// Messages sent so far (24 bits).
    pub(crate) ssn: u32,
    /// The limit sequence number: up to which message the responder has receive requests (IBA volume 1, 9.7.7.2).
    /// `None`: no limit.
    pub(crate) lsn: Option<u32>,
    /// When the local ACK timeout is over.
    pub(crate) ack_deadline: Option<u64>,
    /// The receiver was not ready: until then no request is sent.
    pub(crate) rnr_until: Option<u64>,
    /// The packet of which that was said.
    pub(crate) rnr_psn: u32,
    /// The host was `Unsent::Full`: no request is sent until then; responses are.
    pub(crate) full_until: Option<u64>,
    /// Up to which byte the data of the oldest request, a read, have been asked for. It stays until
    /// they have come: for all that is known, the responder heard of that part alone, and then what
    /// is asked for again must not reach beyond it.
    pub(crate) part: Option<u32>,
    /// That part has been asked for, and nothing is sent until it has come.
    pub(crate) is_part_sent: bool,
    pub(crate) retransmit: RetransmitState,
    /// How many packets may be in flight, in either direction, beside those that have come behind a loss.
    pub(crate) congestion: Congestion,
    pub(crate) tlp: TailLossProbe,
    /// Packets since an acknowledgement was last asked for, and the sequence number of that.
    pub(crate) since_ack_request: u32,
    pub(crate) ack_requested: u32,
}

impl<H: Host> RequesterState<H> {
    /// Allocates, with [`Host::boxed_array`]; `None` if there is no memory.
    pub(crate) fn new() -> Option<Self> {
        Some(Self {
            records: H::boxed_array(|_| Record::default())?,
            oldest: 0,
            sending: 0,
            offset: 0,
            loaded: None,
            snd_una: 0,
            snd_nxt: 0,
            ssn: 0,
            lsn: None,
            ack_deadline: None,
            rnr_until: None,
            rnr_psn: 0,
            full_until: None,
            part: None,
            is_part_sent: false,
            retransmit: RetransmitState::NEW,
            congestion: Congestion::NEW,
            tlp: TailLossProbe::default(),
            since_ack_request: 0,
            ack_requested: 0,
        })
    }

    /// Nothing is on its way any more; the next request is in slot `consumer`.
    pub(crate) fn stop(&mut self, consumer: u32) {
        self.oldest = consumer;
        self.sending = consumer;
        self.offset = 0;
        self.loaded = None;
        self.ack_deadline = None;
        self.rnr_until = None;
        self.full_until = None;
        self.part = None;
        self.is_part_sent = false;
        self.retransmit = RetransmitState::NEW;
        self.congestion = Congestion::NEW;
        self.tlp = TailLossProbe::default();
        self.since_ack_request = 0;
    }
}
