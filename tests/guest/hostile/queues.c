// SPDX-License-Identifier: GPL-2.0
/* Shared receive queues that are resized under messages, and queue pairs for frames. */
#define _GNU_SOURCE
#include "hostile.h"

#include <pthread.h>

/* The producer's index says anything while the driver carries requests over. */
static void *storm_srq(void *arg)
{
	struct hostile own = *(struct hostile *)arg, *h = &own;

	while (on(h)) {
		struct mapping now[32];
		unsigned int n = device_mappings(now, ARRAY_SIZE(now));

		for (unsigned int i = 0; i < n; i++) {
			uint64_t *words = (void *)now[i].begin;
			size_t count = (now[i].end - now[i].begin) / 8;
			bool old = !mapping_writable(&now[i]);

			for (unsigned int j = 0; j < h->maps; j++)
				old |= h->map[j].begin == now[i].begin;
			/* One that was replaced just now is gone: this dies. */
			if (!old)
				words[below(h, count)] = number(h);
		}
	}
	return NULL;
}

void attack_resize(struct hostile *h)
{
	struct ibv_srq_init_attr init = {
		.attr = { .max_wr = DEPTH, .max_sge = SGES },
	};
	struct end_config c = { .cq = h->cq, .timeout = 1, .retry = 1,
				.rnr_retry = 7, .rnr_timer = 1 };
	pthread_t thread;

	c.srq = ibv_create_srq(h->d.pd, &init);
	REQUIRE(c.srq);
	/* The storm leaves the rings of the queue pairs alone. */
	end_make(&h->b.e, &h->d, &c);
	h->maps = device_mappings(h->map, ARRAY_SIZE(h->map));
	REQUIRE_EQ(pthread_create(&thread, NULL, storm_srq, h), 0);
	while (on(h)) {
		struct ibv_srq_attr attr = {
			.max_wr = 1 + below(h, 4 * DEPTH),
			.srq_limit = below(h, 2 * DEPTH),
		};
		struct ibv_sge sge = sge_of(&h->r, 0, 100);
		struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

		for (int i = 0; i < 8; i++)
			ibv_post_srq_recv(c.srq, &wr, &bad);
		connect_prey(h);
		for (int i = 0; i < 8; i++)
			try_send(&h->a.e, 1, IBV_WR_SEND, IBV_SEND_SIGNALED,
				 &sge, 1, NULL, 0, 0);
		ibv_modify_srq(c.srq, &attr, IBV_SRQ_MAX_WR |
			       (below(h, 2) ? IBV_SRQ_LIMIT : 0));
	}
	pthread_join(thread, NULL);
}

/* The network device sees nonsense, and frames that come have no place. */
void attack_frames(struct hostile *h)
{
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
	} rule = {
		.attr = { .size = sizeof(rule), .num_of_specs = 1, .port = 1 },
		.eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(rule.eth) },
	};
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.send_cq = h->cq,
		.recv_cq = h->cq,
		.cap = { DEPTH, DEPTH, SGES, SGES, 0 },
	};
	struct ibv_qp_attr attr = { .port_num = 1 };
	struct ferrule_qp_ctrl *ctrl;
	struct mapping before[32];
	unsigned int n = device_mappings(before, ARRAY_SIZE(before));
	struct ibv_qp *qp = ibv_create_qp(h->d.pd, &init);
	uint32_t producer = 0;
	uint8_t *sq;

	/* A PCI function has none. */
	if (!qp && errno == EOPNOTSUPP)
		return;
	REQUIRE(qp);
	sq = raw_new_mapping(before, n, true, NULL);
	ctrl = (void *)(sq + DEPTH * (h->a.sq_stride + h->a.rq_stride));
	while (on(h)) {
		struct ibv_flow *flow;
		struct ibv_wc wc[16];

		ibv_modify_qp(qp, &(struct ibv_qp_attr){ }, IBV_QP_STATE);
		attr.qp_state = IBV_QPS_INIT;
		ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT);
		attr.qp_state = IBV_QPS_RTR;
		ibv_modify_qp(qp, &attr, IBV_QP_STATE);
		attr.qp_state = IBV_QPS_RTS;
		ibv_modify_qp(qp, &attr, IBV_QP_STATE);
		producer = 0;
		memset(&rule.eth.val, below(h, 256), sizeof(rule.eth.val));
		memset(&rule.eth.mask, below(h, 256), sizeof(rule.eth.mask));
		rule.attr.type = below(h, 8) ? 0 : below(h, 5);
		rule.attr.flags = below(h, 8) ? 0 : number(h);
		rule.attr.priority = number(h);
		flow = ibv_create_flow(qp, &rule.attr);
		for (int i = 0; i < 16; i++) {
			uint32_t slot = producer++ % DEPTH;

			send_with_nonsense(h, sq + slot * h->a.sq_stride);
			receive_with_nonsense(h, sq + DEPTH * h->a.sq_stride +
					      slot * h->a.rq_stride);
			ctrl->rq_producer = producer;
			ctrl->sq_producer = producer;
			raw_ring(&h->raw, qp->qp_num);
			raw_kick(&h->raw);
		}
		while (ibv_poll_cq(h->cq, ARRAY_SIZE(wc), wc) > 0)
			;
		/* Some rules stay until the process ends. */
		if (flow && below(h, 8))
			ibv_destroy_flow(flow);
	}
}
