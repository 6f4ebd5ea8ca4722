// SPDX-License-Identifier: GPL-2.0

//! State of a queue pair whose peer is remote.

pub(crate) mod completer_state;
pub(crate) mod gap;
pub(crate) mod requester_state;
pub(crate) mod responder_state;
pub(crate) mod state;
pub(crate) mod tail_loss_probe;
