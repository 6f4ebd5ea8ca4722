// SPDX-License-Identifier: GPL-2.0

//! The beginning and the end of copy jobs: the counts of the objects that they use.

use crate::{
    base::{
        budget::Budget,
        copy_job::Carried,
        counters::Count,
        error::Error,
        host::{
            Host,
            Job, //
        },
        id::ContextId,
        uses::Uses, //
    },
    engine::Engine,
    turn::large,
};

impl<H: Host> Engine<H> {
    /// A turn may have left a job in the host's place: then the objects are in use from now on, and
    /// the caller of the engine carries it out. Returns the index of its queue pair.
    #[inline]
    pub(super) fn begin_job(&mut self, host: &mut H) -> Option<u32> {
        let job = host.job_place()?.as_ref()?;
        self.keys.uses.begin();
        self.for_each_use(job, Uses::begin);
        self.counters.common().copy_jobs.count(1);
        let [requester, _] = job.qps();
        Some(requester)
    }

    /// A job has been carried out: the requests that it has finished complete, and its queue pair
    /// goes on with the next [`Engine::run`].
    ///
    /// Returns whether a command that was refused with [`Error::InUse`] may try again.
    pub fn carried(&mut self, host: &mut H, carried: Carried<Job<H>>) -> bool {
        let job = carried.0;
        let mut is_awaited = self.keys.uses.end();
        self.for_each_use(&job, |uses| is_awaited |= uses.end());
        let [requester, peer] = job.qps();
        if let Some(mut qp) = self.qps.take_index(requester) {
            let (qps, mut cx) = self.cx(host, qp.core.counted_at, None, Budget::TURN);
            large::end(qps, &mut cx, &mut qp, job);
            self.qps.put_back(qp);
            self.cqs.raise_events(host, self.counters.common());
        }
        self.qps.end_copy(requester, peer);
        is_awaited
    }

    /// Whether no job uses a queue pair of the context. If none of them may send any more, that is
    /// so in the end.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`].
    pub fn claim_context(&mut self, id: ContextId) -> Result<(), Error> {
        self.contexts.uses_mut(id).map_or(Ok(()), Uses::claim)
    }

    /// Visits the counts of all that a job uses.
    #[inline]
    fn for_each_use(&mut self, job: &Job<H>, mut f: impl FnMut(&mut Uses)) {
        for key in job.keys() {
            if let Some(uses) = self.keys.uses_mut(key) {
                f(uses);
            }
        }
        for index in job.qps() {
            let Some(core) = self.qps.core_mut(index) else {
                continue;
            };
            f(&mut core.uses);
            if let Some(id) = core.init.user.context() {
                if let Some(uses) = self.contexts.uses_mut(id) {
                    f(uses);
                }
            }
        }
    }
}
