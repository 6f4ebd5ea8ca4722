/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints of the data path and of queue pair states. dev_index is the index
 * of the RDMA device, which `rdma dev` shows. States, and statuses and opcodes of
 * completions, have the values of the verbs' enums. Opcodes of requests are of
 * enum ferrule_wr_opcode, those of packets as on the wire.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM ferrule

#if !defined(FERRULE_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define FERRULE_TRACE_H

#include <linux/tracepoint.h>

/* The engine has taken a doorbell. */
TRACE_EVENT(ferrule_doorbell,
	TP_PROTO(u32 dev_index, u32 qpn, u32 producer),
	TP_ARGS(dev_index, qpn, producer),
	TP_STRUCT__entry(
		__field(u32, dev_index)
		__field(u32, qpn)
		__field(u32, producer)
	),
	TP_fast_assign(
		__entry->dev_index = dev_index;
		__entry->qpn = qpn;
		__entry->producer = producer;
	),
	TP_printk("dev_index=%u qpn=0x%06x producer=%u",
		  __entry->dev_index, __entry->qpn, __entry->producer)
);

/* The engine has copied a send request out of the ring. */
TRACE_EVENT(ferrule_request,
	TP_PROTO(u32 dev_index, u32 qpn, u64 wr_id, u32 opcode, u32 length),
	TP_ARGS(dev_index, qpn, wr_id, opcode, length),
	TP_STRUCT__entry(
		__field(u64, wr_id)
		__field(u32, dev_index)
		__field(u32, qpn)
		__field(u32, opcode)
		__field(u32, length)
	),
	TP_fast_assign(
		__entry->wr_id = wr_id;
		__entry->dev_index = dev_index;
		__entry->qpn = qpn;
		__entry->opcode = opcode;
		__entry->length = length;
	),
	TP_printk("dev_index=%u qpn=0x%06x wr_id=0x%llx opcode=%u length=%u",
		  __entry->dev_index, __entry->qpn, __entry->wr_id,
		  __entry->opcode, __entry->length)
);

/* The engine has written a completion. */
TRACE_EVENT(ferrule_completion,
	TP_PROTO(u32 dev_index, u32 qpn, u32 cqn, u64 wr_id, u32 status,
		 u32 opcode, u32 length),
	TP_ARGS(dev_index, qpn, cqn, wr_id, status, opcode, length),
	TP_STRUCT__entry(
		__field(u64, wr_id)
		__field(u32, dev_index)
		__field(u32, qpn)
		__field(u32, cqn)
		__field(u32, status)
		__field(u32, opcode)
		__field(u32, length)
	),
	TP_fast_assign(
		__entry->wr_id = wr_id;
		__entry->dev_index = dev_index;
		__entry->qpn = qpn;
		__entry->cqn = cqn;
		__entry->status = status;
		__entry->opcode = opcode;
		__entry->length = length;
	),
	TP_printk("dev_index=%u qpn=0x%06x cqn=%u wr_id=0x%llx status=%u opcode=%u length=%u",
		  __entry->dev_index, __entry->qpn, __entry->cqn,
		  __entry->wr_id, __entry->status, __entry->opcode,
		  __entry->length)
);

/* A queue pair has changed its state. */
TRACE_EVENT(ferrule_qp_state,
	TP_PROTO(u32 dev_index, u32 qpn, u32 from, u32 to),
	TP_ARGS(dev_index, qpn, from, to),
	TP_STRUCT__entry(
		__field(u32, dev_index)
		__field(u32, qpn)
		__field(u32, from)
		__field(u32, to)
	),
	TP_fast_assign(
		__entry->dev_index = dev_index;
		__entry->qpn = qpn;
		__entry->from = from;
		__entry->to = to;
	),
	TP_printk("dev_index=%u qpn=0x%06x %u -> %u",
		  __entry->dev_index, __entry->qpn, __entry->from, __entry->to)
);

/*
 * Congestion control has taken a round trip into account. Times are in
 * nanoseconds, and cwnd is in 256ths of a packet.
 */
TRACE_EVENT(ferrule_round_trip,
	TP_PROTO(u32 dev_index, u32 qpn, u64 rtt, u64 min_rtt, u64 target,
		 u32 cwnd, u32 in_flight, u32 mode),
	TP_ARGS(dev_index, qpn, rtt, min_rtt, target, cwnd, in_flight, mode),
	TP_STRUCT__entry(
		__field(u64, rtt)
		__field(u64, min_rtt)
		__field(u64, target)
		__field(u32, dev_index)
		__field(u32, qpn)
		__field(u32, cwnd)
		__field(u32, in_flight)
		__field(u32, mode)
	),
	TP_fast_assign(
		__entry->dev_index = dev_index;
		__entry->qpn = qpn;
		__entry->rtt = rtt;
		__entry->min_rtt = min_rtt;
		__entry->target = target;
		__entry->cwnd = cwnd;
		__entry->in_flight = in_flight;
		__entry->mode = mode;
	),
	TP_printk("dev_index=%u qpn=0x%06x rtt=%lluns min_rtt=%lluns target=%lluns cwnd=%u.%02u in_flight=%u mode=%u",
		  __entry->dev_index, __entry->qpn, __entry->rtt,
		  __entry->min_rtt, __entry->target, __entry->cwnd / 256,
		  __entry->cwnd % 256 * 100 / 256, __entry->in_flight,
		  __entry->mode)
);

