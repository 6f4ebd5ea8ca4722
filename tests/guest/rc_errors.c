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

/* Two connected ends with memory and receives, and work around the culprit. */
struct scene {
	struct device d;
	struct end a, b;	/* a requests, b responds */
	struct region src, dst;
	struct peer to;
};

enum { RECEIVES = 3, LEN = 1000 };

static void scene_make(struct scene *s, const struct end_config *config,
		       int dst_access)
{
	device_open(&s->d);
	pair_make(&s->a, &s->b, &s->d, config);
	region_make(&s->src, &s->d, 2 * LEN, 0, IBV_ACCESS_LOCAL_WRITE);
	region_make(&s->dst, &s->d, LEN, 0, dst_access);
	fill(s->src.data, s->src.len, 1);
	s->to = end_address(&s->b, &s->dst);
}

static void scene_free(struct scene *s)
{
	end_free(&s->a);
	end_free(&s->b);
	region_free(&s->src);
	region_free(&s->dst);
	device_close(&s->d);
}

static struct ibv_sge whole(struct scene *s)
{
	return sge_of(&s->src, 0, LEN);
}

/* Four receives of b that a SEND may use; wr_id 100 and up. */
static void post_receives(struct scene *s)
{
	for (int i = 0; i < RECEIVES; i++)
		recv_region(&s->b, 100 + i, &s->dst, 0, s->dst.len);
}

/* Requests behind the culprit, signalled or not; wr_id 10 and up. */
static void post_followers(struct scene *s)
{
	struct ibv_sge sge = whole(s);

	for (int i = 0; i < 4; i++)
		send_sges(&s->a, 10 + i, i == 1 ? IBV_WR_RDMA_WRITE :
			  IBV_WR_SEND, i == 2 ? 0 : IBV_SEND_SIGNALED, &sge, 1,
			  i == 1 ? &s->to : NULL, 0, 0);
}

/* Completions with an error are for unsignalled requests, too (10.7.3.1). */
static void expect_followers_flushed(struct scene *s)
{
	for (int i = 0; i < 4; i++)
		EXPECT_WC(s->a.scq, 10 + i, IBV_WC_WR_FLUSH_ERR);
	EXPECT_NO_WC(s->a.scq);
	end_await_state(&s->a, IBV_QPS_ERR);
}

static void expect_receives_flushed(struct scene *s, int first)
{
	for (int i = first; i < RECEIVES; i++)
		EXPECT_WC(s->b.rcq, 100 + i, IBV_WC_WR_FLUSH_ERR);
	EXPECT_NO_WC(s->b.rcq);
	end_await_state(&s->b, IBV_QPS_ERR);
}

/* b has seen nothing of a's error: still there, its receives unused. */
static void expect_peer_untouched(struct scene *s)
{
	EXPECT_NO_WC(s->b.rcq);
	expect_no_async(s->d.ctx);
	REQUIRE_EQ(end_state(&s->b), IBV_QPS_RTS);
	VERIFY_BYTE(s->dst.data, s->dst.len, 0);
}

/* ---- Errors of remote access ---- */

/*
 * A WRITE that b must refuse: with this key, at this address. The request
 * before it is done, those behind it are flushed.
 */
static void refused_write(struct scene *s, const struct peer *to,
			  uint64_t offset, uint32_t len,
			  enum ibv_wc_status status, enum ibv_event_type event)
{
	struct ibv_sge sge = sge_of(&s->src, 0, len);

	post_receives(s);
	send_region(&s->a, 1, &s->src, 0, LEN);
	send_sges(&s->a, 2, IBV_WR_RDMA_WRITE, 0, &sge, 1, to, offset, 0);
	post_followers(s);
	EXPECT_OK(s->a.scq, 1);
	EXPECT_WC(s->a.scq, 2, status);
	expect_followers_flushed(s);
	EXPECT_OK(s->b.rcq, 100);
	expect_receives_flushed(s, 1);
	expect_async(s->d.ctx, event, s->b.qp);
	expect_no_async(s->d.ctx);
	VERIFY(s->dst.data, LEN, 1);
}

