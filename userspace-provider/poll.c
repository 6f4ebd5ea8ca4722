// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Polling completion queues, in both ways. */

#include <config.h>

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "ferrule.h"

/* So that a completion's status, opcode and flags need no translation. */
static_assert((int)FERRULE_WC_SUCCESS == IBV_WC_SUCCESS, "status");
static_assert((int)FERRULE_WC_LOC_LEN_ERR == IBV_WC_LOC_LEN_ERR, "status");
static_assert((int)FERRULE_WC_LOC_QP_OP_ERR == IBV_WC_LOC_QP_OP_ERR, "status");
static_assert((int)FERRULE_WC_LOC_PROT_ERR == IBV_WC_LOC_PROT_ERR, "status");
static_assert((int)FERRULE_WC_WR_FLUSH_ERR == IBV_WC_WR_FLUSH_ERR, "status");
static_assert((int)FERRULE_WC_MW_BIND_ERR == IBV_WC_MW_BIND_ERR, "status");
static_assert((int)FERRULE_WC_BAD_RESP_ERR == IBV_WC_BAD_RESP_ERR, "status");
static_assert((int)FERRULE_WC_LOC_ACCESS_ERR == IBV_WC_LOC_ACCESS_ERR,
	      "status");
static_assert((int)FERRULE_WC_REM_INV_REQ_ERR == IBV_WC_REM_INV_REQ_ERR,
	      "status");
static_assert((int)FERRULE_WC_REM_ACCESS_ERR == IBV_WC_REM_ACCESS_ERR,
	      "status");
static_assert((int)FERRULE_WC_REM_OP_ERR == IBV_WC_REM_OP_ERR, "status");
static_assert((int)FERRULE_WC_RETRY_EXC_ERR == IBV_WC_RETRY_EXC_ERR, "status");
static_assert((int)FERRULE_WC_RNR_RETRY_EXC_ERR == IBV_WC_RNR_RETRY_EXC_ERR,
	      "status");
static_assert((int)FERRULE_WC_REM_ABORT_ERR == IBV_WC_REM_ABORT_ERR, "status");
static_assert((int)FERRULE_WC_FATAL_ERR == IBV_WC_FATAL_ERR, "status");
static_assert((int)FERRULE_WC_GENERAL_ERR == IBV_WC_GENERAL_ERR, "status");
static_assert((int)FERRULE_WC_SEND == IBV_WC_SEND, "opcode");
static_assert((int)FERRULE_WC_RDMA_WRITE == IBV_WC_RDMA_WRITE, "opcode");
static_assert((int)FERRULE_WC_RDMA_READ == IBV_WC_RDMA_READ, "opcode");
static_assert((int)FERRULE_WC_COMP_SWAP == IBV_WC_COMP_SWAP, "opcode");
static_assert((int)FERRULE_WC_FETCH_ADD == IBV_WC_FETCH_ADD, "opcode");
static_assert((int)FERRULE_WC_BIND_MW == IBV_WC_BIND_MW, "opcode");
static_assert((int)FERRULE_WC_LOCAL_INV == IBV_WC_LOCAL_INV, "opcode");
static_assert((int)FERRULE_WC_FLUSH == IBV_WC_FLUSH, "opcode");
static_assert((int)FERRULE_WC_ATOMIC_WRITE == IBV_WC_ATOMIC_WRITE, "opcode");
static_assert((int)FERRULE_WC_RECV == IBV_WC_RECV, "opcode");
static_assert((int)FERRULE_WC_RECV_RDMA_WITH_IMM == IBV_WC_RECV_RDMA_WITH_IMM,
	      "opcode");
static_assert((int)FERRULE_WC_GRH == IBV_WC_GRH, "flag");
static_assert((int)FERRULE_WC_WITH_IMM == IBV_WC_WITH_IMM, "flag");
static_assert((int)FERRULE_WC_WITH_INV == IBV_WC_WITH_INV, "flag");

static const struct ferrule_cqe *slot(const struct ferrule_cq_ring *ring,
				      uint64_t index)
{
	return &ring->slots[(index - ring->base) & (ring->depth - 1)];
}

/*
 * Says whether the engine has written the completion with this index. Acquire:
 * the phase is written last, so the rest of the slot stands when it does, and
 * so does the data in memory that the completion speaks of.
 */
static bool is_valid(const struct ferrule_cq_ring *ring, uint64_t index)
{
	uint64_t nth = index - ring->base;
	uint32_t phase = nth & ring->depth ? 0 : FERRULE_CQE_PHASE;

	return (shared_load32(&slot(ring, index)->phase, memory_order_acquire) &
		FERRULE_CQE_PHASE) == phase;
}

