// SPDX-License-Identifier: GPL-2.0

//! The debugfs file of a device: what the engine holds and has done.

use kernel::{
    debugfs::Writer,
    fmt,
    sync::atomic::Relaxed, //
};

use super::{
    policy::inspect,
    Shared, //
};

/// Writes the file: counters and numbers of objects first, then a line for each queue pair.
pub(super) struct Report(pub(super) Shared);

impl Writer for Report {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let core = &self.0.core;
        writeln!(f, "kicks {}", core.kicks.load(Relaxed))?;
        writeln!(f, "worker_wakes {}", core.worker_wakes.load(Relaxed))?;
        writeln!(f, "worker_requests {}", core.worker_requests.load(Relaxed))?;
        writeln!(f, "lists {}", core.lists.load(Relaxed))?;
        inspect(core, |engine| writeln!(f, "{:#?}", engine.counters()))?;
        inspect(core, |engine| writeln!(f, "{:#?}", engine.objects()))?;

        // The shard is entered for each queue pair anew, so that a long list stops nobody.
        let mut last = None;
        while let Some(qpn) = inspect(core, |engine| engine.next_qp(last)) {
            last = Some(qpn);
            let Ok(qp) = inspect(core, |engine| engine.query_qp(qpn)) else {
                continue;
            };
            writeln!(
                f,
                "qp {:#08x} {:?} {:?} peer {:#08x} sq {}/{} psn {:#08x} rq {}/{} psn {:#08x}",
                qpn,
                qp.qp_type,
                qp.state,
                qp.attr.dest_qpn,
                qp.sq_consumer,
                qp.cap.max_send_wr,
                qp.attr.sq_psn,
                qp.rq_consumer,
                qp.cap.max_recv_wr,
                qp.attr.rq_psn,
            )?;
        }
        Ok(())
    }
}
