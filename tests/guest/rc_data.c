// SPDX-License-Identifier: GPL-2.0
/*
 * Data over reliable connections: what is sent arrives, whole, once, in
 * order, nowhere else, and the completions at both ends say so.
 */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define MIB (1u << 20)

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

/*
 * One transfer with every check that a transfer can have. The destination
 * region is larger than the transfer; what lies around must stay.
 */
static void transfer(struct end *a, struct end *b, const struct region *src,
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

/*
 * Inline data needs no key, and its buffer belongs to the application again
 * when the call returns.
 */
static void inline_data(void)
{
	const struct end_config config = { .inline_data = 256, .send_sge = 4 };
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_wc wc;
	struct pair p;
	uint8_t *src;
	uint32_t max;

	pair_open(&p, &config);
	max = p.a.cap.max_inline_data;
	test_note("max_inline_data %u asked for, %u granted", 256, max);
	REQUIRE(max >= 256);
	REQUIRE_ERRNO(ibv_query_qp(p.a.qp, &attr, IBV_QP_CAP, &init), 0);
	REQUIRE_EQ(init.cap.max_inline_data, max);
	src = malloc(max);
	region_make(&p.theirs, &p.d, max, 3, ACCESS_ALL);
	for (uint32_t size = 0; size <= max; size += size < 70 ? 1 : 31) {
		for (int op = 0; op < 2; op++) {
			struct peer to = end_address(&p.b, &p.theirs);
			struct ibv_sge sge[3] = {
				{ (uintptr_t)src, size / 3, 0xdead },
				{ (uintptr_t)src + size / 3, 0, 0xbeef },
				{ (uintptr_t)src + size / 3, size - size / 3, 0 },
			};

			fill(src, size, size + op);
			memset(p.theirs.data, 0x22, max);
			recv_region(&p.b, size, &p.theirs, 0, max);
			send_sges(&p.a, size, op ? IBV_WR_RDMA_WRITE_WITH_IMM :
				  IBV_WR_SEND, IBV_SEND_SIGNALED |
				  IBV_SEND_INLINE, sge, 3, op ? &to : NULL, 0,
				  0);
			memset(src, 0x33, max);
			EXPECT_OK(p.a.scq, size);
			wc = EXPECT_OK(p.b.rcq, size);
			REQUIRE_EQ(wc.byte_len, size);
			VERIFY(p.theirs.data, size, size + op);
			VERIFY_BYTE(p.theirs.data + size, max - size, 0x22);
		}
	}
	pair_close(&p);
	free(src);
}

/* Cuts len bytes into n pieces of unlike length, some empty when n is large. */
static void split(struct ibv_sge *sge, int n, const struct region *r,
		  size_t gap, size_t len, unsigned int salt)
{
	size_t at = 0, left = len;

	for (int i = 0; i < n; i++) {
		size_t piece = i == n - 1 ? left :
			       (salt * 37 + i * 101) % (2 * len / n + 1);

		if (piece > left)
			piece = left;
		if (n > 4 && i == 2)
			piece = 0;
		if (i == n - 1)
			piece = left;
		sge[i] = sge_of(r, at, piece);
		at += piece + gap;
		left -= piece;
	}
	REQUIRE(at <= r->len + gap);
}

/* Gather and scatter lists of every length, cut at odd places. */
static void scatter_gather(void)
{
	struct end_config config = { };
	struct ibv_sge *from, *to;
	struct region src, dst;
	uint8_t *flat, *got;
	struct device d;
	struct end a, b;
	int max;

	device_open(&d);
	max = d.attr.max_sge < 32 ? d.attr.max_sge : 32;
	test_note("max_sge %d of the device, %d used", d.attr.max_sge, max);
	REQUIRE(max >= 16);
	config.send_sge = config.recv_sge = max;
	ends_make(&a, &b, &d, &config);
	from = calloc(max, sizeof(*from));
	to = calloc(max, sizeof(*to));
	flat = malloc(20000);
	got = malloc(20000);
	region_make(&src, &d, 20000 + 32 * 7, 1, 0);
	region_make(&dst, &d, 20000 + 32 * 5, 2, ACCESS_ALL);
	for (int n = 1; n <= max; n++) {
		size_t len = n * 611 + 1, at;
		struct ibv_wc wc;
		struct peer peer = end_address(&b, &dst);
		int m = max + 1 - n;

		fill(flat, len, n);
		memset(src.data, 0x44, src.len);
		memset(dst.data, 0x55, dst.len);
		split(from, n, &src, 7, len, n);
		split(to, m, &dst, 5, len, n + 1);
		at = 0;
		for (int i = 0; i < n; i++) {
			memcpy((void *)(uintptr_t)from[i].addr, flat + at,
			       from[i].length);
			at += from[i].length;
		}
		REQUIRE_EQ(at, len);
		REQUIRE_ERRNO(try_recv(&b, n, to, m), 0);
		send_sges(&a, n, IBV_WR_SEND, IBV_SEND_SIGNALED, from, n, NULL,
			  0, 0);
		EXPECT_OK(a.scq, n);
		wc = EXPECT_OK(b.rcq, n);
		REQUIRE_EQ(wc.byte_len, len);
		at = 0;
		for (int i = 0; i < m; i++) {
			memcpy(got + at, (void *)(uintptr_t)to[i].addr,
			       to[i].length);
			/* Take it away; what is left must be the gaps. */
			memset((void *)(uintptr_t)to[i].addr, 0x55,
			       to[i].length);
			at += to[i].length;
		}
		REQUIRE_EQ(at, len);
		VERIFY(got, len, n);
		VERIFY_BYTE(dst.data, dst.len, 0x55);

		/* The same list, gathered into one RDMA WRITE. */
		send_sges(&a, n, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, from, n,
			  &peer, 9, 0);
		EXPECT_OK(a.scq, n);
		VERIFY(dst.data + 9, len, n);
		VERIFY_BYTE(dst.data + 9 + len, dst.len - 9 - len, 0x55);
	}
	region_free(&src);
	region_free(&dst);
	end_free(&a);
	end_free(&b);
	device_close(&d);
	free(from);
	free(to);
	free(flat);
	free(got);
}

/*
 * Only every n-th request is signalled; the unsignalled ones before it are
 * done when it is, and their slots are free again.
 */
static void signalled_every_nth(void)
{
	const struct end_config config = {
		.send_wr = 32, .recv_wr = 32
	};
	struct region src, dst;
	struct device d;
	struct end a, b;

	device_open(&d);
	for (unsigned int every = 1; every <= 32; every = every * 2 + 1) {
		uint64_t sent = 0;

		ends_make(&a, &b, &d, &config);
		region_make(&src, &d, 32 * 64, 0, 0);
		region_make(&dst, &d, 32 * 64, 0, IBV_ACCESS_LOCAL_WRITE);
		for (int round = 0; round < 20; round++) {
			for (unsigned int i = 0; i < every; i++) {
				fill(src.data + i * 64, 64, sent + i);
				recv_region(&b, sent + i, &dst, i * 64, 64);
			}
			for (unsigned int i = 0; i < every; i++) {
				struct ibv_sge sge = sge_of(&src, i * 64, 64);

				send_sges(&a, sent + i, IBV_WR_SEND,
					  i == every - 1 ? IBV_SEND_SIGNALED :
					  0, &sge, 1, NULL, 0, 0);
			}
			EXPECT_OK(a.scq, sent + every - 1);
			for (unsigned int i = 0; i < every; i++) {
				EXPECT_OK(b.rcq, sent + i);
				VERIFY(dst.data + i * 64, 64, sent + i);
			}
			sent += every;
		}
		EXPECT_NO_WC(a.scq);
		region_free(&src);
		region_free(&dst);
		end_free(&a);
		end_free(&b);
	}
	device_close(&d);
}

/* sq_sig_all makes every request complete, whatever its flags. */
static void signal_all(void)
{
	const struct end_config config = { .signal_all = true };
	struct pair p;

	pair_open(&p, &config);
	region_make(&p.mine, &p.d, 64, 0, 0);
	region_make(&p.theirs, &p.d, 64, 0, ACCESS_ALL);
	for (uint64_t i = 0; i < 100; i++) {
		struct ibv_sge sge = sge_of(&p.mine, 0, 64);
		struct peer to = end_address(&p.b, &p.theirs);

		send_sges(&p.a, i, IBV_WR_RDMA_WRITE, 0, &sge, 1, &to, 0, 0);
		EXPECT_OK(p.a.scq, i);
	}
	pair_close(&p);
}

/*
 * A full queue of requests posted as one list, again and again: every slot,
 * every lap, and the order of completions at both ends.
 */
static void full_queues(void)
{
	const struct end_config config = {
		.send_wr = 128, .recv_wr = 128
	};
	struct ibv_send_wr *wr;
	struct ibv_sge *sge;
	struct pair p;
	uint32_t n;

	pair_open(&p, &config);
	/* What was granted is usable, to the last slot. */
	n = p.a.cap.max_send_wr < p.b.cap.max_recv_wr ? p.a.cap.max_send_wr :
	    p.b.cap.max_recv_wr;
	if ((int)n > p.a.scq->cqe)
		n = p.a.scq->cqe;
	REQUIRE(n >= 128);
	wr = calloc(n, sizeof(*wr));
	sge = calloc(n, sizeof(*sge));
	region_make(&p.mine, &p.d, n * 16, 0, 0);
	region_make(&p.theirs, &p.d, n * 16, 0, IBV_ACCESS_LOCAL_WRITE);
	for (uint64_t lap = 0; lap < 9; lap++) {
		struct ibv_send_wr *bad = NULL;

		for (uint32_t i = 0; i < n; i++) {
			fill(p.mine.data + i * 16, 16, lap * n + i);
			sge[i] = sge_of(&p.mine, i * 16, 16);
			wr[i] = (struct ibv_send_wr){
				.wr_id = lap * n + i,
				.next = i == n - 1 ? NULL : &wr[i + 1],
				.sg_list = &sge[i],
				.num_sge = 1,
				.opcode = IBV_WR_SEND,
				.send_flags = IBV_SEND_SIGNALED,
			};
			recv_region(&p.b, lap * n + i, &p.theirs, i * 16, 16);
		}
		REQUIRE_ERRNO(ibv_post_send(p.a.qp, wr, &bad), 0);
		for (uint32_t i = 0; i < n; i++)
			EXPECT_OK(p.a.scq, lap * n + i);
		for (uint32_t i = 0; i < n; i++) {
			EXPECT_OK(p.b.rcq, lap * n + i);
			VERIFY(p.theirs.data + i * 16, 16, lap * n + i);
		}
	}
	pair_close(&p);
	free(wr);
	free(sge);
}

/* Many connections on one completion queue, spoken on in turn. */
static void many_qps(void)
{
	enum { PAIRS = 32, EACH = 8, LEN = 100 };
	struct end_config config = { .send_wr = 16, .recv_wr = 16 };
	uint64_t sent[PAIRS] = { }, got[PAIRS] = { };
	static struct end a[PAIRS], b[PAIRS];
	struct region src, dst;
	struct device d;

	device_open(&d);
	config.cq = ibv_create_cq(d.ctx, 2 * PAIRS * EACH, NULL, NULL, 0);
	REQUIRE(config.cq);
	region_make(&src, &d, PAIRS * EACH * LEN, 0, 0);
	region_make(&dst, &d, PAIRS * EACH * LEN, 0, IBV_ACCESS_LOCAL_WRITE);
	fill(src.data, src.len, 77);
	for (int p = 0; p < PAIRS; p++) {
		ends_make(&a[p], &b[p], &d, &config);
		for (int q = 0; q < p; q++)
			REQUIRE(a[p].qp->qp_num != a[q].qp->qp_num &&
				a[p].qp->qp_num != b[q].qp->qp_num);
	}
	for (int i = 0; i < EACH; i++)
		for (int p = 0; p < PAIRS; p++)
			recv_region(&b[p], p << 8 | i, &dst,
				    (p * EACH + i) * LEN, LEN);
	for (int i = 0; i < EACH; i++)
		for (int p = 0; p < PAIRS; p++)
			send_region(&a[p], p << 8 | i, &src,
				    (p * EACH + i) * LEN, LEN);
	for (int i = 0; i < 2 * PAIRS * EACH; i++) {
		struct ibv_wc wc;
		int p;

		next_wc(config.cq, &wc);
		REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
		p = wc.wr_id >> 8;
		REQUIRE(p < PAIRS);
		if (wc.opcode & IBV_WC_RECV) {
			REQUIRE_EQ(wc.qp_num, b[p].qp->qp_num);
			REQUIRE_EQ(wc.wr_id & 0xff, got[p]++);
		} else {
			REQUIRE_EQ(wc.qp_num, a[p].qp->qp_num);
			REQUIRE_EQ(wc.wr_id & 0xff, sent[p]++);
		}
	}
	VERIFY(dst.data, dst.len, 77);
	for (int p = 0; p < PAIRS; p++) {
		end_free(&a[p]);
		end_free(&b[p]);
	}
	REQUIRE_ERRNO(ibv_destroy_cq(config.cq), 0);
	region_free(&src);
	region_free(&dst);
	device_close(&d);
}

/* A queue pair connected to itself, which the specification allows. */
static void self_connection(void)
{
	struct region src, dst;
	struct device d;
	struct end e;

	device_open(&d);
	end_make(&e, &d, NULL);
	end_to_state(&e, IBV_QPS_RTS);
	region_make(&src, &d, 9000, 0, 0);
	region_make(&dst, &d, 9000, 0, ACCESS_ALL);
	transfer(&e, &e, &src, &dst, IBV_WR_SEND, 8000, 500, 1);
	transfer(&e, &e, &src, &dst, IBV_WR_RDMA_WRITE_WITH_IMM, 8000, 500, 2);
	region_free(&src);
	region_free(&dst);
	end_free(&e);
	device_close(&d);
}

/*
 * Memory regions whose address is not their pointer: zero-based, and with a
 * virtual address of the application's choice.
 */
static void mr_addresses(void)
{
	struct ibv_mr *mr;
	struct pair p;

	pair_open(&p, NULL);
	region_make(&p.mine, &p.d, 3 * 4096, 0, 0);
	region_make(&p.theirs, &p.d, 3 * 4096, 0, ACCESS_ALL);
	fill(p.mine.data, p.mine.len, 3);
	for (int i = 0; i < 2; i++) {
		/* The offset within the page must be that of the memory. */
		uint64_t iova = i ? 0x123456789000ull + 17 : 17;
		struct ibv_sge sge = sge_of(&p.mine, 0, 4096);
		struct peer to = { .addr = iova };

		memset(p.theirs.data, 0x11, p.theirs.len);
		mr = ibv_reg_mr_iova(p.d.pd, p.theirs.data + 17, 8192, iova,
				     ACCESS_ALL);
		if (!mr)
			FAIL("ibv_reg_mr_iova: %s", strerror(errno));
		to.rkey = mr->rkey;
		send_sges(&p.a, i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 1,
			  &to, 4000, 0);
		EXPECT_OK(p.a.scq, i);
		VERIFY_BYTE(p.theirs.data, 17 + 4000, 0x11);
		VERIFY(p.theirs.data + 17 + 4000, 4096, 3);

		/* And as a local buffer. */
		sge = (struct ibv_sge){ iova + 100, 4096, mr->lkey };
		REQUIRE_ERRNO(try_recv(&p.b, 9, &sge, 1), 0);
		send_region(&p.a, 8, &p.mine, 4096, 4096);
		EXPECT_OK(p.a.scq, 8);
		EXPECT_OK(p.b.rcq, 9);
		REQUIRE(!memcmp(p.theirs.data + 117, p.mine.data + 4096, 4096));
		REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);
	}
	pair_close(&p);
}

