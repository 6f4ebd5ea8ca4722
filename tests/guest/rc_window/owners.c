// SPDX-License-Identifier: GPL-2.0
/* The users of a window, those that may take it away, and windows whose queue pair has gone. */
#include "rc_window.h"

static void send_inv(struct end *e, uint64_t wr_id, uint32_t key)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.opcode = IBV_WR_SEND_WITH_INV,
		.send_flags = IBV_SEND_SIGNALED,
		.invalidate_rkey = key,
	}, *bad;

	REQUIRE_ERRNO(ibv_post_send(e->qp, &wr, &bad), 0);
}

/* A peer may take away windows that the queue pair at the other end has bound, and no others. */
static void taken_by_peers(void)
{
	struct ibv_mw *window, *other;
	struct end a, b;
	struct ibv_wc wc;
	struct pair p;
	uint32_t key;

	make(&p);
	window = ibv_alloc_mw(p.d.pd, IBV_MW_TYPE_2);
	other = ibv_alloc_mw(p.d.pd, IBV_MW_TYPE_1);
	REQUIRE(window && other);
	key = ibv_inc_rkey(window->rkey);
	bind_2(&p, window, key, part(&p, 0, 8, REMOTE), IBV_WC_SUCCESS);
	bind_1(&p, other, part(&p, 8, 8, REMOTE), IBV_WC_SUCCESS);

	/* Another queue pair's; one of type 1; one that nobody has. */
	for (int i = 0; i < 3; i++) {
		const uint32_t keys[] = { key, other->rkey, key ^ 0x100 };

		ends_make(&a, &b, &p.d, &window_end);
		recv_region(&b, 1, &p.theirs, 100, 8);
		send_inv(&a, 2, keys[i]);
		EXPECT_WC(a.scq, 2, IBV_WC_REM_ACCESS_ERR);
		EXPECT_WC(b.rcq, 1, IBV_WC_REM_INV_REQ_ERR);
		end_free(&a);
		end_free(&b);
	}
	try_write(&p, key, 0, true);
	try_write(&p, other->rkey, 8, true);

	/* It waits for a receive request, and takes the key once. */
	send_inv(&p.a, 3, key);
	EXPECT_NO_WC(p.a.scq);
	recv_region(&p.b, 4, &p.theirs, 100, 8);
	EXPECT_OK(p.a.scq, 3);
	wc = EXPECT_OK(p.b.rcq, 4);
	REQUIRE_EQ(wc.byte_len, 0);
	REQUIRE(wc.wc_flags & IBV_WC_WITH_INV);
	REQUIRE_EQ(wc.invalidated_rkey, key);
	try_write(&p, key, 0, false);
	REQUIRE_ERRNO(ibv_dealloc_mw(window), 0);
	REQUIRE_ERRNO(ibv_dealloc_mw(other), 0);
	pair_close(&p);
}

/* One of type 1 is for all queue pairs of its domain, and outlives the one that bound it. */
static void type_1_for_all(void)
{
	struct ibv_sge sge;
	struct ibv_mw *mw;
	struct end a, b;
	struct peer to;
	struct pair p;

	make(&p);
	mw = ibv_alloc_mw(p.d.pd, IBV_MW_TYPE_1);
	REQUIRE(mw);
	bind_1(&p, mw, part(&p, 0, 8, REMOTE), IBV_WC_SUCCESS);
	ends_make(&a, &b, &p.d, &window_end);
	end_free(&p.a);
	end_free(&p.b);
	fill(p.mine.data, 8, 7);
	sge = sge_of(&p.mine, 0, 8);
	to = (struct peer){ .addr = (uintptr_t)p.theirs.data, .rkey = mw->rkey };
	send_sges(&a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 1, &to, 0,
		  0);
	EXPECT_OK(a.scq, 1);
	VERIFY(p.theirs.data, 8, 7);
	REQUIRE_ERRNO(ibv_dealloc_mw(mw), 0);
	p.a = a;
	p.b = b;
	pair_close(&p);
}

/* One of type 2 opens nothing without the queue pair that bound it, and holds nothing. */
static void type_2_without_its_queue_pair(void)
{
	struct ibv_mw *mw;
	struct pair p;
	uint32_t key;

	mw = make_with_mw(&p, &key);
	bind_2(&p, mw, key, part(&p, 0, 8, REMOTE), IBV_WC_SUCCESS);
	end_free(&p.a);
	end_free(&p.b);
	ends_make(&p.a, &p.b, &p.d, &window_end);
	try_write(&p, key, 0, false);
	REQUIRE_ERRNO(ibv_dealloc_mw(mw), 0);
	pair_close(&p);
}

/* Requests about keys that nobody signals are told of when they fail, and when they are flushed. */
static void unsignalled(void)
{
	struct ibv_send_wr wr = { .wr_id = 9 }, *bad;
	struct ibv_mw *mw;
	struct pair p;
	uint32_t key;

	mw = make_with_mw(&p, &key);
	wr.opcode = IBV_WR_BIND_MW;
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = key;
	wr.bind_mw.bind_info = part(&p, 0, 8, REMOTE);
	REQUIRE_ERRNO(ibv_post_send(p.b.qp, &wr, &bad), 0);
	EXPECT_NO_WC(p.b.scq);
	try_write(&p, key, 0, true);
	wr.opcode = IBV_WR_LOCAL_INV;
	wr.invalidate_rkey = key;
	REQUIRE_ERRNO(ibv_post_send(p.b.qp, &wr, &bad), 0);
	EXPECT_NO_WC(p.b.scq);
	try_write(&p, key, 0, false);

	wr.invalidate_rkey = p.theirs.mr->rkey;
	REQUIRE_ERRNO(ibv_post_send(p.b.qp, &wr, &bad), 0);
	EXPECT_WC(p.b.scq, 9, IBV_WC_MW_BIND_ERR);
	end_await_state(&p.b, IBV_QPS_ERR);
	wr.opcode = IBV_WR_BIND_MW;
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(key);
	wr.bind_mw.bind_info = part(&p, 0, 8, REMOTE);
	REQUIRE_ERRNO(ibv_post_send(p.b.qp, &wr, &bad), 0);
	EXPECT_WC(p.b.scq, 9, IBV_WC_WR_FLUSH_ERR);
	EXPECT_NO_WC(p.b.scq);
	REQUIRE_ERRNO(ibv_dealloc_mw(mw), 0);
	pair_close(&p);
}

const struct test_case owner_cases[] = {
	{ "taken_by_peers", taken_by_peers },
	{ "type_1_for_all", type_1_for_all },
	{ "type_2_without_its_queue_pair", type_2_without_its_queue_pair },
	{ "unsignalled", unsignalled },
	{ }
};
