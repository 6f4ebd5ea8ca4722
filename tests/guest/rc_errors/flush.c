// SPDX-License-Identifier: GPL-2.0
/* The aftermath of an error: flushes, RESET, other connections. */
#include "rc_errors.h"

static void flush_on_modify(void)
{
	const struct end_config config = {
		.send_wr = 40, .recv_wr = 40, .rnr_timer = 31
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_sge sge;
	struct pair p;

	make(&p, &config, ACCESS_ALL);
	sge = whole(&p);
	for (int i = 0; i < 40; i++)
		recv_region(&p.a, 200 + i, &p.theirs, 0, LEN);
	/* b has no receive: all of these wait. */
	for (int i = 0; i < 40; i++)
		send_sges(&p.a, i, IBV_WR_SEND, i % 3 ? 0 : IBV_SEND_SIGNALED,
			  &sge, 1, NULL, 0, 0);
	EXPECT_NO_WC(p.a.scq);
	REQUIRE_ERRNO(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), 0);
	for (int i = 0; i < 40; i++)
		EXPECT_WC(p.a.scq, i, IBV_WC_WR_FLUSH_ERR);
	for (int i = 0; i < 40; i++)
		EXPECT_WC(p.a.rcq, 200 + i, IBV_WC_WR_FLUSH_ERR);
	expect_no_async(p.d.ctx);

	/* Posting goes on to be possible and is flushed at once (C10-42). */
	for (int i = 0; i < 100; i++) {
		send_sges(&p.a, 300 + i, IBV_WR_SEND, 0, &sge, 1, NULL, 0, 0);
		recv_region(&p.a, 500 + i, &p.theirs, 0, LEN);
		EXPECT_WC(p.a.scq, 300 + i, IBV_WC_WR_FLUSH_ERR);
		EXPECT_WC(p.a.rcq, 500 + i, IBV_WC_WR_FLUSH_ERR);
	}
	expect_peer_untouched(&p);
	pair_close(&p);
}

/* After an error a pair is as new through RESET, and nothing old appears. */
static void reuse_after_reset(void)
{
	struct ibv_sge sge;
	struct pair p;

	make(&p, NULL, ACCESS_ALL);
	sge = whole(&p);
	p.to.rkey ^= 1;
	for (int round = 0; round < 5; round++) {
		post_receives(&p);
		send_sges(&p.a, 2, IBV_WR_RDMA_WRITE, 0, &sge, 1, &p.to, 0, 0);
		post_followers(&p);
		EXPECT_WC(p.a.scq, 2, IBV_WC_REM_ACCESS_ERR);
		expect_followers_flushed(&p);
		expect_receives_flushed(&p, 0);
		expect_async(p.d.ctx, IBV_EVENT_QP_ACCESS_ERR, p.b.qp);
		/* In the last round some requests are posted and never seen. */
		pair_reset(&p);
		ends_connect(&p.a, &p.b);
		memset(p.theirs.data, 0, LEN);
		recv_region(&p.b, 50, &p.theirs, 0, LEN);
		send_region(&p.a, 51, &p.mine, 0, LEN);
		EXPECT_OK(p.a.scq, 51);
		EXPECT_OK(p.b.rcq, 50);
		VERIFY(p.theirs.data, LEN, 1);
	}
	pair_close(&p);
}

/* RESET with work outstanding: it vanishes without completions. */
static void reset_drops_work(void)
{
	const struct end_config config = { .rnr_timer = 31 };
	struct pair p;

	make(&p, &config, ACCESS_ALL);
	post_followers(&p);
	recv_region(&p.a, 1, &p.theirs, 0, LEN);
	sleep_us(1000);
	pair_reset(&p);
	EXPECT_NO_WC(p.a.scq);
	EXPECT_NO_WC(p.a.rcq);
	ends_connect(&p.a, &p.b);
	recv_region(&p.b, 50, &p.theirs, 0, LEN);
	send_region(&p.a, 51, &p.mine, 0, LEN);
	EXPECT_OK(p.a.scq, 51);
	EXPECT_OK(p.b.rcq, 50);
	EXPECT_NO_WC(p.a.scq);
	pair_close(&p);
}

/* Completions of a destroyed queue pair are gone from the queue. */
static void destroyed_qp_leaves_nothing(void)
{
	struct end_config config = { .cqe = 256 };
	struct device d;
	struct region r;

	device_open(&d);
	region_make(&r, &d, 64, 0, ACCESS_ALL);
	config.cq = ibv_create_cq(d.ctx, 256, NULL, NULL, 0);
	REQUIRE(config.cq);
	for (int round = 0; round < 20; round++) {
		struct end a, b;

		ends_make(&a, &b, &d, &config);
		for (int i = 0; i < 8; i++)
			recv_region(&b, i, &r, 0, 64);
		for (int i = 0; i < 8; i++)
			send_region(&a, 100 + i, &r, 0, 64);
		if (round % 2)
			sleep_us(2000);
		end_free(&a);
		end_free(&b);
		EXPECT_NO_WC(config.cq);
	}
	REQUIRE_ERRNO(ibv_destroy_cq(config.cq), 0);
	region_free(&r);
	device_close(&d);
}

/* The error of one pair is no business of another on the same queues. */
static void others_go_on(void)
{
	struct pair p, other;
	struct ibv_sge sge;

	make(&p, NULL, ACCESS_ALL);
	make(&other, NULL, ACCESS_ALL);
	p.to.rkey ^= 1;
	sge = whole(&p);
	for (int i = 0; i < 20; i++) {
		if (i == 10)
			send_sges(&p.a, 2, IBV_WR_RDMA_WRITE, 0, &sge, 1,
				  &p.to, 0, 0);
		recv_region(&other.b, i, &other.theirs, 0, LEN);
		send_region(&other.a, i, &other.mine, 0, LEN);
		EXPECT_OK(other.a.scq, i);
		EXPECT_OK(other.b.rcq, i);
	}
	EXPECT_WC(p.a.scq, 2, IBV_WC_REM_ACCESS_ERR);
	pair_close(&p);
	pair_close(&other);
}

const struct test_case flush_cases[] = {
	{ "flush_on_modify", flush_on_modify },
	{ "reuse_after_reset", reuse_after_reset },
	{ "reset_drops_work", reset_drops_work },
	{ "destroyed_qp_leaves_nothing", destroyed_qp_leaves_nothing },
	{ "others_go_on", others_go_on },
	{ }
};
