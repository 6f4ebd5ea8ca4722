// SPDX-License-Identifier: GPL-2.0
/* Two ends of one process, with memory on either side. */
#define _GNU_SOURCE
#include "../common.h"

void ends_connect(struct end *a, struct end *b)
{
	struct peer to_a = end_address(a, NULL);
	struct peer to_b = end_address(b, NULL);

	end_connect(a, &to_b);
	end_connect(b, &to_a);
}

void ends_make(struct end *a, struct end *b, struct device *d,
	       const struct end_config *c)
{
	end_make(a, d, c);
	end_make(b, d, c);
	ends_connect(a, b);
}

void pair_make(struct pair *p, const struct end_config *c)
{
	memset(p, 0, sizeof(*p));
	device_open(&p->d);
	end_make(&p->a, &p->d, c);
	end_make(&p->b, &p->d, c);
}

void pair_open(struct pair *p, const struct end_config *c)
{
	pair_make(p, c);
	ends_connect(&p->a, &p->b);
}

void pair_memory(struct pair *p, size_t mine, size_t theirs, int access)
{
	region_make(&p->mine, &p->d, mine, 0, IBV_ACCESS_LOCAL_WRITE);
	region_make(&p->theirs, &p->d, theirs, 0, access);
	fill(p->mine.data, mine, 1);
	p->to = end_address(&p->b, &p->theirs);
}

void pair_reset(struct pair *p)
{
	end_reset(&p->a);
	end_reset(&p->b);
}

void pair_refuses(struct pair *p, const struct peer *to, uint64_t offset,
		  uint32_t length)
{
	struct ibv_sge sge = sge_of(&p->mine, 0, length);

	for (int tries = 0; tries < 5; tries++) {
		bool arrived;

		send_sges(&p->a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
			  1, to, offset, 0);
		arrived = EXPECT_REFUSAL(p->a.scq, 1, IBV_WC_REM_ACCESS_ERR);
		pair_reset(p);
		ends_connect(&p->a, &p->b);
		if (arrived)
			return;
	}
	FAIL("not one of five refusals arrived");
}

void pair_refuses_outside(struct pair *p, const struct peer *to, size_t length)
{
	pair_refuses(p, to, length, 1);
	pair_refuses(p, to, length - 1, 2);
	pair_refuses(p, to, ~0ull, 1);
	pair_refuses(p, to, ~0ull, 2);
}

void pair_close(struct pair *p)
{
	end_free(&p->a);
	end_free(&p->b);
	if (p->mine.map)
		region_free(&p->mine);
	if (p->theirs.map)
		region_free(&p->theirs);
	device_close(&p->d);
}
