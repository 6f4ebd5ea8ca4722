// SPDX-License-Identifier: GPL-2.0

//! The engine's counters, for each virtual port, and in sets of some of its queue pairs: all begin
//! as 0 and wrap. And the number of objects that it holds.

use core::cell::Cell;

use crate::base::{
    error::{
        Error,
        Refused, //
    },
    event::DropReason,
    host::Host,
    id::{
        CountedAt,
        Vport, //
    }, //
};

/// A count that wraps.
pub(crate) trait Count {
    /// Counts `n` more.
    fn count(&self, n: u64);
}

impl Count for Cell<u64> {
    #[inline]
    fn count(&self, n: u64) {
        self.set(self.get().wrapping_add(n));
    }
}

/// Makes [`Counters`], which are read, and [`Cells`] of the same names, in which the engine counts.
macro_rules! counters {
    ($($(#[$doc:meta])* pub $name:ident: u64,)*) => {
        /// The events so far: in an engine, or at a virtual port.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// Counters that are counted by shared references: a requester's turn counts at its own
        /// virtual port, and at those of its peers.
        #[derive(Default)]
        pub(crate) struct Cells {
            $(pub(crate) $name: Cell<u64>,)*
        }

        impl Cells {
            /// Adds them to a sum, in place: a set of counters is large for a kernel's stack.
            fn add_to(&self, sum: &mut Counters) {
                $(sum.$name = sum.$name.wrapping_add(self.$name.get());)*
            }

            /// Counts all that others have counted.
            fn add(&self, others: &Cells) {
                $(self.$name.count(others.$name.get());)*
            }
        }
    };
}

counters! {
    /// Doorbells that were found rung: the work of scanning is in proportion to these.
    pub doorbells: u64,
    /// Doorbells of queue pairs that do not exist or belong to another context.
    pub stray_doorbells: u64,
    /// Contexts whose count of rings (`rung`) the engine read.
    pub contexts: u64,
    /// Contexts whose doorbell words it then scanned, since the count had changed.
    pub context_scans: u64,
    /// Turns that queue pairs had. A run visits queue pairs by turns, doorbells and timers alone,
    /// so it never looks at one that has nothing to do.
    pub turns: u64,
    /// Timers that fired.
    pub timers: u64,
    /// Send requests taken from rings.
    pub requests: u64,
    /// Messages that responders carried out, of local peers and by packet.
    pub messages: u64,
    /// Bytes of these messages, and those of READ responses sent and received.
    pub bytes: u64,
    /// Copy jobs that turns have left to be carried out.
    pub copy_jobs: u64,
    /// Completions written.
    pub completions: u64,
    /// Completion events raised.
    pub completion_events: u64,
    /// Completions lost because the completion queue had no space.
    pub completion_overruns: u64,
    /// Requests and receive requests that ended with a flush error.
    pub flushed: u64,
    /// Requests that ended with another error.
    pub request_errors: u64,
    /// Messages of a peer that the responder refused, and receive requests of UC and UD that it
    /// ended with an error.
    pub responder_errors: u64,
    /// RNR NAKs that requesters took, whether a wait followed or the retries were used up.
    pub receiver_not_ready: u64,
    /// Packets with another PSN than the expected one: requests at the responder, responses with
    /// data at the requester.
    pub sequence_errors: u64,
    /// Retries that were counted (C9-139): after an ACK timeout, a NAK for a PSN sequence error, or
    /// missing response data.
    pub retries: u64,
    /// ACK timeouts; of a local peer, messages that no queue pair took.
    pub unanswered: u64,
    /// Tail-loss probes sent.
    pub probes: u64,
    /// Producer indices that were further ahead than the ring is deep.
    pub producer_jumps: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Their bytes, from the IP header to the invariant CRC.
    pub bytes_sent: u64,
    /// Those of them that were sent to a multicast group.
    pub multicast_sent: u64,
    /// Times that a queue pair had as much on its way to the network as it may have, and began to
    /// wait for space.
    pub send_waits: u64,
    /// Packets that came to port 4791.
    pub packets_received: u64,
    /// Their bytes, from the IP header to the invariant CRC.
    pub bytes_received: u64,
    /// Those of them that were sound datagrams to a multicast group.
    pub multicast_received: u64,
    /// Packets received that are too short for their headers.
    pub malformed_short: u64,
    /// Packets of another version of the transport header.
    pub malformed_version: u64,
    /// Packets with an opcode that does not exist.
    pub malformed_opcode: u64,
    /// Packets with a payload that the opcode does not have, or with a wrong pad count.
    pub malformed_length: u64,
    /// Packets with a wrong invariant CRC.
    pub icrc_errors: u64,
    /// Packets with a P_Key of another partition.
    pub pkey_errors: u64,
    /// Packets for queue pairs that do not exist.
    pub unknown_queue_pairs: u64,
    /// Packets for queue pairs of another service or with another peer.
    pub misdirected: u64,
    /// Duplicate requests and responses.
    pub duplicates: u64,
    /// NAKs sent, RNR NAKs included.
    pub naks_sent: u64,
    /// NAKs received, RNR NAKs not included.
    pub naks_received: u64,
    /// Packets received with the ECN mark of congestion experienced.
    pub congestion_marks: u64,
    /// Congestion notification packets received.
    pub congestion_notifications: u64,
    /// Those of them that were handed to a reliable connection, whose window they may make smaller.
    pub congestion_notifications_handled: u64,
    /// Congestion notification packets sent.
    pub congestion_notifications_sent: u64,
    /// Packets that the messages between local queue pairs would have been, counted as responders
    /// take them: those of the data, and one for the request of a READ or an atomic operation.
    pub local_packets: u64,
    /// Bytes that were copied for messages between local queue pairs.
    pub local_bytes: u64,
    /// Messages of unreliable services that were dropped, at each of a group's receivers, or their
    /// packets; packets for other reasons that have no counter of their own (`of_drop`); duplicate
    /// READs whose memory is gone.
    pub dropped: u64,
    /// Datagrams of these whose Q_Key was not the receiver's.
    pub qkey_violations: u64,
}

impl Cells {
    /// The one that counts packets that are dropped for such a reason.
    pub(crate) fn of_drop(&self, reason: DropReason) -> &Cell<u64> {
        match reason {
            DropReason::Short => &self.malformed_short,
            DropReason::Version => &self.malformed_version,
            DropReason::Opcode => &self.malformed_opcode,
            DropReason::Length => &self.malformed_length,
            DropReason::Icrc => &self.icrc_errors,
            DropReason::Pkey => &self.pkey_errors,
            DropReason::UnknownQueuePair => &self.unknown_queue_pairs,
            DropReason::Misdirected => &self.misdirected,
            DropReason::Duplicate => &self.duplicates,
            DropReason::NotReady
            | DropReason::Syndrome
            | DropReason::Unexpected
            | DropReason::OutOfSequence
            | DropReason::Qkey
            | DropReason::NoReceive
            | DropReason::Absent
            | DropReason::TooLong
            | DropReason::Refused => &self.dropped,
        }
    }
}

/// The places where something counts: the virtual ports, and behind them the sets.
const PLACES: usize = Vport::LIMIT as usize + CountedAt::SETS as usize;

/// The counters of one place: of a virtual port, or a set of counters for some of the queue pairs
/// at one.
///
/// A queue pair counts at its port, or instead in the set that it is bound to. So to count in sets
/// costs nothing where it is counted, and the sum of all is what the port has seen.
pub struct CounterSet {
    cells: Cells,
    /// The port; of a set, that of its queue pairs.
    vport: Vport,
    /// Of a set, the queue pairs that are bound to it. Of a port it tells nothing.
    users: u32,
}

impl CounterSet {
    /// A set for queue pairs of a virtual port, to be handed to
    /// [`Engine::add_counter_set`](crate::Engine::add_counter_set).
    pub fn new(vport: Vport) -> Self {
        Self {
            cells: Cells::default(),
            vport,
            users: 0,
        }
    }
}

/// The counters of all virtual ports and sets.
pub(crate) struct PortCounters<H: Host> {
    places: H::Box<[Option<H::Box<CounterSet>>; PLACES]>,
    /// Counts of sets that are gone, of all virtual ports.
    gone: H::Box<Cells>,
    /// Counts of the search for doorbells, which belong to no port.
    common: Cells,
}

impl<H: Host> PortCounters<H> {
    /// The counters of `vports` ports, without sets; `None` if there is no memory.
    pub(crate) fn new(vports: u8) -> Option<Self> {
        let mut places = H::boxed_array(|_| None)?;
        for (number, place) in (0..vports).zip(places.iter_mut()) {
            *place = Some(H::boxed(|| CounterSet::new(Vport(number)))?);
        }
        Some(Self {
            places,
            gone: H::boxed(Cells::default)?,
            common: Cells::default(),
        })
    }

    /// The counters of a place.
    #[inline]
    pub(crate) fn of(&self, place: impl Into<CountedAt>) -> &Cells {
        match self.places.get(usize::from(place.into())) {
            Some(Some(place)) => &place.cells,
            _ => &self.common,
        }
    }

    /// Those of no port.
    #[inline]
    pub(crate) fn common(&self) -> &Cells {
        &self.common
    }

    /// The counters of a port, without those of its sets.
    #[inline(never)]
    pub(crate) fn read(&self, vport: Vport) -> Counters {
        let mut sum = Counters::default();
        self.of(vport).add_to(&mut sum);
        sum
    }

    /// Adds what was counted in all to a sum.
    #[inline(never)]
    pub(crate) fn add_to(&self, sum: &mut Counters) {
        self.common.add_to(sum);
        self.gone.add_to(sum);
        for place in self.places.iter().flatten() {
            place.cells.add_to(sum);
        }
    }

    /// Adds what was counted in no set to a sum.
    #[inline(never)]
    pub(crate) fn add_unbound_to(&self, sum: &mut Counters) {
        self.common.add_to(sum);
        let ports = self.places.iter().take(Vport::LIMIT.into());
        for port in ports.flatten() {
            port.cells.add_to(sum);
        }
    }

    /// Adds what was counted in a set to a sum.
    #[inline(never)]
    pub(crate) fn add_set_to(&self, set: CountedAt, sum: &mut Counters) -> Result<(), Error> {
        let place = self.places.get(usize::from(set)).and_then(Option::as_ref);
        place.ok_or(Error::NotFound)?.cells.add_to(sum);
        Ok(())
    }

    /// Adds a set.
    pub(crate) fn add(
        &mut self,
        set: H::Box<CounterSet>,
    ) -> Result<CountedAt, Refused<H::Box<CounterSet>>> {
        let mut sets = (1..=CountedAt::SETS).filter_map(|n| CountedAt::from_number(n.into()));
        let free = sets.find(|&set| matches!(self.places.get(usize::from(set)), Some(None)));
        if let Some(number) = free {
            if let Some(place) = self.places.get_mut(usize::from(number)) {
                *place = Some(set);
                return Ok(number);
            }
        }
        Err(Refused {
            error: Error::Full,
            object: set,
        })
    }

    /// Whether there is a set.
    pub(crate) fn has_sets(&self) -> bool {
        let sets = self.places.iter().skip(Vport::LIMIT.into());
        sets.flatten().next().is_some()
    }

    /// Removes a set that no queue pair is bound to. Its counts stay in the sum of all.
    pub(crate) fn remove(&mut self, set: CountedAt) -> Result<H::Box<CounterSet>, Error> {
        let place = self
            .places
            .get_mut(usize::from(set))
            .ok_or(Error::NotFound)?;
        if place.as_ref().is_some_and(|set| set.users != 0) {
            return Err(Error::Busy);
        }
        let set = place.take().ok_or(Error::NotFound)?;
        self.gone.add(&set.cells);
        Ok(set)
    }

    /// A queue pair of a virtual port that counted at `from` counts at `to` from now on.
    pub(crate) fn bind(
        &mut self,
        vport: Vport,
        from: CountedAt,
        to: CountedAt,
    ) -> Result<(), Error> {
        let place = self
            .places
            .get_mut(usize::from(to))
            .and_then(Option::as_mut);
        let place = place.filter(|place| place.vport == vport);
        let place = place.ok_or(Error::NotFound)?;
        place.users = place.users.wrapping_add(1);
        self.unbind(from);
        Ok(())
    }

    /// A queue pair counts here no more.
    pub(crate) fn unbind(&mut self, from: CountedAt) {
        if let Some(Some(place)) = self.places.get_mut(usize::from(from)) {
            place.users = place.users.wrapping_sub(1);
        }
    }
}

/// How many objects of each kind an engine holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Objects {
    /// User contexts.
    pub user_contexts: u32,
    /// Protection domains, if the host takes their numbers from the engine.
    pub protection_domains: u32,
    /// Memory regions.
    pub regions: u32,
    /// Memory windows.
    pub windows: u32,
    /// Completion queues.
    pub completion_queues: u32,
    /// Shared receive queues.
    pub shared_receive_queues: u32,
    /// Queue pairs.
    pub queue_pairs: u32,
    /// Address handles.
    pub address_handles: u32,
    /// Multicast groups that somebody is attached to.
    pub groups: u32,
}

impl Objects {
    /// Adds those of another engine of the device.
    pub fn add(&mut self, other: &Self) {
        let Self {
            user_contexts,
            protection_domains,
            regions,
            windows,
            completion_queues,
            shared_receive_queues,
            queue_pairs,
            address_handles,
            groups,
        } = self;
        for (sum, count) in [
            (user_contexts, other.user_contexts),
            (protection_domains, other.protection_domains),
            (regions, other.regions),
            (windows, other.windows),
            (completion_queues, other.completion_queues),
            (shared_receive_queues, other.shared_receive_queues),
            (queue_pairs, other.queue_pairs),
            (address_handles, other.address_handles),
            (groups, other.groups),
        ] {
            *sum = sum.wrapping_add(count);
        }
    }
}
