// SPDX-License-Identifier: GPL-2.0
/*
 * Unreliable connections: what arrives does so whole and in order, what the
 * receiver cannot take is lost, and the sender is never told.
 */
#include "common.h"

#include <arpa/inet.h>

enum { LEN = 64 };

struct scene {
	struct device d;
	struct end a, b;
	struct peer to;
	struct region from, at;
};

static void scene_make(struct scene *s, size_t len)
{
	const struct end_config config = { .type = IBV_QPT_UC };

	device_open(&s->d);
	pair_make(&s->a, &s->b, &s->d, &config);
	region_make(&s->from, &s->d, len, 3, ACCESS_ALL);
	region_make(&s->at, &s->d, len, 5, ACCESS_ALL);
	s->to = end_address(&s->b, &s->at);
	fill(s->from.data, len, 1);
}

static void scene_free(struct scene *s)
{
	end_free(&s->a);
	end_free(&s->b);
	REGION_CHECK(&s->from);
	REGION_CHECK(&s->at);
	region_free(&s->from);
	region_free(&s->at);
	device_close(&s->d);
}

static void sizes(void)
{
	static const size_t lengths[] = { 0, 1, 255, 1024, 1025, 65536,
					  1 << 20 };
	struct scene s;

	scene_make(&s, 1 << 20);
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		size_t len = lengths[i];
		struct ibv_sge sge = sge_of(&s.from, 0, len);
		struct ibv_wc wc;

		recv_region(&s.b, i, &s.at, 0, 1 << 20);
		send_region(&s.a, i, &s.from, 0, len);
		EXPECT_OK(s.a.scq, i);
		wc = EXPECT_OK(s.b.rcq, i);
		REQUIRE_EQ(wc.byte_len, len);
		VERIFY(s.at.data, len, 1);

		memset(s.at.data, 0, 1 << 20);
		send_sges(&s.a, i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
			  1, &s.to, 0, 0);
		EXPECT_OK(s.a.scq, i);
		VERIFY(s.at.data, len, 1);
		VERIFY_BYTE(s.at.data + len, (1 << 20) - len, 0);
	}
	EXPECT_NO_WC(s.b.rcq);
	scene_free(&s);
}

static void immediate(void)
{
	struct ibv_sge sge;
	struct ibv_wc wc;
	struct scene s;

	scene_make(&s, LEN);
	sge = sge_of(&s.from, 0, LEN);
	recv_region(&s.b, 1, &s.at, 0, LEN);
	recv_region(&s.b, 2, &s.at, 0, 0);
	send_sges(&s.a, 3, IBV_WR_SEND_WITH_IMM, IBV_SEND_SIGNALED, &sge, 1,
		  NULL, 0, htonl(0x01020304));
	wc = EXPECT_OK(s.b.rcq, 1);
	REQUIRE_EQ(wc.opcode, IBV_WC_RECV);
	REQUIRE_EQ(wc.wc_flags, IBV_WC_WITH_IMM);
	REQUIRE_EQ(ntohl(wc.imm_data), 0x01020304);
	send_sges(&s.a, 4, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED, &sge,
		  1, &s.to, 0, htonl(5));
	wc = EXPECT_OK(s.b.rcq, 2);
	REQUIRE_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	REQUIRE_EQ(wc.byte_len, LEN);
	REQUIRE_EQ(ntohl(wc.imm_data), 5);
	VERIFY(s.at.data, LEN, 1);
	EXPECT_OK(s.a.scq, 3);
	EXPECT_OK(s.a.scq, 4);
	scene_free(&s);
}

