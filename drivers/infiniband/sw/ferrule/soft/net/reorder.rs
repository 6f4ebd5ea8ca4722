// SPDX-License-Identifier: GPL-2.0

//! The reorder buffer: out-of-order packets, until the missing one comes.

use ferrule_engine::host;
use kernel::{
    prelude::*,
    rbtree::RBTree,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

use super::received::Received;

/// How many packets are buffered at most, of all queue pairs of all devices: a peer decides how
/// many come. They hold pages of the network device, and 16 MiB are enough for 16 lossy connections
/// and more.
const LIMIT: u32 = 4096;

/// How many are buffered.
static BUFFERED: Atomic<u32> = Atomic::new(0);

/// One slot of [`LIMIT`], for one packet.
struct Slot(());

impl Slot {
    /// One more, if there is space.
    fn new() -> Option<Self> {
        // Dropped again if there is none, which is when it is counted down.
        let slot = Slot(());
        (BUFFERED.fetch_add(1, Relaxed) < LIMIT).then_some(slot)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        BUFFERED.fetch_sub(1, Relaxed);
    }
}

/// The out-of-order packets of a queue pair in one direction, by sequence number.
///
/// Adding one allocates, without sleeping, a node of the tree and a clone of the socket buffer; the
/// bytes stay where the network device has put them. It is done where a packet was lost, and
/// nowhere else.
pub(crate) struct ReorderBuffer {
    packets: RBTree<u32, (Received, Slot)>,
    count: u32,
}

impl Default for ReorderBuffer {
    fn default() -> Self {
        ReorderBuffer {
            packets: RBTree::new(),
            count: 0,
        }
    }
}

impl host::Reorder<Received> for ReorderBuffer {
    fn insert(&mut self, number: u32, packet: &Received) {
        if self.packets.get(&number).is_some() {
            return;
        }
        let Some(slot) = Slot::new() else {
            return;
        };
        // Without memory it is lost, and sent again.
        let Ok(packet) = packet.try_clone() else {
            return;
        };
        let flags = GFP_ATOMIC | __GFP_NOWARN;
        let inserted = self
            .packets
            .try_create_and_insert(number, (packet, slot), flags);
        if inserted.is_ok() {
            self.count = self.count.wrapping_add(1);
        }
    }

    fn remove(&mut self, number: u32) -> Option<Received> {
        let (packet, _) = self.packets.remove(&number)?;
        self.count = self.count.wrapping_sub(1);
        Some(packet)
    }

    fn first_from(&self, number: u32) -> Option<u32> {
        let from = self.packets.cursor_lower_bound(&number);
        let first = from.or_else(|| self.packets.cursor_front())?;
        Some(*first.current().0)
    }

    #[inline]
    fn count(&self) -> u32 {
        self.count
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}
