// SPDX-License-Identifier: GPL-2.0
/* Queues that several threads have, or that are of several threads. */
#include "threads.h"

enum { REQUESTS = 20, LEN = 64 };

static struct team team;

/* Queues of threads, for queue pairs of others. */
static struct ibv_cq *answers[THREADS];
static struct end ends[THREADS];

/* An end whose receives complete in a queue of another thread. */
static void make_crossed(struct end *e, struct device *d, struct ibv_cq *rcq)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.recv_cq = rcq,
	};

	end_make(e, d, &thread_end);
	init.send_cq = e->scq;
	init.cap = e->cap;
	REQUIRE_ERRNO(ibv_destroy_qp(e->qp), 0);
	e->qp = ibv_create_qp(d->pd, &init);
	REQUIRE(e->qp);
}

static void expect_in(struct ibv_cq *cq, struct end *e, uint64_t wr_id)
{
	struct ibv_wc wc = EXPECT_OK(cq, wr_id);

	REQUIRE_EQ(wc.qp_num, e->qp->qp_num);
}

/* The last one is signalled. */
static void post_all(struct end *e, const struct region *r)
{
	struct ibv_sge from = sge_of(r, 0, LEN);

	for (unsigned int i = 0; i < REQUESTS; i++)
		send_sges(e, i, IBV_WR_SEND,
			  i == REQUESTS - 1 ? IBV_SEND_SIGNALED : 0, &from, 1,
			  NULL, 0, 0);
}

/*
 * Asks, and looks for the answer where it has to come, in the other thread's
 * queue, before it looks at its own.
 */
static void ask(struct worker *w, struct end *e, unsigned int round)
{
	struct ibv_cq *cq = answers[w->number ^ 1];

	recv_region(e, 77, &w->own, PART, LEN);
	fill(w->own.data, LEN, round);
	post_all(e, &w->own);
	expect_in(cq, e, 77);
	VERIFY(w->own.data + PART, LEN, round + 1);
	EXPECT_OK(e->scq, REQUESTS - 1);
}

static void receive_all(struct end *e, const struct region *r)
{
	for (unsigned int i = 0; i < REQUESTS; i++)
		recv_region(e, i, r, PART, LEN);
}

static void answer(struct worker *w, struct end *e, unsigned int round)
{
	for (unsigned int i = 0; i < REQUESTS; i++)
		EXPECT_OK(e->rcq, i);
	receive_all(e, &w->own);
	VERIFY(w->own.data + PART, LEN, round);
	fill(w->own.data, LEN, round + 1);
	send_region(e, 1, &w->own, 0, LEN);
	EXPECT_OK(e->scq, 1);
}

static void cross(struct worker *w)
{
	struct end *e = &ends[w->number];
	bool asks = w->number % 2;
	struct peer peer;

	answers[w->number] = ibv_create_cq(w->d.ctx, 128, NULL, NULL, 0);
	REQUIRE(answers[w->number]);
	team_meet(w->team);
	if (asks)
		make_crossed(e, &w->d, answers[w->number ^ 1]);
	else
		end_make(e, &w->d, &thread_end);
	team_meet(w->team);
	peer = end_address(&ends[w->number ^ 1], NULL);
	end_connect(e, &peer);
	if (!asks)
		receive_all(e, &w->own);
	team_meet(w->team);
	for (unsigned int round = 0; round < test_rounds(200); round++) {
		if (asks)
			ask(w, e, round);
		else
			answer(w, e, round);
	}
	team_meet(w->team);
	end_free(e);
	team_meet(w->team);
	REQUIRE_ERRNO(ibv_destroy_cq(answers[w->number]), 0);
}

void crossed_queues(void)
{
	team_open(&team, THREADS);
	team_start(&team, cross);
	for (int i = 0; i < 5; i++)
		team_meet(&team);
	team_join(&team);
	team_close(&team);
}

/*
 * Pairs of threads: the first one posts requests, and nothing else any more. It
 * waits for the second one, which polls for them in queues of its own.
 */
static void post_and_wait(struct worker *w)
{
	struct worker *peer = &w->team->w[w->number ^ 1];
	struct end *e = &ends[w->number];
	struct peer address;

	end_make(e, &w->d, &thread_end);
	team_meet(w->team);
	address = end_address(&ends[peer->number], NULL);
	end_connect(e, &address);
	team_meet(w->team);
	for (unsigned int round = 0; round < test_rounds(200); round++) {
		if (w->number % 2) {
			receive_all(e, &w->own);
			peer->done++;
			for (unsigned int i = 0; i < REQUESTS; i++)
				EXPECT_OK(e->rcq, i);
			VERIFY(w->own.data + PART, LEN, round);
			peer->done++;
			continue;
		}
		while (w->done < 2 * (long)round + 1)
			sleep_us(20);
		fill(w->own.data, LEN, round);
		post_all(e, &w->own);
		while (w->done < 2 * (long)round + 2)
			sleep_us(20);
		EXPECT_OK(e->scq, REQUESTS - 1);
	}
	team_meet(w->team);
	end_free(e);
}