/* Memory that the program itself can only read can still be sent. */
static void read_only_source(void)
{
	struct ibv_mr *mr;
	struct pair p;
	void *map;

	pair_open(&p, NULL);
	map = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(map != MAP_FAILED);
	fill(map, 8192, 4);
	REQUIRE_EQ(mprotect(map, 8192, PROT_READ), 0);
	mr = ibv_reg_mr(p.d.pd, map, 8192, 0);
	if (!mr)
		FAIL("ibv_reg_mr of read-only memory: %s", strerror(errno));
	p.mine = (struct region){ .data = map, .len = 8192, .mr = mr };
	region_make(&p.theirs, &p.d, 8192, 0, IBV_ACCESS_LOCAL_WRITE);
	recv_region(&p.b, 1, &p.theirs, 0, 8192);
	send_region(&p.a, 2, &p.mine, 0, 8192);
	EXPECT_OK(p.a.scq, 2);
	EXPECT_OK(p.b.rcq, 1);
	VERIFY(p.theirs.data, 8192, 4);
	REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);
	/* Writing there is another matter. */
	REQUIRE_NULL_ERRNO(ibv_reg_mr(p.d.pd, map, 8192, IBV_ACCESS_LOCAL_WRITE),
			   EFAULT);
	pair_close(&p);
}

