// SPDX-License-Identifier: GPL-2.0

//! The operations that a queue pair carries out by itself: bind, register, invalidate.

use crate::{
    base::host::Host,
    memory::{
        bind::{
            Bind,
            BindError, //
        },
        fast::Register, //
    },
    object::{
        request::SendRequest,
        wr_opcode::{
            Class,
            Extra,
            KeyChange, //
        },
    },
    queue_pair::{
        cx::Cx,
        qp::Qp,
        qp_core::QpCore, //
    },
};

/// A request has done what it should: if it is a READ with invalidate, it takes the key of this
/// side back that it names, before it completes.
#[inline(always)]
pub(crate) fn invalidate_own<H: Host>(
    cx: &mut Cx<'_, H>,
    core: &QpCore<H>,
    request: &SendRequest,
) -> Result<(), BindError> {
    match request.opcode.facts().extra {
        Extra::InvalidateOwn => {
            let key = u32::from_le_bytes(request.slot.head.imm_or_inv);
            cx.keys.invalidate(core.init.pd, core.id, key)
        }
        Extra::None | Extra::Immediate | Extra::Invalidate => Ok(()),
    }
}

/// Binds a window, registers a region or invalidates a key. All requests before have ended, so none
/// still needs it; or it registers a region, which opens nothing yet.
pub(crate) fn change_key<H: Host>(cx: &mut Cx<'_, H>, qp: &mut Qp<H>) -> Result<(), BindError> {
    let Qp { core, sq, .. } = qp;
    let head = &sq.request.slot.head;
    let change = match sq.request.opcode.facts().class {
        Class::Key(change) => change,
        Class::Send
        | Class::Write
        | Class::Read
        | Class::Atomic(_)
        | Class::AtomicWrite
        | Class::Flush => return Err(BindError),
    };
    match change {
        KeyChange::Bind => cx.keys.bind(core.init.pd, core.id, &Bind::from(head)),
        KeyChange::Register => {
            let wanted = Register::from(head);
            cx.keys.register(core.init.pd, &wanted, &mut cx.allowance)
        }
        KeyChange::Invalidate => {
            let key = u32::from_le_bytes(head.imm_or_inv);
            cx.keys.invalidate(core.init.pd, core.id, key)
        }
    }
}
