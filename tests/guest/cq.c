// SPDX-License-Identifier: GPL-2.0
/*
 * Completion queues: overrun, many of them, several threads at one, and the
 * extended interface.
 */
#define _GNU_SOURCE
#include "cq/cq.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

void expect_earlier(struct ibv_cq *cq, int fit)
{
	struct ibv_wc wc;

	for (int i = 0; i < fit && next_wc_within(cq, &wc, 0); i++) {
		REQUIRE_EQ(wc.wr_id, i);
		REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
	}
}

/* One more completion than fits, on a queue that nobody polls. */
static void overrun(void)
{
	struct device d;
	struct end e;
	int fit = one_cq_open(&d, &e, 8);

	/* Exactly full is no error, and all of it can be taken. */
	write_signalled(&e, fit);
	expect_no_async(d.ctx);
	for (int i = 0; i < fit; i++)
		EXPECT_OK(e.scq, i);

	write_signalled(&e, fit + 3);
	expect_async(d.ctx, IBV_EVENT_CQ_ERR, e.scq);
	expect_async(d.ctx, IBV_EVENT_QP_FATAL, e.qp);
	/* Once each. */
	expect_no_async(d.ctx);
	end_await_state(&e, IBV_QPS_ERR);
	expect_earlier(e.scq, fit);
	one_cq_close(&d, &e);
}

/* The queue of one program overruns; another on the same device goes on. */
static void overrun_is_contained(void)
{
	struct end_config config = { };
	struct end e;
	struct region r;
	struct pair p;
	int fit;

	pair_open(&p, NULL);
	region_make(&r, &p.d, 200, 0, ACCESS_ALL);
	config.cq = ibv_create_cq(p.d.ctx, 1, NULL, NULL, 0);
	REQUIRE(config.cq);
	fit = config.cq->cqe;
	config.send_wr = fit + 8;
	end_make(&e, &p.d, &config);
	end_to_state(&e, IBV_QPS_RTS);
	write_signalled(&e, fit + 1);
	expect_async(p.d.ctx, IBV_EVENT_CQ_ERR, config.cq);
	for (int i = 0; i < 100; i++) {
		recv_region(&p.b, i, &r, 100, 100);
		send_region(&p.a, i, &r, 0, 100);
		EXPECT_OK(p.a.scq, i);
		EXPECT_OK(p.b.rcq, i);
	}
	end_free(&e);
	REQUIRE_ERRNO(ibv_destroy_cq(config.cq), 0);
	region_free(&r);
	pair_close(&p);
}

/*
 * Several threads poll one queue while two post to queue pairs of it: each
 * completion goes to one thread, none is lost or seen twice.
 */
enum { POLLERS = 3, POSTERS = 2, WINDOW = 32 };

struct contest {
	struct end end[POSTERS];
	struct ibv_cq *cq;
	unsigned long each;
	atomic_ulong polled;
	atomic_uint underway[POSTERS];
	atomic_uchar *seen;	/* by poster and number */
};

static void *poll_thread(void *arg)
{
	struct contest *c = arg;
	unsigned long total = c->each * POSTERS;
	uint64_t end = now_us() + 6 * PATIENCE_US;

	while (atomic_load(&c->polled) < total) {
		struct ibv_wc wc[4];
		int n = ibv_poll_cq(c->cq, ARRAY_SIZE(wc), wc);

		REQUIRE(n >= 0);
		for (int i = 0; i < n; i++) {
			unsigned long poster = wc[i].wr_id >> 32;
			unsigned long number = wc[i].wr_id & 0xffffffff;

			REQUIRE_EQ(wc[i].status, IBV_WC_SUCCESS);
			REQUIRE(poster < POSTERS && number < c->each);
			REQUIRE_EQ(wc[i].qp_num, c->end[poster].qp->qp_num);
			REQUIRE_EQ(atomic_fetch_add(&c->seen[poster * c->each +
						    number], 1), 0);
			atomic_fetch_sub(&c->underway[poster], 1);
			atomic_fetch_add(&c->polled, 1);
		}
		if (!n) {
			if (now_us() > end)
				FAIL("%lu of %lu completions came",
				     atomic_load(&c->polled), total);
			sched_yield();
		}
	}
	return NULL;
}

struct poster {
	struct contest *contest;
	int number;
};

