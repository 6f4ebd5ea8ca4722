// SPDX-License-Identifier: GPL-2.0

//! State of the completer: which responses are missing, and where data go that come back.

use crate::{
    base::host::Host,
    memory::sgl::Cursor,
    object::request::SendRequest,
    queue_pair::remote::gap::Gap, //
};

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
    /// Of a queue pair that has not been used. Not inlined, so that it is made where its caller wants it.
    #[inline(never)]
    pub(crate) fn new(request: H::Box<SendRequest>) -> Self {
        Self {
            gap: Gap::default(),
            reorder: H::Reorder::default(),
            request,
            request_index: None,
            cursor: Cursor::default(),
        }
    }

    /// Nothing is waited for any more.
    pub(crate) fn stop(&mut self) {
        self.gap = Gap::default();
        self.request_index = None;
    }
}