static void refused_access(struct scene *s, const struct peer *to,
			   uint64_t offset, uint32_t len)
{
	refused_write(s, to, offset, len, IBV_WC_REM_ACCESS_ERR,
		      IBV_EVENT_QP_ACCESS_ERR);
}

static void rkey_unknown(void)
{
	/* Another generation, another region, none, and the local key's bits. */
	static const uint32_t flips[] = { 1, 0x100, 0xffff0000 };
	struct scene s;

	for (unsigned int i = 0; i <= ARRAY_SIZE(flips); i++) {
		scene_make(&s, NULL, ACCESS_ALL);
		s.to.rkey = i < ARRAY_SIZE(flips) ? s.to.rkey ^ flips[i] : 0;
		refused_access(&s, &s.to, 0, 8);
		scene_free(&s);
	}
}

static void rkey_deregistered(void)
{
	struct scene s;
	struct region r;
	struct peer to;

	scene_make(&s, NULL, ACCESS_ALL);
	region_make(&r, &s.d, LEN, 0, ACCESS_ALL);
	to = end_address(&s.b, &r);
	REQUIRE_ERRNO(ibv_dereg_mr(r.mr), 0);
	r.mr = NULL;
	refused_access(&s, &to, 0, 8);
	VERIFY_BYTE(r.data, r.len, 0);
	region_free(&r);
	scene_free(&s);
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
	struct scene s;

	for (unsigned int i = 0; i < ARRAY_SIZE(bad); i++) {
		scene_make(&s, NULL, ACCESS_ALL);
		refused_access(&s, &s.to, bad[i].offset, bad[i].len);
		scene_free(&s);
	}
	/* The end of the address space, where address + length wraps to 4. */
	scene_make(&s, NULL, ACCESS_ALL);
	refused_access(&s, &s.to, -4 - s.to.addr, 8);
	scene_free(&s);
}

