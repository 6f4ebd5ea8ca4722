// SPDX-License-Identifier: GPL-2.0

//! How a responder answers.

use crate::base::status::Status;

/// How the requester is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The piece has arrived.
    Acknowledge,
    /// There is no receive request; the code of the time to wait.
    NotReady(u8),
    /// An earlier packet was expected.
    OutOfSequence,
    /// The request is refused: how it ends at the requester. The responder is in error.
    Refuse(Status),
    /// Nobody answers.
    Silence,
    /// The requester's own memory could not be reached.
    LocalLost,
}

/// Why a message is refused.
pub(crate) enum Refusal {
    /// The request is not one that this queue pair takes (NAK Invalid Request).
    InvalidRequest,
    /// The peer may not access the memory (NAK Remote Access Error).
    Access,
    /// The receive request at hand ends in error, and the peer is told why.
    Receive { local: Status, remote: Status },
    /// The queue pair is broken (NAK Remote Operational Error).
    Broken,
}
