// SPDX-License-Identifier: GPL-2.0

//! What is known of the requests of a peer that is elsewhere, until it has had its answers.

use crate::{
    base::{
        attr::MAX_RD_ATOMIC,
        host::Host,
        psn, //
    },
    packet::Syndrome,
    queue_pair::{
        core::Core,
        remote::gap::Gap, //
    },
};

/// How far apart sequence numbers may be that are in use (IBA volume 1, 9.7.2).
pub(crate) const SPAN: u32 = 1 << 23;

/// Once in so many packets, a power of two, resources are looked at that are too old.
const LOOK: u32 = 1 << 22;

/// A request of the peer that is answered with data.
#[derive(Clone, Copy, Default)]
pub(crate) struct Resource {
    pub(crate) psn: u32,
    pub(crate) packets: u32,
    /// Messages carried out with this one (24 bits), which all packets of the answer tell.
    pub(crate) msn: u32,
    /// What is read; of an atomic operation nothing.
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
    pub(crate) length: u32,
    /// The sequence number with which the answer goes on, and that with which it began.
    pub(crate) next: u32,
    pub(crate) start: u32,
    /// Packets of it that are asked for again, though what is behind them is not: the next one, the
    /// first one, and that after the last one.
    pub(crate) again: Option<(u32, u32, u32)>,
    /// What an atomic operation found.
    pub(crate) found: Option<u64>,
    /// The answer is under way.
    pub(crate) active: bool,
    /// The answer has been given in full at least once.
    pub(crate) answered: bool,
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

    /// The packet that is to be sent next, and the first of those that it belongs to, and the one behind
    /// these. What is asked for again is waited for by what came behind it, and goes first.
    pub(crate) fn next(&self) -> (u32, u32, u32) {
        let end = psn::advance(self.psn, self.packets);
        self.again.unwrap_or((self.next, self.start, end))
    }

    /// That packet has been sent.
    pub(crate) fn sent(&mut self) {
        let (number, first, end) = self.next();
        let next = psn::advance(number, 1);
        let is_last = next == end;
        if self.again.is_some() {
            self.again = (!is_last).then_some((next, first, end));
        } else {
            self.next = next;
            self.active = !is_last;
            self.answered |= is_last;
        }
    }
}

/// What a queue pair needs to answer a peer that is elsewhere, beyond what it needs for local peers.
pub(crate) struct Responses<H: Host> {
    /// Messages carried out (24 bits).
    pub(crate) msn: u32,
    /// The last packet carried out that the acknowledgement of an earlier one may name.
    ///
    /// By the specification that could be any, but not every peer bears it. rdma_rxe takes the
    /// acknowledgement of what is answered with data for the answer. And when it is sending a message of
    /// several packets again and hears of the last one, which it has not sent yet, then it does not complete
    /// the message, and has nothing more to send again by its account: if the next acknowledgement is lost,
    /// it waits for ever. So the end of such a message is acknowledged to who asks by that packet alone.
    pub(crate) plain: Option<u32>,
    /// Packets are missing, or the peer is to come again later.
    pub(crate) refused: Gap,
    /// The packet of which the peer was told last that there was no receive request for it, and until when
    /// what comes of it was sent before the peer heard that.
    pub(crate) not_ready: Option<(u32, u64)>,
    /// That was told of the packet that is missing, so the peer sends again all behind it, too, and not the
    /// packet alone.
    pub(crate) goes_back: bool,
    /// The reorder buffer of requests.
    pub(crate) reorder: H::Reorder,
    /// A request was refused: the queue pair is in error as soon as the peer has been told.
    pub(crate) gives_up: bool,
    /// Where the write goes that is under way, its length, and the bytes of the message so far.
    pub(crate) target: (u64, u32),
    pub(crate) total: u32,
    pub(crate) offset_in: u32,
    /// What the peer is to be told: up to where, and what.
    pub(crate) answer: Option<(u32, Syndrome)>,
    pub(crate) resources: H::Box<[Resource; MAX_RD_ATOMIC as usize]>,
    /// Which of these is used next.
    next_resource: u8,
}

