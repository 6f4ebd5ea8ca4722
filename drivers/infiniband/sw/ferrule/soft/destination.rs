// SPDX-License-Identifier: GPL-2.0

//! Where datagrams of a kernel user go.

use ferrule_engine::Path;

use super::net::path::UdpPath;

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
            route: self.route.as_ref().map(UdpPath::again),
        }
    }
}
