// SPDX-License-Identifier: GPL-2.0

//! Queues of packets: `struct sk_buff_head`.

use core::ptr::NonNull;

use kernel::{
    prelude::*,
    types::Opaque, //
};

use super::OwnedSkBuff;
use crate::bindings;

/// A queue of packets, first in, first out, for any number of hands on both ends.
///
/// It allocates nothing: packets are linked to each other.
///
/// # Invariants
///
/// `head` is an initialised queue of packets that are ours.
#[pin_data(PinnedDrop)]
pub struct Queue {
    #[pin]
    head: Opaque<bindings::sk_buff_head>,
}

// SAFETY: Packets belong to no thread.
unsafe impl Send for Queue {}

// SAFETY: The queue has a lock of its own.
unsafe impl Sync for Queue {}

impl Queue {
    /// An empty queue.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `slot` is valid for writing and stays in place.
            head <- Opaque::ffi_init(|slot| unsafe { bindings::skb_queue_head_init(slot) }),
        })
    }

    /// Adds a packet at the end, unless there are `limit` packets; then it is given back. If
    /// several callers add at once, a few more may get in. Any context.
    #[inline]
    pub fn push(&self, skb: OwnedSkBuff, limit: usize) -> Result<(), OwnedSkBuff> {
        if self.len() >= limit {
            return Err(skb);
        }
        // SAFETY: The queue is initialised, and takes the packet over.
        unsafe { bindings::skb_queue_tail(self.head.get(), skb.into_raw().as_ptr()) };
        Ok(())
    }

    /// Takes the packet at the front. Any context.
    #[inline]
    pub fn pop(&self) -> Option<OwnedSkBuff> {
        if self.len() == 0 {
            return None;
        }
        // SAFETY: The queue is initialised.
        let skb = NonNull::new(unsafe { bindings::skb_dequeue(self.head.get()) })?;
        // SAFETY: By the type invariants, the packet was ours, and nobody else has taken it.
        Some(unsafe { OwnedSkBuff::from_raw(skb) })
    }

    /// How many there are at the moment. Any context.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "both would be stale at once")]
    pub fn len(&self) -> usize {
        // SAFETY: The queue is initialised; the length is loaded whole.
        unsafe { bindings::skb_queue_len_lockless(self.head.get()) as usize }
    }
}

#[pinned_drop]
impl PinnedDrop for Queue {
    fn drop(self: Pin<&mut Self>) {
        while self.pop().is_some() {}
    }
}
