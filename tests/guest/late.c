// SPDX-License-Identifier: GPL-2.0
/*
 * How late does a thread with real-time priority get its processor beside
 * programs that ring as many doorbells as they can, or that keep as many
 * contexts awake as they can? The engine is not preempted, so this is how much
 * it does at a time. For how long is it interrupted once it has it? The same
 * beside packets (late/packets.c) and kernel users (late/kernel_users.c). And
 * how late is its request, if a thread of a priority between keeps the
 * processor from a program that was in the engine?
 *
 * For a guest of one processor whose clock counts instructions: elsewhere the
 * machine below adds delays of its own. tests/bench takes the figures from the
 * notes of the cases.
 */
#define _GNU_SOURCE
#include "late/late.h"
#include "raw.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
	/* So much later than without the device, in 99 of 100 times. */
	MOST_NS = 25000,
	CONTEXTS = 1000,
	/* How often each of them posts. */
	POST_US = 20000,
	BULK = 1 << 20,
	DEPTH = 32,
	/* Of a thread between the priorities of two programs. */
	BURST_NS = 10000000,
	BURSTS = 60,
};

/* ---- Doorbells ---- */

struct bells {
	struct device d;
	struct raw_context raw;
	const uint64_t *ack;
	unsigned int count;
	uint64_t leaf[FERRULE_DB_LEAF_WORDS];
	uint64_t top[FERRULE_DB_TOP_WORDS];
};

void system_calls(void *arg)
{
	(void)arg;
	getppid();
	sleep_us(REST_US);
}

/* Rings all of them, and kicks once. */
static void ring_and_kick(void *arg)
{
	struct bells *b = arg;

	for (int i = 0; i < FERRULE_DB_LEAF_WORDS; i++)
		if (b->leaf[i])
			b->raw.leaf[i] = b->ack[i] ^ b->leaf[i];
	for (int i = 0; i < FERRULE_DB_TOP_WORDS; i++)
		b->raw.db->top[i] = b->raw.status->top[i] ^ b->top[i];
	raw_count(&b->raw);
	raw_kick(&b->raw);
	sleep_us(REST_US);
}

static void more_mappings(unsigned int count)
{
	REQUIRE_EQ(run_command("test $(cat /proc/sys/vm/max_map_count) -ge %u || echo %u > /proc/sys/vm/max_map_count",
			       2 * count, 2 * count), 0);
}

static void doorbells(unsigned int count)
{
	static struct bells b;
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 },
	};

	raw_open(&b.raw, &b.d);
	b.ack = (const uint64_t *)((const char *)b.raw.status +
				   FERRULE_DB_LEAF_OFFSET);
	more_mappings(count);
	init.send_cq = ibv_create_cq(b.d.ctx, 16, NULL, NULL, 0);
	init.recv_cq = init.send_cq;
	REQUIRE(init.send_cq);
	for (b.count = 0; b.count < count; b.count++) {
		struct ibv_qp *qp = ibv_create_qp(b.d.pd, &init);
		uint32_t d;

		if (!qp)
			FAIL("queue pair %u: %s", b.count, strerror(errno));
		d = qp->qp_num & FERRULE_DB_INDEX_MASK;
		b.leaf[d / 64] |= 1ull << d % 64;
		b.top[d / 64 / 64] |= 1ull << d / 64 % 64;
	}
	judge(system_calls, ring_and_kick, &b, MOST_NS);
	/* The process ends with all of them. */
}

#define DOORBELLS(n) static void doorbells_##n(void) { doorbells(n); }
DOORBELLS(1)
DOORBELLS(512)
DOORBELLS(8000)
DOORBELLS(60000)

/* ---- Requests ---- */

struct requests {
	struct device d;
	struct region r;
	struct end end;		/* connected with itself */
	struct ibv_sge sge;
	struct ibv_send_wr wr[LIST];
};

/* A long list of small requests, posted at once. */
static void post_list(void *arg)
{
	struct requests *q = arg;

	post_and_wait(&q->end, q->wr);
	sleep_us(REST_US);
}

static void requests_1000(void)
{
	struct end_config many = { .send_wr = LIST, .recv_wr = 1 };
	static struct requests q;

	device_open(&q.d);
	region_make(&q.r, &q.d, 16, 0, ACCESS_ALL);
	end_make(&q.end, &q.d, &many);
	end_to_state(&q.end, IBV_QPS_RTS);
	q.sge = sge_of(&q.r, 0, 8);
	make_list(q.wr, LIST, &q.sge, &q.r);
	judge(system_calls, post_list, &q, MOST_NS);
}

