// SPDX-License-Identifier: GPL-2.0

//! State of the responder for a remote peer: its requests, until it has had the responses.

use crate::{
    base::{
        attr::MAX_RD_ATOMIC,
        host::Host,
        psn, //
    },
    packet::{
        opcode::{
            Kind,
            OpcodeInfo,
            Position, //
        },
        Syndrome, //
    },
    queue_pair::{
        qp_core::QpCore,
        remote::gap::Gap, //
    },
};

/// How far apart sequence numbers may be that are in use (IBA volume 1, 9.7.2).
pub(crate) const SPAN: u32 = 1 << 23;

/// Once in so many packets, a power of two and half of [`SPAN`], what is too old is forgotten.
const STALE_CHECK: u32 = 1 << 22;

/// A responder resource: a request of the peer that has a response of its own (a READ, an atomic
/// operation, an ATOMIC WRITE or a FLUSH).
#[derive(Clone, Copy, Default)]
pub(crate) struct Resource {
    /// The kind of the request.
    pub(crate) kind: Option<Kind>,
    pub(crate) psn: u32,
    pub(crate) packets: u32,
    /// Messages carried out with this one (24 bits): the MSN in all packets of the response.
    pub(crate) msn: u32,
    /// The range that the request names, and the length of the response. A duplicate READ is
    /// compared with it; others do not use the range.
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
    pub(crate) length: u32,
    /// Over XRC, the shared receive queue that the request names.
    pub(crate) srq: u32,
    /// The sequence number of the response's next packet, and that of its first one.
    pub(crate) next: u32,
    pub(crate) start: u32,
    /// Packets of it that the peer asks for again, but not those behind them: the next one, the
    /// first one, and that after the last one.
    pub(crate) again: Option<(u32, u32, u32)>,
    /// The value that an atomic operation found.
    pub(crate) found: Option<u64>,
    /// The response is under way.
    pub(crate) active: bool,
    /// The response has been sent in full at least once.
    pub(crate) responded: bool,
}

impl Resource {
    /// Something of it is to be sent.
    pub(crate) fn is_due(&self) -> bool {
        self.active || self.again.is_some()
    }

    /// Nothing of it is to be sent any more.
    pub(crate) fn stop(&mut self) {
        self.active = false;
        self.again = None;
    }

    /// The range of packets that is being sent: the next PSN, the first one, and the one behind the
    /// last. A range that the peer asks for again goes first, since the peer cannot use the later
    /// ones before it.
    pub(crate) fn next(&self) -> (u32, u32, u32) {
        let end = psn::advance(self.psn, self.packets);
        self.again.unwrap_or((self.next, self.start, end))
    }

    /// That packet has been sent.
    pub(crate) fn sent(&mut self) {
        let (psn, first, end) = self.next();
        let next = psn::advance(psn, 1);
        let is_last = next == end;
        if self.again.is_some() {
            self.again = (!is_last).then_some((next, first, end));
        } else {
            self.next = next;
            self.active = !is_last;
            self.responded |= is_last;
        }
    }
}

/// The responder resources of a queue pair.
pub(crate) type Resources<H> = <H as Host>::Box<[Resource; MAX_RD_ATOMIC as usize]>;

/// The responder's knowledge of a remote peer, beyond its need for local ones.
pub(crate) struct ResponderState<H: Host> {
    /// Messages carried out (24 bits).
    pub(crate) msn: u32,
    /// The last packet carried out that the acknowledgement of an earlier one may name.
    ///
    /// The specification allows any packet. rdma_rxe breaks in two cases. It takes the
    /// acknowledgement of a READ or an atomic operation for the response. And when it repeats a
    /// message of several packets, an acknowledgement of the last one before it has sent that one
    /// again neither completes the message nor leaves anything to be repeated: if the next
    /// acknowledgement is lost, rdma_rxe waits for ever. So the last packet of such a message is
    /// acknowledged only if it asks itself.
    pub(crate) last_coalescable: Option<u32>,
    /// Packets are missing, or the peer is to send a packet again later.
    pub(crate) gap: Gap,
    /// The PSN of the last RNR NAK, and a time. A copy of the packet that arrives earlier was sent
    /// before the NAK had reached the peer.
    pub(crate) rnr_nak: Option<(u32, u64)>,
    /// The last NAK that was sent, and its packet, while packets are buffered that the peer may
    /// send again for it.
    pub(crate) nak: Option<(u32, Syndrome)>,
    /// The reorder buffer of requests.
    pub(crate) reorder: H::Reorder,
    /// A request was refused: the queue pair enters ERR as soon as the NAK has been sent.
    pub(crate) error_after_nak: bool,
    /// Address and key from the RETH or AtomicETH of the message at hand, its length, and its bytes
    /// so far.
    pub(crate) target: (u64, u32),
    pub(crate) total: u32,
    pub(crate) offset_in: u32,
    /// The acknowledgement or NAK that is to be sent, and its sequence number.
    pub(crate) pending_ack: Option<(u32, Syndrome)>,
    pub(crate) resources: Resources<H>,
    /// The resource that is used next.
    next_resource: u8,
}

impl<H: Host> ResponderState<H> {
    /// Of a queue pair that has not been used. Not inlined, so that it is made where its caller
    /// wants it.
    #[inline(never)]
    pub(crate) fn new(resources: Resources<H>) -> Self {
        Self {
            msn: 0,
            last_coalescable: None,
            gap: Gap::default(),
            rnr_nak: None,
            nak: None,
            reorder: H::Reorder::default(),
            error_after_nak: false,
            target: (0, 0),
            total: 0,
            offset_in: 0,
            pending_ack: None,
            resources,
            next_resource: 0,
        }
    }

