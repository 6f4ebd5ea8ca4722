// SPDX-License-Identifier: GPL-2.0
/*
 * Shared receive queues: the queue pair that takes a request, the requests that
 * they may hold, their two events, and posting from several threads.
 */
#include <pthread.h>
#include <sched.h>

#include "srq/srq.h"

struct ibv_srq *srq_make(struct device *d, uint32_t max_wr, uint32_t max_sge,
			 struct ibv_srq_attr *granted)
{
	struct ibv_srq_init_attr init = {
		.attr = { .max_wr = max_wr, .max_sge = max_sge },
	};
	struct ibv_srq *srq = ibv_create_srq(d->pd, &init);

	if (!srq)
		FAIL("ibv_create_srq: %s", strerror(errno));
	REQUIRE(init.attr.max_wr >= max_wr && init.attr.max_sge >= max_sge);
	if (granted)
		*granted = init.attr;
	return srq;
}

int try_post(struct ibv_srq *srq, uint64_t wr_id, struct ibv_sge *sge,
	     int num_sge)
{
	struct ibv_recv_wr wr = {
		.wr_id = wr_id,
		.sg_list = sge,
		.num_sge = num_sge,
	}, *bad = NULL;
	int ret = ibv_post_srq_recv(srq, &wr, &bad);

	if (ret && bad != &wr)
		FAIL("ibv_post_srq_recv answered %d without the bad request",
		     ret);
	return ret;
}

void post(struct ibv_srq *srq, uint64_t wr_id, const struct region *r,
	  size_t offset, size_t len)
{
	struct ibv_sge sge = sge_of(r, offset, len);

	REQUIRE_ERRNO(try_post(srq, wr_id, &sge, 1), 0);
}

void scene_make(struct scene *s, const struct end_config *receiver)
{
	struct end_config config = { };

	if (receiver)
		config = *receiver;
	device_open(&s->d);
	s->srq = srq_make(&s->d, 64, 1, NULL);
	config.srq = s->srq;
	for (int i = 0; i < PAIRS; i++) {
		struct peer from, to;

		end_make(&s->from[i], &s->d, NULL);
		end_make(&s->to[i], &s->d, &config);
		from = end_address(&s->from[i], NULL);
		to = end_address(&s->to[i], NULL);
		end_connect(&s->from[i], &to);
		end_connect(&s->to[i], &from);
	}
	region_make(&s->r, &s->d, 64 * LEN, 0, ACCESS_ALL);
}

void scene_free(struct scene *s)
{
	for (int i = 0; i < PAIRS; i++) {
		end_free(&s->from[i]);
		end_free(&s->to[i]);
	}
	REQUIRE_ERRNO(ibv_destroy_srq(s->srq), 0);
	REGION_CHECK(&s->r);
	region_free(&s->r);
	device_close(&s->d);
}

/* ibv_create_srq(3), ibv_modify_srq(3), ibv_query_srq(3). */
static void attributes(void)
{
	struct ibv_srq_init_attr init = { };
	struct ibv_srq_attr attr, granted;
	struct ibv_srq *srq;
	struct device d;

	device_open(&d);
	REQUIRE(d.attr.max_srq > 0 && d.attr.max_srq_wr > 0);
	REQUIRE(d.attr.max_srq_sge > 0);

	srq = srq_make(&d, 10, 3, &granted);
	REQUIRE_ERRNO(ibv_query_srq(srq, &attr), 0);
	REQUIRE_EQ(attr.max_wr, granted.max_wr);
	REQUIRE_EQ(attr.max_sge, granted.max_sge);
	REQUIRE_EQ(attr.srq_limit, 0);

	attr.srq_limit = granted.max_wr + 1;
	REQUIRE_ERRNO(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), EINVAL);
	REQUIRE_ERRNO(ibv_query_srq(srq, &attr), 0);
	REQUIRE_EQ(attr.max_wr, granted.max_wr);
	REQUIRE_EQ(attr.srq_limit, 0);
	REQUIRE_ERRNO(ibv_destroy_srq(srq), 0);

	/* All that the device says it has, and not one more. */
	srq = srq_make(&d, d.attr.max_srq_wr, d.attr.max_srq_sge, NULL);
	REQUIRE_ERRNO(ibv_destroy_srq(srq), 0);
	init.attr.max_wr = d.attr.max_srq_wr + 1;
	init.attr.max_sge = 1;
	REQUIRE_NULL_ERRNO(ibv_create_srq(d.pd, &init), EINVAL);
	init.attr.max_wr = 1;
	init.attr.max_sge = d.attr.max_srq_sge + 1;
	REQUIRE_NULL_ERRNO(ibv_create_srq(d.pd, &init), EINVAL);
	device_close(&d);
}