/* ---- Contexts ---- */

struct contexts {
	struct end end[CONTEXTS];	/* each connected with itself */
	const volatile uint32_t *sleeping[CONTEXTS];
	struct end bulk;
	struct region r;
	struct peer self;
	unsigned int posted;
	uint64_t post_at;
	unsigned int most_awake;
};

static void copy(void *arg)
{
	struct contexts *c = arg;

	memcpy(c->r.data, c->r.data + BULK, BULK);
	sleep_us(REST_US / 2);
}

/*
 * Keeps the engine busy, and so its worker awake, and posts in each context now
 * and then: a program that kicks while the worker is awake need not do so
 * again. The worker has the processor while this rests, and to itself.
 */
static void keep_awake(void *arg)
{
	struct contexts *c = arg;
	struct ibv_sge sge = sge_of(&c->r, 0, BULK);
	unsigned int awake = 0;
	struct ibv_wc wc[DEPTH];

	for (int n; (n = ibv_poll_cq(c->bulk.scq, DEPTH, wc)) > 0;)
		c->posted -= n;
	for (; c->posted < DEPTH; c->posted++)
		REQUIRE_EQ(try_send(&c->bulk, 1, IBV_WR_RDMA_WRITE,
				    IBV_SEND_SIGNALED, &sge, 1, &c->self, BULK,
				    0), 0);
	if (now_us() >= c->post_at) {
		c->post_at = now_us() + POST_US;
		for (int i = 0; i < CONTEXTS; i++) {
			while (ibv_poll_cq(c->end[i].scq, DEPTH, wc) > 0)
				;
			/* Where its queue is full it has rung already. */
			try_send(&c->end[i], 1, IBV_WR_RDMA_WRITE,
				 IBV_SEND_SIGNALED, NULL, 0, &c->self, 0, 0);
		}
	}
	for (int i = 0; i < CONTEXTS; i++)
		awake += !*c->sleeping[i];
	if (awake > c->most_awake)
		test_note("%u contexts are awake", c->most_awake = awake);
	sleep_us(REST_US / 2);
}

static void contexts_1000(void)
{
	static struct mapping maps[8 * CONTEXTS];
	struct rlimit files = { 8 * CONTEXTS, 8 * CONTEXTS };
	struct end_config few = { .send_wr = 2, .recv_wr = 1, .cqe = 4 };
	static struct device d[CONTEXTS];
	static struct contexts c;
	unsigned int n, found = 0;

	if (strncmp(opt.device, "ferrule", 7))
		test_skip("only ferrule's contexts can be awake");
	REQUIRE_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
	for (int i = 0; i < CONTEXTS; i++) {
		device_open(&d[i]);
		end_make(&c.end[i], &d[i], &few);
		end_to_state(&c.end[i], IBV_QPS_RTS);
	}
	n = device_mappings(maps, ARRAY_SIZE(maps));
	for (unsigned int i = 0; i < n; i++) {
		const struct ferrule_status *status = (void *)maps[i].begin;

		if (maps[i].end - maps[i].begin != FERRULE_DB_AREA_SIZE ||
		    mapping_writable(&maps[i]))
			continue;
		REQUIRE(found < CONTEXTS);
		c.sleeping[found++] = &status->sleeping;
	}
	REQUIRE_EQ(found, CONTEXTS);
	end_make(&c.bulk, &d[0], &(struct end_config){ .send_wr = DEPTH });
	end_to_state(&c.bulk, IBV_QPS_RTS);
	region_make(&c.r, &d[0], 2 * BULK, 0, ACCESS_ALL);
	c.self = end_address(&c.bulk, &c.r);
	/* Else the worker would see that it is not alone before it is left. */
	be_real_time(10);
	judge(copy, keep_awake, &c, MOST_NS);
	REQUIRE(c.most_awake > CONTEXTS / 2);
}

/* ---- Priorities ---- */

struct priorities {
	struct device d[2];
	struct region r[2];
	struct end low, high;	/* each connected with itself */
	sem_t begin, end;
	volatile bool stop;
};

