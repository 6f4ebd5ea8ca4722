// SPDX-License-Identifier: GPL-2.0

//! The context ([`Cx`]) that a queue pair works in, and how its turn ends.

use core::cell::Cell;

use crate::{
    base::{
        budget::Budget,
        counters::{
            Cells,
            Count,
            PortCounters, //
        },
        event::{
            DropReason,
            Trace, //
        },
        host::Host, //
    },
    congestion::PathState,
    memory::key::Keys,
    object::{
        cq::Cqs,
        port::Port,
        srq::Srqs, //
    },
    packet::Bth,
    queue_pair::qp_core::QpCore, //
};

/// The context that a queue pair works in, beside the other queue pairs: at its turn, when its
/// timer fires, when a packet comes.
pub(crate) struct Cx<'a, H: Host> {
    pub(crate) host: &'a mut H,
    pub(crate) keys: &'a mut Keys<H>,
    pub(crate) cqs: &'a mut Cqs<H>,
    pub(crate) srqs: &'a mut Srqs<H>,
    pub(crate) port: &'a mut Port<H>,
    pub(crate) paths: &'a mut [PathState],
    /// The counters of the virtual port or of the set that the queue pair counts in, or those of
    /// its peer while the peer takes a message.
    pub(crate) counters: &'a Cells,
    /// Those of all virtual ports and sets.
    pub(crate) ports: &'a PortCounters<H>,
    /// See [`Config`](crate::Config).
    pub(crate) retries_for_ever: bool,
    /// The time, once it was asked for, until a producer index is loaded.
    pub(crate) time: Cell<Option<u64>>,
    /// The rest of the turn's budget.
    pub(crate) allowance: Budget,
}

impl<H: Host> Cx<'_, H> {
    /// The time, in nanoseconds of [`Host::now`]. It is read when it is first needed: a local
    /// message is in its place by then. The rest of the turn has that time, unless a producer index
    /// is loaded: requests may have been posted since, and none completes before it was posted.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.time.get().unwrap_or_else(|| {
            let now = self.host.now();
            self.time.set(Some(now));
            now
        })
    }

    /// Loads the producer index that the program stores at an offset of
    /// [`abi::QpCtrl`](crate::abi::QpCtrl).
    #[inline]
    pub(crate) fn load_producer(&self, core: &QpCore<H>, offset: u32) -> u32 {
        self.time.set(None);
        core.load(offset)
    }

    /// Takes a packet that was made, with so many bytes of payload, off the rest of the budget; all
    /// of the rest if another thread waits for the processor.
    pub(crate) fn take_packet(&mut self, payload: u32) {
        self.allowance.take_bytes(payload.max(Budget::PACKET));
        if self.host.need_resched() {
            self.allowance = Budget::SPENT;
        }
    }

    /// Counts a packet that is dropped, and shows it.
    #[cold]
    pub(crate) fn drop_packet(&mut self, bth: Bth, reason: DropReason) {
        self.counters.of_drop(reason).count(1);
        self.trace_drop(bth, reason);
    }

    /// Shows a packet that its receiver has dropped, and counted.
    #[cold]
    pub(crate) fn trace_drop(&mut self, bth: Bth, reason: DropReason) {
        self.host.trace(&Trace::PacketDropped { bth, reason });
    }
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// There is more to do at once.
    Again,
    /// There is nothing to do until a doorbell, a timer or the control path says so.
    Idle,
}