void sent_here_received_there(void)
{
	team_open(&team, THREADS);
	team_start(&team, post_and_wait);
	team_meet(&team);
	team_meet(&team);
	team_meet(&team);
	team_join(&team);
	team_close(&team);
}

static struct region pool;

/* As many requests as slots for a thread. */
enum { SLOTS = 4 };

static void post_shared(struct ibv_srq *srq, unsigned int slot)
{
	struct ibv_sge sge = sge_of(&pool, slot * LEN, LEN);
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;

	REQUIRE_ERRNO(ibv_post_srq_recv(srq, &wr, &bad), 0);
}

static struct ibv_srq *make_srq(struct device *d, unsigned int first,
				unsigned int count)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = count,
						    .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(d->pd, &init);

	REQUIRE(srq);
	for (unsigned int i = first; i < first + count; i++)
		post_shared(srq, i);
	return srq;
}

/* A thread's queue pair that takes its receives there. */
static void receive_from(struct worker *w, struct ibv_srq *srq)
{
	struct end_config config = thread_end;
	struct end a, b;

	config.srq = srq;
	end_make(&a, &w->d, &thread_end);
	end_make(&b, &w->d, &config);
	ends_connect(&a, &b);
	for (unsigned int i = 0; i < test_rounds(200); i++) {
		struct ibv_sge from = sge_of(&w->own, 0, LEN);
		struct ibv_wc wc;

		w->seed++;
		fill(w->own.data, LEN, w->seed);
		send_sges(&a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, &from, 1, NULL,
			  0, 0);
		EXPECT_OK(a.scq, 1);
		next_wc(b.rcq, &wc);
		REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
		REQUIRE_EQ(wc.byte_len, LEN);
		VERIFY(pool.data + wc.wr_id * LEN, LEN, w->seed);
		post_shared(srq, wc.wr_id);
		round_of(w);
	}
	REQUIRE_EQ(shard_of(b.qp), shard_of(w->a.qp));
	end_free(&a);
	end_free(&b);
}

static void receive_own(struct worker *w)
{
	struct ibv_srq *srq = make_srq(&w->d, w->number * SLOTS, SLOTS);

	receive_from(w, srq);
	team_meet(w->team);
	REQUIRE_ERRNO(ibv_destroy_srq(srq), 0);
	team_meet(w->team);
}

/* With a shared receive queue of its own a thread stays by itself. */
void receives_of_their_own(void)
{
	team_open(&team, THREADS);
	region_make(&pool, &team.d, THREADS * SLOTS * LEN, 0, ACCESS);
	team_start(&team, receive_own);
	team_meet(&team);
	REQUIRE(team_is_apart(&team));
	team_meet(&team);
	team_join(&team);
	region_free(&pool);
	team_close(&team);
}

static struct ibv_srq *common;

static void receive_common(struct worker *w)
{
	receive_from(w, common);
	team_meet(w->team);
	team_meet(w->team);
}

/* Each takes what another one has posted, so they come together. */
void shared_receives(void)
{
	team_open(&team, THREADS);
	region_make(&pool, &team.d, THREADS * SLOTS * LEN, 0, ACCESS);
	common = make_srq(&team.d, 0, THREADS * SLOTS);
	team_start(&team, receive_common);
	team_meet(&team);
	team_require_together(&team);
	team_meet(&team);
	team_join(&team);
	REQUIRE_ERRNO(ibv_destroy_srq(common), 0);
	region_free(&pool);
	team_close(&team);
}

/* Datagrams from each thread to the next, beside what it does otherwise. */
static struct end mailbox[THREADS];
static struct region letters[THREADS];

static void send_round(struct worker *w)
{
	unsigned int next = (w->number + 1) % THREADS;
	const struct end_config ud = { .type = IBV_QPT_UD };
	struct end *e = &mailbox[w->number];
	struct region *r = &letters[w->number];
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = { .dgid = w->d.gid, .sgid_index = w->d.gid_index,
			 .hop_limit = 64 },
	};
	struct ibv_ah *ah;
	struct peer self;

	end_make(e, &w->d, &ud);
	self = end_address(e, NULL);
	end_connect(e, &self);
	region_make(r, &w->d, 4096, 0, ACCESS);
	team_meet(w->team);
	ah = ibv_create_ah(w->d.pd, &attr);
	REQUIRE(ah);
	for (unsigned int i = 0; i < test_rounds(100); i++) {
		uint64_t seed = i << 8;

		recv_region(e, 2, r, 1024, 1024);
		team_meet(w->team);
		fill(r->data, LEN, seed + w->number);
		send_datagram(e, 1, r, (struct datagram){
			      ah, mailbox[next].qp->qp_num, QKEY, LEN });
		EXPECT_OK(e->scq, 1);
		EXPECT_OK(e->rcq, 2);
		VERIFY(r->data + 1024 + 40, LEN,
		       seed + (w->number + THREADS - 1) % THREADS);
		round_of(w);
	}
	team_meet(w->team);
	REQUIRE_ERRNO(ibv_destroy_ah(ah), 0);
	end_free(e);
	region_free(r);
}

