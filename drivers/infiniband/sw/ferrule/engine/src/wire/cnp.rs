// SPDX-License-Identifier: GPL-2.0

//! Congestion notification packets (CNP): a responder's response to requests that were marked on
//! their way.
//!
//! A CNP names the queue pair that sent the requests and says nothing else: the backward mark
//! (BECN) in the base transport header, sequence number 0, and 16 bytes of zeroes (IBA volume 1,
//! annex A17.9.3). It acknowledges nothing, nobody answers it, and if it is lost, the next mark
//! brings another one. Data of reads need none: the requester sees their marks, and asks for less.

use crate::{
    base::{
        counters::Count,
        host::{
            Host,
            Sends,
            Unsent, //
        },
    },
    memory::sgl::{
        PrivateBytes,
        Side, //
    },
    packet::{
        opcode::CONGESTION,
        Bth,
        Headers, //
    },
    queue_pair::{
        cx::Cx,
        qp::Qp, //
    },
    wire::transmit::transmit,
};

/// The bytes behind the base transport header.
const RESERVED: [u8; 16] = [0; 16];

/// Sends the CNP that is due.
///
/// # Errors
///
/// [`Unsent::Busy`], [`Unsent::Full`]: it is still due.
#[cold]
pub(super) fn notify<H: Host>(cx: &mut Cx<'_, H>, qp: &mut Qp<H>) -> Result<(), Unsent> {
    let Qp { core, wire, .. } = qp;
    let base = Bth {
        congestion: Bth::BECN,
        ..Bth::to(core.attr.dest_qpn, CONGESTION, 0)
    };
    let payload = Side::Private(PrivateBytes(&RESERVED));
    let length = RESERVED.len() as u32;
    let (headers, kind) = (Headers::new(&base), Sends::Responses);
    transmit(cx, core, kind, &mut wire.route, headers, payload, length)?;
    cx.counters.congestion_notifications_sent.count(1);
    wire.notification.sent(cx.now());
    Ok(())
}
