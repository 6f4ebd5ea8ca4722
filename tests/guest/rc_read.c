// SPDX-License-Identifier: GPL-2.0
/*
 * RDMA READ over reliable connections: the data are the peer's, it takes no
 * receive request, and forbidden memory is not read.
 */
#include "common.h"

#include <stdlib.h>

#define MIB (1u << 20)
#define QP_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | \
		   IBV_ACCESS_REMOTE_READ)

static const struct end_config reader = { .access = QP_ACCESS, .send_sge = 8 };

static void read_sizes(void)
{
	static const uint32_t sizes[] = {
		0, 1, 2, 7, 8, 9, 255, 256, 257, 1023, 1024, 1025, 4095, 4096,
		4097, 12345, 65535, 65536, 65537, MIB - 1, MIB, 5 * MIB + 3,
	};
	struct ibv_wc wc;
	struct pair p;

	pair_open(&p, &reader);
	for (unsigned int i = 0; i < ARRAY_SIZE(sizes); i++) {
		for (unsigned int misalign = 0; misalign < 4096; misalign += 4095) {
			struct region mine, theirs;
			struct ibv_sge sge;
			struct peer from;

			region_make(&mine, &p.d, sizes[i] + 200, misalign,
				    IBV_ACCESS_LOCAL_WRITE);
			/* Read-only pages may be read by a peer. */
			region_make(&theirs, &p.d, sizes[i] + 50, 4095 - misalign,
				    IBV_ACCESS_REMOTE_READ);
			fill(theirs.data, theirs.len, i);
			memset(mine.data, 0x11, mine.len);
			from = end_address(&p.b, &theirs);
			sge = sge_of(&mine, 100, sizes[i]);
			send_sges(&p.a, i, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED,
				  &sge, 1, &from, 0, 0);
			wc = EXPECT_OK(p.a.scq, i);
			REQUIRE_EQ(wc.opcode, IBV_WC_RDMA_READ);
			REQUIRE_EQ(wc.byte_len, sizes[i]);
			VERIFY_BYTE(mine.data, 100, 0x11);
			VERIFY(mine.data + 100, sizes[i], i);
			VERIFY_BYTE(mine.data + 100 + sizes[i], 100, 0x11);
			VERIFY(theirs.data, theirs.len, i);
			REGION_CHECK(&mine);
			REGION_CHECK(&theirs);
			region_free(&mine);
			region_free(&theirs);
		}
	}
	EXPECT_NO_WC(p.b.rcq);
	pair_close(&p);
}

/* Data of a read are scattered over a list. */
static void scattered(void)
{
	struct ibv_sge sge[8];
	struct peer from;
	size_t at = 0;
	struct pair p;

	pair_open(&p, &reader);
	region_make(&p.mine, &p.d, 70000, 1, IBV_ACCESS_LOCAL_WRITE);
	region_make(&p.theirs, &p.d, 70000, 2, IBV_ACCESS_REMOTE_READ);
	fill(p.theirs.data, p.theirs.len, 9);
	for (int i = 0; i < 8; i++) {
		size_t len = i == 3 ? 0 : 1 + i * 1111;

		sge[i] = sge_of(&p.mine, at + 10 * i, len);
		at += len;
	}
	from = end_address(&p.b, &p.theirs);
	send_sges(&p.a, 1, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, sge, 8, &from, 0,
		  0);
	REQUIRE_EQ(EXPECT_OK(p.a.scq, 1).byte_len, at);
	at = 0;
	for (int i = 0; i < 8; i++) {
		REQUIRE(!memcmp((void *)(uintptr_t)sge[i].addr,
				p.theirs.data + at, sge[i].length));
		at += sge[i].length;
	}
	pair_close(&p);
}

/*
 * A fenced request waits for the reads before it, so it can send on what they
 * brought: round after round through a chain of requests posted at once.
 */
static void fence(void)
{
	struct peer peer;
	struct pair p;

	pair_open(&p, &reader);
	region_make(&p.mine, &p.d, 8192, 0, IBV_ACCESS_LOCAL_WRITE);
	region_make(&p.theirs, &p.d, 16384, 0, QP_ACCESS);
	peer = end_address(&p.b, &p.theirs);
	for (unsigned int round = 0; round < 200; round++) {
		struct ibv_sge sge = sge_of(&p.mine, 0, 8192);

		fill(p.theirs.data, 8192, round);
		send_sges(&p.a, 1, IBV_WR_RDMA_READ, 0, &sge, 1, &peer, 0, 0);
		send_sges(&p.a, 2, IBV_WR_RDMA_WRITE,
			  IBV_SEND_SIGNALED | IBV_SEND_FENCE, &sge, 1, &peer,
			  8192, 0);
		EXPECT_OK(p.a.scq, 2);
		VERIFY(p.theirs.data + 8192, 8192, round);
	}
	pair_close(&p);
}

/*
 * One read that fails: the status here, and the event there. False if the wire
 * has lost the refusal.
 */
