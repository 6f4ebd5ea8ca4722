// SPDX-License-Identifier: GPL-2.0

//! The counters that `rdma statistic` shows of a port, and those of its performance management
//! agent.

use core::num::NonZeroU32;

use ferrule_engine::{
    CounterSet,
    Counters,
    Engine,
    Vport, //
};
use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};
use kernel_ext::boxed::boxed;
use rdma::{
    pma::PortCounters,
    stats::Counter, //
};

use super::{
    policy::inspect,
    shards::Shards,
    shared::{
        counted_at,
        errno,
        Shared, //
    }, //
};

/// Counts of the driver itself, of no queue pair.
#[derive(Default)]
struct Unseen {
    lost: u64,
    inbox_full: u64,
    not_rocev2: u64,
}

impl Unseen {
    fn of(shards: &Shards) -> Self {
        let mut unseen = Unseen::default();
        for core in shards.all() {
            unseen.lost = unseen.lost.wrapping_add(core.lost.load(Relaxed));
            unseen.inbox_full = unseen
                .inbox_full
                .wrapping_add(core.inbox_full.load(Relaxed));
            unseen.not_rocev2 = unseen
                .not_rocev2
                .wrapping_add(core.not_rocev2.load(Relaxed));
        }
        unseen
    }

    /// Packets that came and that the engine has not seen.
    fn received(&self) -> u64 {
        self.inbox_full.wrapping_add(self.not_rocev2)
    }
}

macro_rules! statistics {
    ($($name:literal: |$engine:ident, $unseen:ident| $value:expr;)*) => {
        /// The counters, in the order of [`Shared::read_statistics`].
        pub(crate) const COUNTERS: &[Counter] = &[$(Counter::new($name)),*];

        /// Puts the values of the counters to their places.
        fn fill(engine: &Counters, unseen: &Unseen, values: &mut [u64]) {
            // Each goes there at once, since an array of them would be large for the stack.
            let mut places = values.iter_mut();
            $(if let Some(place) = places.next() {
                let ($engine, $unseen) = (engine, unseen);
                let _ = ($engine, $unseen);
                *place = $value;
            })*
        }
    };
}

impl Shared {
    /// Tells the values of the counters, without those of sets. Process context.
    pub(crate) fn read_statistics(&self, values: &mut [u64]) {
        let mut engine = Default::default();
        for core in self.shards.all() {
            inspect(core, |shard| shard.add_unbound_counters(&mut engine));
        }
        fill(&engine, &Unseen::of(&self.shards), values);
    }

    /// The same of a set. Process context.
    pub(super) fn read_statistics_of_set(&self, set: NonZeroU32, values: &mut [u64]) -> Result {
        let mut engine = Default::default();
        let set = counted_at(set).map_err(errno)?;
        inspect(self.shards.main(), |shard| {
            shard.add_counters_of_set(set, &mut engine)
        })
        .map_err(errno)?;
        fill(&engine, &Unseen::default(), values);
        Ok(())
    }

    /// Makes a set of counters, and returns its number.
    pub(super) fn new_counter_set(&self) -> Result<NonZeroU32> {
        let set = boxed(|| CounterSet::new(Vport::default()), GFP_KERNEL)?;
        let set = self.add_boxed(None, set, Engine::add_counter_set)?;
        NonZeroU32::new(set.number()).ok_or(EINVAL)
    }

    /// Takes back a set of counters.
    pub(super) fn remove_set(&self, set: NonZeroU32) {
        self.removed(None, |engine| engine.remove_counter_set(counted_at(set)?));
    }
}

statistics! {
    c"send_requests": |engine, unseen| engine.requests;
    c"send_errors": |engine, unseen| engine.request_errors;
    c"responder_errors": |engine, unseen| engine.responder_errors;
    c"flushed_requests": |engine, unseen| engine.flushed;
    c"rcvd_messages": |engine, unseen| engine.messages;
    c"message_bytes": |engine, unseen| engine.bytes;
    c"completions": |engine, unseen| engine.completions;
    c"completion_overruns": |engine, unseen| engine.completion_overruns;
    c"receiver_not_ready": |engine, unseen| engine.receiver_not_ready;
    c"sequence_errors": |engine, unseen| engine.sequence_errors;
    c"retries": |engine, unseen| engine.retries;
    c"unanswered": |engine, unseen| engine.unanswered;
    c"probes": |engine, unseen| engine.probes;
    c"dropped": |engine, unseen| engine.dropped;
    c"sent_pkts": |engine, unseen| engine.packets_sent;
    c"sent_bytes": |engine, unseen| engine.bytes_sent;
    c"rcvd_pkts": |engine, unseen| engine.packets_received.wrapping_add(unseen.received());
    c"rcvd_bytes": |engine, unseen| engine.bytes_received;
    c"local_pkts": |engine, unseen| engine.local_packets;
    c"local_bytes": |engine, unseen| engine.local_bytes;
    c"send_waits": |engine, unseen| engine.send_waits;
    c"lost_before_device": |engine, unseen| unseen.lost;
    c"inbox_full": |engine, unseen| unseen.inbox_full;
    c"not_rocev2": |engine, unseen| unseen.not_rocev2;
    c"malformed_short": |engine, unseen| engine.malformed_short;
    c"malformed_version": |engine, unseen| engine.malformed_version;
    c"malformed_opcode": |engine, unseen| engine.malformed_opcode;
    c"malformed_length": |engine, unseen| engine.malformed_length;
    c"icrc_errors": |engine, unseen| engine.icrc_errors;
    c"pkey_errors": |engine, unseen| engine.pkey_errors;
    c"unknown_queue_pairs": |engine, unseen| engine.unknown_queue_pairs;
    c"misdirected": |engine, unseen| engine.misdirected;
    c"duplicate_request": |engine, unseen| engine.duplicates;
    c"naks_sent": |engine, unseen| engine.naks_sent;
    c"naks_received": |engine, unseen| engine.naks_received;
    c"rcvd_ecn_marked": |engine, unseen| engine.congestion_marks;
    c"rcvd_cnps": |engine, unseen| engine.congestion_notifications;
    c"handled_cnps": |engine, unseen| engine.congestion_notifications_handled;
    c"sent_cnps": |engine, unseen| engine.congestion_notifications_sent;
}

impl Shared {
    /// Tells what the port has sent and received. Local traffic is both. Process context.
    pub(super) fn port_counters(&self) -> PortCounters {
        let mut engine = Default::default();
        for core in self.shards.all() {
            inspect(core, |shard| shard.add_counters(&mut engine));
        }
        let unseen = Unseen::of(&self.shards);
        let malformed = engine.malformed_short
            + engine.malformed_version
            + engine.malformed_opcode
            + engine.malformed_length;
        PortCounters {
            xmit_data: (engine.bytes_sent + engine.local_bytes) / 4,
            rcv_data: (engine.bytes_received + engine.local_bytes) / 4,
            xmit_packets: engine.packets_sent + engine.local_packets,
            rcv_packets: engine.packets_received + engine.local_packets + unseen.received(),
            multicast_xmit_packets: engine.multicast_sent,
            multicast_rcv_packets: engine.multicast_received,
            rcv_errors: malformed + engine.icrc_errors + unseen.received(),
            xmit_discards: unseen.lost,
        }
    }
}