/* A message from a region to itself, overlapping: any bytes, no harm. */
static void overlapping(void)
{
	struct region r;
	struct ibv_sge sge;
	struct peer to;
	struct pair p;

	pair_open(&p, NULL);
	region_make(&r, &p.d, 100000, 5, ACCESS_ALL);
	to = end_address(&p.b, &r);
	sge = sge_of(&r, 0, 90000);
	send_sges(&p.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 1, &to,
		  10000, 0);
	EXPECT_OK(p.a.scq, 1);
	sge = sge_of(&r, 10000, 90000);
	send_sges(&p.a, 2, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 1, &to, 0,
		  0);
	EXPECT_OK(p.a.scq, 2);
	region_free(&r);
	pair_close(&p);
}

/*
 * Two processes, each streaming to the other at once, with a window of
 * requests underway and sizes that change.
 */
enum { STREAM_SLOTS = 16, STREAM_SLOT = 9000 };

struct stream {
	int fd;
	unsigned int side;
	unsigned long count;
};

static uint32_t stream_size(unsigned int side, uint64_t i)
{
	return (i * 2654435761u + side * 40503u) % STREAM_SLOT;
}

static void stream_side(void *arg)
{
	const struct end_config config = {
		.send_wr = STREAM_SLOTS, .recv_wr = STREAM_SLOTS
	};
	struct stream *s = arg;
	uint64_t posted = 0, sent = 0, received = 0;
	struct peer mine, other;
	struct region out, in;
	struct device d;
	struct end e;
	char done = 1;

	device_open(&d);
	end_make(&e, &d, &config);
	region_make(&out, &d, STREAM_SLOTS * STREAM_SLOT, 11, 0);
	region_make(&in, &d, STREAM_SLOTS * STREAM_SLOT, 13,
		    IBV_ACCESS_LOCAL_WRITE);
	mine = end_address(&e, NULL);
	put_bytes(s->fd, &mine, sizeof(mine));
	get_bytes(s->fd, &other, sizeof(other));
	end_connect(&e, &other);
	for (unsigned int i = 0; i < STREAM_SLOTS; i++)
		recv_region(&e, i, &in, i * STREAM_SLOT, STREAM_SLOT);
	put_bytes(s->fd, &done, 1);
	get_bytes(s->fd, &done, 1);

	while (sent < s->count || received < s->count) {
		struct ibv_wc wc;

		while (posted < s->count && posted - sent < STREAM_SLOTS) {
			size_t at = posted % STREAM_SLOTS * STREAM_SLOT;
			uint32_t len = stream_size(s->side, posted);

			fill(out.data + at, len, posted * 2 + s->side);
			send_region(&e, posted, &out, at, len);
			posted++;
		}
		if (sent < posted && next_wc_within(e.scq, &wc, 0)) {
			REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
			REQUIRE_EQ(wc.wr_id, sent++);
		}
		if (received < s->count &&
		    next_wc_within(e.rcq, &wc, sent == s->count ? PATIENCE_US :
				   0)) {
			size_t at = received % STREAM_SLOTS * STREAM_SLOT;

			REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
			REQUIRE_EQ(wc.wr_id, received);
			REQUIRE_EQ(wc.byte_len,
				   stream_size(!s->side, received));
			VERIFY(in.data + at, wc.byte_len,
			       received * 2 + !s->side);
			received++;
			recv_region(&e, received + STREAM_SLOTS - 1, &in, at,
				    STREAM_SLOT);
		}
	}
	put_bytes(s->fd, &done, 1);
	get_bytes(s->fd, &done, 1);
	end_free(&e);
	region_free(&out);
	region_free(&in);
	device_close(&d);
}

