// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Queue pairs: creating, changing state, destroying. */

#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "abi.h"
#include "ferrule.h"

/* An initiator of XRC has none: that of the send queue stands for it. */
static struct ferrule_cq *recv_cq(struct ferrule_qp *qp)
{
	struct ibv_qp *ibqp = &qp->verbs.qp;

	return to_fcq(ibqp->recv_cq ?: ibqp->send_cq);
}

/* Both completion queues in the order of their addresses, or the same twice. */
static void sort_cqs(struct ferrule_qp *qp, struct ferrule_cq **first,
		     struct ferrule_cq **second)
{
	struct ferrule_cq *a = to_fcq(qp->verbs.qp.send_cq);
	struct ferrule_cq *b = recv_cq(qp);

	*first = a < b ? a : b;
	*second = a < b ? b : a;
}

/*
 * With all of them held, no completion of this queue pair is being taken, and
 * none is in a ring that nobody knows yet.
 */
static void lock_cqs(struct ferrule_qp *qp)
{
	struct ferrule_cq *first, *second;

	sort_cqs(qp, &first, &second);
	pthread_mutex_lock(&first->resizing);
	if (first != second)
		pthread_mutex_lock(&second->resizing);
	ferrule_lock(&first->lock);
	if (first != second)
		ferrule_lock(&second->lock);
}

/* The completions of this queue pair have just become stale. */
static void drop_stale_and_unlock_cqs(struct ferrule_qp *qp)
{
	struct ferrule_cq *first, *second;

	sort_cqs(qp, &first, &second);
	ferrule_cq_drop_stale(first);
	ferrule_unlock(&first->lock);
	pthread_mutex_unlock(&first->resizing);
	if (first != second) {
		ferrule_cq_drop_stale(second);
		ferrule_unlock(&second->lock);
		pthread_mutex_unlock(&second->resizing);
	}
}

static struct ibv_pd *domain(const struct ibv_qp_init_attr_ex *attr)
{
	return attr->comp_mask & IBV_QP_INIT_ATTR_PD ? attr->pd : NULL;
}

static int map_qp(struct ferrule_qp *qp, int cmd_fd,
		  const struct ferrule_create_qp_resp *resp,
		  const struct ibv_qp_init_attr_ex *attr)
{
	bool single_threaded = ferrule_single_threaded(domain(attr));
	const struct ibv_qp_cap *cap = &attr->cap;
	struct ferrule_qp_ctrl *ctrl;
	void *buf;

	buf = mmap(NULL, resp->buf_size, PROT_READ | PROT_WRITE, MAP_SHARED,
		   cmd_fd, resp->buf_offset);
	if (buf == MAP_FAILED)
		return errno;

	qp->buf = buf;
	qp->buf_size = resp->buf_size;
	ctrl = buf + resp->ctrl_offset;
	qp->ctrl = ctrl;
	ferrule_queue_init(&qp->sq, single_threaded, buf + resp->sq_offset,
			   resp->sq_depth, resp->sq_stride, &ctrl->sq_producer,
			   cap->max_send_wr, cap->max_send_sge);
	ferrule_queue_init(&qp->rq, single_threaded, buf + resp->rq_offset,
			   resp->rq_depth, resp->rq_stride, &ctrl->rq_producer,
			   cap->max_recv_wr, cap->max_recv_sge);

	return 0;
}

static void unmap_qp(struct ferrule_qp *qp)
{
	munmap(qp->buf, qp->buf_size);
}

/* Those of the completion queue for sends, which any but an XRC target has. */
static void choose_doorbells(struct ferrule_qp *qp, struct ferrule_context *ctx,
			     const struct ibv_qp_init_attr_ex *attr)
{
	qp->db = attr->send_cq ? to_fcq(attr->send_cq)->db : ctx->db;
	if (attr->recv_cq && to_fcq(attr->recv_cq)->db != qp->db)
		atomic_store_explicit(&ctx->threads.share, true,
				      memory_order_relaxed);
}

#define SUPPORTED_COMP_MASK                                                    \
	(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |                 \
	 IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)

struct ibv_qp *ferrule_create_qp_ex(struct ibv_context *context,
				    struct ibv_qp_init_attr_ex *attr)
{
	struct ferrule_context *ctx = to_fctx(context);
	struct create_qp_cmd cmd = {};
	struct create_qp_resp resp = {};
	struct ferrule_origin origin;
	struct ferrule_qp *qp;
	int err;

