// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Shared receive queues; posting to them is in recv.c. */

#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "abi.h"
#include "ferrule.h"

static int map_srq(struct ferrule_srq *srq, int cmd_fd,
		   const struct ferrule_create_srq_resp *resp,
		   const struct ibv_srq_attr *attr, bool single_threaded)
{
	struct ferrule_srq_ctrl *ctrl;
	void *buf;

	buf = mmap(NULL, resp->buf_size, PROT_READ | PROT_WRITE, MAP_SHARED,
		   cmd_fd, resp->buf_offset);
	if (buf == MAP_FAILED)
		return errno;

	srq->buf = buf;
	srq->buf_size = resp->buf_size;
	ctrl = buf + resp->ctrl_offset;
	srq->ctrl = ctrl;
	ferrule_queue_init(&srq->rq, single_threaded, buf + resp->ring_offset,
			   resp->depth, resp->stride, &ctrl->producer,
			   attr->max_wr, attr->max_sge);

	return 0;
}

struct ibv_srq *ferrule_create_srq(struct ibv_pd *pd,
				   struct ibv_srq_init_attr *attr)
{
	struct ferrule_context *ctx = to_fctx(pd->context);
	struct create_srq_resp resp = {};
	struct create_srq_cmd cmd = {};
	struct ferrule_origin origin;
	struct ferrule_srq *srq;
	int err;

	srq = ferrule_alloc_object(pd, sizeof(*srq), FERRULE_RESOURCE_SRQ,
				   &origin);
	if (!srq)
		return NULL;
	srq->origin = origin;

	srq->db = ferrule_take_doorbells(ctx);
	/* As with a completion queue. */
	if (srq->db != ctx->db)
		cmd.drv.doorbells = srq->db->number;

	err = ibv_cmd_create_srq(pd, &srq->verbs.srq, attr, &cmd.core,
				 sizeof(cmd), &resp.core, sizeof(resp));
	if (err)
		goto err_free;

	err = map_srq(srq, pd->context->cmd_fd, &resp.drv, &attr->attr,
		      ferrule_single_threaded(pd));
	if (err)
		goto err_destroy;

	return &srq->verbs.srq;

err_destroy:
	ibv_cmd_destroy_srq(&srq->verbs.srq);
err_free:
	ferrule_leave_doorbells(ctx, srq->db);
	ferrule_free_object(srq, FERRULE_RESOURCE_SRQ, origin);
	errno = err;
	return NULL;
}

/* From now on a poll finds the queue by its completions. */
static void link_srq(struct ferrule_srq *srq)
{
	struct ferrule_cq *cq = to_fcq(srq->verbs.cq);

	ferrule_lock(&cq->lock);
	srq->next = cq->xrc_srqs;
	cq->xrc_srqs = srq;
	ferrule_unlock(&cq->lock);
}

static void unlink_srq(struct ferrule_srq *srq)
{
	struct ferrule_cq *cq = to_fcq(srq->verbs.cq);
	struct ferrule_srq **at = &cq->xrc_srqs;

	ferrule_lock(&cq->lock);
	while (*at != srq)
		at = &(*at)->next;
	*at = srq->next;
	ferrule_cq_drop_stale(cq);
	ferrule_unlock(&cq->lock);
}

/* ibv_create_srq_ex(3) makes basic queues by ferrule_create_srq(). */
struct ibv_srq *ferrule_create_srq_ex(struct ibv_context *context,
				      struct ibv_srq_init_attr_ex *attr)
{
	struct create_srq_resp resp = {};
	struct ibv_create_xsrq cmd = {};
	struct ferrule_origin origin;
	struct ferrule_srq *srq;
	int err;

