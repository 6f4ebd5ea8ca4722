// SPDX-License-Identifier: GPL-2.0

//! Address vectors.

use ferrule_engine::{
    Path,
    PathKind, //
};
use kernel::prelude::*;
use rdma::{
    gid::GidType,
    AhAttr,
    Device,
    GidAttr, //
};

use super::Ferrule;
use crate::soft::net::path::Path as Route;

/// The path of an address vector: it leads to this device itself if the GID is in its own table, or
/// out to the network by the route that `route` returns.
pub(super) fn path(
    dev: &Device<Ferrule>,
    av: &AhAttr,
    sgid: Option<&GidAttr>,
    route: impl FnOnce(&GidAttr) -> Result<Route>,
) -> Result<(Path, Option<Route>)> {
    // RoCE has no other addresses than global ones (IBA volume 1, A17.4.3).
    if !av.grh {
        return Err(EINVAL);
    }
    let sgid = sgid.ok_or(EINVAL)?;
    let (kind, route) = match dev.find_gid(&av.dgid, GidType::RoceV2) {
        Ok(_) if !dev.is_wire_only() => (PathKind::Local, None),
        _ => (PathKind::Remote, Some(route(sgid)?)),
    };
    let path = Path {
        kind,
        sgid_index: av.sgid_index,
        sgid: sgid.gid().0,
        dgid: av.dgid.0,
        dmac: av.dmac,
        flow_label: av.flow_label,
        hop_limit: av.hop_limit,
        traffic_class: av.traffic_class,
        sl: av.sl,
        static_rate: av.static_rate,
    };
    Ok((path, route))
}