	if (attr->qp_type == IBV_QPT_XRC_RECV)
		return ferrule_create_target(context, attr);
	if (!check_comp_mask(attr->comp_mask, SUPPORTED_COMP_MASK) ||
	    ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) &&
	     attr->create_flags)) {
		errno = EOPNOTSUPP;
		return NULL;
	}

	qp = ferrule_alloc_object(domain(attr), sizeof(*qp),
				  FERRULE_RESOURCE_QP, &origin);
	if (!qp)
		return NULL;
	qp->origin = origin;
	choose_doorbells(qp, ctx, attr);
	cmd.drv.doorbells = qp->db->number;

	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		err = ferrule_set_send_ops(qp, attr->qp_type,
					   attr->send_ops_flags);
		if (err)
			goto err_free;
	}

	err = ibv_cmd_create_qp_ex2(context, &qp->verbs, attr, &cmd.core,
				    sizeof(cmd), &resp.core,
				    sizeof(resp) AND_64(NULL));
	if (err)
		goto err_free;

	/* The kernel has not taken it, so it may be destroyed before this. */
	if (attr->qp_type == IBV_QPT_XRC_SEND)
		qp->verbs.qp.recv_cq = NULL;

	err = map_qp(qp, context->cmd_fd, &resp.drv, attr);
	if (err)
		goto err_destroy;

	qp->gen = resp.drv.qp_gen;
	qp->max_inline = attr->cap.max_inline_data;
	qp->sq_sig_all = attr->sq_sig_all;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		qp->verbs.comp_mask |= VERBS_QP_EX;

	err = ferrule_qp_table_insert(&ctx->qps, qp->verbs.qp.qp_num, qp->gen,
				      qp);
	if (err)
		goto err_unmap;

	return &qp->verbs.qp;

err_unmap:
	unmap_qp(qp);
err_destroy:
	ibv_cmd_destroy_qp(&qp->verbs.qp);
err_free:
	ferrule_free_object(qp, FERRULE_RESOURCE_QP, origin);
	errno = err;
	return NULL;
}

struct ibv_qp *ferrule_create_qp(struct ibv_pd *pd,
				 struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex attr_ex = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_qp *qp;

	qp = ferrule_create_qp_ex(pd->context, &attr_ex);
	if (qp)
		attr->cap = attr_ex.cap;

	return qp;
}

/* An empty queue: index 0 at both sides, as at creation. */
static void empty_queue(struct ferrule_queue *queue)
{
	ferrule_lock(&queue->lock);
	queue->producer = 0;
	atomic_store_explicit(&queue->consumer, 0, memory_order_relaxed);
	shared_store32(queue->producer_word, 0, memory_order_relaxed);
	ferrule_unlock(&queue->lock);
}

/*
 * In RESET the requests are gone without a completion (IBA volume 1, section
 * 10.3.1), and the engine counts from 0 again. Completions that were written
 * before must neither be seen in the new life nor give back slots of it, so
 * where they end is kept.
 *
 * From then on no poll stores to the work queues, and no post begins there. So
 * they are emptied after the locks of the completion queues have been let go:
 * a program that holds the lock of a work queue may wait for one of those.
 */
static void reset_qp(struct ferrule_qp *qp)
{
	struct ferrule_cq *send_cq = to_fcq(qp->verbs.qp.send_cq);

	lock_cqs(qp);
	/* Now, so that no thread posts into the queues behind our back. */
	qp->verbs.qp.state = IBV_QPS_RESET;
	qp->sq.first_cqe = ferrule_cq_end(send_cq);
	qp->rq.first_cqe = ferrule_cq_end(recv_cq(qp));
	drop_stale_and_unlock_cqs(qp);

	empty_queue(&qp->sq);
	empty_queue(&qp->rq);
}

int ferrule_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr,
		      int attr_mask)
{
	struct ibv_modify_qp cmd = {};
	int ret;

	ret = ibv_cmd_modify_qp(ibqp, attr, attr_mask, &cmd, sizeof(cmd));
	if (ret)
		return ret;

	if ((attr_mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RESET &&
	    ibqp->qp_type != IBV_QPT_XRC_RECV)
		reset_qp(to_fqp(ibqp));

	return 0;
}

int ferrule_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr,
		     int attr_mask, struct ibv_qp_init_attr *init_attr)
{
	struct ibv_query_qp cmd = {};

	return ibv_cmd_query_qp(ibqp, attr, attr_mask, init_attr, &cmd,
				sizeof(cmd));
}

/*
 * Completions of this queue pair may stand in its completion queues still, and
 * behind others' after this; polling finds no owner for them and drops them.
 */
int ferrule_destroy_qp(struct ibv_qp *ibqp)
{
	struct ferrule_context *ctx = to_fctx(ibqp->context);
	struct ferrule_qp *qp = to_fqp(ibqp);
	int ret;

	if (ibqp->qp_type == IBV_QPT_XRC_RECV)
		return ferrule_destroy_target(ibqp);
	ret = ibv_cmd_destroy_qp(ibqp);
	if (ret)
		return ret;

	lock_cqs(qp);
	ferrule_qp_table_remove(&ctx->qps, ibqp->qp_num, qp->gen);
	drop_stale_and_unlock_cqs(qp);

	unmap_qp(qp);
	ferrule_free_object(qp, FERRULE_RESOURCE_QP, qp->origin);

	return 0;
}