static bool was_refused(const struct end_config *config, int access,
			int64_t offset, uint32_t key, enum ibv_wc_status status,
			int event)
{
	struct ibv_sge sge;
	struct peer from;
	struct pair p;
	bool arrived;

	pair_open(&p, config);
	region_make(&p.mine, &p.d, 64, 0, IBV_ACCESS_LOCAL_WRITE);
	region_make(&p.theirs, &p.d, 64, 0, access);
	fill(p.mine.data, 64, 3);
	from = end_address(&p.b, &p.theirs);
	from.rkey ^= key;
	sge = sge_of(&p.mine, 0, 16);
	send_sges(&p.a, 1, IBV_WR_RDMA_READ, 0, &sge, 1, &from, offset, 0);
	send_sges(&p.a, 2, IBV_WR_SEND, 0, &sge, 1, NULL, 0, 0);
	arrived = EXPECT_REFUSAL(p.a.scq, 1, status);
	EXPECT_WC(p.a.scq, 2, IBV_WC_WR_FLUSH_ERR);
	REQUIRE_EQ(end_state(&p.a), IBV_QPS_ERR);
	if (event >= 0) {
		expect_async(p.d.ctx, event, p.b.qp);
		end_await_state(&p.b, IBV_QPS_ERR);
	}
	expect_no_async(p.d.ctx);
	VERIFY(p.mine.data, 64, 3);
	pair_close(&p);
	return arrived;
}

static void refused(const struct end_config *config, int access,
		    int64_t offset, uint32_t key, enum ibv_wc_status status,
		    int event)
{
	for (int tries = 0; tries < 5; tries++)
		if (was_refused(config, access, offset, key, status, event))
			return;
	FAIL("not one of five refusals arrived");
}

static void refused_accesses(void)
{
	const struct end_config no_right = { .access = ACCESS_ALL };
	const int event = IBV_EVENT_QP_ACCESS_ERR;
	const enum ibv_wc_status status = IBV_WC_REM_ACCESS_ERR;

	refused(&reader, QP_ACCESS, -1, 0, status, event);
	refused(&reader, QP_ACCESS, 49, 0, status, event);
	refused(&reader, QP_ACCESS, 0, 1, status, event);
	refused(&reader, QP_ACCESS, 0, 0x10000, status, event);
	refused(&reader, ACCESS_ALL, 0, 0, status, event);
	refused(&no_right, QP_ACCESS, 0, 0, IBV_WC_REM_INV_REQ_ERR,
		IBV_EVENT_QP_REQ_ERR);
}

/* Into memory that may not be written locally. */
static void local_protection(void)
{
	struct ibv_sge sge;
	struct peer from;
	struct pair p;

	pair_open(&p, &reader);
	region_make(&p.mine, &p.d, 64, 0, 0);
	region_make(&p.theirs, &p.d, 64, 0, QP_ACCESS);
	from = end_address(&p.b, &p.theirs);
	sge = sge_of(&p.mine, 0, 16);
	send_sges(&p.a, 1, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &sge, 1, &from,
		  0, 0);
	EXPECT_WC(p.a.scq, 1, IBV_WC_LOC_PROT_ERR);
	REQUIRE_EQ(end_state(&p.b), IBV_QPS_RTS);
	/* Inline data cannot be read into; the post says so. */
	REQUIRE_ERRNO(try_send(&p.b, 2, IBV_WR_RDMA_READ, IBV_SEND_INLINE, &sge,
			       1, &from, 0, 0), EINVAL);
	expect_no_async(p.d.ctx);
	pair_close(&p);
}

/* Many reads outstanding at once, both ways, complete in order. */
static void many_at_once(void)
{
	enum { N = 64, ROUNDS = 20 };
	struct region ra, rb;
	struct peer pa, pb;
	struct pair p;

	pair_open(&p, &reader);
	region_make(&ra, &p.d, 2 * N * 4096, 0, QP_ACCESS);
	region_make(&rb, &p.d, 2 * N * 4096, 0, QP_ACCESS);
	pa = end_address(&p.a, &ra);
	pb = end_address(&p.b, &rb);
	for (unsigned int round = 0; round < ROUNDS; round++) {
		fill(ra.data, N * 4096, round);
		fill(rb.data, N * 4096, ~round);
		for (unsigned int i = 0; i < N; i++) {
			struct ibv_sge sa = sge_of(&ra, (N + i) * 4096, 4096);
			struct ibv_sge sb = sge_of(&rb, (N + i) * 4096, 4096);

			send_sges(&p.a, i, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED,
				  &sa, 1, &pb, i * 4096, 0);
			send_sges(&p.b, i, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED,
				  &sb, 1, &pa, i * 4096, 0);
		}
		for (unsigned int i = 0; i < N; i++) {
			EXPECT_OK(p.a.scq, i);
			EXPECT_OK(p.b.scq, i);
		}
		VERIFY(ra.data + N * 4096, N * 4096, ~round);
		VERIFY(rb.data + N * 4096, N * 4096, round);
	}
	region_free(&ra);
	region_free(&rb);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "read_sizes", read_sizes },
		{ "scattered", scattered },
		{ "fence", fence },
		{ "refused_accesses", refused_accesses },
		{ "local_protection", local_protection },
		{ "many_at_once", many_at_once },
		{ }
	};

	return test_main(argc, argv, cases);
}