/* Has no priority, and is in the engine nearly all the time. */
static void *low_main(void *arg)
{
	struct priorities *p = arg;
	struct ibv_sge sge = sge_of(&p->r[0], 0, 4096);
	struct ibv_send_wr wr[DEPTH];

	make_list(wr, DEPTH, &sge, &p->r[0]);
	while (!p->stop)
		post_and_wait(&p->low, wr);
	return NULL;
}

/* Is between the two, uses nothing of the device, and has the processor for a while. */
static void *mid_main(void *arg)
{
	struct priorities *p = arg;

	be_real_time(30);
	for (;;) {
		uint64_t end;

		REQUIRE_EQ(sem_wait(&p->begin), 0);
		if (p->stop)
			return NULL;
		for (end = now_ns() + BURST_NS; now_ns() < end;)
			;
		REQUIRE_EQ(sem_post(&p->end), 0);
	}
}

/*
 * A request of high priority is not late because a thread between keeps the
 * processor from a program of low priority: that one is not preempted while it
 * is in the engine, or has the priority of those that wait for it.
 */
static void judge_priorities(bool by_packets)
{
	struct end_config deep = { .send_wr = 2 * DEPTH, .recv_wr = 1 };
	static struct priorities p;
	pthread_t low, mid;
	unsigned int late = 0, seed = 1;
	uint64_t most = 0;

	for (int i = 0; i < 2; i++) {
		device_open(&p.d[i]);
		region_make(&p.r[i], &p.d[i], 2 * 4096, 0, ACCESS_ALL);
	}
	end_make(&p.low, &p.d[0], &deep);
	end_make(&p.high, &p.d[1], &deep);
	set_wire_only(by_packets);
	end_to_state(&p.low, IBV_QPS_RTS);
	end_to_state(&p.high, IBV_QPS_RTS);
	set_wire_only(false);
	REQUIRE_EQ(sem_init(&p.begin, 0, 0), 0);
	REQUIRE_EQ(sem_init(&p.end, 0, 0), 0);
	REQUIRE_EQ(pthread_create(&low, NULL, low_main, &p), 0);
	REQUIRE_EQ(pthread_create(&mid, NULL, mid_main, &p), 0);
	be_real_time(50);
	for (int i = 0; i < BURSTS; i++) {
		struct ibv_sge sge = sge_of(&p.r[1], 0, 8);
		struct peer self = end_address(&p.high, &p.r[1]);
		struct ibv_wc wc;
		uint64_t ns;

		sleep_us(2000 + rand_r(&seed) % 1000);
		REQUIRE_EQ(sem_post(&p.begin), 0);
		sleep_us(1000);
		ns = now_ns();
		REQUIRE_EQ(try_send(&p.high, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED,
				    &sge, 1, &self, 8, 0), 0);
		next_wc(p.high.scq, &wc);
		ns = now_ns() - ns;
		REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
		late += ns > BURST_NS / 2;
		most = ns > most ? ns : most;
		REQUIRE_EQ(sem_wait(&p.end), 0);
	}
	test_note("%u of %d requests took more than %d us, one of them %.0f us", late,
		  BURSTS, BURST_NS / 2000, most / 1e3);
	REQUIRE_EQ(late, 0);
	p.stop = true;
	REQUIRE_EQ(sem_post(&p.begin), 0);
	REQUIRE_EQ(pthread_join(low, NULL), 0);
	REQUIRE_EQ(pthread_join(mid, NULL), 0);
}

static void priorities(void)
{
	judge_priorities(false);
}

/* The packets of both wait in one queue, and nobody but softirqs takes them. */
static void packets_priorities(void)
{
	judge_priorities(true);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "doorbells_1", doorbells_1, 120 },
		{ "doorbells_512", doorbells_512, 120 },
		{ "doorbells_8000", doorbells_8000, 240 },
		{ "doorbells_60000", doorbells_60000, 600 },
		{ "requests_1000", requests_1000, 120 },
		{ "contexts_1000", contexts_1000, 240 },
		{ "packets_8", packets_8, 120 },
		{ "packets_4096", packets_4096, 120 },
		{ "packets_65536", packets_65536, 120 },
		{ "kernel_users_8", kernel_users_8, 120 },
		{ "kernel_users_4096", kernel_users_4096, 120 },
		{ "kernel_users_65536", kernel_users_65536, 120 },
		{ "priorities", priorities, 120 },
		{ "packets_priorities", packets_priorities, 120 },
		{ }
	};

	return test_main(argc, argv, cases);
}