static void two_processes(void)
{
	unsigned long count = opt.rounds ?: 2000;
	struct stream s[2];
	pid_t pid;
	int fd[2];

	REQUIRE_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	s[0] = (struct stream){ fd[0], 0, count };
	s[1] = (struct stream){ fd[1], 1, count };
	pid = fork_process(stream_side, &s[1]);
	close(fd[1]);
	stream_side(&s[0]);
	join_process(pid);
}

/*
 * Two connections between the same two processes do not mix up, and a process
 * that dies in the middle of a message harms nobody: its peer's work ends
 * with an error, and other connections of the peer go on.
 */
static void doomed_side(void *arg)
{
	const struct end_config config = { .timeout = 10, .retry = 2 };
	int fd = *(int *)arg;
	struct peer mine, other;
	struct region r;
	struct device d;
	struct end e;
	char go;

	device_open(&d);
	end_make(&e, &d, &config);
	region_make(&r, &d, MIB, 0, ACCESS_ALL);
	mine = end_address(&e, &r);
	put_bytes(fd, &mine, sizeof(mine));
	get_bytes(fd, &other, sizeof(other));
	end_connect(&e, &other);
	put_bytes(fd, "", 1);
	get_bytes(fd, &go, 1);
	/* No clean-up: the kernel's part. */
	_exit(0);
}

