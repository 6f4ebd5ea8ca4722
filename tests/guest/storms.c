// SPDX-License-Identifier: GPL-2.0
/*
 * Programs that ask for all that they can, as fast as they can: the share that
 * is left for a neighbour? A fixed part at least of what there is beside
 * programs that do nothing but keep the processors busy.
 */
#define _GNU_SOURCE
#include "neighbour.h"
#include "raw.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	THREADS = 8,
	QPS = 64,
	LEN = 256 << 10,
	LOOKS = 5,
	/* Those that a thread opens besides, each with queue pairs that wait. */
	CONTEXTS = 3,
};

/* Thousands of transfers, in a slow guest, too. */
#define MEASURE_US (700000ull * (opt.slow > 1 ? 2 : 1))

struct storm;
typedef void step_fn(struct storm *s, unsigned int thread);

struct storm {
	struct device d;
	struct raw_context raw;
	struct ibv_cq *cq;
	struct end e[QPS];	/* each connected with itself */
	struct region r;
	step_fn *step;
	volatile unsigned int threads;
};

/* ---- What is done again and again ---- */

static void burn(struct storm *s, unsigned int thread)
{
	(void)s, (void)thread;
}

static void query(struct storm *s, unsigned int thread)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	ibv_query_qp(s->e[thread].qp, &attr, IBV_QP_STATE, &init);
}

static void kick(struct storm *s, unsigned int thread)
{
	(void)thread;
	raw_kick(&s->raw);
}

static void stray_doorbells(struct storm *s, unsigned int thread)
{
	(void)thread;
	raw_ring_all(&s->raw);
	raw_kick(&s->raw);
}

/* Each thread's share of the queue pairs: as many bytes as they will take. */
static void bulk(struct storm *s, unsigned int thread)
{
	struct ibv_sge sge = sge_of(&s->r, 0, LEN);
	struct ibv_wc wc[16];

	for (unsigned int i = thread; i < QPS; i += THREADS) {
		struct peer self = end_address(&s->e[i], &s->r);

		try_send(&s->e[i], i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED,
			 &sge, 1, &self, 0, 0);
	}
	while (ibv_poll_cq(s->cq, ARRAY_SIZE(wc), wc) > 0)
		;
}

static void contexts(struct storm *s, unsigned int thread)
{
	struct ibv_context *ctx = ibv_open_device(s->d.ctx->device);
	struct ibv_pd *pd;

	(void)thread;
	if (!ctx)
		return;
	/* A context with an object is quiesced when it closes. */
	pd = ibv_alloc_pd(ctx);
	if (pd)
		ibv_dealloc_pd(pd);
	ibv_close_device(ctx);
}

static void queue_pairs(struct storm *s, unsigned int thread)
{
	struct end_config c = { .cq = s->cq };
	struct end e;

	(void)thread;
	end_make(&e, &s->d, &c);
	end_to_state(&e, IBV_QPS_RTS);
	end_free(&e);
}

static void rest(struct storm *s, unsigned int thread)
{
	(void)s, (void)thread;
	pause();
}

/* Queue pairs whose receivers are not ready, each of which asks for 10 us. */
static void wait_for_receivers(struct storm *s, unsigned int thread)
{
	struct ibv_sge sge = sge_of(&s->r, 0, 8);

	for (unsigned int i = thread; i < QPS; i += THREADS)
		try_send(&s->e[i], i, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 1,
			 NULL, 0, 0);
	for (;;)
		pause();
}

/*
 * The same in many contexts, each of which may have an engine, and a timer, of
 * its own.
 */
static void wait_in_many(struct storm *s, unsigned int thread)
{
	(void)s, (void)thread;
	wait_in_contexts(CONTEXTS);
	for (;;)
		pause();
}

/* ---- The measurement ---- */

static void *storm_thread(void *arg)
{
	struct storm *s = arg;
	unsigned int thread = __atomic_fetch_add(&s->threads, 1,
						 __ATOMIC_SEQ_CST);

	for (;;)
		s->step(s, thread);
	return NULL;
}

static void storm_main(void *arg)
{
	struct storm *s = arg;
	pthread_t thread;

	s->cq = NULL;
	raw_open(&s->raw, &s->d);
	s->cq = ibv_create_cq(s->d.ctx, 16384, NULL, NULL, 0);
	REQUIRE(s->cq);
	region_make(&s->r, &s->d, LEN, 0, ACCESS_ALL);
	for (int i = 0; i < QPS; i++) {
		/* Ten microseconds, without end. */
		struct end_config c = { .cq = s->cq, .rnr_timer = 1 };

		end_make(&s->e[i], &s->d, &c);
		end_to_state(&s->e[i], IBV_QPS_RTS);
	}
	for (int i = 1; i < THREADS; i++)
		REQUIRE_EQ(pthread_create(&thread, NULL, storm_thread, s), 0);
	storm_thread(s);
}

/* Transfers that the neighbour does beside a storm, in the same time. */
static uint64_t beside(struct neighbour *n, struct storm *s)
{
	uint64_t begin, done;
	pid_t pid = fork_process(storm_main, s);

	sleep_us(MEASURE_US / 4);
	n->longest_us = 0;
	begin = n->transfers;
	sleep_us(MEASURE_US);
	done = n->transfers - begin;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return done;
}

/* Other work on the machine differs, so one good look is enough. */
static void measure(const char *what, step_fn *storm_step, step_fn *calm_step,
		    unsigned int part)
{
	static struct storm calm, storm;
	struct neighbour *n = neighbour_start();
	uint64_t before, during;

	calm.step = calm_step;
	storm.step = storm_step;
	for (int look = 0; look < LOOKS; look++) {
		before = beside(n, &calm);
		during = beside(n, &storm);
		test_note("%s: %llu transfers, the longest %.1f ms; without %llu",
			  what, (unsigned long long)during,
			  n->longest_us / 1e3, (unsigned long long)before);
		neighbour_await(n, 2);
		if (during >= before / part) {
			neighbour_stop(n);
			return;
		}
	}
	FAIL("%s: the neighbour is left with less than one part of %u", what,
	     part);
}

/*
 * Mostly as much as beside programs that keep all processors busy. An eighth
 * is asked for: guests are on machines that do other things, too.
 */
#define PART 8
#define CASE(name) \
	static void case_##name(void) { measure(#name, name, burn, PART); }
CASE(query)
CASE(kick)
CASE(stray_doorbells)
CASE(bulk)
CASE(contexts)
CASE(queue_pairs)

/* A sleeping neighbour is compared with a sleeping one. */
static void case_wait_for_receivers(void)
{
	measure("wait_for_receivers", wait_for_receivers, rest, 24);
}

static void case_wait_in_contexts(void)
{
	measure("wait_in_contexts", wait_in_many, rest, 4);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "query", case_query },
		{ "kick", case_kick },
		{ "stray_doorbells", case_stray_doorbells },
		{ "bulk", case_bulk },
		{ "contexts", case_contexts },
		{ "queue_pairs", case_queue_pairs },
		{ "wait_for_receivers", case_wait_for_receivers },
		{ "wait_in_contexts", case_wait_in_contexts },
		{ }
	};

	return test_main(argc, argv, cases);
}
