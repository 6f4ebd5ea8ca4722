// SPDX-License-Identifier: GPL-2.0

//! What the completer knows: which answers are missing, and where data go that come back.

use crate::{
    base::host::Host,
    memory::sgl::Cursor,
    object::request::SendRequest,
    queue_pair::remote::gap::Gap, //
};

/// A request's room. As [`Qp`](crate::Qp)'s own, it is made in a frame of its own.
#[inline(never)]
fn reply<H: Host>() -> Option<H::Box<SendRequest>> {
    H::boxed(SendRequest::new)
}

/// What the completer knows of answers, beyond what the requester knows.
pub(crate) struct Completer<H: Host> {
    /// Answers are missing.
    pub(crate) missed: Gap,
    /// The reorder buffer of responses.
    pub(crate) reorder: H::Reorder,
    /// The request for which data come back.
    pub(crate) reply: H::Box<SendRequest>,
    pub(crate) reply_index: Option<u32>,
    pub(crate) reply_cursor: Cursor,
}

impl<H: Host> Completer<H> {
    /// Allocates, with [`Host::boxed`]; `None` if there is no memory.
    pub(crate) fn new() -> Option<Self> {
        Some(Self {
            missed: Gap::default(),
            reorder: H::Reorder::default(),
            reply: reply::<H>()?,
            reply_index: None,
            reply_cursor: Cursor::default(),
        })
    }

    /// Nothing is waited for any more.
    pub(crate) fn stop(&mut self) {
        self.missed = Gap::default();
        self.reply_index = None;
    }
}