static void peer_dies(void)
{
	const struct end_config config = {
		.timeout = 10, .retry = 2, .send_wr = 128
	};
	struct peer mine, other;
	struct region r, dst;
	uint64_t posted = 0, good = 0;
	struct end e, a, b;
	struct device d;
	struct ibv_wc wc;
	int fd[2];
	pid_t pid;
	char go;

	REQUIRE_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	pid = fork_process(doomed_side, &fd[1]);
	device_open(&d);
	end_make(&e, &d, &config);
	region_make(&r, &d, 65536, 0, 0);
	region_make(&dst, &d, 4096, 0, ACCESS_ALL);
	mine = end_address(&e, NULL);
	get_bytes(fd[0], &other, sizeof(other));
	put_bytes(fd[0], &mine, sizeof(mine));
	end_connect(&e, &other);
	ends_make(&a, &b, &d, NULL);
	get_bytes(fd[0], &go, 1);
	for (; posted < 100; posted++) {
		struct ibv_sge sge = sge_of(&r, 0, r.len);

		send_sges(&e, posted, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED,
			  &sge, 1, &other, 0, 0);
		if (posted == 20)
			put_bytes(fd[0], "", 1);
	}
	for (uint64_t i = 0; i < posted; i++) {
		next_wc(e.scq, &wc);
		REQUIRE_EQ(wc.wr_id, i);
		if (wc.status == IBV_WC_SUCCESS) {
			REQUIRE_EQ(good, i);
			good++;
		} else if (i == good) {
			if (wc.status != IBV_WC_RETRY_EXC_ERR &&
			    wc.status != IBV_WC_REM_ACCESS_ERR &&
			    wc.status != IBV_WC_REM_OP_ERR)
				FAIL("the first failed request has status '%s'",
				     ibv_wc_status_str(wc.status));
		} else {
			REQUIRE_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
		}
	}
	test_note("%llu of %llu requests were done when the peer was gone",
		  (unsigned long long)good, (unsigned long long)posted);
	transfer(&a, &b, &r, &dst, IBV_WR_SEND, 4000, 50, 9);
	join_process(pid);
	end_free(&e);
	end_free(&a);
	end_free(&b);
	region_free(&r);
	region_free(&dst);
	device_close(&d);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "send_sizes", send_sizes },
		{ "send_imm_sizes", send_imm_sizes },
		{ "write_sizes", write_sizes },
		{ "write_imm_sizes", write_imm_sizes },
		{ "receive_larger", receive_larger },
		{ "inline_data", inline_data },
		{ "scatter_gather", scatter_gather },
		{ "signalled_every_nth", signalled_every_nth },
		{ "signal_all", signal_all },
		{ "full_queues", full_queues },
		{ "many_qps", many_qps },
		{ "self_connection", self_connection },
		{ "mr_addresses", mr_addresses },
		{ "read_only_source", read_only_source },
		{ "overlapping", overlapping },
		{ "two_processes", two_processes, 60 },
		{ "peer_dies", peer_dies },
		{ }
	};

	return test_main(argc, argv, cases);
}