impl<H: Host> Responses<H> {
    /// Allocates, with [`Host::boxed`]; `None` if there is no memory.
    pub(crate) fn new() -> Option<Self> {
        Some(Self {
            msn: 0,
            plain: None,
            refused: Gap::default(),
            not_ready: None,
            goes_back: false,
            reorder: H::Reorder::default(),
            gives_up: false,
            target: (0, 0),
            total: 0,
            offset_in: 0,
            answer: None,
            resources: H::boxed_array(|_| Resource::default())?,
            next_resource: 0,
        })
    }

    /// Forgets what [`Responses::stop`] leaves, as in RESET.
    pub(crate) fn reset(&mut self) {
        self.msn = 0;
        self.plain = None;
        self.refused = Gap::default();
        self.not_ready = None;
        self.goes_back = false;
        self.gives_up = false;
        self.target = (0, 0);
        self.total = 0;
        self.offset_in = 0;
        *self.resources = [Resource::default(); MAX_RD_ATOMIC as usize];
        self.next_resource = 0;
    }

    /// Packet `number` of an answer with data has been sent. It acknowledges all before it, and answers leave in
    /// the order of the requests (IBA volume 1, 9.7.5.1.1), so an acknowledgement of something before it is not sent any more.
    pub(crate) fn acknowledged_before(&mut self, number: u32) {
        if let Some((last, Syndrome::Acknowledge(_))) = self.answer {
            if psn::is_ahead(number, last) {
                self.answer = None;
            }
        }
    }

    /// What the peer was to be told is missing, or not to be taken yet, has been taken after all. What was
    /// to be acknowledged before it, is.
    pub(crate) fn withdraw_refusal(&mut self) {
        if !matches!(self.answer, None | Some((_, Syndrome::Acknowledge(_)))) {
            self.answer = self.plain.map(|plain| (plain, Syndrome::Acknowledge(0)));
        }
    }

    /// Nothing is to be answered any more.
    pub(crate) fn stop(&mut self) {
        self.answer = None;
        for resource in self.resources.iter_mut() {
            resource.stop();
        }
    }

    /// The place of the resource that is used next: that of the oldest one.
    fn next_place(&self, core: &Core<H>) -> usize {
        let limit = usize::from(core.attr.max_dest_rd_atomic).min(self.resources.len());
        let next = usize::from(self.next_resource);
        if next < limit {
            next
        } else {
            0
        }
    }

    /// Whether the peer may ask for one more answer with data.
    pub(crate) fn has_resource(&self, core: &Core<H>) -> bool {
        self.resources
            .get(self.next_place(core))
            .is_some_and(|resource| !resource.active || resource.answered)
    }

    /// A request of so many packets from `number` on is carried out.
    #[inline]
    pub(crate) fn passed(&mut self, number: u32, packets: u32) {
        let since = number & LOOK.wrapping_sub(1);
        if since.wrapping_add(packets) >= LOOK {
            self.forget_old(number);
            self.forget_old(psn::advance(number, packets));
        }
    }

    /// Forgets requests whose answers nobody can wait for any more when packet `number` comes: soon their
    /// numbers are those of others.
    #[cold]
    fn forget_old(&mut self, number: u32) {
        for resource in self.resources.iter_mut() {
            if psn::distance(resource.psn, number) >= SPAN {
                *resource = Resource::default();
            }
        }
    }

    /// Keeps what is to be answered in the place of the oldest one.
    pub(crate) fn keep(&mut self, core: &Core<H>, resource: Resource) {
        self.passed(resource.psn, resource.packets);
        let place = self.next_place(core);
        if let Some(old) = self.resources.get_mut(place) {
            *old = resource;
        }
        self.next_resource = place.wrapping_add(1) as u8;
    }

    /// Whether a resource's answer has been given in full at least once.
    pub(crate) fn has_answered(&self, place: usize) -> bool {
        self.resources
            .get(place)
            .is_some_and(|resource| resource.answered)
    }
}
