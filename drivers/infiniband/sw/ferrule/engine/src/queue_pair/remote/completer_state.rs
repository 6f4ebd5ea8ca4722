// SPDX-License-Identifier: GPL-2.0

//! State of the completer: which responses are missing, and where data go that come back.

use crate::{
    base::host::Host,
    memory::sgl::Cursor,
    object::request::SendRequest,
    queue_pair::remote::gap::Gap, //
};

/// Allocates the copy of a request. Not inlined: its size would be in the caller's stack frame.
#[inline(never)]
fn request<H: Host>() -> Option<H::Box<SendRequest>> {
    H::boxed(SendRequest::new)
}

/// What the completer knows of responses, beyond what the requester knows.
pub(crate) struct CompleterState<H: Host> {
    /// Responses are missing.
    pub(crate) gap: Gap,
    /// The reorder buffer of responses.
    pub(crate) reorder: H::Reorder,
    /// The request for which data come back.
    pub(crate) request: H::Box<SendRequest>,
    pub(crate) request_index: Option<u32>,
    pub(crate) cursor: Cursor,
}

impl<H: Host> CompleterState<H> {
    /// Allocates, with [`Host::boxed`]; `None` if there is no memory.
    pub(crate) fn new() -> Option<Self> {
        Some(Self {
            gap: Gap::default(),
            reorder: H::Reorder::default(),
            request: request::<H>()?,
            request_index: None,
            cursor: Cursor::default(),
        })
    }

    /// Nothing is waited for any more.
    pub(crate) fn stop(&mut self) {
        self.gap = Gap::default();
        self.request_index = None;
    }
}
