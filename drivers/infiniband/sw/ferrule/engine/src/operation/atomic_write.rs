// SPDX-License-Identifier: GPL-2.0

//! ATOMIC WRITE at the responder (IBA volume 1, annex A19.4.2): 8 bytes that the memory gets all at
//! once, and after the earlier writes of the same queue pair.

use crate::{
    base::{
        abi,
        attr::Access,
        host::{
            Fault,
            Host,
            Region, //
        },
    },
    operation::{
        atomic::refuse_word,
        request_segment::{
            Refusal,
            RequestSegment,
            Response, //
        },
    },
    queue_pair::{
        cx::Cx,
        qp_core::QpCore, //
    },
};

/// Stores the bytes.
pub(crate) fn execute<H: Host>(
    cx: &mut Cx<'_, H>,
    core: &QpCore<H>,
    segment: RequestSegment<'_, H>,
) -> Result<Response, Refusal> {
    if !core.attr.responds_to(Access::REMOTE_WRITE) {
        return Err(Refusal::InvalidRequest);
    }
    let word = segment.remote(core, Access::REMOTE_WRITE);
    let (region, offset) = cx.keys.check(&word).map_err(|_| Refusal::Access)?;
    // As for the other atomic operations (IBA volume 1, 9.4.5).
    if word.addr & 7 != 0 {
        return Err(Refusal::InvalidRequest);
    }
    let words: abi::AtomicWriteWords = zerocopy::transmute!(segment.head.extra);
    match region.store_word(offset, u64::from_ne_bytes(words.value)) {
        Ok(()) => Ok(Response::Acknowledge),
        Err(Fault) => refuse_word(region, offset, cx.keys.asker),
    }
}