/* The ring is empty, and the engine will not come back to it. */
void ferrule_cq_leave_ring(struct ferrule_cq *cq)
{
	struct ferrule_cq_ring *next = cq->ring.next;

	munmap((void *)cq->ring.slots, cq->ring.size);
	cq->ring = *next;
	free(next);
}

/* Goes on to the ring in which the next completion is. */
static inline void enter_ring(struct ferrule_cq *cq)
{
	while (unlikely(cq->ring.next) && cq->consumer == cq->ring.next->base)
		ferrule_cq_leave_ring(cq);
}

/*
 * Says whether an XRC shared receive queue that completes here lives still. The
 * caller holds the lock. There are few: programs have them to share them.
 */
static bool has_xrc_srq(const struct ferrule_cq *cq, uint32_t srq_num)
{
	const struct ferrule_srq *srq = cq->xrc_srqs;

	while (srq && srq->verbs.srq_num != srq_num)
		srq = srq->next;

	return srq;
}

/*
 * Says whether the program shall see a completion: not if its queue pair has
 * been destroyed, or reset, since. *queue is the one whose slots it retires;
 * none if it is of an XRC shared receive queue.
 */
static inline bool is_live(const struct ferrule_cq *cq,
			   const struct ferrule_cqe *cqe, uint64_t index,
			   struct ferrule_queue **queue)
{
	struct ferrule_context *ctx = to_fctx(cq->verbs.cq.context);
	struct ferrule_qp *qp;

	if (unlikely(cqe->is_xrc)) {
		*queue = NULL;
		return has_xrc_srq(cq, le32toh(cqe->queue_index));
	}

	qp = ferrule_qp_table_find(&ctx->qps, le32toh(cqe->qp_num),
				   le32toh(cqe->qp_gen));
	if (unlikely(!qp))
		return false;

	*queue = cqe->opcode & FERRULE_WC_RECV ? &qp->rq : &qp->sq;

	return index >= (*queue)->first_cqe;
}

/*
 * Gives back to its queue pair the slots that a completion retires, and says
 * whether the program shall see it. (With a shared receive queue the index says
 * nothing here, and nobody reads what is stored: posting to such a queue pair
 * is refused.)
 */
static bool retire(const struct ferrule_cq *cq, const struct ferrule_cqe *cqe,
		   uint64_t index)
{
	struct ferrule_queue *queue;

	if (unlikely(!is_live(cq, cqe, index, &queue)))
		return false;
	if (likely(queue))
		atomic_store_explicit(&queue->consumer,
				      le32toh(cqe->queue_index),
				      memory_order_release);

	return true;
}

/*
 * Takes the oldest request of a queue into cq->cqe, as flushed. The word says
 * which requests there are: a thread that polls between ibv_wr_start() and
 * ibv_wr_complete() holds the lock of the queue already.
 */
static bool flush_queue(struct ferrule_cq *cq, const struct ferrule_qp *qp,
			struct ferrule_queue *queue, uint8_t opcode)
{
	uint32_t index = atomic_load_explicit(&queue->consumer,
					      memory_order_relaxed);

	if (index == shared_load32(queue->producer_word, memory_order_acquire))
		return false;

	cq->cqe = (struct ferrule_cqe){
		/* Slots of both kinds begin with it. */
		.wr_id = *(__le64 *)queue_slot(queue, index),
		.qp_num = htole32(qp->verbs.qp.qp_num),
		.status = FERRULE_WC_WR_FLUSH_ERR,
		.opcode = opcode,
	};
	atomic_store_explicit(&queue->consumer, index + 1,
			      memory_order_release);
	return true;
}

static bool flush_qp(struct ferrule_qp *qp, void *arg)
{
	struct ferrule_cq *cq = arg;
	struct ibv_qp *ibqp = &qp->verbs.qp;

	/* It has no requests, but reset_qp() may have yet to empty its queues. */
	if (ibqp->state == IBV_QPS_RESET)
		return false;

	if (to_fcq(ibqp->send_cq) == cq &&
	    flush_queue(cq, qp, &qp->sq, FERRULE_WC_SEND))
		return true;

	/* A shared receive queue is not flushed. */
	return to_fcq(ibqp->recv_cq) == cq && !ibqp->srq &&
	       flush_queue(cq, qp, &qp->rq, FERRULE_WC_RECV);
}

/* Takes the next request that the device has left into cq->cqe. */
static bool flush(struct ferrule_cq *cq)
{
	struct ferrule_context *ctx = to_fctx(cq->verbs.cq.context);

	/*
	 * From now on the ring is not looked at: a device that is not as gone
	 * as it seemed must not complete a request for the second time.
	 */
	cq->flushing = true;
	return ferrule_qp_table_any(&ctx->qps, flush_qp, cq);
}

