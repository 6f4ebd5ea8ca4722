// SPDX-License-Identifier: GPL-2.0

//! The device as its network code sees it: the callbacks by which the network tells the engine.

use net_ext::skb::OwnedSkBuff;

/// The callbacks of a device.
pub(crate) trait Device: Send + Sync {
    /// A packet has come, by the loopback device or another one. Its mark is the identifier of its
    /// VLAN plus 1, 0 without. Softirq context.
    fn receive(&self, packet: OwnedSkBuff, is_loopback: bool);

    /// A frame has come that is steered to a queue pair. The engine takes it at once, in softirq
    /// context, or `later`: then any context.
    fn receive_frame(&self, frame: OwnedSkBuff, qpn: u32, later: bool);

    /// A queue pair that waits for write space may send again (`sk_write_space` of a socket). Any
    /// context.
    fn write_space(&self, qpn: u32);
}
