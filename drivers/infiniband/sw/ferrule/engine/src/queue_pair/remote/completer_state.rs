// SPDX-License-Identifier: GPL-2.0

//! State of the completer: the responses that are missing, and the place of data that come back.

use crate::{
    base::host::Host,
    object::request::SendRequest,
    queue_pair::remote::gap::Gap, //
};

/// The completer's knowledge of responses, beyond the requester's.
pub(crate) struct CompleterState<H: Host> {
    /// Responses are missing.
    pub(crate) gap: Gap,
    /// The reorder buffer of responses.
    pub(crate) reorder: H::Reorder,
    /// The request for which data come back.
    pub(crate) request: SendRequest,
    pub(crate) request_index: Option<u32>,
}

impl<H: Host> CompleterState<H> {
    /// Of a queue pair that has not been used.
    pub(crate) fn new() -> Self {
        Self {
            gap: Gap::default(),
            reorder: H::Reorder::default(),
            request: SendRequest::new(),
            request_index: None,
        }
    }

    /// Nothing is waited for any more.
    pub(crate) fn stop(&mut self) {
        self.gap = Gap::default();
        self.request_index = None;
    }
}