/*
 * Takes the next completion that concerns a living queue pair into cq->cqe.
 * The caller holds the lock.
 *
 * The slot goes back to the engine before the slots of the work queue go back
 * to posting threads: else a thread could post into those, and the engine find
 * no space for a completion in a queue as deep as the work queue.
 */
static bool take(struct ferrule_cq *cq)
{
	const struct ferrule_doorbell *db = cq->db;
	uint64_t index;

	if (unlikely(cq->flushing))
		return flush(cq);

	do {
		enter_ring(cq);
		index = cq->consumer;
		if (!is_valid(&cq->ring, index)) {
			if (likely(!ferrule_work_is_unflushed(db)))
				return false;
			/* The last completions may just have come. */
			if (!is_valid(&cq->ring, index))
				return flush(cq);
		}

		cq->cqe = *slot(&cq->ring, index);
		cq->consumer = index + 1;
		/* Release: the slot has been read when it is given back. */
		shared_store32(&cq->ctrl->consumer, index + 1,
			       memory_order_release);
	} while (!retire(cq, &cq->cqe, index));

	return true;
}

/* The index behind the last completion written. The caller holds the lock. */
uint64_t ferrule_cq_end(const struct ferrule_cq *cq)
{
	const struct ferrule_cq_ring *ring = &cq->ring;
	uint64_t end = cq->consumer;

	/* All that stands before the last ring has been written. */
	for (; ring->next; ring = ring->next)
		end = ring->next->base;
	/* One lap on, the phase of the same slot is the wrong one. */
	while (is_valid(ring, end))
		end++;

	return end;
}

/*
 * Gives back to the engine the slots of completions that nobody will see, up to
 * the first one that the program has yet to poll. Queue pairs that come and go
 * would fill the ring else, for polling drops such completions, but nobody need
 * poll for them. Those behind that one stay until it is polled: the program may
 * not write to the ring, so it cannot close the gap. The caller holds the lock.
 */
void ferrule_cq_drop_stale(struct ferrule_cq *cq)
{
	struct ferrule_queue *queue;

	for (;; cq->consumer++) {
		enter_ring(cq);
		if (!is_valid(&cq->ring, cq->consumer) ||
		    is_live(cq, slot(&cq->ring, cq->consumer), cq->consumer,
			    &queue))
			break;
	}
	/* Release: the slots have been read when they are given back. */
	shared_store32(&cq->ctrl->consumer, cq->consumer, memory_order_release);
}

/* Immediate data as it came, or the key that was invalidated in host order. */
static __be32 imm_or_inv(const struct ferrule_cqe *cqe)
{
	union {
		__u8 bytes[4];
		__be32 imm;
		__le32 key;
		uint32_t host;
	} u;

	memcpy(u.bytes, cqe->imm_or_inv, sizeof(u.bytes));
	if (cqe->flags & FERRULE_WC_WITH_INV)
		u.host = le32toh(u.key);

	return u.imm;
}

/*
 * The service level. For a datagram it is the kind of the packet, in the bits
 * that adapters use and programs expect, since no other field holds the flag of
 * IBA volume 1, A17.4.5.1. No service level of Ethernet has bit 3 (UDP), so an
 * address handle made from this asks for no priority. See
 * Documentation/features.md.
 */
static uint8_t service_level(const struct ferrule_cqe *cqe)
{
	enum { IPV6 = 1, IPV4 = 2, UDP = 1 << 3 };

	if (!(cqe->flags & FERRULE_WC_GRH))
		return cqe->sl;
	return UDP | (cqe->ip_version == 4 ? IPV4 : IPV6);
}

/*
 * Ends a poll that has found nothing, and lets the lock go. The program waits.
 *
 * The program's peer, another program whose turn it is, or the engine's worker
 * may want this processor. Without a yield they would wait for the end of the
 * time slice, milliseconds for each message. So many polls take longer than a
 * message does between two processors, 2 us without an emulator.
 */
static void end_empty_poll(struct ferrule_cq *cq)
{
	const unsigned int polls_before_yield = 256;
	struct ibv_context *context = cq->verbs.cq.context;
	bool yield = !(++cq->empty_polls % polls_before_yield);

	ferrule_unlock(&cq->lock);

	kick_deferred(cq);
	if (unlikely(yield) && to_fctx(context)->yields)
		sched_yield();
}

