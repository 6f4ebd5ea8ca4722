// SPDX-License-Identifier: GPL-2.0

//! Sending several packets in a row.
//!
//! C header: `include/linux/bottom_half.h`.

use kernel::types::NotThreadSafe;

use crate::bindings;

/// Several packets that are sent as one burst.
///
/// While one exists, bottom halves are disabled on the processor: the softirq work that sending
/// leads to (a virtual device hands packets on, a queueing discipline runs again, a device's sent
/// packets are freed) is deferred and done once, when the batch is dropped, rather than after each
/// packet. That is the deferral which the stack offers to those who send through it: whether the
/// device's doorbell is deferred too (`xmit_more`) is decided below, by the queueing discipline,
/// which hands on in one go what has queued up.
///
/// Nothing may sleep meanwhile, and a batch should have tens of packets, not thousands: a virtual
/// device's queue is emptied only by the deferred work. In softirq context a batch costs nothing
/// and changes nothing. Batches may be nested.
///
/// # Examples
///
/// ```
/// use net_ext::{route::Route, skb::NewSkBuff, udp::Port, Batch};
///
/// fn burst(port: &Port, route: &Route, packets: impl Iterator<Item = NewSkBuff>) {
///     let _batch = Batch::new();
///     for packet in packets {
///         let _ = port.send(packet, route, 0, port.charged());
///     }
/// }
/// ```
///
/// # Invariants
///
/// Bottom halves were disabled for this value on the current processor.
pub struct Batch {
    /// Bottom halves are enabled where they were disabled.
    _not_send: NotThreadSafe,
}

impl Batch {
    /// Begins a batch. Any context.
    #[allow(clippy::new_without_default, reason = "it changes the context")]
    #[inline]
    pub fn new() -> Self {
        // SAFETY: The function has no preconditions but enabled interrupts.
        unsafe { bindings::local_bh_disable() };
        // INVARIANT: The function has just disabled them.
        Batch {
            _not_send: NotThreadSafe,
        }
    }
}

impl Drop for Batch {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariants, this is the counterpart of the call in `new`, on the same
        // processor, for a batch stays with its thread and that does not move meanwhile.
        unsafe { bindings::local_bh_enable() };
    }
}
