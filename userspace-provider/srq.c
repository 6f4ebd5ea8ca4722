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
	struct create_srq_resp resp = {};
	struct ibv_create_srq cmd = {};
	struct ferrule_origin origin;
	struct ferrule_srq *srq;
	int err;

	srq = ferrule_alloc_object(pd, sizeof(*srq), FERRULE_RESOURCE_SRQ,
				   &origin);
	if (!srq)
		return NULL;
	srq->origin = origin;

	err = ibv_cmd_create_srq(pd, &srq->verbs.srq, attr, &cmd, sizeof(cmd),
				 &resp.core, sizeof(resp));
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
	ferrule_free_object(srq, FERRULE_RESOURCE_SRQ, origin);
	errno = err;
	return NULL;
}

int ferrule_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr,
		       int attr_mask)
{
	struct ibv_modify_srq cmd = {};

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

	ferrule_lock_destroy(&srq->rq.lock);
	munmap(srq->buf, srq->buf_size);
	ferrule_free_object(srq, FERRULE_RESOURCE_SRQ, srq->origin);

	return 0;
}
