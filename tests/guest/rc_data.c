// SPDX-License-Identifier: GPL-2.0
/*
 * Data over reliable connections: a message arrives, whole, once, in order,
 * nowhere else, and the completions at both ends say so.
 */
#include "rc_data/rc_data.h"

/* Around powers of two, page and MTU boundaries, and the odd ones between. */
static const uint32_t sizes[] = {
	0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 255, 256, 257, 1000, 1023, 1024, 1025,
	2048, 4095, 4096, 4097, 8191, 8192, 8193, 12345, 65535, 65536, 65537,
	MIB - 1, MIB,
};

/* Offsets in a page of source and destination. */
static const struct {
	uint16_t src, dst;
} offsets[] = { { 0, 0 }, { 1, 4095 } };

void transfer(struct end *a, struct end *b, const struct region *src,
		     struct region *dst, enum ibv_wr_opcode opcode,
		     uint32_t size, size_t at, uint64_t seed)
{
	bool write = opcode == IBV_WR_RDMA_WRITE ||
		     opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	bool imm = opcode == IBV_WR_SEND_WITH_IMM ||
		   opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	struct ibv_sge sge = sge_of(src, 0, size);
	struct peer to = end_address(b, dst);
	uint32_t imm_data = htobe32(0x1000000 + size);
	struct ibv_wc wc;

	fill(src->data, size, seed);
	memset(dst->data, 0x11, dst->len);
	if (!write)
		recv_region(b, seed, dst, at, size);
	else if (imm)
		REQUIRE_ERRNO(try_recv(b, seed, NULL, 0), 0);
	send_sges(a, ~seed, opcode, IBV_SEND_SIGNALED, &sge, 1,
		  write ? &to : NULL, at, imm_data);

	wc = EXPECT_OK(a->scq, ~seed);
	REQUIRE_EQ(wc.opcode, write ? IBV_WC_RDMA_WRITE : IBV_WC_SEND);
	REQUIRE_EQ(wc.qp_num, a->qp->qp_num);
	if (!write || imm) {
		wc = EXPECT_OK(b->rcq, seed);
		REQUIRE_EQ(wc.opcode, write ? IBV_WC_RECV_RDMA_WITH_IMM :
			   IBV_WC_RECV);
		REQUIRE_EQ(wc.qp_num, b->qp->qp_num);
		REQUIRE_EQ(wc.byte_len, size);
		REQUIRE_EQ(wc.wc_flags & IBV_WC_WITH_IMM,
			   imm ? IBV_WC_WITH_IMM : 0);
		REQUIRE_EQ(wc.wc_flags & IBV_WC_WITH_INV, 0);
		if (imm)
			REQUIRE_EQ(wc.imm_data, imm_data);
	}

	VERIFY_BYTE(dst->data, at, 0x11);
	VERIFY(dst->data + at, size, seed);
	VERIFY_BYTE(dst->data + at + size, dst->len - at - size, 0x11);
	VERIFY(src->data, size, seed);
	REGION_CHECK(src);
	REGION_CHECK(dst);
}

static void all_sizes(enum ibv_wr_opcode opcode)
{
	struct pair p;


	pair_open(&p, NULL);
	for (unsigned int o = 0; o < ARRAY_SIZE(offsets); o++) {
		for (unsigned int i = 0; i < ARRAY_SIZE(sizes); i++) {
			struct region src, dst;

			region_make(&src, &p.d, sizes[i] ?: 1, offsets[o].src,
				    IBV_ACCESS_LOCAL_WRITE);
			region_make(&dst, &p.d, sizes[i] + 200, offsets[o].dst,
				    ACCESS_ALL);
			transfer(&p.a, &p.b, &src, &dst, opcode, sizes[i], 100,
				 i + 1);
			region_free(&src);
			region_free(&dst);
		}
	}
	EXPECT_NO_WC(p.a.scq);
	EXPECT_NO_WC(p.b.rcq);
	pair_close(&p);
}

static void send_sizes(void)
{
	all_sizes(IBV_WR_SEND);
}

static void send_imm_sizes(void)
{
	all_sizes(IBV_WR_SEND_WITH_IMM);
}

static void write_sizes(void)
{
	all_sizes(IBV_WR_RDMA_WRITE);
}

static void write_imm_sizes(void)
{
	all_sizes(IBV_WR_RDMA_WRITE_WITH_IMM);
}

/* A receive buffer that is larger than the message keeps its rest. */
static void receive_larger(void)
{
	struct ibv_wc wc;
	struct pair p;

	pair_open(&p, NULL);
	region_make(&p.mine, &p.d, 10000, 0, 0);
	region_make(&p.theirs, &p.d, 20000, 0, IBV_ACCESS_LOCAL_WRITE);
	fill(p.mine.data, p.mine.len, 5);
	recv_region(&p.b, 1, &p.theirs, 0, p.theirs.len);
	send_region(&p.a, 2, &p.mine, 0, 9999);
	EXPECT_OK(p.a.scq, 2);
	wc = EXPECT_OK(p.b.rcq, 1);
	REQUIRE_EQ(wc.byte_len, 9999);
	VERIFY(p.theirs.data, 9999, 5);
	VERIFY_BYTE(p.theirs.data + 9999, p.theirs.len - 9999, 0);
	pair_close(&p);
}

static const struct test_case size_cases[] = {
	{ "send_sizes", send_sizes },
	{ "send_imm_sizes", send_imm_sizes },
	{ "write_sizes", write_sizes },
	{ "write_imm_sizes", write_imm_sizes },
	{ "receive_larger", receive_larger },
	{ }
};

int main(int argc, char **argv)
{
	static const struct test_case *const tables[] = {
		size_cases,
		list_cases,
		queue_cases,
		memory_cases,
		process_cases,
		NULL,
	};

	return test_main_of(argc, argv, tables);
}
