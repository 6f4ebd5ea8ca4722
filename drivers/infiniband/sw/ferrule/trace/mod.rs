// SPDX-License-Identifier: GPL-2.0

//! Tracepoints: the engine's steps, as `ferrule:*` in tracefs.

use ferrule_engine::Trace;

kernel_ext::declare_trace! {
    // SAFETY: `trace.h` has tracepoints of these names with these arguments, which are numbers.
    unsafe extern "C" {
        /// The engine has taken a doorbell.
        safe fn ferrule_doorbell(dev_index: u32, qpn: u32, producer: u32);
        /// The engine has copied a send request out of the ring.
        safe fn ferrule_request(dev_index: u32, qpn: u32, wr_id: u64, opcode: u32, length: u32);
        /// The engine has written a completion.
        safe fn ferrule_completion(dev_index: u32, qpn: u32, cqn: u32, wr_id: u64, status: u32, opcode: u32, length: u32);
        /// A queue pair has changed its state.
        safe fn ferrule_qp_state(dev_index: u32, qpn: u32, from: u32, to: u32);
        /// Congestion control has taken a round trip into account.
        #[expect(clippy::too_many_arguments, reason = "one for each field")]
        safe fn ferrule_round_trip(dev_index: u32, qpn: u32, rtt: u64, min_rtt: u64, target: u64, cwnd: u32, in_flight: u32, mode: u32);
        /// A packet was handed to the network.
        safe fn ferrule_packet_sent(dev_index: u32, qpn: u32, dest_qpn: u32, opcode: u32, psn: u32, length: u32);
        /// A sound packet has come.
        safe fn ferrule_packet_received(dev_index: u32, dest_qpn: u32, opcode: u32, psn: u32, length: u32);
        /// A packet was dropped.
        safe fn ferrule_packet_dropped(dev_index: u32, dest_qpn: u32, opcode: u32, psn: u32, reason: u32);
        /// A requester sends packets again.
        safe fn ferrule_retry(dev_index: u32, qpn: u32, psn: u32, reason: u32);
    }
}

/// Shows a step of an engine of the device with this index.
///
/// Always inlined. Each caller knows which step it shows, so the test of that tracepoint's static
/// key is all that is left.
#[inline(always)]
pub(crate) fn step(dev_index: u32, step: &Trace) {
    match *step {
        Trace::Doorbell { qpn, producer } => ferrule_doorbell(dev_index, qpn, producer),
        Trace::Request {
            qpn,
            wr_id,
            opcode,
            length,
            ..
        } => ferrule_request(dev_index, qpn, wr_id, opcode.into(), length),
        Trace::Completion {
            qpn,
            cqn,
            wr_id,
            status,
            opcode,
            length,
            ..
        } => ferrule_completion(
            dev_index,
            qpn,
            cqn,
            wr_id,
            status as u32,
            opcode.into(),
            length,
        ),
        Trace::State { qpn, from, to } => ferrule_qp_state(dev_index, qpn, from as u32, to as u32),
        Trace::RoundTrip {
            qpn,
            rtt,
            min_rtt,
            target,
            cwnd,
            in_flight,
            mode,
        } => ferrule_round_trip(
            dev_index,
            qpn,
            rtt,
            min_rtt,
            target,
            cwnd,
            in_flight,
            mode.into(),
        ),
        Trace::PacketSent { qpn, bth, length } => {
            ferrule_packet_sent(
                dev_index,
                qpn,
                bth.dest_qp.get(),
                bth.opcode.into(),
                bth.psn.get(),
                length,
            );
        }
        Trace::PacketReceived { bth, length } => {
            ferrule_packet_received(
                dev_index,
                bth.dest_qp.get(),
                bth.opcode.into(),
                bth.psn.get(),
                length,
            );
        }
        Trace::PacketDropped { bth, reason } => {
            let (opcode, psn) = (bth.opcode.into(), bth.psn.get());
            ferrule_packet_dropped(dev_index, bth.dest_qp.get(), opcode, psn, reason as u32);
        }
        Trace::Retry { qpn, psn, reason } => ferrule_retry(dev_index, qpn, psn, reason as u32),
    }
}
