// SPDX-License-Identifier: GPL-2.0

//! State of the requester: the requests on their way, where it stands, the packets that it sends
//! again, and how much it may send.

use crate::{
    base::{
        attr::Mtu,
        host::Host,
        psn,
        status::Status, //
    },
    congestion::Congestion,
    object::wr_opcode::{
        Class,
        WrOpcode, //
    },
    packet::opcode::Kind,
    queue_pair::remote::tail_loss_probe::TailLossProbe, //
};

/// The record of a request that has been taken from the ring and has not ended.
#[derive(Clone, Copy, Default)]
pub(crate) struct Record {
    pub(crate) wr_id: u64,
    /// The sequence number of its first packet, and how many it takes in either direction.
    pub(crate) psn: u32,
    pub(crate) packets: u32,
    pub(crate) length: u32,
    /// Bytes that have come back for it.
    pub(crate) done: u32,
    /// The message's number, counted as the responder does (24 bits).
    pub(crate) ssn: u32,
    /// Its operation, `None` if there is no such; and its flags.
    pub(crate) opcode: Option<WrOpcode>,
    pub(crate) flags: u8,
    pub(crate) mark: Mark,
    /// How it ends when all before it have ended, if it must not be sent.
    pub(crate) failed: Option<Status>,
}

/// A step that was taken for a request, beyond those that its kind calls for.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Mark {
    #[default]
    None,
    /// It has registered a region, before its turn to end.
    Registered,
    /// A read that was asked for in parts, or again: its responses may begin and end anywhere.
    Parted,
}

// All of a queue pair take 2 KiB, which is a kmalloc size.
const _: () = assert!(size_of::<Record>() <= 32);

impl Record {
    pub(crate) fn is_registered(&self) -> bool {
        self.mark == Mark::Registered
    }

    pub(crate) fn is_read(&self) -> bool {
        let Some(opcode) = self.opcode else {
            return false;
        };
        match opcode.facts().class {
            Class::Read => true,
            Class::Send
            | Class::Write
            | Class::Atomic(_)
            | Class::AtomicWrite
            | Class::Flush
            | Class::Key(_) => false,
        }
    }

    pub(crate) fn has_response(&self) -> bool {
        self.opcode.is_some_and(WrOpcode::has_response)
    }

    /// Whether it is answered by a response of this kind.
    pub(crate) fn is_answered_by(&self, kind: Kind) -> bool {
        self.opcode.and_then(WrOpcode::response) == Some(kind)
    }

    /// The bytes that come back for it.
    pub(crate) fn response_length(&self) -> u32 {
        self.opcode
            .map_or(0, |opcode| opcode.response_length(self.length))
    }

    /// It sends no packets: a local operation, or a request that was refused when it was taken.
    pub(crate) fn is_local(&self) -> bool {
        self.packets == 0
    }

    /// The sequence number after its last.
    pub(crate) fn end(&self) -> u32 {
        psn::advance(self.psn, self.packets)
    }
}

/// Selective retransmits in a row behind which the peer may miss the next packet, too, if it was
/// seen to have a reorder buffer.
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

/// The requester's knowledge of a selective retransmit, and of the peer.
#[derive(Clone, Copy)]
pub(crate) struct RetransmitState {
    /// The next packet is retransmitted alone: where the requester resumes after that.
    pub(crate) resume: Option<SendPosition>,
    /// The first response that has come behind missing data of reads.
    pub(crate) hole_end: Option<u32>,
    /// The packet that was retransmitted alone last, until more is known of it.
    pub(crate) retransmitted: Option<u32>,
    /// The packets behind `retransmitted` that the peer is known to have in its reorder buffer.
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

    /// Whether no packet is missing any more, now that all before `psn` have come.
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

