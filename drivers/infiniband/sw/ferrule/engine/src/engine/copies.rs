// SPDX-License-Identifier: GPL-2.0

//! The beginning and the end of copy jobs: the counts of the objects that they use.

use crate::{
    base::{
        copy_job::{
            Carried,
            Used, //
        },
        counters::Count,
        error::Error,
        host::Host,
        id::ContextId,
        uses::Uses, //
    },
    engine::Engine,
};

impl<H: Host> Engine<H> {
    /// A turn may have left a job in the host's place: then the objects are in use from now on, and the caller of the
    /// engine carries it out. Returns the index of its queue pair.
    #[inline]
    pub(super) fn begin_job(&mut self, host: &mut H) -> Option<u32> {
        let used = host.job_place()?.as_ref()?.used();
        self.for_each_use(&used, Uses::begin);
        self.counters.common().copy_jobs.count(1);
        Some(used.requester)
    }

    /// A job has been carried out: its queue pair goes on with the next [`Engine::run`].
    ///
    /// Returns whether a command that was refused with [`Error::InUse`] may try again.
    pub fn carried(&mut self, carried: Carried) -> bool {
        let used = carried.0;
        let mut is_awaited = false;
        self.for_each_use(&used, |uses| is_awaited |= uses.end());
        self.qps.end_copy(used.requester, used.peer);
        is_awaited
    }

    /// Whether no job uses a queue pair of the context. If none of them may send any more, that is so in the end.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`].
    pub fn claim_context(&mut self, id: ContextId) -> Result<(), Error> {
        self.contexts.uses_mut(id).map_or(Ok(()), Uses::claim)
    }

    /// Visits the counts of all that a job uses.
    fn for_each_use(&mut self, used: &Used, mut f: impl FnMut(&mut Uses)) {
        for key in used.keys() {
            if let Some(uses) = self.keys.uses_mut(key) {
                f(uses);
            }
        }
        for index in [used.requester, used.peer] {
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