    /// Forgets what [`ResponderState::stop`] leaves, as in RESET.
    pub(crate) fn reset(&mut self) {
        self.msn = 0;
        self.last_coalescable = None;
        self.gap = Gap::default();
        self.rnr_nak = None;
        self.nak = None;
        self.error_after_nak = false;
        self.target = (0, 0);
        self.total = 0;
        self.offset_in = 0;
        *self.resources = [Resource::default(); MAX_RD_ATOMIC as usize];
        self.next_resource = 0;
    }

    /// Packet `psn` of a request has been carried out. `asks`: it asks for an acknowledgement.
    pub(crate) fn executed(&mut self, psn: u32, info: &OpcodeInfo, asks: bool) {
        if info.position.ends() {
            self.msn = psn::advance(self.msn, 1);
        }
        let is_data = info.kind.has_response();
        if !is_data {
            self.forget_stale(psn, 1);
            self.last_coalescable = Some(match info.position {
                Position::Last => psn::before(psn),
                Position::First | Position::Middle | Position::Only => psn,
            });
        }
        self.withdraw_refusal();
        if !is_data && asks {
            self.pending_ack = Some((psn, Syndrome::Acknowledge(0)));
        }
    }

    /// After an RNR NAK the peer sends again all behind the refused packet, too, and not that
    /// packet alone.
    pub(crate) fn peer_goes_back(&self) -> bool {
        matches!(self.nak, Some((_, Syndrome::RnrNak(_))))
    }

    /// Packet `psn` of a response with data has been sent. It acknowledges all before it, and
    /// responses leave in the order of the requests (IBA volume 1, 9.7.5.1.1), so an
    /// acknowledgement of an earlier packet is dropped.
    pub(crate) fn drop_ack_before(&mut self, psn: u32) {
        if let Some((last, Syndrome::Acknowledge(_))) = self.pending_ack {
            if psn::is_ahead(psn, last) {
                self.pending_ack = None;
            }
        }
    }

    /// The packet that a NAK was to report has been taken after all. An acknowledgement of the
    /// packets before it takes the place of the NAK.
    fn withdraw_refusal(&mut self) {
        if !matches!(self.pending_ack, None | Some((_, Syndrome::Acknowledge(_)))) {
            self.pending_ack = self
                .last_coalescable
                .map(|last_coalescable| (last_coalescable, Syndrome::Acknowledge(0)));
        }
    }

    /// Nothing is to be sent any more.
    pub(crate) fn stop(&mut self) {
        self.pending_ack = None;
        for resource in self.resources.iter_mut() {
            resource.stop();
        }
    }

    /// The place of a resource for one more request that takes one: that of the oldest one, if its
    /// response has been sent. So the requests that a peer may still repeat keep theirs.
    ///
    /// No more may wait for their responses than the peer was promised resources (9.4.4). A FLUSH
    /// is not counted: rdma_rxe counts none of those that it has under way (`check_init_depth`).
    pub(crate) fn free_place(&self, core: &QpCore<H>, kind: Kind) -> Option<usize> {
        let is_waiting = |resource: &Resource| resource.active && !resource.responded;
        let is_counted = |resource: &Resource| {
            u8::from(is_waiting(resource) && resource.kind != Some(Kind::Flush))
        };
        let counted = self.resources.iter().map(is_counted);
        let counted = counted.fold(0, u8::saturating_add);
        if kind != Kind::Flush && counted >= core.attr.max_dest_rd_atomic {
            return None;
        }
        let place = usize::from(self.next_resource);
        let oldest = self.resources.get(place);
        oldest.filter(|oldest| !is_waiting(oldest)).map(|_| place)
    }

    /// A request of so many packets from `psn` on is carried out: forgets what is too old, now and
    /// then.
    #[inline]
    fn forget_stale(&mut self, psn: u32, packets: u32) {
        let since = psn & STALE_CHECK.wrapping_sub(1);
        if since.wrapping_add(packets) >= STALE_CHECK {
            self.forget_before(psn);
            self.forget_before(psn::advance(psn, packets));
        }
    }

    /// Forgets requests whose responses nobody can wait for any more when packet `psn` comes: soon
    /// their numbers are those of others. And before the last packet that may be acknowledged seems
    /// to lie ahead, since only requests without a response renew it.
    #[cold]
    fn forget_before(&mut self, psn: u32) {
        self.last_coalescable
            .take_if(|last| psn::distance(*last, psn) >= STALE_CHECK);
        for resource in self.resources.iter_mut() {
            if psn::distance(resource.psn, psn) >= SPAN {
                *resource = Resource::default();
            }
        }
    }

    /// Adds a resource in a [`free_place`](Self::free_place).
    pub(crate) fn add_resource(&mut self, place: usize, resource: Resource) {
        self.forget_stale(resource.psn, resource.packets);
        if let Some(oldest) = self.resources.get_mut(place) {
            *oldest = resource;
        }
        self.next_resource = place.wrapping_add(1) as u8 % MAX_RD_ATOMIC;
    }

    /// Whether a response has been sent in full at least once.
    pub(crate) fn has_responded(&self, place: usize) -> bool {
        self.resources
            .get(place)
            .is_some_and(|resource| resource.responded)
    }
}