static void *post_thread(void *arg)
{
	struct poster *p = arg;
	struct contest *c = p->contest;

	for (unsigned long i = 0; i < c->each; i++) {
		while (atomic_load(&c->underway[p->number]) >= WINDOW)
			sched_yield();
		atomic_fetch_add(&c->underway[p->number], 1);
		send_sges(&c->end[p->number], (uint64_t)p->number << 32 | i,
			  IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, NULL, 0, NULL,
			  0, 0);
	}
	return NULL;
}

static void threads(void)
{
	struct contest c = { .each = opt.rounds ?: 5000 };
	struct end_config config = { .send_wr = WINDOW };
	pthread_t pollers[POLLERS], posters[POSTERS];
	struct poster p[POSTERS];
	struct device d;

	device_open(&d);
	c.cq = config.cq = ibv_create_cq(d.ctx, POSTERS * WINDOW, NULL, NULL,
					 0);
	REQUIRE(c.cq);
	c.seen = calloc(POSTERS * c.each, 1);
	for (int i = 0; i < POSTERS; i++) {
		end_make(&c.end[i], &d, &config);
		end_to_state(&c.end[i], IBV_QPS_RTS);
		p[i] = (struct poster){ &c, i };
	}
	for (int i = 0; i < POLLERS; i++)
		pthread_create(&pollers[i], NULL, poll_thread, &c);
	for (int i = 0; i < POSTERS; i++)
		pthread_create(&posters[i], NULL, post_thread, &p[i]);
	for (int i = 0; i < POSTERS; i++)
		pthread_join(posters[i], NULL);
	for (int i = 0; i < POLLERS; i++)
		pthread_join(pollers[i], NULL);
	EXPECT_NO_WC(c.cq);
	for (unsigned long i = 0; i < POSTERS * c.each; i++)
		REQUIRE_EQ(c.seen[i], 1);
	for (int i = 0; i < POSTERS; i++)
		end_free(&c.end[i]);
	REQUIRE_ERRNO(ibv_destroy_cq(c.cq), 0);
	free(c.seen);
	device_close(&d);
}

/* Several threads post to one queue pair: every request once, none torn. */
struct crowd {
	struct end a, b;
	struct region src;
	struct peer to;
	unsigned long each;
	atomic_uint underway;
};

static void *crowd_thread(void *arg)
{
	struct crowd *c = arg;

	for (unsigned long i = 0; i < c->each; i++) {
		struct ibv_sge sge = sge_of(&c->src, 0, 8);

		while (atomic_fetch_add(&c->underway, 1) >= WINDOW) {
			atomic_fetch_sub(&c->underway, 1);
			sched_yield();
		}
		send_sges(&c->a, i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
			  1, &c->to, 0, 0);
	}
	return NULL;
}

static void one_qp_many_threads(void)
{
	struct crowd c = { .each = opt.rounds ?: 3000 };
	const struct end_config config = { .send_wr = 2 * WINDOW };
	unsigned long *count = calloc(c.each, sizeof(*count));
	pthread_t thread[3];
	struct region dst;
	struct device d;
	uint64_t end;

	device_open(&d);
	ends_make(&c.a, &c.b, &d, &config);
	region_make(&c.src, &d, 8, 0, 0);
	region_make(&dst, &d, 8, 0, ACCESS_ALL);
	fill(c.src.data, 8, 6);
	c.to = end_address(&c.b, &dst);
	for (unsigned int i = 0; i < ARRAY_SIZE(thread); i++)
		pthread_create(&thread[i], NULL, crowd_thread, &c);
	end = now_us() + 6 * PATIENCE_US;
	for (unsigned long n = 0; n < c.each * ARRAY_SIZE(thread);) {
		struct ibv_wc wc;

		if (!next_wc_within(c.a.scq, &wc, 10000)) {
			if (now_us() > end)
				FAIL("%lu of %lu completions came", n,
				     c.each * ARRAY_SIZE(thread));
			continue;
		}
		REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
		REQUIRE(wc.wr_id < c.each);
		count[wc.wr_id]++;
		atomic_fetch_sub(&c.underway, 1);
		n++;
	}
	for (unsigned int i = 0; i < ARRAY_SIZE(thread); i++)
		pthread_join(thread[i], NULL);
	EXPECT_NO_WC(c.a.scq);
	for (unsigned long i = 0; i < c.each; i++)
		REQUIRE_EQ(count[i], ARRAY_SIZE(thread));
	VERIFY(dst.data, 8, 6);
	end_free(&c.a);
	end_free(&c.b);
	region_free(&c.src);
	region_free(&dst);
	device_close(&d);
	free(count);
}