static void rkey_no_remote_write(void)
{
	struct scene s;

	scene_make(&s, NULL, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	refused_access(&s, &s.to, 0, 8);
	scene_free(&s);
}

static void rkey_other_pd(void)
{
	struct device other;
	struct region r;
	struct scene s;
	struct peer to;

	scene_make(&s, NULL, ACCESS_ALL);
	other = s.d;
	other.pd = ibv_alloc_pd(s.d.ctx);
	REQUIRE(other.pd);
	region_make(&r, &other, LEN, 0, ACCESS_ALL);
	to = end_address(&s.b, &r);
	refused_access(&s, &to, 0, 8);
	VERIFY_BYTE(r.data, r.len, 0);
	region_free(&r);
	REQUIRE_ERRNO(ibv_dealloc_pd(other.pd), 0);
	scene_free(&s);
}

/* The queue pair itself admits no RDMA WRITE (10.10.3.2 and 11.6.2). */
static void qp_no_remote_write(void)
{
	const struct end_config config = { .access = IBV_ACCESS_LOCAL_WRITE };
	struct scene s;

	scene_make(&s, &config, ACCESS_ALL);
	refused_write(&s, &s.to, 0, 8, IBV_WC_REM_INV_REQ_ERR,
		      IBV_EVENT_QP_REQ_ERR);
	scene_free(&s);
}

/* C9-88: the key of an RDMA WRITE of no bytes is not checked. */
static void rkey_unchecked_if_empty(void)
{
	struct scene s;

	scene_make(&s, NULL, ACCESS_ALL);
	s.to.rkey = ~s.to.rkey;
	s.to.addr = 0;
	send_sges(&s.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, NULL, 0,
		  &s.to, 0, 0);
	EXPECT_OK(s.a.scq, 1);
	expect_peer_untouched(&s);
	scene_free(&s);
}

/* ---- Errors of local access, at the requester ---- */

static void refused_sge(struct scene *s, struct ibv_sge *sge, int n)
{
	post_receives(s);
	send_sges(&s->a, 2, IBV_WR_SEND, 0, sge, n, NULL, 0, 0);
	post_followers(s);
	EXPECT_WC(s->a.scq, 2, IBV_WC_LOC_PROT_ERR);
	expect_followers_flushed(s);
	expect_peer_untouched(s);
}

static void lkey_unknown(void)
{
	struct ibv_sge sge;
	struct scene s;

	scene_make(&s, NULL, ACCESS_ALL);
	sge = whole(&s);
	sge.lkey ^= 0x100;
	refused_sge(&s, &sge, 1);
	scene_free(&s);
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
	struct scene s;

	for (unsigned int i = 0; i < ARRAY_SIZE(bad); i++) {
		struct ibv_sge sge;

		scene_make(&s, NULL, ACCESS_ALL);
		sge = sge_of(&s.src, bad[i].offset, bad[i].len);
		refused_sge(&s, &sge, 1);
		scene_free(&s);
	}
}

/* The second of two entries is bad: nothing of the message is seen. */
static void lkey_second(void)
{
	const struct end_config config = { .send_sge = 2 };
	struct ibv_sge sge[2];
	struct scene s;

	scene_make(&s, &config, ACCESS_ALL);
	sge[0] = sge_of(&s.src, 0, 10);
	sge[1] = sge_of(&s.src, 10, 10);
	sge[1].lkey = ~sge[1].lkey;
	refused_sge(&s, sge, 2);
	scene_free(&s);
}

static void lkey_other_pd(void)
{
	struct device other;
	struct ibv_sge sge;
	struct region r;
	struct scene s;

	scene_make(&s, NULL, ACCESS_ALL);
	other = s.d;
	other.pd = ibv_alloc_pd(s.d.ctx);
	REQUIRE(other.pd);
	region_make(&r, &other, LEN, 0, ACCESS_ALL);
	sge = sge_of(&r, 0, LEN);
	refused_sge(&s, &sge, 1);
	region_free(&r);
	REQUIRE_ERRNO(ibv_dealloc_pd(other.pd), 0);
	scene_free(&s);
}

/* A region deregistered after its request was posted, before it was served. */
static void lkey_deregistered(void)
{
	struct ibv_sge sge;
	struct region r;
	struct scene s;

	scene_make(&s, NULL, ACCESS_ALL);
	region_make(&r, &s.d, LEN, 0, ACCESS_ALL);
	sge = sge_of(&r, 0, LEN);
	REQUIRE_ERRNO(ibv_dereg_mr(r.mr), 0);
	r.mr = NULL;
	refused_sge(&s, &sge, 1);
	region_free(&r);
	scene_free(&s);
}

/* ---- Errors at the responder's receive ---- */

/* The first receive cannot take the message. */
static void refused_receive(struct scene *s, struct ibv_sge *sge, int n,
			    enum ibv_wc_status at_a, enum ibv_wc_status at_b)
{
	REQUIRE_ERRNO(try_recv(&s->b, 99, sge, n), 0);
	post_receives(s);
	send_region(&s->a, 2, &s->src, 0, LEN);
	post_followers(s);
	EXPECT_WC(s->a.scq, 2, at_a);
	expect_followers_flushed(s);
	EXPECT_WC(s->b.rcq, 99, at_b);
	expect_receives_flushed(s, 0);
	/* The completion tells it; no event does (10.10.3). */
	expect_no_async(s->d.ctx);
}

static void message_too_long(void)
{
	static const uint32_t lens[] = { 0, 1, LEN / 2, LEN - 1 };
	struct ibv_sge sge;
	struct scene s;

	for (unsigned int i = 0; i < ARRAY_SIZE(lens); i++) {
		scene_make(&s, NULL, ACCESS_ALL);
		sge = sge_of(&s.dst, 0, lens[i]);
		refused_receive(&s, &sge, lens[i] ? 1 : 0,
				IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR);
		VERIFY_BYTE(s.dst.data + lens[i], LEN - lens[i], 0);
		REGION_CHECK(&s.dst);
		scene_free(&s);
	}
}

static void receive_lkey_unknown(void)
{
	struct ibv_sge sge;
	struct scene s;

	scene_make(&s, NULL, ACCESS_ALL);
	sge = sge_of(&s.dst, 0, LEN);
	sge.lkey ^= 0x100;
	refused_receive(&s, &sge, 1, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);
	VERIFY_BYTE(s.dst.data, LEN, 0);
	scene_free(&s);
}

static void receive_lkey_range(void)
{
	struct ibv_sge sge;
	struct scene s;

	scene_make(&s, NULL, ACCESS_ALL);
	sge = sge_of(&s.dst, 1, LEN);
	refused_receive(&s, &sge, 1, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);
	REGION_CHECK(&s.dst);
	scene_free(&s);
}

static void receive_no_local_write(void)
{
	struct ibv_sge sge;
	struct scene s;

	scene_make(&s, NULL, 0);
	sge = sge_of(&s.dst, 0, LEN);
	refused_receive(&s, &sge, 1, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);
	VERIFY_BYTE(s.dst.data, LEN, 0);
	scene_free(&s);
}

/* A WRITE with immediate data takes a receive, but not its memory. */
static void write_imm_ignores_receive_list(void)
{
	struct ibv_sge sge, bad;
	struct ibv_wc wc;
	struct scene s;

	scene_make(&s, NULL, ACCESS_ALL);
	bad = sge_of(&s.dst, 0, 1);
	bad.lkey = ~bad.lkey;
	REQUIRE_ERRNO(try_recv(&s.b, 3, &bad, 1), 0);
	sge = whole(&s);
	send_sges(&s.a, 2, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED, &sge,
		  1, &s.to, 0, 7);
	EXPECT_OK(s.a.scq, 2);
	wc = EXPECT_OK(s.b.rcq, 3);
	REQUIRE_EQ(wc.byte_len, LEN);
	VERIFY(s.dst.data, LEN, 1);
	scene_free(&s);
}

/* A WRITE with immediate data that b refuses leaves b's receive to a flush. */
static void write_imm_bad_rkey(void)
{
	struct ibv_sge sge;
	struct scene s;

	scene_make(&s, NULL, ACCESS_ALL);
	post_receives(&s);
	s.to.rkey ^= 1;
	sge = whole(&s);
	send_sges(&s.a, 2, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED, &sge,
		  1, &s.to, 0, 7);
	EXPECT_WC(s.a.scq, 2, IBV_WC_REM_ACCESS_ERR);
	for (int i = 0; i < RECEIVES; i++) {
		struct ibv_wc wc;

		next_wc(s.b.rcq, &wc);
		REQUIRE_EQ(wc.wr_id, 100 + i);
		REQUIRE(wc.status != IBV_WC_SUCCESS);
	}
	EXPECT_NO_WC(s.b.rcq);
	end_await_state(&s.b, IBV_QPS_ERR);
	VERIFY_BYTE(s.dst.data, LEN, 0);
	scene_free(&s);
}

/* ---- Flushing ---- */

static void flush_on_modify(void)
{
	const struct end_config config = {
		.send_wr = 40, .recv_wr = 40, .rnr_timer = 31
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_sge sge;
	struct scene s;

	scene_make(&s, &config, ACCESS_ALL);
	sge = whole(&s);
	for (int i = 0; i < 40; i++)
		recv_region(&s.a, 200 + i, &s.dst, 0, LEN);
	/* b has no receive: all of these wait. */
	for (int i = 0; i < 40; i++)
		send_sges(&s.a, i, IBV_WR_SEND, i % 3 ? 0 : IBV_SEND_SIGNALED,
			  &sge, 1, NULL, 0, 0);
	EXPECT_NO_WC(s.a.scq);
	REQUIRE_ERRNO(ibv_modify_qp(s.a.qp, &attr, IBV_QP_STATE), 0);
	for (int i = 0; i < 40; i++)
		EXPECT_WC(s.a.scq, i, IBV_WC_WR_FLUSH_ERR);
	for (int i = 0; i < 40; i++)
		EXPECT_WC(s.a.rcq, 200 + i, IBV_WC_WR_FLUSH_ERR);
	expect_no_async(s.d.ctx);

	/* Posting goes on to be possible and is flushed at once (C10-42). */
	for (int i = 0; i < 100; i++) {
		send_sges(&s.a, 300 + i, IBV_WR_SEND, 0, &sge, 1, NULL, 0, 0);
		recv_region(&s.a, 500 + i, &s.dst, 0, LEN);
		EXPECT_WC(s.a.scq, 300 + i, IBV_WC_WR_FLUSH_ERR);
		EXPECT_WC(s.a.rcq, 500 + i, IBV_WC_WR_FLUSH_ERR);
	}
	expect_peer_untouched(&s);
	scene_free(&s);
}

/* After an error a pair is as new through RESET, and nothing old appears. */
static void reuse_after_reset(void)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	struct peer to_a, to_b, bad;
	struct ibv_sge sge;
	struct scene s;

	scene_make(&s, NULL, ACCESS_ALL);
	sge = whole(&s);
	to_a = end_address(&s.a, NULL);
	to_b = bad = s.to;
	bad.rkey ^= 1;
	for (int round = 0; round < 5; round++) {
		post_receives(&s);
		send_sges(&s.a, 2, IBV_WR_RDMA_WRITE, 0, &sge, 1, &bad, 0, 0);
		post_followers(&s);
		EXPECT_WC(s.a.scq, 2, IBV_WC_REM_ACCESS_ERR);
		expect_followers_flushed(&s);
		expect_receives_flushed(&s, 0);
		expect_async(s.d.ctx, IBV_EVENT_QP_ACCESS_ERR, s.b.qp);
		/* In the last round some requests are posted and never seen. */
		REQUIRE_ERRNO(ibv_modify_qp(s.a.qp, &reset, IBV_QP_STATE), 0);
		REQUIRE_ERRNO(ibv_modify_qp(s.b.qp, &reset, IBV_QP_STATE), 0);
		end_connect(&s.a, &to_b);
		end_connect(&s.b, &to_a);
		memset(s.dst.data, 0, LEN);
		recv_region(&s.b, 50, &s.dst, 0, LEN);
		send_region(&s.a, 51, &s.src, 0, LEN);
		EXPECT_OK(s.a.scq, 51);
		EXPECT_OK(s.b.rcq, 50);
		VERIFY(s.dst.data, LEN, 1);
	}
	scene_free(&s);
}

/* RESET with work outstanding: it vanishes without completions. */
static void reset_drops_work(void)
{
	const struct end_config config = { .rnr_timer = 31 };
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	struct peer to_a;
	struct scene s;

	scene_make(&s, &config, ACCESS_ALL);
	to_a = end_address(&s.a, NULL);
	post_followers(&s);
	recv_region(&s.a, 1, &s.dst, 0, LEN);
	sleep_us(1000);
	REQUIRE_ERRNO(ibv_modify_qp(s.a.qp, &reset, IBV_QP_STATE), 0);
	REQUIRE_ERRNO(ibv_modify_qp(s.b.qp, &reset, IBV_QP_STATE), 0);
	EXPECT_NO_WC(s.a.scq);
	EXPECT_NO_WC(s.a.rcq);
	end_connect(&s.a, &s.to);
	end_connect(&s.b, &to_a);
	recv_region(&s.b, 50, &s.dst, 0, LEN);
	send_region(&s.a, 51, &s.src, 0, LEN);
	EXPECT_OK(s.a.scq, 51);
	EXPECT_OK(s.b.rcq, 50);
	EXPECT_NO_WC(s.a.scq);
	scene_free(&s);
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

		pair_make(&a, &b, &d, &config);
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
	struct scene s, other;
	struct ibv_sge sge;

	scene_make(&s, NULL, ACCESS_ALL);
	scene_make(&other, NULL, ACCESS_ALL);
	s.to.rkey ^= 1;
	sge = whole(&s);
	for (int i = 0; i < 20; i++) {
		if (i == 10)
			send_sges(&s.a, 2, IBV_WR_RDMA_WRITE, 0, &sge, 1,
				  &s.to, 0, 0);
		recv_region(&other.b, i, &other.dst, 0, LEN);
		send_region(&other.a, i, &other.src, 0, LEN);
		EXPECT_OK(other.a.scq, i);
		EXPECT_OK(other.b.rcq, i);
	}
	EXPECT_WC(s.a.scq, 2, IBV_WC_REM_ACCESS_ERR);
	scene_free(&s);
	scene_free(&other);
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
