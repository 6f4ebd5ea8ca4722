// SPDX-License-Identifier: GPL-2.0

//! Where datagrams of a kernel user go.

use ferrule_engine::Path;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::mm::SharedArea;

use super::net::path::UdpPath;
use crate::backend::destination;

/// A path, with the route if it leads to another device.
pub(crate) struct Destination {
    path: Path,
    route: Option<UdpPath>,
}

impl Destination {
    /// A path, with the route if it leads to another device.
    pub(super) fn new(path: Path, route: Option<UdpPath>) -> Self {
        Destination { path, route }
    }

    /// As the engine has it.
    pub(super) fn into_parts(self) -> (Path, Option<UdpPath>) {
        (self.path, self.route)
    }
}

/// A clone has its route yet to be found, since a route is found in its own time. Any context.
impl Clone for Destination {
    fn clone(&self) -> Self {
        Destination {
            path: self.path,
            route: self.route.as_ref().map(UdpPath::clone_without_route),
        }
    }
}

impl destination::Destination for Destination {
    // The engine asks its host.
    const SIZE: u32 = 0;

    /// Some megabytes at most, which need not lie in one piece.
    type Slots = KVVec<Option<Self>>;
}

impl destination::Slots<Destination> for KVVec<Option<Destination>> {
    fn new(_area: &Arc<SharedArea>, _offset: u32, depth: u32) -> Result<Self> {
        let mut slots = KVVec::with_capacity(depth as usize, GFP_KERNEL)?;
        for _ in 0..depth {
            slots.push(None, GFP_KERNEL)?;
        }
        Ok(slots)
    }

    fn put(&mut self, slot: u32, destination: Destination) -> Result {
        *self.get_mut(slot as usize).ok_or(EINVAL)? = Some(destination);
        Ok(())
    }
}
