// SPDX-License-Identifier: GPL-2.0

//! The responses of a responder.

use crate::base::status::Status;

/// What the requester gets for a segment of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Response {
    /// An acknowledgement: the segment has arrived.
    Acknowledge,
    /// An RNR NAK: there is no receive request. The code of the time to wait.
    RnrNak(u8),
    /// A NAK: an earlier packet was expected (PSN sequence error).
    SequenceError,
    /// Any other NAK: how the request ends at the requester. The responder is in error.
    Nak(Status),
    /// Nothing.
    None,
    /// The requester's own memory could not be reached.
    RequesterFault,
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