/* A queue pair that has one posts nothing itself, and keeps it from going. */
static void in_use(void)
{
	struct ibv_sge sge;
	struct scene s;

	scene_make(&s, NULL);
	sge = sge_of(&s.r, 0, LEN);
	REQUIRE_ERRNO(try_recv(&s.to[0], 1, &sge, 1), EINVAL);
	REQUIRE_ERRNO(ibv_destroy_srq(s.srq), EBUSY);
	scene_free(&s);
}

/* As many as were granted, with as many entries; slots come back when taken. */
static void capacity(void)
{
	struct ibv_sge sges[33] = { };
	struct ibv_srq_attr granted;
	struct end_config config = { };
	struct region r;
	struct device d;
	struct end a, b;

	device_open(&d);
	config.srq = srq_make(&d, 4, 2, &granted);
	region_make(&r, &d, LEN, 0, ACCESS_ALL);
	end_make(&a, &d, NULL);
	end_make(&b, &d, &config);
	ends_connect(&a, &b);

	REQUIRE(granted.max_sge < ARRAY_SIZE(sges));
	REQUIRE_ERRNO(try_post(config.srq, 0, sges, granted.max_sge + 1),
		      EINVAL);
	for (uint32_t i = 0; i < granted.max_wr; i++)
		REQUIRE_ERRNO(try_post(config.srq, i, sges, granted.max_sge),
			      0);
	REQUIRE_ERRNO(try_post(config.srq, 9, sges, 1), ENOMEM);
	for (uint32_t i = 0; i < 3 * granted.max_wr; i++) {
		send_region(&a, i, &r, 0, 0);
		EXPECT_OK(a.scq, i);
		EXPECT_OK(b.rcq, i);
		REQUIRE_ERRNO(try_post(config.srq, i + granted.max_wr, sges,
				       granted.max_sge), 0);
		REQUIRE_ERRNO(try_post(config.srq, 9, sges, 1), ENOMEM);
	}
	end_free(&a);
	end_free(&b);
	REQUIRE_ERRNO(ibv_destroy_srq(config.srq), 0);
	region_free(&r);
	device_close(&d);
}

/* A queue pair that needs a request takes the oldest. */
static void order(void)
{
	struct scene s;

	scene_make(&s, NULL);
	for (int i = 0; i < 32; i++)
		post(s.srq, i, &s.r, (size_t)i * LEN, LEN);
	fill(s.r.data + 32 * LEN, 32 * LEN, 5);
	for (int i = 0; i < 32; i++) {
		int which = i * 7 % PAIRS;
		struct ibv_wc wc;

		send_region(&s.from[which], i, &s.r, (32 + i) * LEN, LEN);
		EXPECT_OK(s.from[which].scq, i);
		wc = EXPECT_OK(s.to[which].rcq, i);
		REQUIRE_EQ(wc.qp_num, s.to[which].qp->qp_num);
		REQUIRE_EQ(wc.byte_len, LEN);
		REQUIRE_EQ(wc.opcode, IBV_WC_RECV);
	}
	VERIFY(s.r.data, 32 * LEN, 5);
	scene_free(&s);
}

/* No request: the sender is told to wait, and comes again. */
static void not_ready(void)
{
	struct scene s;

	scene_make(&s, NULL);
	fill(s.r.data, LEN, 3);
	send_region(&s.from[1], 1, &s.r, 0, LEN);
	EXPECT_NO_WC(s.from[1].scq);
	post(s.srq, 2, &s.r, LEN, LEN);
	EXPECT_OK(s.from[1].scq, 1);
	EXPECT_OK(s.to[1].rcq, 2);
	VERIFY(s.r.data + LEN, LEN, 3);
	scene_free(&s);
}