/*
 * Packets by their base transport header: the queue pair that they are for, the
 * opcode and the packet sequence number, as they are on the wire.
 */

/* A packet was handed to the network. length: bytes of payload. */
TRACE_EVENT(ferrule_packet_sent,
	TP_PROTO(u32 dev_index, u32 qpn, u32 dest_qpn, u32 opcode, u32 psn,
		 u32 length),
	TP_ARGS(dev_index, qpn, dest_qpn, opcode, psn, length),
	TP_STRUCT__entry(
		__field(u32, dev_index)
		__field(u32, qpn)
		__field(u32, dest_qpn)
		__field(u32, opcode)
		__field(u32, psn)
		__field(u32, length)
	),
	TP_fast_assign(
		__entry->dev_index = dev_index;
		__entry->qpn = qpn;
		__entry->dest_qpn = dest_qpn;
		__entry->opcode = opcode;
		__entry->psn = psn;
		__entry->length = length;
	),
	TP_printk("dev_index=%u qpn=0x%06x dest_qpn=0x%06x opcode=0x%02x psn=%u length=%u",
		  __entry->dev_index, __entry->qpn, __entry->dest_qpn,
		  __entry->opcode, __entry->psn, __entry->length)
);

/* A sound packet has come. length: bytes from its IP header on. */
TRACE_EVENT(ferrule_packet_received,
	TP_PROTO(u32 dev_index, u32 dest_qpn, u32 opcode, u32 psn, u32 length),
	TP_ARGS(dev_index, dest_qpn, opcode, psn, length),
	TP_STRUCT__entry(
		__field(u32, dev_index)
		__field(u32, dest_qpn)
		__field(u32, opcode)
		__field(u32, psn)
		__field(u32, length)
	),
	TP_fast_assign(
		__entry->dev_index = dev_index;
		__entry->dest_qpn = dest_qpn;
		__entry->opcode = opcode;
		__entry->psn = psn;
		__entry->length = length;
	),
	TP_printk("dev_index=%u dest_qpn=0x%06x opcode=0x%02x psn=%u length=%u",
		  __entry->dev_index, __entry->dest_qpn, __entry->opcode,
		  __entry->psn, __entry->length)
);

/* A packet was dropped. The reasons are those of the engine's DropReason. */
TRACE_EVENT(ferrule_packet_dropped,
	TP_PROTO(u32 dev_index, u32 dest_qpn, u32 opcode, u32 psn, u32 reason),
	TP_ARGS(dev_index, dest_qpn, opcode, psn, reason),
	TP_STRUCT__entry(
		__field(u32, dev_index)
		__field(u32, dest_qpn)
		__field(u32, opcode)
		__field(u32, psn)
		__field(u32, reason)
	),
	TP_fast_assign(
		__entry->dev_index = dev_index;
		__entry->dest_qpn = dest_qpn;
		__entry->opcode = opcode;
		__entry->psn = psn;
		__entry->reason = reason;
	),
	TP_printk("dev_index=%u dest_qpn=0x%06x opcode=0x%02x psn=%u reason=%s",
		  __entry->dev_index, __entry->dest_qpn, __entry->opcode,
		  __entry->psn,
		  __print_symbolic(__entry->reason,
			{ 0, "short" },
			{ 1, "version" },
			{ 2, "opcode" },
			{ 3, "length" },
			{ 4, "icrc" },
			{ 5, "pkey" },
			{ 6, "unknown_queue_pair" },
			{ 7, "misdirected" },
			{ 8, "not_ready" },
			{ 9, "duplicate" },
			{ 10, "syndrome" },
			{ 11, "unexpected" },
			{ 12, "out_of_sequence" },
			{ 13, "qkey" },
			{ 14, "no_receive" },
			{ 15, "too_long" },
			{ 16, "refused" },
			{ 17, "absent" }))
);

/* A requester sends packets again. The reasons are the engine's RetryReason. */
TRACE_EVENT(ferrule_retry,
	TP_PROTO(u32 dev_index, u32 qpn, u32 psn, u32 reason),
	TP_ARGS(dev_index, qpn, psn, reason),
	TP_STRUCT__entry(
		__field(u32, dev_index)
		__field(u32, qpn)
		__field(u32, psn)
		__field(u32, reason)
	),
	TP_fast_assign(
		__entry->dev_index = dev_index;
		__entry->qpn = qpn;
		__entry->psn = psn;
		__entry->reason = reason;
	),
	TP_printk("dev_index=%u qpn=0x%06x psn=%u reason=%s",
		  __entry->dev_index, __entry->qpn, __entry->psn,
		  __print_symbolic(__entry->reason,
			{ 0, "timeout" },
			{ 1, "sequence_nak" },
			{ 2, "implied_nak" },
			{ 3, "rnr_nak" },
			{ 4, "probe" }))
);

#endif /* FERRULE_TRACE_H */

#undef TRACE_INCLUDE_PATH
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_PATH .
#define TRACE_INCLUDE_FILE ferrule_trace
#include <trace/define_trace.h>
