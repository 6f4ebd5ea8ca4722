// SPDX-License-Identifier: GPL-2.0
/*
 * Requests that must fail: the status at both ends (IBA volume 1, 11.6.2 and
 * 10.10.3), the asynchronous event where there is no completion to carry the
 * error, the state of both queue pairs, and everything behind the failed
 * request flushed in the order of its posting.
 */
#include "common.h"

#include <stdio.h>
#include <sys/mman.h>

enum { RECEIVES = 3, LEN = 1000 };

/* Two connected ends, and work around the culprit. */
static void make(struct pair *p, const struct end_config *config, int access)
{
	pair_open(p, config);
	pair_memory(p, 2 * LEN, LEN, access);
}

static struct ibv_sge whole(struct pair *p)
{
	return sge_of(&p->mine, 0, LEN);
}

/* Four receives of b that a SEND may use; wr_id 100 and up. */
static void post_receives(struct pair *p)
{
	for (int i = 0; i < RECEIVES; i++)
		recv_region(&p->b, 100 + i, &p->theirs, 0, p->theirs.len);
}

/* Requests behind the culprit, signalled or not; wr_id 10 and up. */
static void post_followers(struct pair *p)
{
	struct ibv_sge sge = whole(p);

	for (int i = 0; i < 4; i++)
		send_sges(&p->a, 10 + i, i == 1 ? IBV_WR_RDMA_WRITE :
			  IBV_WR_SEND, i == 2 ? 0 : IBV_SEND_SIGNALED, &sge, 1,
			  i == 1 ? &p->to : NULL, 0, 0);
}

/* Completions with an error are for unsignalled requests, too (10.7.3.1). */
static void expect_followers_flushed(struct pair *p)
{
	for (int i = 0; i < 4; i++)
		EXPECT_WC(p->a.scq, 10 + i, IBV_WC_WR_FLUSH_ERR);
	EXPECT_NO_WC(p->a.scq);
	end_await_state(&p->a, IBV_QPS_ERR);
}

static void expect_receives_flushed(struct pair *p, int first)
{
	for (int i = first; i < RECEIVES; i++)
		EXPECT_WC(p->b.rcq, 100 + i, IBV_WC_WR_FLUSH_ERR);
	EXPECT_NO_WC(p->b.rcq);
	end_await_state(&p->b, IBV_QPS_ERR);
}

/* b has seen nothing of a's error: still there, its receives unused. */
static void expect_peer_untouched(struct pair *p)
{
	EXPECT_NO_WC(p->b.rcq);
	expect_no_async(p->d.ctx);
	REQUIRE_EQ(end_state(&p->b), IBV_QPS_RTS);
	VERIFY_BYTE(p->theirs.data, p->theirs.len, 0);
}

/* ---- Errors of remote access ---- */

/*
 * A WRITE that b must refuse: with this key, at this address. The request
 * before it is done, those behind it are flushed.
 */
static void refused_write(struct pair *p, const struct peer *to,
			  uint64_t offset, uint32_t len,
			  enum ibv_wc_status status, enum ibv_event_type event)
{
	struct ibv_sge sge = sge_of(&p->mine, 0, len);

	post_receives(p);
	send_region(&p->a, 1, &p->mine, 0, LEN);
	send_sges(&p->a, 2, IBV_WR_RDMA_WRITE, 0, &sge, 1, to, offset, 0);
	post_followers(p);
	EXPECT_OK(p->a.scq, 1);
	EXPECT_WC(p->a.scq, 2, status);
	expect_followers_flushed(p);
	EXPECT_OK(p->b.rcq, 100);
	expect_receives_flushed(p, 1);
	expect_async(p->d.ctx, event, p->b.qp);
	expect_no_async(p->d.ctx);
	VERIFY(p->theirs.data, LEN, 1);
}

static void refused_access(struct pair *p, const struct peer *to,
			   uint64_t offset, uint32_t len)
{
	refused_write(p, to, offset, len, IBV_WC_REM_ACCESS_ERR,
		      IBV_EVENT_QP_ACCESS_ERR);
}