/* Many queues, each with its own pair, all used and all given back. */
static void many(void)
{
	enum { N = 500 };
	static struct end e[N];
	const struct end_config config = { .send_wr = 2, .recv_wr = 2 };
	struct region r;
	struct device d;

	device_open(&d);
	region_make(&r, &d, 64, 0, ACCESS_ALL);
	for (int i = 0; i < N; i++) {
		end_make(&e[i], &d, &config);
		end_to_state(&e[i], IBV_QPS_RTS);
	}
	for (int i = 0; i < N; i++) {
		recv_region(&e[i], i, &r, 32, 32);
		send_region(&e[i], i, &r, 0, 32);
	}
	for (int i = 0; i < N; i++) {
		EXPECT_OK(e[i].scq, i);
		EXPECT_OK(e[i].rcq, i);
	}
	for (int i = 0; i < N; i++)
		end_free(&e[i]);
	region_free(&r);
	device_close(&d);
}

/* ibv_start_poll and its kin read the same completions. */
static void extended(void)
{
	struct ibv_cq_init_attr_ex init = {
		.cqe = 32, .wc_flags = IBV_WC_STANDARD_FLAGS
	};
	struct ibv_poll_cq_attr attr = { };
	struct end_config config = { };
	uint64_t end = now_us() + PATIENCE_US;
	struct ibv_cq_ex *cq;
	struct device d;
	struct end e;
	int n = 0;

	device_open(&d);
	cq = ibv_create_cq_ex(d.ctx, &init);
	if (!cq && errno == EOPNOTSUPP)
		test_skip("the provider has no extended completion queues");
	if (!cq)
		FAIL("ibv_create_cq_ex: %s", strerror(errno));
	config.cq = ibv_cq_ex_to_cq(cq);
	end_make(&e, &d, &config);
	end_to_state(&e, IBV_QPS_RTS);
	for (int i = 0; i < 10; i++)
		send_sges(&e, i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, NULL, 0,
			  NULL, 0, 0);
	while (n < 10 && now_us() < end) {
		int ret = ibv_start_poll(cq, &attr);

		if (ret == ENOENT)
			continue;
		while (!ret) {
			REQUIRE_EQ(cq->wr_id, n++);
			REQUIRE_EQ(cq->status, IBV_WC_SUCCESS);
			REQUIRE_EQ(ibv_wc_read_opcode(cq), IBV_WC_RDMA_WRITE);
			REQUIRE_EQ(ibv_wc_read_qp_num(cq), e.qp->qp_num);
			ret = ibv_next_poll(cq);
		}
		REQUIRE_EQ(ret, ENOENT);
		ibv_end_poll(cq);
	}
	REQUIRE_EQ(n, 10);
	end_free(&e);
	REQUIRE_ERRNO(ibv_destroy_cq(config.cq), 0);
	device_close(&d);
}

/* A queue resized while completions lie in it loses none. */
static void resize(void)
{
	struct end_config config = { .send_wr = 200 };
	struct ibv_sge sge;
	struct region r;
	struct device d;
	struct peer to;
	struct end e;

	device_open(&d);
	config.cq = ibv_create_cq(d.ctx, 100, NULL, NULL, 0);
	REQUIRE(config.cq);
	REQUIRE_ERRNO(ibv_resize_cq(config.cq, 200), 0);
	REQUIRE(config.cq->cqe >= 200);
	end_make(&e, &d, &config);
	end_to_state(&e, IBV_QPS_RTS);
	for (int i = 0; i < 50; i++)
		send_sges(&e, i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, NULL, 0,
			  NULL, 0, 0);
	EXPECT_OK(e.scq, 0);
	REQUIRE_ERRNO(ibv_resize_cq(config.cq, 400), 0);
	for (int i = 1; i < 25; i++)
		EXPECT_OK(e.scq, i);
	REQUIRE_ERRNO(ibv_resize_cq(config.cq, 60), 0);
	for (int i = 25; i < 50; i++)
		EXPECT_OK(e.scq, i);
	for (int i = 0; i < 40; i++)
		send_sges(&e, i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, NULL, 0,
			  NULL, 0, 0);
	for (int i = 0; i < 40; i++)
		EXPECT_OK(e.scq, i);
	/*
	 * Too small for the completions there; too large for the device; none.
	 */
	for (int i = 0; i < 40; i++)
		send_sges(&e, i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, NULL, 0,
			  NULL, 0, 0);
	/* One more tells when they have ended, with no completion of its own. */
	region_make(&r, &d, 2, 0, ACCESS_ALL);
	r.data[0] = 0;
	r.data[1] = 1;
	sge = sge_of(&r, 1, 1);
	to = end_address(&e, &r);
	send_sges(&e, 40, IBV_WR_RDMA_WRITE, 0, &sge, 1, &to, 0, 0);
	while (!*(volatile uint8_t *)r.data)
		;
	REQUIRE_ERRNO(ibv_resize_cq(config.cq, 16), EINVAL);
	REQUIRE_ERRNO(ibv_resize_cq(config.cq, d.attr.max_cqe + 1), EINVAL);
	REQUIRE_ERRNO(ibv_resize_cq(config.cq, 0), EINVAL);
	for (int i = 0; i < 40; i++)
		EXPECT_OK(e.scq, i);
	end_free(&e);
	region_free(&r);
	REQUIRE_ERRNO(ibv_destroy_cq(config.cq), 0);
	device_close(&d);
}

