// SPDX-License-Identifier: GPL-2.0

//! A driver that tells a kernel user of a request which there never was: the user takes its number
//! for the address of a function.

#![forbid(unsafe_code)]

use rdma::{
    qp::Notifier,
    wc::{
        Completion,
        CompletionOpcode,
        Completions,
        Extra, //
    }, //
};

/// A completion is a value that may be made; telling the user of it is what counts.
pub fn invented(wr_id: u64) -> Completion {
    Completion {
        wr_id,
        status: 0,
        opcode: CompletionOpcode::Send,
        vendor_err: 0,
        byte_len: 0,
        extra: Extra::Nothing,
        src_qp: 0,
        grh: false,
        pkey_index: 0,
        sl: 0,
        vlan: None,
    }
}

/// Whether the user can be told of more.
pub fn has_space(completions: &Completions<'_>, _qp: &Notifier) -> bool {
    !completions.is_full()
}

#[cfg(unsound)]
pub fn complete(completions: &mut Completions<'_>, qp: &Notifier) {
    //~ E0133
    completions.push(qp, &invented(0x1234));
}
