// SPDX-License-Identifier: GPL-2.0
/*
 * Wrong arguments of the verbs, the errno values that the manual pages name
 * for them, and the limits that the device states: each is usable, one more is
 * not.
 */
#include "arguments/arguments.h"

struct ibv_qp_init_attr small_qp(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = 4,
			.max_recv_wr = 4,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
	};

	return init;
}

int main(int argc, char **argv)
{
	static const struct test_case *const tables[] = {
		device_cases,
		domain_cases,
		object_cases,
		request_cases,
		command_cases,
		thread_cases,
		NULL,
	};

	return test_main_of(argc, argv, tables);
}
