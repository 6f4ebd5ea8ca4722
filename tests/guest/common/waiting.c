// SPDX-License-Identifier: GPL-2.0
/* Queue pairs whose receivers are never ready. */
#include "../common.h"

#include <stdlib.h>

/* In each context. */
enum { WAITING = 4, LEN = 8 };

struct context {
	struct device d;
	struct ibv_cq *cq;
	struct region r;
	struct end e[WAITING];	/* each connected with itself */
};

void wait_in_contexts(unsigned int contexts)
{
	while (contexts--) {
		struct context *c = calloc(1, sizeof(*c));
		struct ibv_sge sge;

		REQUIRE(c);
		device_open(&c->d);
		c->cq = ibv_create_cq(c->d.ctx, WAITING, NULL, NULL, 0);
		REQUIRE(c->cq);
		region_make(&c->r, &c->d, LEN, 0, ACCESS_ALL);
		sge = sge_of(&c->r, 0, LEN);
		for (int i = 0; i < WAITING; i++) {
			struct end_config config = { .cq = c->cq, .rnr_timer = 1 };

			end_make(&c->e[i], &c->d, &config);
			end_to_state(&c->e[i], IBV_QPS_RTS);
			try_send(&c->e[i], i, IBV_WR_SEND, IBV_SEND_SIGNALED,
				 &sge, 1, NULL, 0, 0);
		}
	}
}
