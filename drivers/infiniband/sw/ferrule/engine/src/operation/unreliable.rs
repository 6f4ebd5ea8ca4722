// SPDX-License-Identifier: GPL-2.0

//! The end of receive requests where no peer is told of an error: UC and UD (IBA volume 1,
//! 9.9.3, table 62).

use crate::{
    base::{
        counters::Count,
        event::QpEvent,
        host::{
            Host,
            Unsent, //
        },
        status::Status, //
    },
    object::cq::Overrun,
    operation::completion::complete_receive_in_error,
    queue_pair::{
        cx::Cx,
        qp_core::QpCore,
        receive_queue::ReceiveQueue, //
    },
};

/// The queue pair cannot go on, and says so; the caller moves it to error.
pub(crate) fn report_fatal<H: Host>(cx: &mut Cx<'_, H>, core: &QpCore<H>) {
    cx.host.qp_event(&core.init.handle, QpEvent::Fatal);
}

/// Ends the receive request at hand with an error of its own (class A); the caller moves the queue
/// pair to error.
pub(crate) fn end_in_error<H: Host>(
    cx: &mut Cx<'_, H>,
    core: &QpCore<H>,
    rq: &mut ReceiveQueue,
    status: Status,
) -> Result<(), Overrun> {
    cx.counters.responder_errors.count(1);
    let completed = complete_receive_in_error(cx, core, rq, status);
    rq.finish();
    if completed.is_err() {
        report_fatal(cx, core);
    }
    completed
}

/// A message is longer than the buffer for it, and is dropped. The receive request stays at hand
/// for the next message (class D), or, as it cannot go back to a shared receive queue, ends in
/// error (class E).
///
/// # Errors
///
/// There was no space for the completion: the caller moves the queue pair to error.
pub(crate) fn drop_too_long<H: Host>(
    cx: &mut Cx<'_, H>,
    core: &QpCore<H>,
    rq: &mut ReceiveQueue,
) -> Result<(), Overrun> {
    match core.init.srq {
        Some(_) => end_in_error(cx, core, rq, Status::LocalLength),
        None => Ok(()),
    }
}

/// Why a segment of an unreliable service was not sent.
pub(crate) enum Unfinished {
    /// The request ends with an error.
    Failed(Status),
    /// The host has no space for a packet, or is bringing memory in: the same segment again after
    /// so many nanoseconds.
    Later(u64),
}

impl From<Status> for Unfinished {
    fn from(status: Status) -> Self {
        Unfinished::Failed(status)
    }
}

impl From<Unsent> for Unfinished {
    fn from(unsent: Unsent) -> Self {
        match unsent {
            Unsent::Fault => Unfinished::Failed(Status::LocalProtection),
            Unsent::Busy | Unsent::Full | Unsent::Absent => Unfinished::Later(unsent.wait()),
        }
    }
}
