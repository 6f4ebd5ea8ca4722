// SPDX-License-Identifier: GPL-2.0

//! On-demand memory and the engine: pages come and go by commands.
//!
//! The engine accesses memory in the hands of the shard's owner. A page enters or leaves the table of a region in the
//! same hands, so a page that the engine finds stays there until the owner leaves. The kernel takes a page away
//! after that: it waits for the shard as a command does, for no longer than a slice of the engine's work.

use kernel::sync::Arc;
use kernel_ext::time::WithTimer;
use rdma::paging::Exclusive;

use super::core::Core;

/// The shard of a device, as its on-demand memory knows it.
pub(super) struct Paging(pub(super) Arc<WithTimer<Core>>);

// SAFETY: The function is called once, by an owner of the shard, of which there is one at a time. The engine accesses memory
// in the hands of an owner alone, and nobody else does (`Registered`).
unsafe impl Exclusive for Paging {
    fn exclusively(&self, f: &mut dyn FnMut()) {
        let owner = self.0.shard.enter();
        f();
        // A caller whose call was missed relies on an owner to run the engine.
        if owner.leave() {
            self.0.wake_worker();
        }
    }
}