    /// The end of the bytes that are asked for again, of a read whose later bytes have come.
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
            // It was sent alone, so the peer had the packets behind it.
            if psn::is_ahead(psn, psn::advance(retransmitted, 1)) {
                self.attempts = ATTEMPTS;
                self.retransmitted = None;
            }
        }
    }

    /// More has been acknowledged than was sent since the requester went back.
    pub(crate) fn on_ack_beyond_sent(&mut self) {
        // The peer has a reorder buffer: without one it would need the missing packet and all
        // behind it again. Where the network was only late with the packet this may be wrong, and
        // costs a few round trips.
        if self.goes_back {
            self.attempts = ATTEMPTS;
        }
    }

    /// The peer was seen to have a reorder buffer.
    pub(crate) fn peer_reorders(&self) -> bool {
        self.attempts > FIRST_ATTEMPTS
    }

    /// The peer misses packet `psn`. Returns whether a selective retransmit is worth an attempt.
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

/// Requests that may be on their way at a time. A power of two.
pub(crate) const REQUESTS: u32 = 64;

/// The records of a queue pair's requests.
pub(crate) type Records<H> = <H as Host>::Box<[Record; REQUESTS as usize]>;

/// The requester's knowledge of its requests and of the path to the peer.
pub(crate) struct RequesterState<H: Host> {
    pub(crate) records: Records<H>,
    /// The slot of the oldest request that has not ended.
    pub(crate) oldest: u32,
    /// The slot of the request whose packets are sent next, and how many of its bytes were sent.
    pub(crate) sending: u32,
    pub(crate) offset: u32,
    /// The slot of which the requester has a copy at hand.
    pub(crate) loaded: Option<u32>,
    /// The sequence number of the oldest packet that has not been acknowledged (SND.UNA of TCP).
    pub(crate) snd_una: u32,
    /// The sequence number after the newest one that was ever sent (SND.NXT of TCP). A
    /// retransmission does not change it.
    pub(crate) snd_nxt: u32,
    /// Messages sent so far, counted as the responder does (24 bits).
    pub(crate) ssn: u32,
    /// The limit sequence number: up to which message the responder has receive requests (IBA
    /// volume 1, 9.7.7.2). `None`: no limit.
    pub(crate) lsn: Option<u32>,
    /// When the local ACK timeout is over.
    pub(crate) ack_deadline: Option<u64>,
    /// The receiver was not ready for the oldest packet: until then no request is sent, unless it
    /// takes that one before.
    pub(crate) rnr_until: Option<u64>,
    /// The host was `Unsent::Full`: no request is sent until then; responses are.
    pub(crate) full_until: Option<u64>,
    /// The end of the part of the oldest request, a READ, that is being asked for, in bytes from
    /// its beginning. It is kept until the data arrive: the responder may have received the request
    /// for this part alone, and must not be asked again for bytes beyond it.
    pub(crate) part: Option<u32>,
    /// That part has been asked for, and nothing is sent until it arrives.
    pub(crate) is_part_sent: bool,
    pub(crate) retransmit: RetransmitState,
    /// How many packets may be in flight, in either direction, beside those that have come behind a
    /// loss.
    pub(crate) congestion: Congestion,
    pub(crate) tlp: TailLossProbe,
    /// Packets since an acknowledgement was last asked for, and the sequence number of that.
    pub(crate) since_ack_request: u32,
    pub(crate) ack_requested: u32,
}

impl<H: Host> RequesterState<H> {
    /// Of a queue pair that has not been used. Not inlined, so that it is made where its caller
    /// wants it.
    #[inline(never)]
    pub(crate) fn new(records: Records<H>) -> Self {
        Self {
            records,
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
            full_until: None,
            part: None,
            is_part_sent: false,
            retransmit: RetransmitState::NEW,
            congestion: Congestion::NEW,
            tlp: TailLossProbe::default(),
            since_ack_request: 0,
            ack_requested: 0,
        }
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
        self.forget_path();
        self.since_ack_request = 0;
    }

    /// The peer has another address: nothing is known of the path to it.
    pub(crate) fn forget_path(&mut self) {
        self.congestion = Congestion::NEW;
        self.tlp = TailLossProbe::default();
    }

