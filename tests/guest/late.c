// SPDX-License-Identifier: GPL-2.0
/*
 * How late does a thread with real-time priority get its processor beside
 * programs that ring as many doorbells as they can, or that keep as many
 * contexts awake as they can? The engine is not preempted, so this is how much
 * it does at a time. And how late is its request, if a thread of a priority
 * between keeps the processor from a program that was in the engine?
 *
 * For a guest of one processor whose clock counts instructions: elsewhere the
 * machine below adds delays of its own. tests/bench takes the figures from the
 * notes of the cases.
 */
#define _GNU_SOURCE
#include "common.h"
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
	MOST_NS = 30000,
	/* How long it is measured, with and without. */
	MEASURE_US = 1000000,
	/* Between two looks at the clock, and as much again by chance. */
	PERIOD_NS = 400000,
	MAX_SAMPLES = 1 << 13,
	/* The program rests between two kicks, so that others have a turn. */
	REST_US = 200,
	LIST = 1000,
	CONTEXTS = 1000,
	/* How often each of them posts. */
	POST_US = 20000,
	BULK = 1 << 20,
	DEPTH = 32,
	/* Of a thread between the priorities of two programs. */
	BURST_NS = 10000000,
	BURSTS = 60,
};

/* ---- The thread that has to be in time ---- */

struct watch {
	pthread_t thread;
	volatile bool stop;
	unsigned int count;
	uint64_t late[MAX_SAMPLES];
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void be_real_time(int priority)
{
	struct sched_param param = { .sched_priority = priority };

	REQUIRE_EQ(sched_setscheduler(0, SCHED_FIFO, &param), 0);
}

static void *watch_main(void *arg)
{
	struct watch *w = arg;
	unsigned int seed = 1;
	uint64_t now;

	be_real_time(50);
	now = now_ns();
	while (!w->stop && w->count < MAX_SAMPLES) {
		uint64_t at = now + PERIOD_NS + rand_r(&seed) % PERIOD_NS;
		struct timespec t = { at / 1000000000, at % 1000000000 };

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
		now = now_ns();
		w->late[w->count++] = now - at;
	}
	return NULL;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* By how much it is late in 99 of 100 times beside 'step', again and again. */
static uint64_t lateness(const char *what, void (*step)(void *), void *arg)
{
	static struct watch w;
	uint64_t end;

	memset(&w, 0, sizeof(w));
	REQUIRE_EQ(pthread_create(&w.thread, NULL, watch_main, &w), 0);
	for (end = now_us() + MEASURE_US; now_us() < end;)
		step(arg);
	w.stop = true;
	REQUIRE_EQ(pthread_join(w.thread, NULL), 0);
	REQUIRE(w.count > 1000);
	qsort(w.late, w.count, sizeof(w.late[0]), compare);
	test_note("%s: late by %.1f us in half of %u times, %.1f in 99 of 100, %.1f at most",
		  what, w.late[w.count / 2] / 1e3, w.count,
		  w.late[w.count * 99 / 100] / 1e3, w.late[w.count - 1] / 1e3);
	return w.late[w.count * 99 / 100];
}

/* Fails if it is too late beside 'step', held against 'calm'. */
static void judge(void (*calm)(void *), void (*step)(void *), void *arg)
{
	uint64_t before, beside;

	before = lateness("without the device", calm, arg);
	beside = lateness("beside the device", step, arg);
	test_note("later by %.1f us", ((double)beside - before) / 1e3);
	if (beside > before + MOST_NS)
		FAIL("later by more than %d us", MOST_NS / 1000);
}

/* ---- Doorbells ---- */

struct bells {
	struct device d;
	struct raw_context raw;
	const uint64_t *ack;
	unsigned int count;
	uint64_t leaf[FERRULE_DB_LEAF_WORDS];
	uint64_t top[FERRULE_DB_TOP_WORDS];
};

static void system_calls(void *arg)
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
	__atomic_fetch_add(&b->raw.db->seq, 1, __ATOMIC_SEQ_CST);
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
	judge(system_calls, ring_and_kick, &b);
	/* The process ends with all of them. */
}

#define DOORBELLS(n) static void doorbells_##n(void) { doorbells(n); }
DOORBELLS(1)
DOORBELLS(512)
DOORBELLS(8000)
DOORBELLS(60000)

/* ---- Requests ---- */

/* A list of WRITEs of an entry to a place in the same region. The last is signalled. */
static void make_list(struct ibv_send_wr *wr, int count, struct ibv_sge *sge,
		      const struct region *r)
{
	for (int i = 0; i < count; i++)
		wr[i] = (struct ibv_send_wr) {
			.next = i + 1 < count ? &wr[i + 1] : NULL,
			.sg_list = sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = i + 1 < count ? 0 : IBV_SEND_SIGNALED,
			.wr.rdma.remote_addr = (uintptr_t)r->data + sge->length,
			.wr.rdma.rkey = r->mr->rkey,
		};
}

/* Posts a list at once, and waits for its end. */
static void post_and_wait(struct end *e, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	REQUIRE_ERRNO(ibv_post_send(e->qp, wr, &bad), 0);
	next_wc(e->scq, &wc);
	REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
}

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
	judge(system_calls, post_list, &q);
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
	judge(copy, keep_awake, &c);
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
static void priorities(void)
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
	end_to_state(&p.low, IBV_QPS_RTS);
	end_to_state(&p.high, IBV_QPS_RTS);
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
	REQUIRE(late <= BURSTS / 10);
	p.stop = true;
	REQUIRE_EQ(sem_post(&p.begin), 0);
	REQUIRE_EQ(pthread_join(low, NULL), 0);
	REQUIRE_EQ(pthread_join(mid, NULL), 0);
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
		{ "priorities", priorities, 120 },
		{ }
	};

	return test_main(argc, argv, cases);
}
