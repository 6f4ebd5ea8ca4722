// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Extended reliable connections: domains, and the target queue pairs in them.
 *
 * A target has no queue, so there is nothing to be mapped and no completion that
 * names it as its own: it is a handle to what the kernel has, which other
 * programs may have opened, too.
 */

#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "abi.h"
#include "ferrule.h"

struct ibv_xrcd *ferrule_open_xrcd(struct ibv_context *context,
				   struct ibv_xrcd_init_attr *attr)
{
	struct ib_uverbs_open_xrcd_resp resp = {};
	struct ibv_open_xrcd cmd = {};
	struct verbs_xrcd *xrcd;
	int err;

	xrcd = calloc(1, sizeof(*xrcd));
	if (!xrcd)
		return NULL;

	err = ibv_cmd_open_xrcd(context, xrcd, sizeof(*xrcd), attr, &cmd,
				sizeof(cmd), &resp, sizeof(resp));
	if (err) {
		free(xrcd);
		errno = err;
		return NULL;
	}

	return &xrcd->xrcd;
}

int ferrule_close_xrcd(struct ibv_xrcd *ibxrcd)
{
	struct verbs_xrcd *xrcd = container_of(ibxrcd, struct verbs_xrcd, xrcd);
	int ret;

	ret = ibv_cmd_close_xrcd(xrcd);
	if (ret)
		return ret;
	free(xrcd);

	return 0;
}

/*
 * Queues of no slots, so that posting fails as it should, and doorbells that
 * tell whether the device is gone.
 */
static void init_target(struct ferrule_qp *qp, struct ibv_context *context)
{
	qp->db = to_fctx(context)->db;
	ferrule_queue_init(&qp->sq, false, NULL, 0, 0, NULL, 0, 0);
	ferrule_queue_init(&qp->rq, false, NULL, 0, 0, NULL, 0, 0);
}

struct ibv_qp *ferrule_create_target(struct ibv_context *context,
				     struct ibv_qp_init_attr_ex *attr)
{
	struct ib_uverbs_ex_create_qp_resp resp = {};
	struct ibv_create_qp_ex cmd = {};
	struct ferrule_qp *qp;
	int err;

	if (!check_comp_mask(attr->comp_mask, IBV_QP_INIT_ATTR_PD |
						      IBV_QP_INIT_ATTR_XRCD)) {
		errno = EOPNOTSUPP;
		return NULL;
	}

	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;

	err = ibv_cmd_create_qp_ex2(context, &qp->verbs, attr, &cmd,
				    sizeof(cmd), &resp,
				    sizeof(resp) AND_64(NULL));
	if (err) {
		free(qp);
		errno = err;
		return NULL;
	}
	init_target(qp, context);

	return &qp->verbs.qp;
}

struct ibv_qp *ferrule_open_qp(struct ibv_context *context,
			       struct ibv_qp_open_attr *attr)
{
	struct ib_uverbs_create_qp_resp resp = {};
	struct ibv_open_qp cmd = {};
	struct ferrule_qp *qp;
	int err;

	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;

	err = ibv_cmd_open_qp(context, &qp->verbs, sizeof(qp->verbs), attr,
			      &cmd, sizeof(cmd), &resp, sizeof(resp));
	if (err) {
		free(qp);
		errno = err;
		return NULL;
	}
	init_target(qp, context);

	return &qp->verbs.qp;
}

int ferrule_destroy_target(struct ibv_qp *ibqp)
{
	struct ferrule_qp *qp = to_fqp(ibqp);
	int ret;

	ret = ibv_cmd_destroy_qp(ibqp);
	if (ret)
		return ret;

	free(qp);

	return 0;
}
