// SPDX-License-Identifier: GPL-2.0
/*
 * Receiver not ready, and a peer that does not answer: the counts, the timers
 * (IBA volume 1, 9.7.5.2.8 and 9.9.2.1) and the state that is left behind.
 */
#include "common.h"

#include <unistd.h>

enum { LEN = 500 };

/* Not connected yet. */
static void make(struct pair *p, const struct end_config *config)
{
	pair_make(p, config);
	pair_memory(p, LEN, LEN, ACCESS_ALL);
}

static void make_connected(struct pair *p, const struct end_config *config)
{
	make(p, config);
	ends_connect(&p->a, &p->b);
}

/* How often a time is taken before it is too long. */
enum { TRIES = 4 };

/*
 * A time that has a least value by the specification, and none at most but
 * that of a program's patience. Every one has to be as long as the least. A
 * busy host may keep a guest waiting longer than any timer, though hardly
 * several times running, so that one is too long only if all TRIES are.
 */
static void require_time(const char *what, uint64_t (*take)(void *), void *of,
			 uint64_t least, uint64_t most)
{
	uint64_t us = UINT64_MAX;

	for (int i = 0; i < TRIES && us > most * opt.slow; i++) {
		us = take(of);
		test_note("%s: %.1f ms, at least %.1f by the specification",
			  what, us / 1e3, least / 1e3);
		if (us < least)
			FAIL("%s took %.1f ms, expected at least %.1f ms",
			     what, us / 1e3, least / 1e3);
	}
	if (us > most * opt.slow)
		FAIL("%s took %.1f ms, and each of %d times more than %.1f ms",
		     what, us / 1e3, TRIES, most * opt.slow / 1e3);
}

struct rnr_run {
	uint8_t retries, timer;
	uint32_t timer_us;
};

