// SPDX-License-Identifier: GPL-2.0

//! Where datagrams of the kernel's own users go.
//!
//! A program's requests name an address handle by its number. Those of a kernel user carry the way
//! itself, which is kept beside the slot of the request until the device has taken it.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::mm::SharedArea;

/// The way of a kernel user's datagrams to their receiver. It is cloned in any context.
pub(crate) trait Destination: Clone + Send + Sync + 'static {
    /// Bytes for each slot of the send queue in the area of the queue pair, if the device reads it
    /// there.
    const SIZE: u32;

    /// The destinations of a queue pair.
    type Slots: Slots<Self>;
}

/// The destinations of a queue pair's send requests: one a slot.
pub(crate) trait Slots<D>: Sized + Send {
    /// None yet, for `depth` slots. At `offset` in the area is space for [`Destination::SIZE`]
    /// bytes each.
    fn new(area: &Arc<SharedArea>, offset: u32, depth: u32) -> Result<Self>;

    /// Keeps that of a slot. Any context.
    fn put(&mut self, slot: u32, destination: D) -> Result;
}