/* Each of these is lost, and the next message arrives all the same. */
static void losses(void)
{
	struct peer wrong;
	struct ibv_sge sge;
	struct scene s;

	scene_make(&s, LEN);
	sge = sge_of(&s.from, 0, LEN);
	/* No receive request: there is no waiting either. */
	send_region(&s.a, 1, &s.from, 0, LEN);
	EXPECT_OK(s.a.scq, 1);
	/* A key that opens nothing, a range that is not all in the region. */
	wrong = s.to;
	wrong.rkey ^= 0x55;
	send_sges(&s.a, 2, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 1,
		  &wrong, 0, 0);
	EXPECT_OK(s.a.scq, 2);
	send_sges(&s.a, 3, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 1,
		  &s.to, 1, 0);
	EXPECT_OK(s.a.scq, 3);
	VERIFY_BYTE(s.at.data, LEN, 0);
	/* A buffer that is too small stays for what fits. */
	recv_region(&s.b, 4, &s.at, 0, LEN / 2);
	send_region(&s.a, 5, &s.from, 0, LEN);
	EXPECT_OK(s.a.scq, 5);
	EXPECT_NO_WC(s.b.rcq);
	VERIFY_BYTE(s.at.data, LEN, 0);
	send_region(&s.a, 6, &s.from, 0, LEN / 2);
	EXPECT_OK(s.a.scq, 6);
	EXPECT_OK(s.b.rcq, 4);
	VERIFY(s.at.data, LEN / 2, 1);
	REQUIRE_EQ(end_state(&s.a), IBV_QPS_RTS);
	REQUIRE_EQ(end_state(&s.b), IBV_QPS_RTS);
	expect_no_async(s.d.ctx);
	scene_free(&s);
}

/* An error of the sender's own stops its send queue, until it is told to go on. */
static void send_queue_error(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	struct ibv_sge bad = { .length = LEN, .lkey = 77 };
	struct scene s;

	scene_make(&s, LEN);
	send_sges(&s.a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, &bad, 1, NULL, 0,
		  0);
	send_region(&s.a, 2, &s.from, 0, LEN);
	EXPECT_WC(s.a.scq, 1, IBV_WC_LOC_PROT_ERR);
	EXPECT_WC(s.a.scq, 2, IBV_WC_WR_FLUSH_ERR);
	end_await_state(&s.a, IBV_QPS_SQE);
	send_region(&s.a, 3, &s.from, 0, LEN);
	EXPECT_WC(s.a.scq, 3, IBV_WC_WR_FLUSH_ERR);
	/* It receives meanwhile. */
	recv_region(&s.a, 4, &s.at, 0, LEN);
	send_region(&s.b, 5, &s.from, 0, LEN);
	EXPECT_OK(s.a.rcq, 4);
	EXPECT_OK(s.b.scq, 5);
	REQUIRE_ERRNO(ibv_modify_qp(s.a.qp, &attr, IBV_QP_STATE), 0);
	recv_region(&s.b, 6, &s.at, 0, LEN);
	send_region(&s.a, 7, &s.from, 0, LEN);
	EXPECT_OK(s.a.scq, 7);
	EXPECT_OK(s.b.rcq, 6);
	scene_free(&s);
}

/* A receive buffer of which the key is wrong is the receiver's own error. */
static void bad_buffer(void)
{
	struct ibv_sge bad = { .length = LEN, .lkey = 77 };
	struct scene s;

	scene_make(&s, LEN);
	REQUIRE_ERRNO(try_recv(&s.b, 1, &bad, 1), 0);
	recv_region(&s.b, 2, &s.at, 0, LEN);
	send_region(&s.a, 3, &s.from, 0, LEN);
	EXPECT_OK(s.a.scq, 3);
	EXPECT_WC(s.b.rcq, 1, IBV_WC_LOC_PROT_ERR);
	EXPECT_WC(s.b.rcq, 2, IBV_WC_WR_FLUSH_ERR);
	end_await_state(&s.b, IBV_QPS_ERR);
	REQUIRE_EQ(end_state(&s.a), IBV_QPS_RTS);
	scene_free(&s);
}

