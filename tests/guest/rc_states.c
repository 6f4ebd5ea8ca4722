// SPDX-License-Identifier: GPL-2.0
/*
 * The state machine of an RC queue pair: every transition with every attribute,
 * legal and not (IBA volume 1, table 91 of 11.2.5.2 and ibv_modify_qp(3)),
 * values that no attribute may have, the answers of queries, and the requests
 * that may be posted in each state.
 */
#include "rc_states/rc_states.h"

const enum ibv_qp_state states[STATES] = {
	IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD,
	IBV_QPS_ERR,
};

const char *state_name(enum ibv_qp_state state)
{
	static const char *const names[] = {
		"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"
	};

	return state < ARRAY_SIZE(names) ? names[state] : "?";
}

struct ibv_qp_attr good_attr(struct end *e, enum ibv_qp_state to)
{
	struct ibv_qp_attr attr = {
		.qp_state = to,
		.cur_qp_state = end_state(e),
		.en_sqd_async_notify = 1,
		.qp_access_flags = ACCESS_ALL,
		.port_num = 1,
		.qkey = 0x1234,
		.path_mtu = e->d->port.active_mtu,
		.timeout = 15,
		.retry_cnt = 5,
		.rnr_retry = 4,
		.rq_psn = 0x123456,
		.sq_psn = 0x654321,
		.max_rd_atomic = e->d->attr.max_qp_init_rd_atom ? 1 : 0,
		.max_dest_rd_atomic = e->d->attr.max_qp_rd_atom ? 1 : 0,
		.min_rnr_timer = 9,
		.dest_qp_num = e->qp->qp_num,
		.cap = e->cap,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.sl = 3,
			.grh = {
				.dgid = e->d->gid,
				.sgid_index = e->d->gid_index,
				.hop_limit = 63,
				.traffic_class = 0x28,
				.flow_label = 0xabcde,
			},
		},
	};

	attr.alt_ah_attr = attr.ah_attr;
	attr.alt_port_num = 1;
	return attr;
}

void query(struct end *e, struct ibv_qp_attr *attr)
{
	struct ibv_qp_init_attr init;

	memset(attr, 0, sizeof(*attr));
	REQUIRE_ERRNO(ibv_query_qp(e->qp, attr, 0x1fffff, &init), 0);
	/* This may change by itself. */
	attr->sq_draining = 0;
}

int main(int argc, char **argv)
{
	static const struct test_case *const tables[] = {
		transition_cases,
		attribute_cases,
		work_cases,
		NULL,
	};

	return test_main_of(argc, argv, tables);
}
