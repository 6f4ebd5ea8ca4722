// SPDX-License-Identifier: GPL-2.0

//! The packets that a processor has yet to receive from virtual devices: how many they are, and the
//! order of those that several processors send.
//!
//! The loopback device and veth hand a packet to the processor that sends it. There it waits in a
//! queue, the backlog, until that processor receives it in softirq context. Packets of the same
//! flow that another processor sends meanwhile may overtake it. Linux asks the same before it moves
//! a flow from one processor's backlog to another's (`get_rps_cpu()` in `net/core/dev.c`).
//!
//! C header: `include/linux/netdevice.h`.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

use crate::bindings;

/// How many packets wait in this processor's backlog. In a [`Batch`](crate::Batch).
#[inline]
pub fn backlog_len() -> u32 {
    // SAFETY: The function has no preconditions: it only reads two counters of this processor's.
    unsafe { bindings::backlog_len() }
}

/// Packets that stay in order, whichever processor sends them. One processor sends at a time.
///
/// # Examples
///
/// ```
/// use net_ext::{route::Route, skb::NewSkBuff, udp::Port, Batch, Flow};
///
/// fn send(flow: &Flow, port: &Port, route: &Route, packet: NewSkBuff) {
///     let _here = Batch::new();
///     if flow.may_send() {
///         let _ = port.send(packet, route, 0, port.charged());
///         flow.sent();
///     }
/// }
/// ```
///
/// # Invariants
///
/// The processor in `last` is a possible one.
pub struct Flow {
    /// The processor that has sent the last packet, and in the lower half the number of packets
    /// that its backlog had ever been given by then, which wraps around.
    last: Atomic<u64>,
}

impl Flow {
    /// A flow without packets.
    #[allow(
        clippy::new_without_default,
        reason = "its place is in the state of a sender"
    )]
    pub fn new() -> Self {
        let flow = Flow {
            last: Atomic::new(0),
        };
        flow.sent();
        flow
    }

    /// Whether a packet that this processor sends now comes after those of the flow that are in
    /// another one's backlog. In a [`Batch`](crate::Batch).
    ///
    /// A backlog is received within some hundred microseconds, unless threads with real-time
    /// priority keep its processor.
    #[inline]
    pub fn may_send(&self) -> bool {
        let last = self.last.load(Relaxed);
        // SAFETY: By the type invariants, the processor is a possible one.
        unsafe { bindings::backlog_passed((last >> 32) as u32, last as u32) }
    }

    /// A packet of the flow has been sent by this processor. In the [`Batch`](crate::Batch) of the
    /// packet.
    #[inline]
    pub fn sent(&self) {
        let mut cpu = 0;
        // SAFETY: The function has no preconditions but a valid pointer.
        let end = unsafe { bindings::backlog_end(&mut cpu) };
        // INVARIANT: The processor is the one that has just run the function.
        self.last
            .store(u64::from(cpu) << 32 | u64::from(end), Relaxed);
    }
}
