// SPDX-License-Identifier: GPL-2.0

//! Addresses as commands have them, and where datagrams of kernel users go.

use ferrule_engine::{
    Path,
    PathKind, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::mm::SharedArea;
use zerocopy::IntoBytes;

use super::interface::AddressVector;
use crate::backend::{
    destination,
    object, //
};

/// The bits of a flow label (IBA volume 1, 8.3.5). UCX sets the others, too.
const FLOW_LABEL: u32 = 0xf_ffff;

impl From<&object::AddressVector<'_>> for AddressVector {
    fn from(to: &object::AddressVector<'_>) -> Self {
        let attr = to.attr;
        AddressVector {
            dgid: attr.dgid.0,
            dmac: attr.dmac,
            sgid_index: attr.sgid_index,
            hop_limit: attr.hop_limit,
            flow_label: (attr.flow_label & FLOW_LABEL).into(),
            traffic_class: attr.traffic_class,
            sl: attr.sl,
            static_rate: attr.static_rate,
            valid: 1,
        }
    }
}

/// No address.
pub(super) const NO_ADDRESS: AddressVector =
    zerocopy::transmute!([0u8; size_of::<AddressVector>()]);

/// The path that an address of the device stands for. Where it leads, and from which GID, the
/// device alone knows.
pub(super) fn path(to: &AddressVector) -> Path {
    Path {
        kind: PathKind::Remote,
        sgid_index: to.sgid_index,
        sgid: [0; 16],
        dgid: to.dgid,
        dmac: to.dmac,
        flow_label: to.flow_label.get(),
        hop_limit: to.hop_limit,
        traffic_class: to.traffic_class,
        sl: to.sl,
        static_rate: to.static_rate,
    }
}

/// Where datagrams of a kernel user go.
#[derive(Clone)]
pub(crate) struct Destination(pub(super) AddressVector);

impl destination::Destination for Destination {
    const SIZE: u32 = size_of::<AddressVector>() as u32;

    type Slots = Slots;
}

/// The destinations of a queue pair, in its area: the device reads one with the request.
pub(crate) struct Slots {
    area: Arc<SharedArea>,
    offset: usize,
}

impl destination::Slots<Destination> for Slots {
    fn new(area: &Arc<SharedArea>, offset: u32, _depth: u32) -> Result<Self> {
        Ok(Slots {
            area: area.clone(),
            offset: offset as usize,
        })
    }

    fn put(&mut self, slot: u32, destination: Destination) -> Result {
        let at = self.offset + slot as usize * size_of::<AddressVector>();
        self.area.write_bytes(at, destination.0.as_bytes())
    }
}
