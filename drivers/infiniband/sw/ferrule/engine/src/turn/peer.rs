// SPDX-License-Identifier: GPL-2.0

//! The peer of a connection on the same engine, and the segments that are handed to it.

use crate::{
    base::{
        attr::{
            Mtu,
            PathKind,
            State, //
        },
        counters::Cells,
        host::Host,
        psn, //
    },
    memory::{
        copy::CopyWay,
        key_use::CheckedUse, //
    },
    operation::{
        accept,
        request_segment::{
            RequestSegment,
            Response, //
        },
        uc_receive, //
    },
    queue_pair::{
        cx::Cx,
        qp::Qp,
        qp_core::QpCore,
        receive_queue::ReceiveQueue,
        schedule::Qps,
        send_queue::SendQueue, //
    },
};

/// The most bytes of a message that are sent in one segment: a multiple of every path MTU.
const MAX_SEGMENT: u32 = 256 * 1024;

/// How much of the request at hand its next segment has.
#[derive(Clone, Copy)]
pub(crate) struct SegmentSize {
    /// Its bytes.
    pub(crate) length: u32,
    /// The packets that it takes.
    pub(crate) packets: u32,
}

impl SegmentSize {
    /// The next segment: as many bytes as the turn allows, and whole packets but for the last.
    #[inline]
    pub(crate) fn next(sq: &SendQueue, mtu: Mtu, allowed: u64) -> Self {
        let rest = sq.request.length.wrapping_sub(sq.done);
        let allowed = allowed.min(u64::from(MAX_SEGMENT)) as u32;
        let length = if rest <= allowed {
            rest
        } else {
            let whole = allowed & !mtu.bytes().wrapping_sub(1);
            rest.min(whole.max(mtu.bytes()))
        };
        Self::new(length, mtu)
    }

    /// The segment of so many bytes.
    #[inline]
    pub(crate) fn new(length: u32, mtu: Mtu) -> Self {
        Self {
            length,
            packets: psn::packets(length, mtu),
        }
    }
}

/// The peer of a connection, on the same engine.
pub(crate) struct Peer<'a, H: Host> {
    pub(crate) core: &'a QpCore<H>,
    pub(crate) rq: &'a mut ReceiveQueue,
}

impl<'a, H: Host> Peer<'a, H> {
    /// The peer, which may be the queue pair itself. `None` if the queue pair has no path, or one
    /// by the wire, or if no queue pair of the right type has the number at the path's virtual
    /// port.
    #[inline(always)]
    pub(crate) fn find(
        qps: &'a mut Qps<H>,
        core: &'a QpCore<H>,
        rq: &'a mut ReceiveQueue,
    ) -> Option<Self> {
        let Some(PathKind::Local(vport)) = core.attr.path.map(|path| path.kind) else {
            return None;
        };
        let number = core.attr.dest_qpn;
        let peer = if number == core.id.number {
            Peer { core, rq }
        } else {
            let Qp { core, rq, .. } = qps.get_mut(number)?;
            Peer { core, rq }
        };
        let init = &peer.core.init;
        (init.qp_type == core.init.qp_type.peer() && init.vport == vport).then_some(peer)
    }

    /// Hands it a segment of the request at hand, whose bytes go the `way`, and returns the
    /// response. `checked` is the use of the segment's memory, if that was checked just now.
    #[inline(always)]
    pub(crate) fn hand(
        &mut self,
        cx: &mut Cx<'_, H>,
        core: &QpCore<H>,
        sq: &SendQueue,
        size: SegmentSize,
        checked: CheckedUse,
        way: &mut impl CopyWay<H>,
    ) -> Response {
        let SegmentSize { length, packets } = size;
        let segment = RequestSegment::next_checked(sq, core, length, packets, checked);
        let own = self.enter_counters(cx, core);
        let response = accept::receive(cx, self.core, self.rq, segment, way);
        cx.counters = own;
        response
    }

    /// As [`Peer::hand`], over an unreliable connection. A segment that was dropped has
    /// [`Response::None`].
    pub(crate) fn hand_unreliable(
        &mut self,
        cx: &mut Cx<'_, H>,
        core: &QpCore<H>,
        sq: &SendQueue,
        size: SegmentSize,
        way: &mut impl CopyWay<H>,
    ) -> Response {
        let segment = RequestSegment::next(sq, core, size.length, size.packets);
        let own = self.enter_counters(cx, core);
        let response = uc_receive::receive(cx, self.core, self.rq, segment, way);
        cx.counters = own;
        response.unwrap_or(Response::None)
    }

    /// Has `cx` count for the peer from now on: a message counts where it is taken. Returns the
    /// counters of the sender, mostly the same ones, which the caller puts back.
    #[inline(always)]
    fn enter_counters<'c>(&self, cx: &mut Cx<'c, H>, sender: &QpCore<H>) -> &'c Cells {
        let own = cx.counters;
        let counted_at = self.core.counted_at;
        if counted_at != sender.counted_at {
            cx.counters = cx.ports.of(counted_at);
        }
        own
    }
}

/// The peer has answered with a NAK, and is in error.
#[cold]
pub(crate) fn break_peer<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    let number = qp.core.attr.dest_qpn;
    let core = if number == qp.core.id.number {
        &mut qp.core
    } else {
        let Some(peer) = qps.get_mut(number) else {
            return;
        };
        &mut peer.core
    };
    core.set_state(cx.host, State::Err);
    let index = core.index();
    qps.stop(index);
}