/* How long it takes until the retries are used up. */
static uint64_t take_rnr(void *of)
{
	const struct rnr_run *run = of;
	const struct end_config config = {
		.rnr_retry = run->retries,
		.rnr_none = run->retries == 0,
		.rnr_timer = run->timer,
	};
	uint64_t begin, us;
	struct pair p;

	make_connected(&p, &config);
	begin = now_us();
	send_region(&p.a, 1, &p.mine, 0, LEN);
	send_region(&p.a, 2, &p.mine, 0, LEN);
	EXPECT_WC(p.a.scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	us = now_us() - begin;
	EXPECT_WC(p.a.scq, 2, IBV_WC_WR_FLUSH_ERR);
	end_await_state(&p.a, IBV_QPS_ERR);
	REQUIRE_EQ(end_state(&p.b), IBV_QPS_RTS);
	/* Nothing is on its way any more. */
	recv_region(&p.b, 3, &p.theirs, 0, LEN);
	EXPECT_NO_WC(p.b.rcq);
	expect_no_async(p.d.ctx);
	pair_close(&p);
	return us;
}

/* n retries, and then the error; b is none the worse. */
static void rnr_exceeded(void)
{
	static struct rnr_run runs[] = {
		{ 0, 26, 81920 }, { 1, 20, 10240 }, { 3, 20, 10240 },
		{ 6, 16, 2560 }, { 2, 26, 81920 },
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(runs); i++) {
		uint64_t least = (uint64_t)runs[i].retries * runs[i].timer_us;

		require_time("RNR retries", take_rnr, &runs[i], least,
			     4 * least + 60000);
	}
}

/* With count 7 the requester waits as long as it takes. */
static void rnr_without_end(void)
{
	const struct end_config config = { .rnr_retry = 7, .rnr_timer = 1 };
	struct pair p;

	make_connected(&p, &config);
	for (int i = 0; i < 8; i++)
		send_region(&p.a, i, &p.mine, 0, LEN);
	sleep_us(300000);
	REQUIRE_EQ(end_state(&p.a), IBV_QPS_RTS);
	EXPECT_NO_WC(p.a.scq);
	for (int i = 0; i < 8; i++) {
		memset(p.theirs.data, 0, LEN);
		recv_region(&p.b, i, &p.theirs, 0, LEN);
		EXPECT_OK(p.a.scq, i);
		EXPECT_OK(p.b.rcq, i);
		VERIFY(p.theirs.data, LEN, 1);
	}
	pair_close(&p);
}

/* How long a message takes whose receive comes a moment after it. */
static uint64_t take_rnr_wait(void *of)
{
	struct pair *p = of;
	uint64_t begin = now_us();

	send_region(&p->a, 1, &p->mine, 0, LEN);
	sleep_us(20000);
	recv_region(&p->b, 2, &p->theirs, 0, LEN);
	EXPECT_OK(p->a.scq, 1);
	EXPECT_OK(p->b.rcq, 2);
	return now_us() - begin;
}

/* The count begins anew with every message that got through. */
static void rnr_count_begins_anew(void)
{
	const struct end_config config = { .rnr_retry = 1, .rnr_timer = 31 };
	struct pair p;

	make_connected(&p, &config);
	/* Timer code 31 is 491.52 ms. */
	for (int i = 0; i < 3; i++)
		require_time("one RNR wait", take_rnr_wait, &p, 491520, 1500000);
	pair_close(&p);
}

/* An immediate needs a receive, the RDMA WRITE before it does not. */
static void rnr_write_with_imm(void)
{
	const struct end_config config = { .rnr_timer = 16 };
	struct ibv_sge sge;
	struct pair p;

	make_connected(&p, &config);
	sge = sge_of(&p.mine, 0, LEN);
	send_sges(&p.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 1, &p.to,
		  0, 0);
	send_sges(&p.a, 2, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED, &sge,
		  1, &p.to, 0, 5);
	EXPECT_OK(p.a.scq, 1);
	EXPECT_NO_WC(p.a.scq);
	REQUIRE_ERRNO(try_recv(&p.b, 3, NULL, 0), 0);
	EXPECT_OK(p.a.scq, 2);
	EXPECT_OK(p.b.rcq, 3);
	pair_close(&p);
}

/* Requests behind one that waits keep their order. */
static void rnr_keeps_order(void)
{
	const struct end_config config = { .rnr_timer = 14 };
	struct region src, dst;
	struct pair p;

	make_connected(&p, &config);
	region_make(&src, &p.d, 64 * 100, 0, 0);
	region_make(&dst, &p.d, 64 * 100, 0, IBV_ACCESS_LOCAL_WRITE);
	for (int i = 0; i < 64; i++) {
		fill(src.data + i * 100, 100, i);
		send_region(&p.a, i, &src, i * 100, 100);
	}
	for (int i = 0; i < 64; i++) {
		recv_region(&p.b, i, &dst, i * 100, 100);
		/* Several at once and one by one, so that it runs dry often. */
		if (i % 7 < 3)
			sleep_us(3000);
	}
	for (int i = 0; i < 64; i++) {
		EXPECT_OK(p.a.scq, i);
		EXPECT_OK(p.b.rcq, i);
		VERIFY(dst.data + i * 100, 100, i);
	}
	region_free(&src);
	region_free(&dst);
	pair_close(&p);
}

/*
 * No answer, by whatever cause: retries, each after the timeout, then the end
 * (C9-139, C9-140). Returns how long it takes.
 */
static uint64_t expect_retry_exceeded(struct pair *p)
{
	uint64_t begin = now_us(), us;

	send_region(&p->a, 1, &p->mine, 0, LEN);
	send_region(&p->a, 2, &p->mine, 0, LEN);
	EXPECT_WC(p->a.scq, 1, IBV_WC_RETRY_EXC_ERR);
	us = now_us() - begin;
	EXPECT_WC(p->a.scq, 2, IBV_WC_WR_FLUSH_ERR);
	EXPECT_NO_WC(p->a.scq);
	end_await_state(&p->a, IBV_QPS_ERR);
	return us;
}

static void require_retries(uint64_t (*take)(void *), void *of,
			    unsigned int retries)
{
	/*
	 * 4.096 us * 2^12, for one try and each retry. The first and the second
	 * retry double it.
	 */
	uint64_t timeout = 16777;
	uint64_t least = (retries ? 4 * retries - 1 : 1) * timeout;

	require_time("retries", take, of, least,
		     4 * (retries + 1) * timeout + 100000);
}

static uint64_t take_absent(void *of)
{
	const unsigned int *retries = of;
	const struct end_config config = { .timeout = 12, .retry = *retries };
	struct peer nobody;
	struct pair p;
	struct end gone;
	uint64_t us;

	make(&p, &config);
	p.a.config.retry = *retries;
	end_make(&gone, &p.d, NULL);
	nobody = end_address(&gone, NULL);
	end_free(&gone);
	end_connect(&p.a, &nobody);
	us = expect_retry_exceeded(&p);
	pair_close(&p);
	return us;
}

/* A count of 7 is seven; only that of RNR NAKs has no end. */
static void peer_absent(void)
{
	for (unsigned int retries = 0; retries < 8; retries++)
		require_retries(take_absent, &retries, retries);
}

static uint64_t take_not_ready(void *of)
{
	const enum ibv_qp_state *state = of;
	const struct end_config config = { .timeout = 12, .retry = 2 };
	struct pair p;
	uint64_t us;

	make(&p, &config);
	end_to_state(&p.b, *state);
	end_connect(&p.a, &p.to);
	if (*state == IBV_QPS_INIT)
		recv_region(&p.b, 9, &p.theirs, 0, LEN);
	us = expect_retry_exceeded(&p);
	EXPECT_NO_WC(p.b.rcq);
	REQUIRE_EQ(end_state(&p.b), *state);
	pair_close(&p);
	return us;
}

/* A queue pair in RESET, INIT or ERR drops what it gets. */
static void peer_not_ready(void)
{
	static enum ibv_qp_state states[] = {
		IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_ERR
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(states); i++)
		require_retries(take_not_ready, &states[i], 2);
}

/* A peer that becomes ready in time is reached by a retry. */
static void peer_late(void)
{
	const struct end_config config = { .timeout = 14, .retry = 7 };
	struct peer to_a;
	struct pair p;

	make(&p, &config);
	to_a = end_address(&p.a, NULL);
	end_connect(&p.a, &p.to);
	end_to_init(&p.b);
	recv_region(&p.b, 9, &p.theirs, 0, LEN);
	send_region(&p.a, 1, &p.mine, 0, LEN);
	sleep_us(150000);
	EXPECT_NO_WC(p.a.scq);
	end_to_rtr(&p.b, &to_a);
	EXPECT_OK(p.a.scq, 1);
	EXPECT_OK(p.b.rcq, 9);
	VERIFY(p.theirs.data, LEN, 1);
	pair_close(&p);
}

/* Timeout 0 means none: the request waits until it is flushed. */
static void timeout_zero_waits(void)
{
	const struct end_config config = { .retry = 1 };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct peer nobody;
	struct pair p;
	struct end gone;

	make(&p, &config);
	p.a.config.timeout = 0;
	end_make(&gone, &p.d, NULL);
	nobody = end_address(&gone, NULL);
	end_free(&gone);
	end_connect(&p.a, &nobody);
	send_region(&p.a, 1, &p.mine, 0, LEN);
	sleep_us(1000000);
	EXPECT_NO_WC(p.a.scq);
	REQUIRE_EQ(end_state(&p.a), IBV_QPS_RTS);
	REQUIRE_ERRNO(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), 0);
	EXPECT_WC(p.a.scq, 1, IBV_WC_WR_FLUSH_ERR);
	pair_close(&p);
}