/* A message that has come is a sign that the write before it has, if it was taken. */
static void write_and_send(struct scene *s, uint64_t wr_id, struct peer *to)
{
	struct ibv_sge sge = sge_of(&s->from, 0, LEN);

	recv_region(&s->b, wr_id, &s->at, 0, LEN);
	send_sges(&s->a, wr_id, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 1,
		  to, 0, 0);
	EXPECT_OK(s->a.scq, wr_id);
	send_region(&s->a, wr_id, &s->from, 0, LEN);
	EXPECT_OK(s->a.scq, wr_id);
	EXPECT_OK(s->b.rcq, wr_id);
}

/* A window opens to the peer from the bind to the invalidation. */
static void windows(void)
{
	struct ibv_mw_bind_info info = { .length = LEN,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct region theirs;
	struct ibv_wc wc;
	struct scene s;
	struct peer to;
	struct ibv_mw *mw;
	uint32_t key;

	scene_make(&s, LEN);
	region_make(&theirs, &s.d, LEN, 0,
		    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	info.mr = theirs.mr;
	info.addr = (uintptr_t)theirs.data;
	mw = ibv_alloc_mw(s.d.pd, IBV_MW_TYPE_2);
	REQUIRE(mw);
	key = ibv_inc_rkey(mw->rkey);
	to = (struct peer){ .addr = info.addr, .rkey = key };

	write_and_send(&s, 1, &to);
	VERIFY_BYTE(theirs.data, LEN, 0);
	send_bind(&s.b, 2, mw, key, info);
	wc = EXPECT_OK(s.b.scq, 2);
	REQUIRE_EQ(wc.opcode, IBV_WC_BIND_MW);
	write_and_send(&s, 3, &to);
	VERIFY(theirs.data, LEN, 1);
	memset(theirs.data, 0, LEN);
	send_local_inv(&s.b, 4, key);
	wc = EXPECT_OK(s.b.scq, 4);
	REQUIRE_EQ(wc.opcode, IBV_WC_LOCAL_INV);
	write_and_send(&s, 5, &to);
	VERIFY_BYTE(theirs.data, LEN, 0);

	/* One that cannot be bound stops the send queue and nothing else. */
	info.length = LEN + 1;
	send_bind(&s.b, 6, mw, key + 1, info);
	EXPECT_WC(s.b.scq, 6, IBV_WC_MW_BIND_ERR);
	end_await_state(&s.b, IBV_QPS_SQE);
	write_and_send(&s, 7, &s.to);

	REQUIRE_ERRNO(ibv_dealloc_mw(mw), 0);
	region_free(&theirs);
	scene_free(&s);
}

/* The transport has no opcode for it on UC (IBA volume 1, 9.2, table 35). */
static void no_send_with_invalidate(void)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_SEND_WITH_INV,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	struct scene s;

	scene_make(&s, LEN);
	REQUIRE_ERRNO(ibv_post_send(s.a.qp, &wr, &bad), EINVAL);
	send_region(&s.a, 1, &s.from, 0, LEN);
	EXPECT_OK(s.a.scq, 1);
	scene_free(&s);
}

/* Nobody answers, so nobody is waited for. */
static void no_peer(void)
{
	struct scene s;

	scene_make(&s, LEN);
	end_free(&s.b);
	send_region(&s.a, 1, &s.from, 0, LEN);
	EXPECT_OK(s.a.scq, 1);
	REQUIRE_EQ(end_state(&s.a), IBV_QPS_RTS);
	end_make(&s.b, &s.d, &s.a.config);
	scene_free(&s);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "sizes", sizes },
		{ "immediate", immediate },
		{ "losses", losses },
		{ "send_queue_error", send_queue_error },
		{ "bad_buffer", bad_buffer },
		{ "windows", windows },
		{ "no_send_with_invalidate", no_send_with_invalidate },
		{ "no_peer", no_peer },
		{ }
	};

	return test_main(argc, argv, cases);
}