    /// Requests that are on their way, the next one to be taken being in slot `consumer`.
    pub(crate) fn outstanding(&self, consumer: u32) -> u32 {
        consumer.wrapping_sub(self.oldest)
    }

    /// No request is sent at present, whatever there is to be sent.
    pub(crate) fn is_paused(&self) -> bool {
        self.rnr_until.is_some() || self.full_until.is_some()
    }

    /// The record of the request of slot `index`.
    #[inline]
    pub(crate) fn record(&self, index: u32) -> Option<&Record> {
        self.records.get((index % REQUESTS) as usize)
    }

    /// As [`RequesterState::record`], to be changed.
    #[inline]
    pub(crate) fn record_mut(&mut self, index: u32) -> Option<&mut Record> {
        self.records.get_mut((index % REQUESTS) as usize)
    }

    /// The sequence number of the next packet, which is one of this request.
    pub(crate) fn next_psn(&self, record: &Record, mtu: Mtu) -> u32 {
        let sent = if record.has_response() {
            record.done
        } else {
            self.offset
        };
        psn::advance(record.psn, sent.wrapping_shr(mtu.shift()))
    }

    /// The packet of this sequence number, which has not been acknowledged, is sent next.
    pub(crate) fn seek(&mut self, psn: u32, consumer: u32, mtu: Mtu) {
        self.loaded = None;
        let mut index = self.oldest;
        while index != consumer {
            let Some(record) = self.record(index) else {
                break;
            };
            let ahead = psn::distance(record.psn, psn);
            let is_waiting = record.is_local() && !record.is_registered();
            if is_waiting || record.failed.is_some() || ahead < record.packets {
                let sends_bytes = !record.is_local() && !record.has_response();
                self.offset = if sends_bytes && record.failed.is_none() {
                    ahead.wrapping_shl(mtu.shift())
                } else {
                    0
                };
                break;
            }
            index = index.wrapping_add(1);
        }
        if index == consumer {
            self.offset = 0;
        }
        self.sending = index;
        self.is_part_sent = false;
    }

    /// The next request is sent next.
    pub(crate) fn advance(&mut self) {
        self.sending = self.sending.wrapping_add(1);
        self.offset = 0;
        self.loaded = None;
    }

    /// Whether the oldest packet that has not been acknowledged is the next one to be sent.
    pub(crate) fn is_back(&self, mtu: Mtu) -> bool {
        self.sending == self.oldest
            && !self.is_part_sent
            && self
                .record(self.sending)
                .is_some_and(|record| self.next_psn(record, mtu) == self.snd_una)
    }

    /// Where the requester stands, if it has nothing to send again.
    pub(crate) fn front(&self, consumer: u32, mtu: Mtu) -> Option<SendPosition> {
        let is_front = self.sending == consumer
            || self.is_part_sent
            || self
                .record(self.sending)
                .is_some_and(|record| self.next_psn(record, mtu) == self.snd_nxt);
        is_front.then_some(self.position())
    }

    /// Where the requester stands.
    pub(crate) fn position(&self) -> SendPosition {
        SendPosition {
            sending: self.sending,
            offset: self.offset,
            is_part_sent: self.is_part_sent,
        }
    }

    /// Ends a selective retransmit, if there is one, and the requester resumes where it was. `psn`
    /// is the packet that has been sent again; `None`: no packet was, since none is missing any
    /// more.
    pub(crate) fn end_retransmit(&mut self, psn: Option<u32>) {
        let Some(position) = self.retransmit.resume.take() else {
            return;
        };
        // The newest packet has nothing behind it that the peer could have buffered.
        if psn.is_none_or(|psn| psn::advance(psn, 1) != self.snd_nxt) {
            self.retransmit.retransmitted = psn.filter(|_| self.retransmit.hole_end.is_none());
        }
        self.retransmit.hole_end = None;
        self.sending = position.sending;
        self.offset = position.offset;
        // The part may have come meanwhile.
        self.is_part_sent = position.is_part_sent && self.part.is_some();
        self.loaded = None;
    }
}
