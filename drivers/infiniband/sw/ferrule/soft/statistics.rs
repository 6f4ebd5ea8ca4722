// SPDX-License-Identifier: GPL-2.0

//! The counters that `rdma statistic` shows of a port, and those of its performance management agent.

use kernel::sync::atomic::Relaxed;
use rdma::{
    pma::PortCounters,
    stats::Counter, //
};

use super::{
    core::Core,
    policy::inspect,
    shared::Shared, //
};

macro_rules! statistics {
    ($($name:literal: |$engine:ident, $core:ident| $value:expr;)*) => {
        /// The counters, in the order of [`Shared::read_statistics`].
        pub(crate) const COUNTERS: &[Counter] = &[$(Counter::new($name)),*];

        impl Shared {
            /// Tells the values of the counters. Process context.
            pub(crate) fn read_statistics(&self, values: &mut [u64]) {
                let mut engine = Default::default();
                inspect(&self.core, |shard| shard.add_counters(&mut engine));
                let core = &**self.core;
                // Each goes to its place at once, since an array of them would be large for the stack.
                let mut places = values.iter_mut();
                $(if let Some(place) = places.next() {
                    let ($engine, $core) = (&engine, core);
                    let _ = ($engine, $core);
                    *place = $value;
                })*
            }
        }
    };
}

statistics! {
    c"send_requests": |engine, core| engine.requests;
    c"send_errors": |engine, core| engine.request_errors;
    c"responder_errors": |engine, core| engine.responder_errors;
    c"flushed_requests": |engine, core| engine.flushed;
    c"rcvd_messages": |engine, core| engine.messages;
    c"message_bytes": |engine, core| engine.bytes;
    c"completions": |engine, core| engine.completions;
    c"completion_overruns": |engine, core| engine.completion_overruns;
    c"receiver_not_ready": |engine, core| engine.receiver_not_ready;
    c"sequence_errors": |engine, core| engine.sequence_errors;
    c"retries": |engine, core| engine.retries;
    c"unanswered": |engine, core| engine.unanswered;
    c"probes": |engine, core| engine.probes;
    c"dropped": |engine, core| engine.dropped;
    c"sent_pkts": |engine, core| engine.packets_sent;
    c"sent_bytes": |engine, core| engine.bytes_sent;
    c"rcvd_pkts": |engine, core| engine.packets_received.wrapping_add(unseen(core));
    c"rcvd_bytes": |engine, core| engine.bytes_received;
    c"local_pkts": |engine, core| engine.local_packets;
    c"local_bytes": |engine, core| engine.local_bytes;
    c"send_waits": |engine, core| engine.send_waits;
    c"lost_before_device": |engine, core| core.lost.load(Relaxed);
    c"inbox_full": |engine, core| core.inbox_full.load(Relaxed);
    c"not_rocev2": |engine, core| core.not_rocev2.load(Relaxed);
    c"malformed_short": |engine, core| engine.malformed_short;
    c"malformed_version": |engine, core| engine.malformed_version;
    c"malformed_opcode": |engine, core| engine.malformed_opcode;
    c"malformed_length": |engine, core| engine.malformed_length;
    c"icrc_errors": |engine, core| engine.icrc_errors;
    c"pkey_errors": |engine, core| engine.pkey_errors;
    c"unknown_queue_pairs": |engine, core| engine.unknown_queue_pairs;
    c"misdirected": |engine, core| engine.misdirected;
    c"duplicate_request": |engine, core| engine.duplicates;
    c"naks_sent": |engine, core| engine.naks_sent;
    c"naks_received": |engine, core| engine.naks_received;
    c"rcvd_ecn_marked": |engine, core| engine.congestion_marks;
    c"rcvd_cnps": |engine, core| engine.congestion_notifications;
    c"handled_cnps": |engine, core| engine.congestion_notifications_handled;
    c"sent_cnps": |engine, core| engine.congestion_notifications_sent;
}

/// Packets that came and that the engine has not seen.
fn unseen(core: &Core) -> u64 {
    core.inbox_full.load(Relaxed) + core.not_rocev2.load(Relaxed)
}

impl Shared {
    /// Tells what the port has sent and received. Local traffic is both. Process context.
    pub(super) fn port_counters(&self) -> PortCounters {
        let core = &**self.core;
        let mut engine = Default::default();
        inspect(&self.core, |shard| shard.add_counters(&mut engine));
        let unseen = unseen(core);
        let malformed = engine.malformed_short
            + engine.malformed_version
            + engine.malformed_opcode
            + engine.malformed_length;
        PortCounters {
            xmit_data: (engine.bytes_sent + engine.local_bytes) / 4,
            rcv_data: (engine.bytes_received + engine.local_bytes) / 4,
            xmit_packets: engine.packets_sent + engine.local_packets,
            rcv_packets: engine.packets_received + engine.local_packets + unseen,
            multicast_xmit_packets: engine.multicast_sent,
            multicast_rcv_packets: engine.multicast_received,
            rcv_errors: malformed + engine.icrc_errors + unseen,
            xmit_discards: core.lost.load(Relaxed),
        }
    }
}
