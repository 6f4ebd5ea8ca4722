// SPDX-License-Identifier: GPL-2.0

//! The report of a device in debugfs: objects, queue pairs and counters.

use ferrule_engine::Objects;
use kernel::{
    debugfs::Writer,
    fmt,
    sync::atomic::Relaxed, //
};
use kernel_ext::time::WithTimer;

use super::{
    core::Core,
    policy::inspect,
    shards::Shards,
    shared::Shared, //
};

/// Writes the file: counters and numbers of objects first, then a line for each shard that has
/// objects, and for each of its queue pairs.
pub(super) struct Report(pub(super) Shared);

/// The sum of a count of each shard.
fn sum(shards: &Shards, count: impl Fn(&Core) -> u64) -> u64 {
    let counts = shards.all().map(|core| count(core));
    counts.fold(0, u64::wrapping_add)
}

impl Writer for Report {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shards = &*self.0.shards;
        let kicks = sum(shards, |core| core.kicks.total());
        let wakes = sum(shards, |core| core.worker_wakes.load(Relaxed));
        let requests = sum(shards, |core| core.worker_requests.load(Relaxed));
        let lists = sum(shards, |core| core.lists.load(Relaxed));
        writeln!(f, "kicks {kicks}")?;
        writeln!(f, "worker_wakes {wakes}")?;
        writeln!(f, "worker_requests {requests}")?;
        writeln!(f, "lists {lists}")?;
        // The owner of a shard is not preempted, so it copies and leaves; the text is made after
        // that.
        let mut counters = Default::default();
        let mut objects = Objects::default();
        for core in shards.all() {
            inspect(core, |engine| {
                engine.add_counters(&mut counters);
                objects.add(&engine.objects());
            });
        }
        writeln!(f, "{counters:#?}")?;
        writeln!(f, "{objects:#?}")?;
        for core in shards.all() {
            let objects = inspect(core, |engine| engine.objects());
            if objects != Objects::default() {
                writeln!(
                    f,
                    "shard {} user_contexts {} queue_pairs {}",
                    core.index, objects.user_contexts, objects.queue_pairs
                )?;
                queue_pairs(core, f)?;
            }
        }
        Ok(())
    }
}

/// Writes the lines of the queue pairs of a shard.
fn queue_pairs(core: &WithTimer<Core>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