int ferrule_poll_cq(struct ibv_cq *ibcq, int num_entries, struct ibv_wc *wc)
{
	struct ferrule_cq *cq = to_fcq(ibcq);
	const struct ferrule_cqe *cqe = &cq->cqe;
	int n;

	ferrule_lock(&cq->lock);
	for (n = 0; n < num_entries && take(cq); n++, wc++) {
		wc->wr_id = le64toh(cqe->wr_id);
		wc->status = cqe->status;
		wc->opcode = cqe->opcode;
		wc->vendor_err = le16toh(cqe->vendor_err);
		wc->byte_len = le32toh(cqe->byte_len);
		wc->imm_data = imm_or_inv(cqe);
		wc->qp_num = le32toh(cqe->qp_num);
		wc->src_qp = le32toh(cqe->src_qp);
		wc->wc_flags = cqe->flags;
		wc->pkey_index = le16toh(cqe->pkey_index);
		/* Ethernet has no local identifiers. */
		wc->slid = 0;
		wc->sl = service_level(cqe);
		wc->dlid_path_bits = 0;
	}
	if (!n) {
		end_empty_poll(cq);
		return 0;
	}
	cq->empty_polls = 0;
	ferrule_unlock(&cq->lock);

	return n;
}

/*
 * The extended interface: start_poll takes the lock, end_poll lets it go.
 */

static int next_poll(struct ibv_cq_ex *ibcq)
{
	struct ferrule_cq *cq = to_fcq_ex(ibcq);

	if (!take(cq))
		return ENOENT;

	ibcq->wr_id = le64toh(cq->cqe.wr_id);
	ibcq->status = cq->cqe.status;
	return 0;
}

static int start_poll(struct ibv_cq_ex *ibcq, struct ibv_poll_cq_attr *attr)
{
	struct ferrule_cq *cq = to_fcq_ex(ibcq);
	int ret;

	if (unlikely(attr->comp_mask))
		return EINVAL;

	ferrule_lock(&cq->lock);
	ret = next_poll(ibcq);
	if (ret)
		end_empty_poll(cq);
	else
		cq->empty_polls = 0;

	return ret;
}

static void end_poll(struct ibv_cq_ex *ibcq)
{
	ferrule_unlock(&to_fcq_ex(ibcq)->lock);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ibcq)
{
	return to_fcq_ex(ibcq)->cqe.opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *ibcq)
{
	return le16toh(to_fcq_ex(ibcq)->cqe.vendor_err);
}

static unsigned int read_wc_flags(struct ibv_cq_ex *ibcq)
{
	return to_fcq_ex(ibcq)->cqe.flags;
}

static uint32_t read_byte_len(struct ibv_cq_ex *ibcq)
{
	return le32toh(to_fcq_ex(ibcq)->cqe.byte_len);
}

static __be32 read_imm_data(struct ibv_cq_ex *ibcq)
{
	return imm_or_inv(&to_fcq_ex(ibcq)->cqe);
}

static uint32_t read_qp_num(struct ibv_cq_ex *ibcq)
{
	return le32toh(to_fcq_ex(ibcq)->cqe.qp_num);
}

static uint32_t read_src_qp(struct ibv_cq_ex *ibcq)
{
	return le32toh(to_fcq_ex(ibcq)->cqe.src_qp);
}

static uint32_t read_slid(struct ibv_cq_ex *ibcq)
{
	return 0;
}

static uint8_t read_sl(struct ibv_cq_ex *ibcq)
{
	return service_level(&to_fcq_ex(ibcq)->cqe);
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *ibcq)
{
	return 0;
}

static uint64_t read_completion_ts(struct ibv_cq_ex *ibcq)
{
	return le64toh(to_fcq_ex(ibcq)->cqe.timestamp);
}

static uint64_t read_completion_wallclock_ns(struct ibv_cq_ex *ibcq)
{
	return ferrule_wall_ns(to_fctx(ibcq->context),
			       read_completion_ts(ibcq));
}

void ferrule_set_poll_ops(struct ibv_cq_ex *cq, uint64_t wc_flags)
{
	cq->start_poll = start_poll;
	cq->next_poll = next_poll;
	cq->end_poll = end_poll;
	cq->read_opcode = read_opcode;
	cq->read_vendor_err = read_vendor_err;
	cq->read_wc_flags = read_wc_flags;

	if (wc_flags & IBV_WC_EX_WITH_BYTE_LEN)
		cq->read_byte_len = read_byte_len;
	if (wc_flags & IBV_WC_EX_WITH_IMM)
		cq->read_imm_data = read_imm_data;
	if (wc_flags & IBV_WC_EX_WITH_QP_NUM)
		cq->read_qp_num = read_qp_num;
	if (wc_flags & IBV_WC_EX_WITH_SRC_QP)
		cq->read_src_qp = read_src_qp;
	if (wc_flags & IBV_WC_EX_WITH_SLID)
		cq->read_slid = read_slid;
	if (wc_flags & IBV_WC_EX_WITH_SL)
		cq->read_sl = read_sl;
	if (wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS)
		cq->read_dlid_path_bits = read_dlid_path_bits;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
		cq->read_completion_ts = read_completion_ts;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
		cq->read_completion_wallclock_ns = read_completion_wallclock_ns;
}
