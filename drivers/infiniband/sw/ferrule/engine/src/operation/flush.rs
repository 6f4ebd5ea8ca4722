// SPDX-License-Identifier: GPL-2.0

//! FLUSH at the responder (IBA volume 1, annex A19.4.1): when the response leaves, all see the
//! bytes that were written to this side's memory before.

use crate::{
    base::{
        abi::{
            self,
            flush_level, //
        },
        host::Host, //
    },
    memory::key_use::KeyUse,
    object::request::flush_rights,
    operation::request_segment::{
        Refusal,
        RequestSegment,
        Response, //
    },
    queue_pair::{
        cx::Cx,
        qp_core::QpCore, //
    },
};

/// Judges a flush and carries it out.
///
/// The processor writes to memory, and the caches of processors are coherent: bytes are visible
/// globally as soon as they are ordered before the response.
pub(crate) fn execute<H: Host>(
    cx: &mut Cx<'_, H>,
    core: &QpCore<H>,
    segment: RequestSegment<'_, H>,
) -> Result<Response, Refusal> {
    let words: abi::FlushWords = zerocopy::transmute!(segment.head.extra);
    let need = flush_rights(words.placement).ok_or(Refusal::InvalidRequest)?;
    if !core.attr.responds_to(need) {
        return Err(Refusal::InvalidRequest);
    }
    let named = segment.remote(core, need);
    let range = match words.level {
        flush_level::RANGE => Some(KeyUse {
            length: words.length.get().into(),
            ..named
        }),
        flush_level::REGION => cx.keys.whole(&named),
        _ => return Err(Refusal::InvalidRequest),
    };
    let range = range.ok_or(Refusal::Access)?;
    cx.keys.check(&range).map_err(|_| Refusal::Access)?;
    H::fence();
    Ok(Response::Acknowledge)
}
