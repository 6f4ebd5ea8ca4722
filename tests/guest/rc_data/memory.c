// SPDX-License-Identifier: GPL-2.0
/* Where the bytes lie: addresses of regions, rights of pages, overlaps. */
#include "rc_data.h"

#include <sys/mman.h>

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

/* One WRITE to an address of the region, which goes to an offset in theirs. */
static void write_to(struct pair *p, const struct ibv_mr *mr, uint64_t addr,
		     size_t offset)
{
	const struct peer to = { .addr = addr, .rkey = mr->rkey };
	struct ibv_sge sge = sge_of(&p->mine, 0, 100);

	memset(p->theirs.data, 0x11, p->theirs.len);
	send_sges(&p->a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 1, &to,
		  0, 0);
	EXPECT_OK(p->a.scq, 1);
	VERIFY_BYTE(p->theirs.data, offset, 0x11);
	VERIFY(p->theirs.data + offset, 100, 3);
	VERIFY_BYTE(p->theirs.data + offset + 100,
		    p->theirs.len - offset - 100, 0x11);
}

/*
 * IBV_ACCESS_ZERO_BASED: addresses are offsets, wherever in its page the memory
 * begins (ibv_reg_mr(3)); and regions that become so, or are it no more.
 */
static void zero_based(void)
{
	const int zero = ACCESS_ALL | IBV_ACCESS_ZERO_BASED;
	struct peer beyond;
	struct ibv_sge sge;
	struct ibv_mr *mr;
	uint8_t *memory;
	struct pair p;

	pair_open(&p, NULL);
	region_make(&p.mine, &p.d, 4096, 0, 0);
	region_make(&p.theirs, &p.d, 3 * 4096, 0, ACCESS_ALL);
	fill(p.mine.data, p.mine.len, 3);
	memory = p.theirs.data + 1234;
	mr = ibv_reg_mr(p.d.pd, memory, 8192, zero);
	if (!mr)
		FAIL("ibv_reg_mr: %s", strerror(errno));
	write_to(&p, mr, 0, 1234);
	write_to(&p, mr, 8092, 1234 + 8092);

	/* And as a local buffer. */
	sge = (struct ibv_sge){ 50, 100, mr->lkey };
	REQUIRE_ERRNO(try_recv(&p.b, 9, &sge, 1), 0);
	send_region(&p.a, 8, &p.mine, 0, 100);
	EXPECT_OK(p.a.scq, 8);
	EXPECT_OK(p.b.rcq, 9);
	VERIFY(memory + 50, 100, 3);

	REQUIRE_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
				memory + 1000, 4096, 0), 0);
	write_to(&p, mr, 7, 1234 + 1000 + 7);
	REQUIRE_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				ACCESS_ALL), 0);
	write_to(&p, mr, (uintptr_t)memory + 1000, 1234 + 1000);
	REQUIRE_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				zero), 0);
	write_to(&p, mr, 0, 1234 + 1000);

	/* One byte beyond, and the pointer. */
	beyond = (struct peer){ .addr = 4096 - 99, .rkey = mr->rkey };
	pair_refuses(&p, &beyond, 0, 100);
	beyond.addr = (uintptr_t)memory + 1000;
	pair_refuses(&p, &beyond, 0, 100);
	REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);
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

/* Huge pages as source and destination, with entries that begin in one and end in the next. */
static void huge_pages(void)
{
	enum { HUGE = 2 * MIB, PAGES = 3, LEN = 2 * HUGE };
	const struct end_config config = { .send_sge = 2 };
	struct ibv_sge sge[2];
	struct pair p;
	uint8_t *map;

	REQUIRE_EQ(run_command("echo %d > /proc/sys/vm/nr_hugepages", 2 * PAGES),
		   0);
	pair_open(&p, &config);
	for (int i = 0; i < 2; i++) {
		struct region *r = i ? &p.theirs : &p.mine;

		map = mmap(NULL, PAGES * HUGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
		if (map == MAP_FAILED)
			FAIL("%d huge pages: %s", PAGES, strerror(errno));
		r->data = map;
		r->len = PAGES * HUGE;
		r->mr = ibv_reg_mr(p.d.pd, map, r->len, ACCESS_ALL);
		REQUIRE(r->mr);
	}
	fill(p.mine.data, p.mine.len, 6);
	p.to = end_address(&p.b, &p.theirs);
	/* A byte short of a huge page, and the rest from the next one on. */
	sge[0] = sge_of(&p.mine, 1, HUGE - 2);
	sge[1] = sge_of(&p.mine, HUGE - 1, LEN - HUGE + 2);
	send_sges(&p.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, sge, 2, &p.to,
		  HUGE / 2, 0);
	EXPECT_OK(p.a.scq, 1);
	VERIFY_BYTE(p.theirs.data, HUGE / 2, 0);
	REQUIRE(!memcmp(p.theirs.data + HUGE / 2, p.mine.data + 1, LEN));
	VERIFY_BYTE(p.theirs.data + HUGE / 2 + LEN, HUGE / 2, 0);
	recv_region(&p.b, 2, &p.theirs, 3, LEN);
	send_region(&p.a, 3, &p.mine, HUGE - 5, LEN);
	EXPECT_OK(p.a.scq, 3);
	EXPECT_OK(p.b.rcq, 2);
	REQUIRE(!memcmp(p.theirs.data + 3, p.mine.data + HUGE - 5, LEN));
	for (int i = 0; i < 2; i++) {
		struct region *r = i ? &p.theirs : &p.mine;

		REQUIRE_ERRNO(ibv_dereg_mr(r->mr), 0);
		REQUIRE_EQ(munmap(r->data, r->len), 0);
	}
	pair_close(&p);
	REQUIRE_EQ(run_command("echo 0 > /proc/sys/vm/nr_hugepages"), 0);
}

const struct test_case memory_cases[] = {
	{ "mr_addresses", mr_addresses },
	{ "zero_based", zero_based },
	{ "read_only_source", read_only_source },
	{ "overlapping", overlapping },
	{ "huge_pages", huge_pages },
	{ }
};
