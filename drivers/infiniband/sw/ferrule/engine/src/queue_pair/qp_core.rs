// SPDX-License-Identifier: GPL-2.0

//! State that requester and responder of a queue pair share.

use crate::{
    base::{
        abi,
        attr::{
            Attributes,
            Path,
            QpType,
            State, //
        },
        event::Trace,
        host::{
            Host,
            Queue, //
        },
        id::QpId, //
    },
    object::qp_init::QpInit, //
};

/// State that requester and responder of a queue pair share. Both only read it while a segment is handled; the state
/// changes by [`QpCore::set_state`].
pub(crate) struct QpCore<H: Host> {
    pub(crate) id: QpId,
    pub(crate) state: State,
    pub(crate) attr: Attributes,
    pub(crate) init: QpInit<H>,
    /// Multicast groups that it is attached to.
    pub(crate) groups: u32,
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
    }

    /// The way to a remote peer.
    #[inline]
    pub(crate) fn remote_path(&self) -> Option<&Path> {
        self.attr.path.as_ref().filter(|path| path.is_remote())
    }

    /// The peer is remote, and acknowledges what it gets.
    #[inline]
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.init.qp_type == QpType::Rc && self.remote_path().is_some()
    }
}
