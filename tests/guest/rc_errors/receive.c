// SPDX-License-Identifier: GPL-2.0
/* Errors at the responder's receive. */
#include "rc_errors.h"

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

/* Refused by b: b's receive request is left to a flush, and an event is raised. */
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
		REQUIRE_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
	}
	EXPECT_NO_WC(p.b.rcq);
	end_await_state(&p.b, IBV_QPS_ERR);
	expect_async(p.d.ctx, IBV_EVENT_QP_ACCESS_ERR, p.b.qp);
	expect_no_async(p.d.ctx);
	VERIFY_BYTE(p.theirs.data, LEN, 0);
	pair_close(&p);
}

const struct test_case receive_cases[] = {
	{ "message_too_long", message_too_long },
	{ "receive_lkey_unknown", receive_lkey_unknown },
	{ "receive_lkey_range", receive_lkey_range },
	{ "receive_no_local_write", receive_no_local_write },
	{ "write_imm_ignores_receive_list",
	  write_imm_ignores_receive_list },
	{ "write_imm_bad_rkey", write_imm_bad_rkey },
	{ }
};
