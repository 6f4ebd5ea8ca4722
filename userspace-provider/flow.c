// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Flow steering, which the kernel judges. */

#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "ferrule.h"

struct ibv_flow *ferrule_create_flow(struct ibv_qp *qp,
				     struct ibv_flow_attr *attr)
{
	struct ibv_flow *flow;
	int err;

	flow = calloc(1, sizeof(*flow));
	if (!flow)
		return NULL;

	err = ibv_cmd_create_flow(qp, flow, attr, NULL, 0);
	if (err) {
		free(flow);
		errno = err;
		return NULL;
	}

	return flow;
}

int ferrule_destroy_flow(struct ibv_flow *flow)
{
	int ret;

	ret = ibv_cmd_destroy_flow(flow);
	if (ret)
		return ret;

	free(flow);

	return 0;
}