static void rkey_unknown(void)
{
	/* Another generation, another region, none, and the local key's bits. */
	static const uint32_t flips[] = { 1, 0x100, 0xffff0000 };
	struct pair p;

	for (unsigned int i = 0; i <= ARRAY_SIZE(flips); i++) {
		make(&p, NULL, ACCESS_ALL);
		p.to.rkey = i < ARRAY_SIZE(flips) ? p.to.rkey ^ flips[i] : 0;
		refused_access(&p, &p.to, 0, 8);
		pair_close(&p);
	}
}

static void rkey_deregistered(void)
{
	struct pair p;
	struct region r;
	struct peer to;

	make(&p, NULL, ACCESS_ALL);
	region_make(&r, &p.d, LEN, 0, ACCESS_ALL);
	to = end_address(&p.b, &r);
	REQUIRE_ERRNO(ibv_dereg_mr(r.mr), 0);
	r.mr = NULL;
	refused_access(&p, &to, 0, 8);
	VERIFY_BYTE(r.data, r.len, 0);
	region_free(&r);
	pair_close(&p);
}

static void rkey_range(void)
{
	static const struct {
		int64_t offset;
		uint32_t len;
	} bad[] = {
		{ -1, 8 },			/* begins a byte too early */
		{ LEN - 7, 8 },			/* ends a byte too late */
		{ LEN, 1 },			/* just behind */
		{ 0, LEN + 1 },			/* longer than the region */
		{ 1ll << 32, 8 },		/* right in the low 32 bits */
	};
	struct pair p;

	for (unsigned int i = 0; i < ARRAY_SIZE(bad); i++) {
		make(&p, NULL, ACCESS_ALL);
		refused_access(&p, &p.to, bad[i].offset, bad[i].len);
		pair_close(&p);
	}
	/* The end of the address space, where address + length wraps to 4. */
	make(&p, NULL, ACCESS_ALL);
	refused_access(&p, &p.to, -4 - p.to.addr, 8);
	pair_close(&p);
}

