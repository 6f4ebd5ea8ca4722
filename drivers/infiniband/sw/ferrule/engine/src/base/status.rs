// SPDX-License-Identifier: GPL-2.0

//! How requests end.

/// How a request ended, with the values of `enum ferrule_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// The request was carried out.
    Success = 0,
    /// The data do not fit, or are longer than a message may be.
    LocalLength = 1,
    /// The request is malformed, or not one that the queue pair can do.
    LocalOperation = 2,
    /// A local key does not open the memory that the request names.
    LocalProtection = 4,
    /// The queue pair was in error before the request's turn came.
    Flushed = 5,
    /// A memory window could not be bound.
    WindowBind = 6,
    /// The response is none that the request can have.
    BadResponse = 7,
    /// Data could not be placed in the responder's own memory.
    LocalAccess = 8,
    /// The responder found the request invalid.
    RemoteInvalidRequest = 9,
    /// The responder refused the access to its memory.
    RemoteAccess = 10,
    /// The responder could not carry the request out.
    RemoteOperation = 11,
    /// Nobody answered, after all retries.
    RetryExceeded = 12,
    /// The responder had no receive request, after all retries.
    RnrRetryExceeded = 13,
    /// The responder gave up.
    RemoteAbort = 16,
    /// The queue pair is broken.
    Fatal = 19,
    /// Another error.
    General = 21,
}
