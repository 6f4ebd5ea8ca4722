// SPDX-License-Identifier: GPL-2.0

//! State of a queue pair whose peer is elsewhere.

pub(crate) mod completer;
pub(crate) mod gap;
pub(crate) mod notification;
pub(crate) mod probe;
pub(crate) mod record;
pub(crate) mod repair;
pub(crate) mod requester;
pub(crate) mod response;
pub(crate) mod state;
