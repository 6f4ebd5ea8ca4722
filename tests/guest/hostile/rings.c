// SPDX-License-Identifier: GPL-2.0
/* Garbage in rings and doorbells, and too much of everything. */
#define _GNU_SOURCE
#include "hostile.h"

#include <pthread.h>

void attack_requests(struct hostile *h)
{
	uint32_t send = 0, receive = 0;

	while (on(h)) {
		for (int i = 0; i < 8; i++) {
			send_with_nonsense(h, h->a.sq + send++ % DEPTH *
					   h->a.sq_stride);
			receive_with_nonsense(h, h->b.rq + receive++ % DEPTH *
					      h->b.rq_stride);
			h->b.ctrl->rq_producer = receive;
			h->a.ctrl->sq_producer = send;
			raw_ring(&h->raw, h->a.e.qp->qp_num);
			raw_ring(&h->raw, h->b.e.qp->qp_num);
			raw_kick(&h->raw);
		}
		connect_prey(h);
		send = receive = 0;
	}
}

/* Every word of every page that can be written. */
void attack_garbage(struct hostile *h)
{
	while (on(h)) {
		struct mapping *m = &h->map[below(h, h->maps)];
		uint64_t *words = (void *)m->begin;
		size_t n = (m->end - m->begin) / 8;

		if (!mapping_writable(m))
			continue;
		for (int i = 0; i < 64; i++)
			words[below(h, n)] = number(h);
		if (below(h, 2))
			raw_count(&h->raw);
		raw_kick(&h->raw);
		if (!below(h, 4))
			connect_prey(h);
	}
}

void attack_jumps(struct hostile *h)
{
	while (on(h)) {
		struct prey *p = below(h, 2) ? &h->a : &h->b;
		bool receive = below(h, 2);
		uint32_t jump = DEPTH + 1 + below(h, 1u << 31);

		/* The peer's send makes the engine look at the receive queue. */
		if (receive) {
			p->ctrl->rq_producer = jump;
			send_region(p == &h->a ? &h->b.e : &h->a.e, 1, &h->r, 0,
				    100);
		} else {
			p->ctrl->sq_producer = jump;
			raw_ring(&h->raw, p->e.qp->qp_num);
			raw_kick(&h->raw);
		}
		end_await_state(&p->e, IBV_QPS_ERR);
		/* Back again, in error: nothing of the ring is believed. */
		p->ctrl->sq_producer = below(h, DEPTH);
		p->ctrl->rq_producer = below(h, DEPTH);
		raw_ring(&h->raw, p->e.qp->qp_num);
		raw_kick(&h->raw);
		connect_prey(h);
	}
}

static void *change_requests(void *arg)
{
	struct hostile own = *(struct hostile *)arg, *h = &own;

	while (on(h)) {
		send_with_nonsense(h, h->a.sq + below(h, DEPTH) *
				   h->a.sq_stride);
		receive_with_nonsense(h, h->b.rq + below(h, DEPTH) *
				      h->b.rq_stride);
		h->cq_ctrl->consumer = below(h, 8) ? h->cq_ctrl->consumer + 1 :
			number(h);
		h->random++;
	}
	return NULL;
}

/* Requests change between the kernel's looks at them. */
void attack_changes(struct hostile *h)
{
	pthread_t thread;

	REQUIRE_EQ(pthread_create(&thread, NULL, change_requests, h), 0);
	while (on(h)) {
		for (int i = 0; i < 16; i++) {
			h->b.ctrl->rq_producer += 2;
			h->a.ctrl->sq_producer += 2;
			raw_ring(&h->raw, h->a.e.qp->qp_num);
			raw_kick(&h->raw);
		}
		connect_prey(h);
	}
	pthread_join(thread, NULL);
}

static void *storm_doorbells(void *arg)
{
	struct hostile own = *(struct hostile *)arg, *h = &own;

	while (on(h)) {
		raw_ring_all(&h->raw);
		raw_kick(&h->raw);
	}
	return NULL;
}

void attack_doorbells(struct hostile *h)
{
	in_threads(h, storm_doorbells);
}

static void *storm_arming(void *arg)
{
	struct hostile own = *(struct hostile *)arg, *h = &own;

	while (on(h))
		h->cq_ctrl->arm += 1 << FERRULE_CQ_ARM_SN_SHIFT;
	return NULL;
}

/* An event for each completion, and nobody takes them. */
void attack_arming(struct hostile *h)
{
	struct ibv_wc wc[16];
	pthread_t thread;

	REQUIRE_EQ(pthread_create(&thread, NULL, storm_arming, h), 0);
	while (on(h)) {
		struct ibv_sge sge = sge_of(&h->r, 0, 8);

		try_recv(&h->b.e, 1, &sge, 1);
		try_send(&h->a.e, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 1,
			 NULL, 0, 0);
		while (ibv_poll_cq(h->cq, ARRAY_SIZE(wc), wc) > 0)
			;
	}
	pthread_join(thread, NULL);
}