static void messages(struct scene *s, int count)
{
	for (int i = 0; i < count; i++) {
		int which = i % PAIRS;
		struct ibv_wc wc;

		send_region(&s->from[which], i, &s->r, 0, LEN);
		EXPECT_OK(s->from[which].scq, i);
		next_wc(s->to[which].rcq, &wc);
		REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
	}
}

/* Told with fewer requests than the limit, once; then it is 0 again. */
static void limit(void)
{
	struct ibv_srq_attr attr = { .srq_limit = 7 };
	struct scene s;

	scene_make(&s, NULL);
	for (int i = 0; i < 10; i++)
		post(s.srq, i, &s.r, LEN, LEN);
	REQUIRE_ERRNO(ibv_modify_srq(s.srq, &attr, IBV_SRQ_LIMIT), 0);
	REQUIRE_ERRNO(ibv_query_srq(s.srq, &attr), 0);
	REQUIRE_EQ(attr.srq_limit, 7);
	messages(&s, 3);
	expect_no_async(s.d.ctx);
	messages(&s, 1);
	expect_async(s.d.ctx, IBV_EVENT_SRQ_LIMIT_REACHED, s.srq);
	REQUIRE_ERRNO(ibv_query_srq(s.srq, &attr), 0);
	REQUIRE_EQ(attr.srq_limit, 0);
	messages(&s, 2);
	expect_no_async(s.d.ctx);

	/* Four are left: a limit that is undercut already is told at once. */
	attr.srq_limit = 5;
	REQUIRE_ERRNO(ibv_modify_srq(s.srq, &attr, IBV_SRQ_LIMIT), 0);
	expect_async(s.d.ctx, IBV_EVENT_SRQ_LIMIT_REACHED, s.srq);
	attr.srq_limit = 4;
	REQUIRE_ERRNO(ibv_modify_srq(s.srq, &attr, IBV_SRQ_LIMIT), 0);
	expect_no_async(s.d.ctx);
	attr.srq_limit = 0;
	REQUIRE_ERRNO(ibv_modify_srq(s.srq, &attr, IBV_SRQ_LIMIT), 0);
	messages(&s, 4);
	expect_no_async(s.d.ctx);
	scene_free(&s);
}

static void move(struct end *e, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	REQUIRE_ERRNO(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE), 0);
}

/*
 * A queue pair in error flushes nothing of the shared queue, says that it takes
 * no more (IBA volume 1, 11.6.3.4), and leaves the rest to the others.
 */
static void last_request(void)
{
	struct scene s;

	scene_make(&s, NULL);
	for (int i = 0; i < 4; i++)
		post(s.srq, i, &s.r, LEN, LEN);
	move(&s.to[0], IBV_QPS_ERR);
	expect_async(s.d.ctx, IBV_EVENT_QP_LAST_WQE_REACHED, s.to[0].qp);
	EXPECT_NO_WC(s.to[0].rcq);
	expect_no_async(s.d.ctx);

	/* A message too long ends its request at the queue pair that took it. */
	post(s.srq, 4, &s.r, LEN, LEN);
	send_region(&s.from[1], 1, &s.r, 0, 2 * LEN);
	EXPECT_WC(s.to[1].rcq, 0, IBV_WC_LOC_LEN_ERR);
	EXPECT_WC(s.from[1].scq, 1, IBV_WC_REM_INV_REQ_ERR);
	expect_async(s.d.ctx, IBV_EVENT_QP_LAST_WQE_REACHED, s.to[1].qp);
	EXPECT_NO_WC(s.to[1].rcq);

	for (int i = 1; i < 5; i++) {
		send_region(&s.from[2], i, &s.r, 0, LEN);
		EXPECT_OK(s.from[2].scq, i);
		EXPECT_OK(s.to[2].rcq, i);
	}
	/* And again in the next life. */
	move(&s.to[0], IBV_QPS_RESET);
	end_to_init(&s.to[0]);
	move(&s.to[0], IBV_QPS_ERR);
	expect_async(s.d.ctx, IBV_EVENT_QP_LAST_WQE_REACHED, s.to[0].qp);
	scene_free(&s);
}

