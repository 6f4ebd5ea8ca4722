// SPDX-License-Identifier: GPL-2.0
/*
 * Holds a device open, with an object of each kind, until it is killed. Prints
 * a line when it has them.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>

int main(int argc, char **argv)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .cap = { 8, 8, 1, 1, 0 }
	};
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;
	static char buf[1 << 16];
	struct ibv_pd *pd;

	if (argc != 2) {
		fprintf(stderr, "usage: %s DEVICE\n", argv[0]);
		return 2;
	}
	for (; list && *list; list++)
		if (!strcmp(ibv_get_device_name(*list), argv[1]))
			ctx = ibv_open_device(*list);
	if (!ctx || !(pd = ibv_alloc_pd(ctx)) ||
	    !ibv_reg_mr(pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE) ||
	    !(init.send_cq = init.recv_cq =
	      ibv_create_cq(ctx, 16, NULL, NULL, 0)) ||
	    !ibv_create_qp(pd, &init)) {
		fprintf(stderr, "%s: %s: %s\n", argv[0], argv[1],
			strerror(errno));
		return 1;
	}
	puts("holding");
	fflush(stdout);
	for (;;)
		pause();
}