static void rkey_no_remote_write(void)
{
	struct pair p;

	make(&p, NULL, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	refused_access(&p, &p.to, 0, 8);
	pair_close(&p);
}

static void rkey_other_pd(void)
{
	struct device other;
	struct region r;
	struct pair p;
	struct peer to;

	make(&p, NULL, ACCESS_ALL);
	other = p.d;
	other.pd = ibv_alloc_pd(p.d.ctx);
	REQUIRE(other.pd);
	region_make(&r, &other, LEN, 0, ACCESS_ALL);
	to = end_address(&p.b, &r);
	refused_access(&p, &to, 0, 8);
	VERIFY_BYTE(r.data, r.len, 0);
	region_free(&r);
	REQUIRE_ERRNO(ibv_dealloc_pd(other.pd), 0);
	pair_close(&p);
}

/* The queue pair itself admits no RDMA WRITE (10.10.3.2 and 11.6.2). */
static void qp_no_remote_write(void)
{
	const struct end_config config = { .access = IBV_ACCESS_LOCAL_WRITE };
	struct pair p;

	make(&p, &config, ACCESS_ALL);
	refused_write(&p, &p.to, 0, 8, IBV_WC_REM_INV_REQ_ERR,
		      IBV_EVENT_QP_REQ_ERR);
	pair_close(&p);
}

/* C9-88: the key of an RDMA WRITE of no bytes is not checked. */
static void rkey_unchecked_if_empty(void)
{
	struct pair p;

	make(&p, NULL, ACCESS_ALL);
	p.to.rkey = ~p.to.rkey;
	p.to.addr = 0;
	send_sges(&p.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, NULL, 0,
		  &p.to, 0, 0);
	EXPECT_OK(p.a.scq, 1);
	expect_peer_untouched(&p);
	pair_close(&p);
}

/* ---- Errors of local access, at the requester ---- */

static void refused_sge(struct pair *p, struct ibv_sge *sge, int n)
{
	post_receives(p);
	send_sges(&p->a, 2, IBV_WR_SEND, 0, sge, n, NULL, 0, 0);
	post_followers(p);
	EXPECT_WC(p->a.scq, 2, IBV_WC_LOC_PROT_ERR);
	expect_followers_flushed(p);
	expect_peer_untouched(p);
}

static void lkey_unknown(void)
{
	struct ibv_sge sge;
	struct pair p;

	make(&p, NULL, ACCESS_ALL);
	sge = whole(&p);
	sge.lkey ^= 0x100;
	refused_sge(&p, &sge, 1);
	pair_close(&p);
}

static void lkey_range(void)
{
	static const struct {
		int64_t offset;
		uint32_t len;
	} bad[] = {
		{ -1, 8 }, { 2 * LEN - 7, 8 }, { 2 * LEN, 1 }, { 0, 2 * LEN + 1 },
		{ 1ll << 32, 8 }, { 0, UINT32_MAX >> 2 },
	};
	struct pair p;

	for (unsigned int i = 0; i < ARRAY_SIZE(bad); i++) {
		struct ibv_sge sge;

		make(&p, NULL, ACCESS_ALL);
		sge = sge_of(&p.mine, bad[i].offset, bad[i].len);
		refused_sge(&p, &sge, 1);
		pair_close(&p);
	}
}

/* The second of two entries is bad: nothing of the message is seen. */
static void lkey_second(void)
{
	const struct end_config config = { .send_sge = 2 };
	struct ibv_sge sge[2];
	struct pair p;

	make(&p, &config, ACCESS_ALL);
	sge[0] = sge_of(&p.mine, 0, 10);
	sge[1] = sge_of(&p.mine, 10, 10);
	sge[1].lkey = ~sge[1].lkey;
	refused_sge(&p, sge, 2);
	pair_close(&p);
}

static void lkey_other_pd(void)
{
	struct device other;
	struct ibv_sge sge;
	struct region r;
	struct pair p;

	make(&p, NULL, ACCESS_ALL);
	other = p.d;
	other.pd = ibv_alloc_pd(p.d.ctx);
	REQUIRE(other.pd);
	region_make(&r, &other, LEN, 0, ACCESS_ALL);
	sge = sge_of(&r, 0, LEN);
	refused_sge(&p, &sge, 1);
	region_free(&r);
	REQUIRE_ERRNO(ibv_dealloc_pd(other.pd), 0);
	pair_close(&p);
}

/* A region deregistered after its request was posted, before it was served. */
static void lkey_deregistered(void)
{
	struct ibv_sge sge;
	struct region r;
	struct pair p;

	make(&p, NULL, ACCESS_ALL);
	region_make(&r, &p.d, LEN, 0, ACCESS_ALL);
	sge = sge_of(&r, 0, LEN);
	REQUIRE_ERRNO(ibv_dereg_mr(r.mr), 0);
	r.mr = NULL;
	refused_sge(&p, &sge, 1);
	region_free(&r);
	pair_close(&p);
}

/* ---- Errors at the responder's receive ---- */

/* The first receive cannot take the message. */
static void refused_receive(struct pair *p, struct ibv_sge *sge, int n,
			    enum ibv_wc_status at_a, enum ibv_wc_status at_b)
{
	REQUIRE_ERRNO(try_recv(&p->b, 99, sge, n), 0);
	post_receives(p);
	send_region(&p->a, 2, &p->mine, 0, LEN);
	post_followers(p);
	EXPECT_WC(p->a.scq, 2, at_a);
	expect_followers_flushed(p);
	EXPECT_WC(p->b.rcq, 99, at_b);
	expect_receives_flushed(p, 0);
	/* The completion tells it; no event does (10.10.3). */
	expect_no_async(p->d.ctx);
}

static void message_too_long(void)
{
	static const uint32_t lens[] = { 0, 1, LEN / 2, LEN - 1 };
	struct ibv_sge sge;
	struct pair p;

	for (unsigned int i = 0; i < ARRAY_SIZE(lens); i++) {
		make(&p, NULL, ACCESS_ALL);
		sge = sge_of(&p.theirs, 0, lens[i]);
		refused_receive(&p, &sge, lens[i] ? 1 : 0,
				IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR);
		VERIFY_BYTE(p.theirs.data + lens[i], LEN - lens[i], 0);
		REGION_CHECK(&p.theirs);
		pair_close(&p);
	}
}

static void receive_lkey_unknown(void)
{
	struct ibv_sge sge;
	struct pair p;

	make(&p, NULL, ACCESS_ALL);
	sge = sge_of(&p.theirs, 0, LEN);
	sge.lkey ^= 0x100;
	refused_receive(&p, &sge, 1, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);
	VERIFY_BYTE(p.theirs.data, LEN, 0);
	pair_close(&p);
}

static void receive_lkey_range(void)
{
	struct ibv_sge sge;
	struct pair p;

	make(&p, NULL, ACCESS_ALL);
	sge = sge_of(&p.theirs, 1, LEN);
	refused_receive(&p, &sge, 1, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);
	REGION_CHECK(&p.theirs);
	pair_close(&p);
}

static void receive_no_local_write(void)
{
	struct ibv_sge sge;
	struct pair p;

	make(&p, NULL, 0);
	sge = sge_of(&p.theirs, 0, LEN);
	refused_receive(&p, &sge, 1, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);
	VERIFY_BYTE(p.theirs.data, LEN, 0);
	pair_close(&p);
}

/* A WRITE with immediate data takes a receive, but not its memory. */
static void write_imm_ignores_receive_list(void)
{
	struct ibv_sge sge, bad;
	struct ibv_wc wc;
	struct pair p;

	make(&p, NULL, ACCESS_ALL);
	bad = sge_of(&p.theirs, 0, 1);
	bad.lkey = ~bad.lkey;
	REQUIRE_ERRNO(try_recv(&p.b, 3, &bad, 1), 0);
	sge = whole(&p);
	send_sges(&p.a, 2, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED, &sge,
		  1, &p.to, 0, 7);
	EXPECT_OK(p.a.scq, 2);
	wc = EXPECT_OK(p.b.rcq, 3);
	REQUIRE_EQ(wc.byte_len, LEN);
	VERIFY(p.theirs.data, LEN, 1);
	pair_close(&p);
}

/* A WRITE with immediate data that b refuses leaves b's receive to a flush. */
static void write_imm_bad_rkey(void)
{
	struct ibv_sge sge;
	struct pair p;

	make(&p, NULL, ACCESS_ALL);
	post_receives(&p);
	p.to.rkey ^= 1;
	sge = whole(&p);
	send_sges(&p.a, 2, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED, &sge,
		  1, &p.to, 0, 7);
	EXPECT_WC(p.a.scq, 2, IBV_WC_REM_ACCESS_ERR);
	for (int i = 0; i < RECEIVES; i++) {
		struct ibv_wc wc;

		next_wc(p.b.rcq, &wc);
		REQUIRE_EQ(wc.wr_id, 100 + i);
		REQUIRE(wc.status != IBV_WC_SUCCESS);
	}
	EXPECT_NO_WC(p.b.rcq);
	end_await_state(&p.b, IBV_QPS_ERR);
	VERIFY_BYTE(p.theirs.data, LEN, 0);
	pair_close(&p);
}

/* ---- Flushing ---- */

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

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "rkey_unknown", rkey_unknown },
		{ "rkey_deregistered", rkey_deregistered },
		{ "rkey_range", rkey_range },
		{ "rkey_no_remote_write", rkey_no_remote_write },
		{ "rkey_other_pd", rkey_other_pd },
		{ "qp_no_remote_write", qp_no_remote_write },
		{ "rkey_unchecked_if_empty", rkey_unchecked_if_empty },
		{ "lkey_unknown", lkey_unknown },
		{ "lkey_range", lkey_range },
		{ "lkey_second", lkey_second },
		{ "lkey_other_pd", lkey_other_pd },
		{ "lkey_deregistered", lkey_deregistered },
		{ "message_too_long", message_too_long },
		{ "receive_lkey_unknown", receive_lkey_unknown },
		{ "receive_lkey_range", receive_lkey_range },
		{ "receive_no_local_write", receive_no_local_write },
		{ "write_imm_ignores_receive_list",
		  write_imm_ignores_receive_list },
		{ "write_imm_bad_rkey", write_imm_bad_rkey },
		{ "flush_on_modify", flush_on_modify },
		{ "reuse_after_reset", reuse_after_reset },
		{ "reset_drops_work", reset_drops_work },
		{ "destroyed_qp_leaves_nothing", destroyed_qp_leaves_nothing },
		{ "others_go_on", others_go_on },
		{ }
	};

	return test_main(argc, argv, cases);
}
