// SPDX-License-Identifier: GPL-2.0

//! State that requester and responder of a queue pair share.

use crate::{
    base::{
        abi,
        attr::{
            Attributes,
            Path,
            State, //
        },
        event::Trace,
        host::{
            Asker,
            Host,
            Queue, //
        },
        id::{
            CountedAt,
            QpId, //
        },
        uses::Uses, //
    },
    object::{
        opcodes::Opcodes,
        qp_init::QpInit,
        srq::Srqs, //
    },
};

/// State that requester and responder of a queue pair share. Both only read it while a segment is
/// handled; the state changes by [`QpCore::set_state`].
pub(crate) struct QpCore<H: Host> {
    pub(crate) id: QpId,
    pub(crate) state: State,
    pub(crate) attr: Attributes,
    pub(crate) init: QpInit<H>,
    /// The operations that its requests may ask for.
    pub(crate) opcodes: Opcodes,
    /// Where it counts: at its virtual port, or in the set of counters that it is bound to.
    pub(crate) counted_at: CountedAt,
    /// Multicast groups that it is attached to.
    pub(crate) groups: u32,
    /// The copy jobs that use it, as requester or as responder.
    pub(crate) uses: Uses,
    /// How often it came to RESET.
    pub(super) resets: u32,
}

impl<H: Host> QpCore<H> {
    /// The index in the table.
    #[inline]
    pub(crate) fn index(&self) -> u32 {
        self.id.number & abi::DB_INDEX_MASK
    }

    /// Loads the control word at an offset of [`abi::QpCtrl`].
    #[inline]
    pub(crate) fn load(&self, offset: u32) -> u32 {
        self.init.queue.load(self.init.ctrl.wrapping_add(offset))
    }

    /// Asks the program to ring when it posts a receive request, or not to.
    fn set_rq_doorbell(&self, wanted: bool) {
        const OFFSET: u32 = core::mem::offset_of!(abi::QpCtrl, rq_doorbell) as u32;
        let offset = self.init.ctrl.wrapping_add(OFFSET);
        self.init.queue.store(offset, u32::from(wanted));
    }

    /// Changes the state, and tells those who want to know.
    pub(crate) fn set_state(&mut self, host: &mut H, state: State) {
        if state == self.state {
            return;
        }
        host.trace(&Trace::State {
            qpn: self.id.number,
            from: self.state,
            to: state,
        });
        // In error, receive requests have to be flushed as they are posted; in all other states
        // the engine looks for them when a message arrives.
        if state == State::Err || self.state == State::Err {
            self.set_rq_doorbell(state == State::Err);
        }
        self.state = state;
        self.resets = self.resets.wrapping_add(u32::from(state == State::Reset));
    }

    /// The name by which it asks for memory that is absent. A generation alone is one of a number.
    #[inline]
    pub(crate) fn asker(&self) -> Asker {
        let generation = u64::from(self.id.generation).wrapping_shl(32);
        let index = u64::from(self.index()).wrapping_shl(16);
        Asker(generation | index | u64::from(self.resets as u16))
    }

    /// Whether a send request with these flags has a completion even if it succeeds.
    #[inline]
    pub(crate) fn reports_success(&self, flags: u8) -> bool {
        flags & abi::wr_flags::SIGNALED != 0 || self.init.sq_sig_all
    }

    /// The way to a remote peer.
    #[inline]
    pub(crate) fn remote_path(&self) -> Option<&Path> {
        self.attr.path.as_ref().filter(|path| path.is_remote())
    }

    /// The peer is remote, and acknowledges what it gets.
    #[inline]
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.init.qp_type.is_reliable() && self.remote_path().is_some()
    }

    /// Whether it answers the queue pair `from`, which reaches it by packet or not. One that is not
    /// ready, or is connected to another, does not (C9-48 and following). There is one P_Key, so
    /// that always matches.
    #[inline]
    pub(crate) fn answers(&self, from: u32, is_packet: bool) -> bool {
        let is_ready = matches!(self.state, State::Rtr | State::Rts | State::Sqd);
        is_ready && self.is_connected(from, is_packet)
    }

    /// Whether it is connected to the queue pair `from`, by the way that leads there.
    #[inline]
    pub(crate) fn is_connected(&self, from: u32, is_packet: bool) -> bool {
        let path = self.attr.path.as_ref();
        self.attr.dest_qpn == from && path.is_some_and(|path| path.is_remote() == is_packet)
    }

    /// The protection domain by which keys of the peer are judged: the queue pair's, or that of the
    /// XRC shared receive queue that the request names. `None` if there is no such queue in the XRC
    /// domain.
    #[inline(always)]
    pub(crate) fn remote_pd(&self, srqs: &Srqs<H>, srq: u32) -> Option<u32> {
        if self.init.qp_type.is_target() {
            srqs.pd_of_xrc(srq, self.init.pd)
        } else {
            Some(self.init.pd)
        }
    }

    /// The completion queue of a receive request, which may be one of that XRC shared receive
    /// queue; `None` if that queue is gone.
    #[inline(always)]
    pub(crate) fn receive_cq(&self, srqs: &Srqs<H>, srq: u32) -> Option<u32> {
        if self.init.qp_type.is_target() {
            srqs.cq_of_xrc(srq, self.init.pd)
        } else {
            Some(self.init.recv_cq)
        }
    }
}
