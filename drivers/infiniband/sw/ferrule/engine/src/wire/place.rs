// SPDX-License-Identifier: GPL-2.0

//! Data that come back for requests, on their way to where they belong.

use crate::{
    base::{
        counters::Count,
        host::Host,
        status::Status, //
    },
    memory::{
        copy::{
            self,
            Unreachable, //
        },
        sgl::Fragments, //
    },
    packet::Packet,
    queue_pair::{
        cx::Cx,
        qp::Qp, //
    },
};

/// Why data were not placed.
pub(super) enum Unplaced {
    /// The request ends with an error.
    Failed(Status),
    /// The memory for them is being brought in.
    Absent,
}

impl From<Status> for Unplaced {
    fn from(status: Status) -> Self {
        Unplaced::Failed(status)
    }
}

/// A response waits for memory that is being brought in, and so do those behind it, of which none
/// is lost.
#[cold]
pub(super) fn await_memory<H: Host>(
    cx: &mut Cx<'_, H>,
    qp: &mut Qp<H>,
    packet: &Packet<'_>,
    bytes: &H::Packet,
) {
    let wire = &mut qp.wire;
    wire.completer.gap.reported = true;
    // It has come, so there is nothing to probe for, and the time until it is taken is no round
    // trip.
    wire.requester.tlp.cancel();
    wire.reorder_response(packet.bth().psn.get(), bytes, cx.now());
    wire.await_memory(cx.now());
}

/// Copies data to where the request of slot `index` wants them, from `offset` on.
pub(super) fn place<H: Host>(
    cx: &mut Cx<'_, H>,
    qp: &mut Qp<H>,
    index: u32,
    offset: u32,
    source: impl Fragments<H>,
    length: u32,
) -> Result<(), Unplaced> {
    let Qp { core, wire, .. } = qp;
    let wire = &mut **wire;
    if wire.completer.request_index != Some(index) {
        wire.completer.request_index = None;
        wire.completer
            .request
            .read(&core.init, core.opcodes, index)?;
        let record = wire.requester.record(index).ok_or(Status::Fatal)?;
        if Some(wire.completer.request.opcode) != record.opcode
            || wire.completer.request.length != record.length
        {
            return Err(Status::LocalOperation.into());
        }
        wire.completer.request_index = Some(index);
    }
    let target = wire.completer.request.side(core.init.pd, offset);
    copy::copy(cx.keys, source, target, length).map_err(|error| match error {
        Unreachable::SourceAbsent | Unreachable::TargetAbsent => Unplaced::Absent,
        _ => Unplaced::Failed(Status::LocalProtection),
    })?;
    cx.counters.bytes.count(length.into());
    Ok(())
}
