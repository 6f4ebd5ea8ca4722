// SPDX-License-Identifier: GPL-2.0
/*
 * Holds a device open, with an object of each kind, until it is killed. Prints
 * a line when it has them. With "all-nodes", it is a member of the group of all
 * nodes, and gets the frames to the Ethernet address of that, too.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>

static int join_all_nodes(struct ibv_pd *pd, struct ibv_qp_init_attr init)
{
	static const union ibv_gid group = {
		.raw = { 0xff, 2, [15] = 1 }
	};
	static struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
	} rule = {
		.attr = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(rule),
			  .num_of_specs = 1, .port = 1 },
		.eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(rule.eth),
			 .val.dst_mac = { 0x33, 0x33, [5] = 1 } },
	};
	struct ibv_qp *datagrams, *frames;

	memset(rule.eth.mask.dst_mac, 0xff, sizeof(rule.eth.mask.dst_mac));
	init.qp_type = IBV_QPT_UD;
	datagrams = ibv_create_qp(pd, &init);
	init.qp_type = IBV_QPT_RAW_PACKET;
	frames = ibv_create_qp(pd, &init);
	return datagrams && frames && !ibv_attach_mcast(datagrams, &group, 0) &&
	       ibv_create_flow(frames, &rule.attr);
}

int main(int argc, char **argv)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .cap = { 8, 8, 1, 1, 0 }
	};
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;
	static char buf[1 << 16];
	struct ibv_pd *pd;

	if (argc != 2 && (argc != 3 || strcmp(argv[2], "all-nodes"))) {
		fprintf(stderr, "usage: %s DEVICE [all-nodes]\n", argv[0]);
		return 2;
	}
	for (; list && *list; list++)
		if (!strcmp(ibv_get_device_name(*list), argv[1]))
			ctx = ibv_open_device(*list);
	if (!ctx || !(pd = ibv_alloc_pd(ctx)) ||
	    !ibv_reg_mr(pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE) ||
	    !(init.send_cq = init.recv_cq =
	      ibv_create_cq(ctx, 16, NULL, NULL, 0)) ||
	    !ibv_create_qp(pd, &init) ||
	    (argc == 3 && !join_all_nodes(pd, init))) {
		fprintf(stderr, "%s: %s: %s\n", argv[0], argv[1],
			strerror(errno));
		return 1;
	}
	puts("holding");
	fflush(stdout);
	for (;;)
		pause();
}