/* A message to a peer in RTR arrives and says so (11.6.3.1). */
static void communication_established(void)
{
	struct peer to_a;
	struct pair p;

	make(&p, NULL);
	to_a = end_address(&p.a, NULL);
	end_connect(&p.a, &p.to);
	end_to_init(&p.b);
	end_to_rtr(&p.b, &to_a);
	recv_region(&p.b, 9, &p.theirs, 0, LEN);
	recv_region(&p.b, 10, &p.theirs, 0, LEN);
	send_region(&p.a, 1, &p.mine, 0, LEN);
	EXPECT_OK(p.a.scq, 1);
	EXPECT_OK(p.b.rcq, 9);
	expect_async(p.d.ctx, IBV_EVENT_COMM_EST, p.b.qp);
	/* Once. */
	send_region(&p.a, 2, &p.mine, 0, LEN);
	EXPECT_OK(p.a.scq, 2);
	EXPECT_OK(p.b.rcq, 10);
	expect_no_async(p.d.ctx);
	end_to_rts(&p.b);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "rnr_exceeded", rnr_exceeded },
		{ "rnr_without_end", rnr_without_end },
		{ "rnr_count_begins_anew", rnr_count_begins_anew },
		{ "rnr_write_with_imm", rnr_write_with_imm },
		{ "rnr_keeps_order", rnr_keeps_order },
		{ "peer_absent", peer_absent },
		{ "peer_not_ready", peer_not_ready },
		{ "peer_late", peer_late },
		{ "timeout_zero_waits", timeout_zero_waits },
		{ "communication_established", communication_established },
		{ }
	};

	return test_main(argc, argv, cases);
}
