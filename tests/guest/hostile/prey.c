// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE
#include "hostile.h"

#include <pthread.h>

/* xorshift64* (Vigna 2014). */
uint64_t rnd(struct hostile *h)
{
	h->random ^= h->random >> 12;
	h->random ^= h->random << 25;
	h->random ^= h->random >> 27;
	return h->random * 0x2545f4914f6cdd1dull;
}

uint32_t below(struct hostile *h, uint32_t limit)
{
	return rnd(h) % limit;
}

bool on(struct hostile *h)
{
	return now_us() < h->until;
}

static uint32_t power_of_two(uint32_t n)
{
	uint32_t p = 64;

	while (p < n)
		p *= 2;
	return p;
}

static void prey_make(struct hostile *h, struct prey *p)
{
	struct end_config c = {
		.send_wr = DEPTH, .recv_wr = DEPTH, .send_sge = SGES,
		.recv_sge = SGES, .cq = h->cq, .timeout = 1, .retry = 1,
		.rnr_retry = 7, .rnr_timer = 1,
	};
	struct mapping before[16];
	unsigned int n = device_mappings(before, ARRAY_SIZE(before));

	end_make(&p->e, &h->d, &c);
	p->sq = raw_new_mapping(before, n, true, &p->len);
	p->sq_stride = power_of_two(sizeof(struct ferrule_send_wqe) +
				    SGES * sizeof(struct ferrule_sge));
	p->rq_stride = power_of_two(sizeof(struct ferrule_recv_wqe) +
				    SGES * sizeof(struct ferrule_sge));
	p->rq = p->sq + DEPTH * p->sq_stride;
	p->ctrl = (void *)(p->rq + DEPTH * p->rq_stride);
}

void connect_prey(struct hostile *h)
{
	struct ibv_wc wc[16];

	end_reset(&h->a.e);
	end_reset(&h->b.e);
	while (ibv_poll_cq(h->cq, ARRAY_SIZE(wc), wc) > 0)
		;
	ends_connect(&h->a.e, &h->b.e);
}

void hostile_make(struct hostile *h)
{
	struct mapping before[16];
	unsigned int n;

	raw_open(&h->raw, &h->d);
	h->channel = ibv_create_comp_channel(h->d.ctx);
	REQUIRE(h->channel);
	n = device_mappings(before, ARRAY_SIZE(before));
	h->cq = ibv_create_cq(h->d.ctx, 4 * DEPTH, NULL, h->channel, 0);
	REQUIRE(h->cq);
	h->cq_ctrl = raw_new_mapping(before, n, true, NULL);
	prey_make(h, &h->a);
	prey_make(h, &h->b);
	region_make(&h->r, &h->d, MEMORY, 1, ACCESS_ALL);
	connect_prey(h);
	h->maps = device_mappings(h->map, ARRAY_SIZE(h->map));
	h->until = now_us() + ATTACK_US;
}

/* Threads that attack until the time is over. */
void in_threads(struct hostile *h, void *(*storm)(void *))
{
	pthread_t thread[STORMERS];

	for (int i = 0; i < STORMERS; i++)
		if (pthread_create(&thread[i], NULL, storm, h))
			FAIL("pthread_create");
	for (int i = 0; i < STORMERS; i++)
		pthread_join(thread[i], NULL);
}

/* Numbers at which something begins or ends. */
uint64_t number(struct hostile *h)
{
	static const uint64_t edges[] = {
		0, 1, 2, 7, 15, 16, 17, 63, 64, 65, 255, 256, 4095, 4096, 4097,
		0x7fffffff, 0x80000000, 0x80000001, 0xffffffff, 0x100000000,
		INT64_MAX, 1ull << 63, UINT64_MAX - 4095, UINT64_MAX,
	};

	switch (below(h, 4)) {
	case 0:
		return rnd(h);
	case 1:
		return below(h, 256);
	default:
		return edges[below(h, ARRAY_SIZE(edges))];
	}
}

uint32_t a_key(struct hostile *h)
{
	switch (below(h, 4)) {
	case 0:
		return number(h);
	case 1:
		return h->n->lkey;
	default:
		return h->r.mr->lkey;
	}
}

uint64_t an_address(struct hostile *h)
{
	switch (below(h, 4)) {
	case 0:
		return number(h);
	case 1:
		return h->n->peer.addr;
	default:
		return (uintptr_t)h->r.data + below(h, MEMORY);
	}
}

static void sges_with_nonsense(struct hostile *h, struct ferrule_sge *sge)
{
	for (int i = 0; i < SGES; i++) {
		sge[i].addr = an_address(h);
		sge[i].lkey = a_key(h);
		sge[i].length = below(h, 2) ? below(h, 9000) : number(h);
	}
}

/* A request that is right in most fields, so that it gets far. */
void send_with_nonsense(struct hostile *h, uint8_t *slot)
{
	struct ferrule_send_wqe *wqe = (void *)slot;

	memset(wqe, 0, sizeof(*wqe));
	wqe->wr_id = rnd(h);
	wqe->opcode = below(h, 8) ? below(h, 12) : number(h);
	wqe->flags = below(h, 8) ? below(h, 16) : number(h);
	wqe->num_sge = below(h, 8) ? below(h, SGES + 1) : number(h);
	if (wqe->flags & FERRULE_WR_INLINE || !below(h, 16)) {
		wqe->inline_len = below(h, 8) ? below(h, 64) : number(h);
		if (below(h, 4))
			wqe->num_sge = 0;
	}
	wqe->remote_addr = an_address(h);
	wqe->rkey = a_key(h);
	if (wqe->opcode == FERRULE_WR_FLUSH) {
		wqe->flush.length = below(h, 2) ? below(h, 9000) : number(h);
		wqe->flush.placement = below(h, 8) ? 1 + below(h, 3) :
						     number(h);
		wqe->flush.level = below(h, 8) ? below(h, 2) : number(h);
	}
	if (!below(h, 8))
		wqe->atomic.compare_add = number(h);
	/* Neither has a list. */
	if (wqe->opcode >= FERRULE_WR_FLUSH && below(h, 8))
		wqe->flags = wqe->num_sge = wqe->inline_len = 0;
	sges_with_nonsense(h, (struct ferrule_sge *)(wqe + 1));
}

void receive_with_nonsense(struct hostile *h, uint8_t *slot)
{
	struct ferrule_recv_wqe *wqe = (void *)slot;

	memset(wqe, 0, sizeof(*wqe));
	wqe->wr_id = rnd(h);
	wqe->num_sge = below(h, 8) ? below(h, SGES + 1) : number(h);
	wqe->reserved[below(h, 6)] = !below(h, 8);
	sges_with_nonsense(h, (struct ferrule_sge *)(wqe + 1));
}
