// SPDX-License-Identifier: GPL-2.0

//! Atomic operations at the responder.
//!
//! They are instructions of the CPU on the registered memory itself, so they are atomic with each
//! other on every engine and with what programs do (`IB_ATOMIC_GLOB`), and no lock is taken.

use crate::{
    base::{
        abi,
        attr::Access,
        host::{
            Asker,
            Fault,
            Host,
            Presence,
            Region, //
        },
    },
    memory::{
        copy,
        sgl::PrivateBytes, //
    },
    object::wr_opcode::{
        Atomic,
        WORD, //
    },
    operation::request_segment::{
        Refusal,
        RequestSegment,
        Response, //
    },
    queue_pair::{
        cx::Cx,
        qp_core::QpCore,
        receive_queue::ReceiveQueue, //
    },
};

/// Carries an atomic operation out and hands what was there to the peer.
pub(crate) fn execute<H: Host>(
    cx: &mut Cx<'_, H>,
    core: &QpCore<H>,
    rq: &mut ReceiveQueue,
    segment: RequestSegment<'_, H>,
    operation: Atomic,
) -> Result<Response, Refusal> {
    if !core.attr.responds_to(Access::REMOTE_ATOMIC) {
        return Err(Refusal::InvalidRequest);
    }
    let word = segment.remote(core, Access::REMOTE_ATOMIC);
    let (region, offset) = cx.keys.check(&word).map_err(|_| Refusal::Access)?;
    // The address has to be a multiple of 8, else the request is invalid (IBA volume 1, 9.4.5).
    if word.addr & 7 != 0 {
        return Err(Refusal::InvalidRequest);
    }
    // It is carried out once: the value that it finds must have its place.
    if cx.keys.is_paging() {
        match segment.page_in(cx.keys, WORD) {
            Presence::Present => (),
            Presence::Coming => return Ok(Response::Absent),
            Presence::Gone => return Ok(Response::RequesterFault),
        }
    }
    let head = segment.head;
    let words: abi::AtomicWords = zerocopy::transmute!(head.extra);
    let before = match operation {
        Atomic::CompareSwap => {
            region.compare_swap(offset, words.compare_add.get(), words.swap.get())
        }
        Atomic::FetchAdd => region.fetch_add(offset, words.compare_add.get()),
    };
    let before = match before {
        Ok(before) => before,
        Err(Fault) => return refuse_word(region, offset, cx.keys.asker),
    };
    if segment.is_packet() {
        rq.found = before;
        return Ok(Response::Acknowledge);
    }
    let before = before.to_ne_bytes();
    match copy::copy(cx.keys, PrivateBytes(&before), segment.local(), WORD) {
        Ok(()) => Ok(Response::Acknowledge),
        Err(_) => Ok(Response::RequesterFault),
    }
}

/// The answer where a word could not be accessed.
#[cold]
pub(super) fn refuse_word(
    region: &impl Region,
    offset: u64,
    asker: Asker,
) -> Result<Response, Refusal> {
    match region.page_in(offset, WORD.into(), true, asker) {
        Presence::Coming => Ok(Response::Absent),
        Presence::Gone => Err(Refusal::Access),
        // Where addresses count from an odd place in memory, the word itself may not be aligned.
        Presence::Present => Err(Refusal::InvalidRequest),
    }
}
