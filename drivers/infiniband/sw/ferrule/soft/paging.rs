// SPDX-License-Identifier: GPL-2.0

//! On-demand memory and the engine: pages come and go by commands.
//!
//! The engine accesses memory in the hands of the shard's owner. A page enters or leaves the table
//! of a region in the same hands, so a page that the engine finds stays there until the owner
//! leaves. The kernel takes a page away after that: it waits for the shard as a command does, for
//! no longer than a slice of the engine's work.

use ferrule_engine::{
    Block,
    ContextId, //
};
use kernel::sync::Arc;
use rdma::paging::Exclusive;

use super::shards::Shards;

/// The shard of a user context, as its on-demand memory knows it.
pub(super) struct Paging {
    pub(super) shards: Arc<Shards>,
    pub(super) context: ContextId,
}

// SAFETY: The function is called once, by the owner of the shard that has the context, and so the
// region: both move to another one in the hands of a caller that owns both shards. The engine
// accesses memory in the hands of an owner alone, and nobody else does (`Registered`).
unsafe impl Exclusive for Paging {
    fn exclusively(&self, f: &mut dyn FnMut()) {
        let block = Block::of_context(self.context);
        loop {
            let core = self.shards.of(block);
            let owner = core.shard.enter();
            let is_here = self.shards.of(block).index == core.index;
            if is_here {
                f();
            }
            // A caller whose call was missed relies on an owner to run the engine.
            if owner.leave() {
                core.wake_worker();
            }
            if is_here {
                break;
            }
        }
    }
}