/*
 * Two threads resize a queue without a pause while a third polls it and posts:
 * no completion is lost, told twice or out of order.
 */
struct resizer {
	pthread_t thread;
	struct ibv_cq *cq;
	unsigned int seed;
	bool stop;
	_Atomic unsigned int times;
};

static void *resize_on(void *arg)
{
	struct resizer *r = arg;

	while (!__atomic_load_n(&r->stop, __ATOMIC_RELAXED)) {
		int ret = ibv_resize_cq(r->cq, 64 << rand_r(&r->seed) % 5);

		REQUIRE_ERRNO(ret, 0);
		r->times++;
		sched_yield();
	}
	return NULL;
}

static void resize_under_traffic(void)
{
	enum { DEPTH = 64, MESSAGES = 5000 };
	struct end_config config = { .send_wr = DEPTH };
	struct resizer resizers[2] = { };
	unsigned int posted = 0, done = 0;
	struct device d;
	struct end e;

	device_open(&d);
	config.cq = ibv_create_cq(d.ctx, DEPTH, NULL, NULL, 0);
	REQUIRE(config.cq);
	end_make(&e, &d, &config);
	end_to_state(&e, IBV_QPS_RTS);
	for (unsigned int i = 0; i < 2; i++) {
		resizers[i].cq = config.cq;
		resizers[i].seed = i + 1;
		REQUIRE(!pthread_create(&resizers[i].thread, NULL, resize_on,
					&resizers[i]));
		while (!resizers[i].times)
			sched_yield();
	}
	while (done < MESSAGES) {
		struct ibv_wc wc[8];
		int n;

		for (; posted < MESSAGES && posted - done < DEPTH; posted++)
			send_sges(&e, posted, IBV_WR_RDMA_WRITE,
				  IBV_SEND_SIGNALED, NULL, 0, NULL, 0, 0);
		n = ibv_poll_cq(config.cq, 1 + done % 8, wc);
		REQUIRE(n >= 0);
		for (int i = 0; i < n; i++, done++) {
			REQUIRE_EQ(wc[i].status, IBV_WC_SUCCESS);
			REQUIRE_EQ(wc[i].wr_id, done);
		}
	}
	for (unsigned int i = 0; i < 2; i++) {
		__atomic_store_n(&resizers[i].stop, true, __ATOMIC_RELAXED);
		REQUIRE(!pthread_join(resizers[i].thread, NULL));
		test_note("resized %u times", resizers[i].times);
	}
	EXPECT_NO_WC(config.cq);
	expect_no_async(d.ctx);
	end_free(&e);
	REQUIRE_ERRNO(ibv_destroy_cq(config.cq), 0);
	device_close(&d);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "overrun", overrun },
		{ "overrun_is_contained", overrun_is_contained },
		{ "threads", threads, 120 },
		{ "one_qp_many_threads", one_qp_many_threads, 120 },
		{ "many", many, 60 },
		{ "extended", extended },
		{ "resize", resize },
		{ "resize_under_traffic", resize_under_traffic, 60 },
		{ }
	};
	static const struct test_case *const tables[] = {
		cases,
		overrun_cases,
		timestamp_cases,
		NULL,
	};

	return test_main_of(argc, argv, tables);
}