void datagrams(void)
{
	team_open(&team, THREADS);
	team_start(&team, send_round);
	for (unsigned int i = 0; i < test_rounds(100) + 2; i++)
		team_meet(&team);
	team_join(&team);
	team_close(&team);
}

/* Each thread sleeps until its own queue has something, and breaks its connection at last. */
static void sleep_for_events(struct worker *w)
{
	struct end_config config = thread_end;
	struct peer nowhere = { .addr = 8, .rkey = 8 };
	struct ibv_sge sge;
	struct end a, b;

	config.channel = ibv_create_comp_channel(w->d.ctx);
	REQUIRE(config.channel);
	end_make(&a, &w->d, &thread_end);
	end_make(&b, &w->d, &config);
	ends_connect(&a, &b);
	for (unsigned int i = 0; i < test_rounds(200); i++) {
		struct ibv_cq *cq;
		void *context;

		recv_region(&b, 2, &w->own, PART, LEN);
		REQUIRE_ERRNO(ibv_req_notify_cq(b.rcq, 0), 0);
		fill(w->own.data, LEN, i);
		send_region(&a, 1, &w->own, 0, LEN);
		REQUIRE(!ibv_get_cq_event(config.channel, &cq, &context));
		REQUIRE(cq == b.rcq);
		ibv_ack_cq_events(cq, 1);
		EXPECT_OK(b.rcq, 2);
		EXPECT_OK(a.scq, 1);
		VERIFY(w->own.data + PART, LEN, i);
		if (i % 10 == 0)
			REQUIRE_ERRNO(ibv_resize_cq(b.rcq, 64 << i / 10 % 3), 0);
	}
	team_meet(w->team);
	sge = sge_of(&w->own, 0, 8);
	send_sges(&a, 3, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 1, &nowhere,
		  0, 0);
	EXPECT_WC(a.scq, 3, IBV_WC_REM_ACCESS_ERR);
	ends[w->number] = b;
	team_meet(w->team);
	team_meet(w->team);
	end_free(&a);
	end_free(&b);
	REQUIRE_ERRNO(ibv_destroy_comp_channel(config.channel), 0);
}

void events(void)
{
	bool told[THREADS] = {};

	team_open(&team, THREADS);
	team_start(&team, sleep_for_events);
	team_meet(&team);
	team_meet(&team);
	for (int i = 0; i < THREADS; i++) {
		struct ibv_async_event event;

		REQUIRE(next_async(team.d.ctx, &event, 1000 * opt.slow));
		REQUIRE_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
		for (int j = 0; j < THREADS; j++)
			told[j] |= event.element.qp == ends[j].qp;
	}
	for (int i = 0; i < THREADS; i++)
		REQUIRE(told[i]);
	team_meet(&team);
	team_join(&team);
	team_close(&team);
}

/* The same regions by unreliable connections. */
static void send_unreliably(struct worker *w)
{
	const struct end_config uc = { .type = IBV_QPT_UC };
	struct place from = side(w, &w->team->given, 0);
	struct ibv_sge mine = sge_at(from, LEN);
	struct peer to = { .addr = (uintptr_t)w->own.data,
			   .rkey = w->own.mr->rkey };
	struct end a, b;

	ends_make(&a, &b, &w->d, &uc);
	for (unsigned int i = 0; i < test_rounds(200); i++) {
		recv_region(&b, 2, &w->own, PART, LEN);
		fill(from.data, LEN, i);
		send_sges(&a, 0, IBV_WR_RDMA_WRITE, 0, &mine, 1, &to, 0, 0);
		send_sges(&a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, &mine, 1, NULL,
			  0, 0);
		EXPECT_OK(a.scq, 1);
		EXPECT_OK(b.rcq, 2);
		VERIFY(w->own.data, LEN, i);
		VERIFY(w->own.data + PART, LEN, i);
	}
	end_free(&a);
	end_free(&b);
}

void unreliable(void)
{
	team_open(&team, THREADS);
	team_start(&team, send_unreliably);
	team_join(&team);
	team_close(&team);
}