	if (!check_comp_mask(attr->comp_mask, IBV_SRQ_INIT_ATTR_TYPE |
						      IBV_SRQ_INIT_ATTR_PD |
						      IBV_SRQ_INIT_ATTR_XRCD |
						      IBV_SRQ_INIT_ATTR_CQ) ||
	    !(attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) ||
	    attr->srq_type != IBV_SRQT_XRC) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD)) {
		errno = EINVAL;
		return NULL;
	}

	srq = ferrule_alloc_object(attr->pd, sizeof(*srq), FERRULE_RESOURCE_SRQ,
				   &origin);
	if (!srq)
		return NULL;
	srq->origin = origin;

	err = ibv_cmd_create_srq_ex(context, &srq->verbs, attr, &cmd,
				    sizeof(cmd), &resp.core, sizeof(resp));
	if (err)
		goto err_free;

	err = map_srq(srq, context->cmd_fd, &resp.drv, &attr->attr,
		      ferrule_single_threaded(attr->pd));
	if (err)
		goto err_destroy;
	link_srq(srq);

	return &srq->verbs.srq;

err_destroy:
	ibv_cmd_destroy_srq(&srq->verbs.srq);
err_free:
	ferrule_free_object(srq, FERRULE_RESOURCE_SRQ, origin);
	errno = err;
	return NULL;
}

int ferrule_get_srq_num(struct ibv_srq *ibsrq, uint32_t *srq_num)
{
	struct ferrule_srq *srq = to_fsrq(ibsrq);

	/* Peers name XRC queues alone. */
	if (!srq->verbs.xrcd)
		return EINVAL;
	*srq_num = srq->verbs.srq_num;

	return 0;
}

/* Posts to another buffer from now on; under the lock. */
static void move_srq(struct ferrule_srq *srq, void *buf,
		     const struct ferrule_resize_srq_resp *resp)
{
	struct ferrule_srq_ctrl *ctrl = buf + resp->ctrl_offset;

	munmap(srq->buf, srq->buf_size);
	srq->buf = buf;
	srq->buf_size = resp->buf_size;
	srq->ctrl = ctrl;
	srq->rq.slots = buf + resp->ring_offset;
	srq->rq.mask = resp->depth - 1;
	srq->rq.max_wr = resp->depth;
	srq->rq.producer_word = &ctrl->producer;
}

/*
 * Nobody posts from the moment when the kernel copies the waiting requests to
 * the other buffer until that is mapped: a thread that would do so spins
 * meanwhile. Queue pairs go on to take requests.
 */
static int resize_srq(struct ferrule_srq *srq, struct ibv_srq_attr *attr,
		      int attr_mask)
{
	struct ibv_srq *ibsrq = &srq->verbs.srq;
	struct ferrule_resize_srq_resp resp = {};
	struct modify_srq_cmd cmd = { .drv.resp = (uintptr_t)&resp };
	void *buf;
	int ret;

	ferrule_lock(&srq->rq.lock);
	ret = ibv_cmd_modify_srq(ibsrq, attr, attr_mask, &cmd.core,
				 sizeof(cmd));
	if (ret)
		goto out;
	buf = mmap(NULL, resp.buf_size, PROT_READ | PROT_WRITE, MAP_SHARED,
		   ibsrq->context->cmd_fd, resp.buf_offset);
	if (buf == MAP_FAILED) {
		/* Nothing can be posted until a further resize succeeds. */
		ret = errno;
		srq->rq.max_wr = 0;
		goto out;
	}
	move_srq(srq, buf, &resp);
out:
	ferrule_unlock(&srq->rq.lock);
	return ret;
}

int ferrule_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr,
		       int attr_mask)
{
	struct ibv_modify_srq cmd = {};

	if (attr_mask & IBV_SRQ_MAX_WR)
		return resize_srq(to_fsrq(srq), attr, attr_mask);

	return ibv_cmd_modify_srq(srq, attr, attr_mask, &cmd, sizeof(cmd));
}

int ferrule_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	struct ibv_query_srq cmd = {};

	return ibv_cmd_query_srq(srq, attr, &cmd, sizeof(cmd));
}

int ferrule_destroy_srq(struct ibv_srq *ibsrq)
{
	struct ferrule_srq *srq = to_fsrq(ibsrq);
	int ret;

	ret = ibv_cmd_destroy_srq(ibsrq);
	if (ret)
		return ret;

	if (srq->verbs.xrcd)
		unlink_srq(srq);
	else
		ferrule_leave_doorbells(to_fctx(ibsrq->context), srq->db);
	munmap(srq->buf, srq->buf_size);
	ferrule_free_object(srq, FERRULE_RESOURCE_SRQ, srq->origin);

	return 0;
}
