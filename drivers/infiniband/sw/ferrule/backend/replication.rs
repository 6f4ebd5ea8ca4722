// SPDX-License-Identifier: GPL-2.0

//! The part of a backend with several engines that is for the threads of a program.

use ferrule_engine::ContextId;
use kernel::prelude::*;

/// Regions of a program whose threads have engines of their own
/// ([`HAS_ENGINES`](super::Backend::HAS_ENGINES)).
pub(crate) trait Replication {
    /// A region is about to be removed, and is not replicated any more.
    fn begin_removal(&self, _key: u32) {}

    /// Lets the queue pairs of a context use a region that may be in the engine of another one,
    /// with all of its domain. The region is not removed before its replicas.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EOPNOTSUPP` for memory that one engine alone may access.
    fn replicate(&self, _key: u32, _to: ContextId) -> Result {
        Ok(())
    }

    /// As [`Replication::replicate`], with all regions of a protection domain. Some may have been
    /// replicated where it fails.
    ///
    /// # Errors
    ///
    /// `EINTR` besides, if the calling process has been killed.
    fn replicate_domain(&self, _pd: u32, _to: ContextId) -> Result {
        Ok(())
    }

    /// Removes the replica of a region from the engine of a context, if there is one. An engine
    /// that has the region itself keeps that.
    fn remove_replicas(&self, _key: u32, _from: ContextId) {}

    /// Sees to it that the objects of two contexts are in one engine, from now on. Replicas stay
    /// until they are removed.
    fn join_contexts(&self, _one: ContextId, _other: ContextId) {}
}
