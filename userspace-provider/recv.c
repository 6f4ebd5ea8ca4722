// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Posting receive requests. */

#include <config.h>

#include <errno.h>
#include <string.h>

#include "ferrule.h"

static int post_one(struct ferrule_queue *rq, uint32_t index,
		    const struct ibv_recv_wr *wr)
{
	struct ferrule_recv_wqe *wqe;
	struct ferrule_sge *sge;
	int i;

	if (unlikely(queue_is_full(rq, index)))
		return ENOMEM;
	if (unlikely((uint32_t)wr->num_sge > rq->max_sge))
		return EINVAL;

	wqe = queue_slot(rq, index);
	memset(wqe, 0, sizeof(*wqe));
	wqe->wr_id = htole64(wr->wr_id);
	wqe->num_sge = htole16(wr->num_sge);

	sge = (struct ferrule_sge *)(wqe + 1);
	for (i = 0; i < wr->num_sge; i++) {
		sge[i].addr = htole64(wr->sg_list[i].addr);
		sge[i].length = htole32(wr->sg_list[i].length);
		sge[i].lkey = htole32(wr->sg_list[i].lkey);
	}

	return 0;
}

/*
 * Hands the requests before this index to the engine, and lets go of the lock.
 *
 * The engine reads the index by itself when a message wants a receive request,
 * so there is no doorbell; but for a queue pair in error, where requests are
 * flushed as they come. Of a post and a move to that state at one time, either
 * the post sees rq_doorbell or the engine sees the index, for both fence.
 */
static void publish_and_unlock(struct ferrule_qp *qp, uint32_t index)
{
	struct ibv_context *context = qp->verbs.qp.context;
	bool ring = false;

	if (index != qp->rq.producer) {
		qp->rq.producer = index;
		/*
		 * Release: the engine that sees the index sees the slots before
		 * it.
		 */
		shared_store32(qp->rq.producer_word, index,
			       memory_order_release);
		atomic_thread_fence(memory_order_seq_cst);
		ring = shared_load32(&qp->ctrl->rq_doorbell,
				     memory_order_relaxed);
	}
	ferrule_unlock(&qp->rq.lock);

	if (unlikely(ring) &&
	    ferrule_db_ring(qp->db, qp->verbs.qp.qp_num, false, 0))
		ferrule_db_kick(qp->db, context->cmd_fd);
}

int ferrule_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr,
		      struct ibv_recv_wr **bad_wr)
{
	struct ferrule_qp *qp = to_fqp(ibqp);
	uint32_t index;
	int ret = 0;

	ferrule_lock(&qp->rq.lock);
	index = qp->rq.producer;

	/* A queue pair in RESET takes no receive request (C10-97.2.1). */
	if (unlikely(ferrule_device_is_dead(qp->db)))
		ret = EIO;
	else if (unlikely(ibqp->state == IBV_QPS_RESET || ibqp->srq ||
			  ferrule_is_xrc(ibqp)))
		ret = EINVAL;

	while (wr && !ret) {
		ret = post_one(&qp->rq, index, wr);
		if (likely(!ret)) {
			index++;
			wr = wr->next;
		}
	}
	if (unlikely(ret))
		*bad_wr = wr;

	publish_and_unlock(qp, index);

	return ret;
}

/*
 * There is no doorbell: the engine reads the index when a message arrives. A
 * request that a queue pair has taken frees its slot, whatever becomes of it.
 */
int ferrule_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr,
			  struct ibv_recv_wr **bad_wr)
{
	struct ferrule_srq *srq = to_fsrq(ibsrq);
	struct ferrule_queue *rq = &srq->rq;
	uint32_t index;
	int ret = 0;

	ferrule_lock(&rq->lock);
	index = rq->producer;
	/* Acquire: the engine has read the slots that it gives back. */
	atomic_store_explicit(&rq->consumer,
			      shared_load32(&srq->ctrl->consumer,
					    memory_order_acquire),
			      memory_order_relaxed);

	if (unlikely(ferrule_device_is_dead(to_fctx(ibsrq->context)->db)))
		ret = EIO;

	while (wr && !ret) {
		ret = post_one(rq, index, wr);
		if (likely(!ret)) {
			index++;
			wr = wr->next;
		}
	}
	if (unlikely(ret))
		*bad_wr = wr;

	rq->producer = index;
	/* Release: the engine that sees the index sees the slots before it. */
	shared_store32(rq->producer_word, index, memory_order_release);
	ferrule_unlock(&rq->lock);

	return ret;
}
