// SPDX-License-Identifier: GPL-2.0

//! The device as its network code sees it: the callbacks by which the network tells the engine.

use net_ext::skb::OwnedSkBuff;

/// The callbacks of a device.
pub(crate) trait Device: Send + Sync {
    /// A packet has come. Softirq context.
    fn receive(&self, packet: OwnedSkBuff);

    /// A queue pair that waits for room may send again. Any context.
    fn has_room(&self, qpn: u32);
}