/* The memory of requests is that of the queue's own protection domain. */
static void domain(void)
{
	struct end_config config = { };
	struct device d, other;
	struct region mine, theirs;
	struct end a, b;

	device_open(&d);
	other = device_other_pd(&d);
	config.srq = srq_make(&other, 4, 1, NULL);
	region_make(&mine, &d, LEN, 0, ACCESS_ALL);
	region_make(&theirs, &other, LEN, 0, ACCESS_ALL);
	end_make(&a, &d, NULL);
	end_make(&b, &d, &config);
	ends_connect(&a, &b);

	fill(mine.data, LEN, 8);
	post(config.srq, 1, &theirs, 0, LEN);
	send_region(&a, 2, &mine, 0, LEN);
	EXPECT_OK(a.scq, 2);
	EXPECT_OK(b.rcq, 1);
	VERIFY(theirs.data, LEN, 8);

	post(config.srq, 3, &mine, 0, LEN);
	send_region(&a, 4, &mine, 0, LEN);
	EXPECT_WC(b.rcq, 3, IBV_WC_LOC_PROT_ERR);
	EXPECT_WC(a.scq, 4, IBV_WC_REM_OP_ERR);

	end_free(&a);
	end_free(&b);
	REQUIRE_ERRNO(ibv_destroy_srq(config.srq), 0);
	region_free(&theirs);
	region_free(&mine);
	device_free_pd(&other);
	device_close(&d);
}

/* Threads that post as fast as there is space; each request arrives once. */

enum { POSTERS = 3 };

static void *post_all(void *arg)
{
	struct poster *p = arg;

	for (uint64_t i = 0; i < p->count; i++) {
		uint64_t id = p->first + i;
		struct ibv_sge sge = sge_of(&p->s->r, LEN, LEN);
		int ret;

		while ((ret = try_post(p->s->srq, id, &sge, 1)) == ENOMEM)
			sched_yield();
		REQUIRE_ERRNO(ret, 0);
	}
	return NULL;
}

void poster_start(struct poster *p)
{
	REQUIRE_EQ(pthread_create(&p->thread, NULL, post_all, p), 0);
}

void poster_join(struct poster *p)
{
	REQUIRE_EQ(pthread_join(p->thread, NULL), 0);
}

static void threads(void)
{
	uint64_t each = (opt.rounds ?: 5000) / POSTERS;
	uint64_t sent = 0, taken = 0, total = each * POSTERS;
	uint64_t next[POSTERS] = { };
	struct poster posters[POSTERS];
	struct scene s;

	scene_make(&s, NULL);
	for (int i = 0; i < POSTERS; i++) {
		posters[i] = (struct poster){ &s, (uint64_t)i << 32, each };
		poster_start(&posters[i]);
	}
	while (taken < total) {
		struct ibv_wc wc;

		while (sent < total && sent < taken + 16) {
			send_region(&s.from[sent % PAIRS], sent, &s.r, 0, LEN);
			sent++;
		}
		/* In the order of the senders: the receivers' are no other. */
		next_wc(s.to[taken % PAIRS].rcq, &wc);
		REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
		REQUIRE(wc.wr_id >> 32 < POSTERS);
		REQUIRE((uint32_t)wc.wr_id < each);
		next[wc.wr_id >> 32]++;
		next_wc(s.from[taken % PAIRS].scq, &wc);
		REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
		taken++;
	}
	for (int i = 0; i < POSTERS; i++) {
		poster_join(&posters[i]);
		REQUIRE_EQ(next[i], each);
	}
	scene_free(&s);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "attributes", attributes },
		{ "in_use", in_use },
		{ "capacity", capacity },
		{ "order", order },
		{ "not_ready", not_ready },
		{ "limit", limit },
		{ "last_request", last_request },
		{ "domain", domain },
		{ "threads", threads, 120 },
		{ }
	};

	static const struct test_case *const tables[] = {
		cases,
		resize_cases,
		posting_cases,
		NULL,
	};

	return test_main_of(argc, argv, tables);
}
