// SPDX-License-Identifier: GPL-2.0

//! The counters that `rdma statistic` shows of a port.

use kernel::sync::atomic::Relaxed;
use rdma::stats::Counter;

use super::{
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
    c"rcvd_bytes": |engine, core| engine.bytes;
    c"completions": |engine, core| engine.completions;
    c"completion_overruns": |engine, core| engine.completion_overruns;
    c"receiver_not_ready": |engine, core| engine.receiver_not_ready;
    c"sequence_errors": |engine, core| engine.sequence_errors;
    c"retries": |engine, core| engine.retries;
    c"unanswered": |engine, core| engine.unanswered;
    c"probes": |engine, core| engine.probes;
    c"dropped": |engine, core| engine.dropped;
    c"sent_pkts": |engine, core| engine.packets_sent;
    c"rcvd_pkts": |engine, core| {
        let unseen = core.inbox_full.load(Relaxed) + core.not_rocev2.load(Relaxed);
        engine.packets_received.wrapping_add(unseen)
    };
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
