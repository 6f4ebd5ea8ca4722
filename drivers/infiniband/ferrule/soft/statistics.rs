// SPDX-License-Identifier: GPL-2.0

//! The counters that `rdma statistic` shows of a port.

use kernel::sync::atomic::Relaxed;
use rdma::stats::Counter;

use super::{
    policy::inspect,
    Shared, //
};

macro_rules! statistics {
    ($($name:literal: |$engine:ident, $core:ident| $value:expr;)*) => {
        /// The counters, in the order of [`Shared::read_statistics`].
        pub(crate) const COUNTERS: &[Counter] = &[$(Counter::new($name)),*];

        impl Shared {
            /// Tells the values of the counters. Process context.
            pub(crate) fn read_statistics(&self, values: &mut [u64]) {
                let engine = inspect(&self.core, |engine| *engine.counters());
                let core = &**self.core;
                let all = [$({
                    let ($engine, $core) = (&engine, core);
                    let _ = ($engine, $core);
                    $value
                }),*];
                for (value, now) in values.iter_mut().zip(all) {
                    *value = now;
                }
            }
        }
    };
}

statistics! {
    c"send_requests": |engine, core| engine.requests;
    c"send_errors": |engine, core| engine.request_errors;
    c"responder_errors": |engine, core| engine.responder_errors;
    c"flushed_requests": |engine, core| engine.flushed;
    c"local_messages": |engine, core| engine.messages;
    c"local_bytes": |engine, core| engine.bytes;
    c"completions": |engine, core| engine.completions;
    c"completion_overruns": |engine, core| engine.completion_overruns;
    c"receiver_not_ready": |engine, core| engine.receiver_not_ready;
    c"sequence_errors": |engine, core| engine.sequence_errors;
    c"retries": |engine, core| engine.retries;
    c"unanswered": |engine, core| engine.unanswered;
    c"dropped": |engine, core| engine.dropped;
    c"rcvd_pkts": |engine, core| core.received.load(Relaxed);
}
