// SPDX-License-Identifier: GPL-2.0

//! The report of a device in debugfs: objects, queue pairs and counters.

use kernel::{
    debugfs::Writer,
    fmt,
    sync::atomic::Relaxed, //
};
use kernel_ext::time::WithTimer;

use super::{
    core::Core,
    policy::inspect,
    shared::Shared, //
};

/// Writes the file: counters and numbers of objects first, then a line for each queue pair.
pub(super) struct Report(pub(super) Shared);

impl Writer for Report {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let core = &self.0.core;
        writeln!(f, "kicks {}", core.kicks.total())?;
        writeln!(f, "worker_wakes {}", core.worker_wakes.load(Relaxed))?;
        writeln!(f, "worker_requests {}", core.worker_requests.load(Relaxed))?;
        writeln!(f, "lists {}", core.lists.load(Relaxed))?;
        // The owner of the shard is not preempted, so it copies and leaves; the text is made after that.
        let mut counters = Default::default();
        inspect(core, |engine| engine.add_counters(&mut counters));
        writeln!(f, "{counters:#?}")?;
        let objects = inspect(core, |engine| engine.objects());
        writeln!(f, "{objects:#?}")?;

        // The shard is entered for each step anew, so that a long list stops nobody.
        let mut next = Some(0);
        while let Some(from) = next {
            let found;
            (found, next) = inspect(core, |engine| engine.find_qp(from));
            if let Some(qpn) = found {
                queue_pair(core, qpn, f)?;
            }
        }
        Ok(())
    }
}

/// Writes the line of a queue pair, if it is still there.
fn queue_pair(core: &WithTimer<Core>, qpn: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Ok(qp) = inspect(core, |engine| engine.query_qp(qpn)) else {
        return Ok(());
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
    )
}
