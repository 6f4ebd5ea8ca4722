// SPDX-License-Identifier: GPL-2.0
/*
 * Device memory (ibv_alloc_dm(3)): what can be allocated, copies to and from
 * it, regions of it, and that it goes when nobody needs it any more.
 */
#include "common.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define DM_ACCESS (IBV_ACCESS_ZERO_BASED | ACCESS_ALL | \
		   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* With a length that is no multiple of pages. */
#define SIZE 20000

static size_t max_size(struct ibv_context *ctx)
{
	struct ibv_device_attr_ex attr = {};

	REQUIRE_ERRNO(ibv_query_device_ex(ctx, NULL, &attr), 0);
	REQUIRE(attr.max_dm_size > 0);
	return attr.max_dm_size;
}

static struct ibv_dm *alloc_in(struct ibv_context *ctx, size_t length,
			       uint32_t log_align)
{
	struct ibv_alloc_dm_attr attr = {
		.length = length,
		.log_align_req = log_align,
	};

	return ibv_alloc_dm(ctx, &attr);
}

static struct ibv_dm *must_alloc(struct ibv_context *ctx, size_t length)
{
	struct ibv_dm *dm = alloc_in(ctx, length, 0);

	if (!dm)
		FAIL("ibv_alloc_dm of %zu bytes: %s", length, strerror(errno));
	return dm;
}

static void to_dm(struct ibv_dm *dm, uint64_t offset, const void *from,
		  size_t length)
{
	REQUIRE_ERRNO(ibv_memcpy_to_dm(dm, offset, from, length), 0);
}

static void from_dm(void *to, struct ibv_dm *dm, uint64_t offset, size_t length)
{
	REQUIRE_ERRNO(ibv_memcpy_from_dm(to, dm, offset, length), 0);
}

static struct ibv_mr *must_reg(struct ibv_pd *pd, struct ibv_dm *dm,
			       uint64_t offset, size_t length, int access)
{
	struct ibv_mr *mr = ibv_reg_dm_mr(pd, dm, offset, length, access);

	if (!mr)
		FAIL("ibv_reg_dm_mr: %s", strerror(errno));
	return mr;
}

static void copies(void)
{
	static uint8_t data[SIZE], back[SIZE];
	struct ibv_dm *dm, *other;
	struct device d;

	device_open(&d);
	dm = must_alloc(d.ctx, SIZE);
	other = must_alloc(d.ctx, SIZE);

	memset(back, 0xff, SIZE);
	from_dm(back, dm, 0, SIZE);
	VERIFY_BYTE(back, SIZE, 0);

	fill(data, SIZE, 1);
	to_dm(dm, 0, data, SIZE);
	from_dm(back, dm, 0, SIZE);
	VERIFY(back, SIZE, 1);

	/* The bytes around stay. */
	memset(data + 4092, 0x5a, 8);
	to_dm(dm, 4092, data + 4092, 8);
	to_dm(dm, SIZE, data, 0);
	from_dm(back, dm, 0, SIZE);
	REQUIRE(!memcmp(back, data, SIZE));
	from_dm(back, dm, 4096, 4);
	VERIFY_BYTE(back, 4, 0x5a);

	from_dm(back, other, 0, SIZE);
	VERIFY_BYTE(back, SIZE, 0);

	REQUIRE_ERRNO(ibv_free_dm(other), 0);
	REQUIRE_ERRNO(ibv_free_dm(dm), 0);
	device_close(&d);
}

/* As adapters have it: beyond the end, and what is no multiple of 4 bytes. */
static void refused_copies(void)
{
	static const struct {
		uint64_t offset;
		size_t length;
		int err;
	} wrong[] = {
		{ SIZE, 4, EFAULT },
		{ SIZE - 4, 8, EFAULT },
		{ 0, SIZE + 4, EFAULT },
		{ ~0ull - 3, 8, EFAULT },
		{ 4, ~0ul - 3, EFAULT },
		{ 2, 4, EINVAL },
		{ 4, 3, EINVAL },
	};
	static uint8_t data[SIZE + 4], back[SIZE];
	struct ibv_dm *dm;
	struct device d;

	device_open(&d);
	dm = must_alloc(d.ctx, SIZE);
	memset(data, 0xa5, sizeof(data));
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		REQUIRE_ERRNO(ibv_memcpy_to_dm(dm, wrong[i].offset, data,
					       wrong[i].length),
			      wrong[i].err);
		REQUIRE_ERRNO(ibv_memcpy_from_dm(data, dm, wrong[i].offset,
						 wrong[i].length),
			      wrong[i].err);
	}
	VERIFY_BYTE(data, sizeof(data), 0xa5);
	from_dm(back, dm, 0, SIZE);
	VERIFY_BYTE(back, SIZE, 0);
	REQUIRE_ERRNO(ibv_free_dm(dm), 0);
	device_close(&d);
}

static void limits(void)
{
	struct ibv_alloc_dm_attr unknown = { .length = 64, .comp_mask = 1 };
	struct ibv_dm *dm, *part;
	size_t page = sysconf(_SC_PAGESIZE);
	struct device d, other;
	size_t max;

	device_open(&d);
	device_open(&other);
	max = max_size(d.ctx);

	REQUIRE_NULL_ERRNO(alloc_in(d.ctx, 0, 0), EINVAL);
	REQUIRE_NULL_ERRNO(alloc_in(d.ctx, max + 1, 0), ENOMEM);
	REQUIRE_NULL_ERRNO(alloc_in(d.ctx, ~0ul, 0), ENOMEM);
	REQUIRE_NULL_ERRNO(alloc_in(d.ctx, 64, 13), EINVAL);
	REQUIRE_NULL_ERRNO(alloc_in(d.ctx, 64, ~0u), EINVAL);
	REQUIRE_NULL_ERRNO(ibv_alloc_dm(d.ctx, &unknown), EINVAL);

	dm = alloc_in(d.ctx, 4, 12);
	REQUIRE(dm);
	REQUIRE_ERRNO(ibv_free_dm(dm), 0);

	/* All of it, and no byte more; what others have is theirs. */
	dm = must_alloc(d.ctx, max);
	REQUIRE_NULL_ERRNO(alloc_in(d.ctx, 1, 0), ENOMEM);
	part = must_alloc(other.ctx, max / 2);
	REQUIRE_NULL_ERRNO(alloc_in(other.ctx, max / 2 + 1, 0), ENOMEM);
	REQUIRE_ERRNO(ibv_free_dm(part), 0);
	REQUIRE_ERRNO(ibv_free_dm(dm), 0);
	REQUIRE_ERRNO(ibv_free_dm(must_alloc(d.ctx, max)), 0);

	/* Whole pages are taken of it. */
	dm = must_alloc(d.ctx, max - page + 1);
	REQUIRE_NULL_ERRNO(alloc_in(d.ctx, 1, 0), ENOMEM);
	REQUIRE_ERRNO(ibv_free_dm(dm), 0);

	device_close(&other);
	device_close(&d);
}

static void registration(void)
{
	struct ibv_dm *dm;
	struct ibv_mr *mr;
	struct device d;

	device_open(&d);
	dm = must_alloc(d.ctx, SIZE);

	REQUIRE_NULL_ERRNO(ibv_reg_dm_mr(d.pd, dm, 0, SIZE, ACCESS_ALL),
			   EINVAL);
	REQUIRE_NULL_ERRNO(ibv_reg_dm_mr(d.pd, dm, 0, SIZE + 1, DM_ACCESS),
			   EINVAL);
	REQUIRE_NULL_ERRNO(ibv_reg_dm_mr(d.pd, dm, SIZE, 1, DM_ACCESS), EINVAL);
	REQUIRE_NULL_ERRNO(ibv_reg_dm_mr(d.pd, dm, ~0ull, 2, DM_ACCESS),
			   EINVAL);
	/* Peers write only where the owner may (IBA volume 1, 10.6.3.1). */
	REQUIRE_NULL_ERRNO(ibv_reg_dm_mr(d.pd, dm, 0, SIZE,
					 IBV_ACCESS_ZERO_BASED |
					 IBV_ACCESS_REMOTE_WRITE), EINVAL);

	/* No bytes are allowed, and open nothing. */
	REQUIRE_ERRNO(ibv_dereg_mr(must_reg(d.pd, dm, 8, 0, DM_ACCESS)), 0);

	mr = must_reg(d.pd, dm, 5, SIZE - 5, DM_ACCESS);
	REQUIRE_EQ(mr->length, SIZE - 5);
	REQUIRE(!mr->addr);
	REQUIRE_ERRNO(ibv_free_dm(dm), EBUSY);
	REQUIRE_ERRNO(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, d.pd, NULL,
				   0, IBV_ACCESS_LOCAL_WRITE) ? EINVAL : 0,
		      EINVAL);
	REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);
	REQUIRE_ERRNO(ibv_free_dm(dm), 0);
	device_close(&d);
}

/* A connection, and device memory of which b has opened all but the first bytes. */
enum { OFFSET = 4104, LENGTH = SIZE - OFFSET };

struct scene {
	struct pair p;
	struct ibv_dm *dm;
	struct ibv_mr *mr;
	struct peer to;		/* the region's first byte */
};

static void scene_open(struct scene *s)
{
	static const struct end_config config = {
		.access = ACCESS_ALL | IBV_ACCESS_REMOTE_READ |
			  IBV_ACCESS_REMOTE_ATOMIC,
	};

	pair_open(&s->p, &config);
	pair_memory(&s->p, LENGTH, LENGTH, ACCESS_ALL);
	s->dm = must_alloc(s->p.d.ctx, SIZE);
	s->mr = must_reg(s->p.d.pd, s->dm, OFFSET, LENGTH, DM_ACCESS);
	s->to = s->p.to;
	s->to.addr = 0;
	s->to.rkey = s->mr->rkey;
}

static void scene_close(struct scene *s)
{
	REQUIRE_ERRNO(ibv_dereg_mr(s->mr), 0);
	REQUIRE_ERRNO(ibv_free_dm(s->dm), 0);
	pair_close(&s->p);
}

static struct ibv_sge dm_sge(const struct scene *s, uint64_t offset,
			     uint32_t length)
{
	return (struct ibv_sge){
		.addr = offset, .length = length, .lkey = s->mr->lkey,
	};
}

static void transfers(void)
{
	static uint8_t back[SIZE];
	struct ibv_sge sge, into;
	struct scene s;

	scene_open(&s);

	/* Into it, from memory: the bytes in front of the region stay. */
	sge = sge_of(&s.p.mine, 0, LENGTH);
	send_sges(&s.p.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 1,
		  &s.to, 0, 0);
	EXPECT_OK(s.p.a.scq, 1);
	from_dm(back, s.dm, 0, SIZE);
	VERIFY_BYTE(back, OFFSET, 0);
	VERIFY(back + OFFSET, LENGTH, 1);

	/* Out of it, to memory. */
	memset(s.p.mine.data, 0, LENGTH);
	send_sges(&s.p.a, 2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &sge, 1,
		  &s.to, 0, 0);
	EXPECT_OK(s.p.a.scq, 2);
	VERIFY(s.p.mine.data, LENGTH, 1);

	/* From one part of it to another, as local memory at both ends. */
	fill(back, 4096, 2);
	to_dm(s.dm, OFFSET, back, 4096);
	into = dm_sge(&s, 8001, 4096);
	REQUIRE_ERRNO(try_recv(&s.p.b, 3, &into, 1), 0);
	sge = dm_sge(&s, 0, 4096);
	send_sges(&s.p.a, 4, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 1, NULL, 0,
		  0);
	EXPECT_OK(s.p.a.scq, 4);
	EXPECT_OK(s.p.b.rcq, 3);
	from_dm(back, s.dm, 0, SIZE);
	VERIFY(back + OFFSET + 8001, 4096, 2);

	scene_close(&s);
}

static void atomics(void)
{
	uint64_t word = 40, found;
	struct scene s;

	scene_open(&s);
	to_dm(s.dm, OFFSET + 8, &word, sizeof(word));
	send_atomic(&s.p.a, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_SEND_SIGNALED,
		    sge_of(&s.p.mine, 0, 8), &s.to, 8, 2, 0);
	EXPECT_OK(s.p.a.scq, 1);
	memcpy(&found, s.p.mine.data, sizeof(found));
	REQUIRE_EQ(found, 40);
	send_atomic(&s.p.a, 2, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_SEND_SIGNALED,
		    dm_sge(&s, 100, 8), &s.to, 8, 42, 7);
	EXPECT_OK(s.p.a.scq, 2);
	from_dm(&word, s.dm, OFFSET + 8, sizeof(word));
	REQUIRE_EQ(word, 7);
	from_dm(&found, s.dm, OFFSET + 100, sizeof(found));
	REQUIRE_EQ(found, 42);

	/* An address that is aligned, of a word that is not. */
	REQUIRE_ERRNO(ibv_dereg_mr(s.mr), 0);
	s.mr = must_reg(s.p.d.pd, s.dm, OFFSET + 4, LENGTH - 4, DM_ACCESS);
	s.to.rkey = s.mr->rkey;
	send_atomic(&s.p.a, 3, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_SEND_SIGNALED,
		    sge_of(&s.p.mine, 0, 8), &s.to, 8, 1, 0);
	EXPECT_WC(s.p.a.scq, 3, IBV_WC_REM_INV_REQ_ERR);
	scene_close(&s);
}

/* A peer reaches the registered part, and nothing in front of it or behind. */
static void bounds(void)
{
	static uint8_t back[SIZE];
	struct ibv_sge sge;
	struct scene s;

	scene_open(&s);
	pair_refuses_outside(&s.p, &s.to, LENGTH);
	from_dm(back, s.dm, 0, SIZE);
	VERIFY_BYTE(back, SIZE, 0);
	/* A region of no bytes opens none. */
	REQUIRE_ERRNO(ibv_dereg_mr(s.mr), 0);
	s.mr = must_reg(s.p.d.pd, s.dm, OFFSET, 0, DM_ACCESS);
	s.to.rkey = s.mr->rkey;
	sge = sge_of(&s.p.mine, 0, 1);
	send_sges(&s.p.a, 9, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 1,
		  &s.to, 0, 0);
	EXPECT_WC(s.p.a.scq, 9, IBV_WC_REM_ACCESS_ERR);
	pair_reset(&s.p);
	ends_connect(&s.p.a, &s.p.b);
	/* Nor does the owner by a key without the right. */
	REQUIRE_ERRNO(ibv_dereg_mr(s.mr), 0);
	s.mr = must_reg(s.p.d.pd, s.dm, OFFSET, LENGTH, IBV_ACCESS_ZERO_BASED);
	sge = dm_sge(&s, 0, 8);
	REQUIRE_ERRNO(try_recv(&s.p.b, 10, &sge, 1), 0);
	send_region(&s.p.a, 11, &s.p.mine, 0, 8);
	EXPECT_WC(s.p.b.rcq, 10, IBV_WC_LOC_PROT_ERR);
	EXPECT_WC(s.p.a.scq, 11, IBV_WC_REM_OP_ERR);
	scene_close(&s);
}

static void other_domain(void)
{
	struct device other;
	struct ibv_mr *mr;
	struct ibv_sge sge;
	struct scene s;

	scene_open(&s);
	other = device_other_pd(&s.p.d);
	mr = must_reg(other.pd, s.dm, 0, SIZE, DM_ACCESS);
	s.to.rkey = mr->rkey;
	sge = sge_of(&s.p.mine, 0, 8);
	send_sges(&s.p.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 1,
		  &s.to, 0, 0);
	EXPECT_WC(s.p.a.scq, 1, IBV_WC_REM_ACCESS_ERR);
	REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);
	device_free_pd(&other);
	scene_close(&s);
}

static void imported(void)
{
	struct ibv_dm *dm, *again;
	uint32_t word = 0x12345678, found = 0;
	struct device d, other;

	device_open(&d);
	device_open(&other);
	dm = must_alloc(d.ctx, SIZE);
	REQUIRE(dm->comp_mask & IBV_DM_MASK_HANDLE);
	again = ibv_import_dm(d.ctx, dm->handle);
	if (!again)
		FAIL("ibv_import_dm: %s", strerror(errno));
	to_dm(dm, 4, &word, sizeof(word));
	from_dm(&found, again, 4, sizeof(found));
	REQUIRE_EQ(found, word);
	REQUIRE_ERRNO(ibv_memcpy_from_dm(&found, again, SIZE, 4), EFAULT);

	/* Handles are those of one file. */
	REQUIRE_NULL_ERRNO(ibv_import_dm(d.ctx, dm->handle + 1000), ENOENT);
	REQUIRE_NULL_ERRNO(ibv_import_dm(other.ctx, dm->handle), ENOENT);
	/* That of another kind of object names no device memory. */
	REQUIRE_NULL_ERRNO(ibv_import_dm(d.ctx, d.pd->handle), EINVAL);

	ibv_unimport_dm(again);
	from_dm(&found, dm, 4, sizeof(found));
	REQUIRE_EQ(found, word);
	REQUIRE_ERRNO(ibv_free_dm(dm), 0);
	device_close(&other);
	device_close(&d);
}

/* A program that ends gives back what it has, in use or not. */
static void leave(void *unused)
{
	struct scene s;

	(void)unused;
	scene_open(&s);
	must_alloc(s.p.d.ctx, 4096);
	_exit(0);
}

static void left_behind(void)
{
	for (unsigned int i = 0; i < 20; i++)
		join_process(fork_process(leave, NULL));
}

/* Threads that allocate and free; afterwards all of it is there. */
enum { ALLOCATIONS = 200 };

static void *allocate(void *arg)
{
	struct ibv_context *ctx = arg;
	size_t max = max_size(ctx);

	for (unsigned int i = 0; i < ALLOCATIONS; i++) {
		struct ibv_dm *dm = alloc_in(ctx, max / 3 + i, 0);

		if (!dm) {
			REQUIRE_EQ(errno, ENOMEM);
			continue;
		}
		to_dm(dm, 0, &i, sizeof(i));
		REQUIRE_ERRNO(ibv_free_dm(dm), 0);
	}
	return NULL;
}

static void at_once(void)
{
	pthread_t thread[4];
	struct device d;

	device_open(&d);
	for (size_t i = 0; i < ARRAY_SIZE(thread); i++)
		REQUIRE(!pthread_create(&thread[i], NULL, allocate, d.ctx));
	for (size_t i = 0; i < ARRAY_SIZE(thread); i++)
		REQUIRE(!pthread_join(thread[i], NULL));
	REQUIRE_ERRNO(ibv_free_dm(must_alloc(d.ctx, max_size(d.ctx))), 0);
	device_close(&d);
}

static const struct test_case cases[] = {
	{ "copies", copies },
	{ "refused_copies", refused_copies },
	{ "limits", limits },
	{ "registration", registration },
	{ "transfers", transfers },
	{ "atomics", atomics },
	{ "bounds", bounds },
	{ "other_domain", other_domain },
	{ "imported", imported },
	{ "left_behind", left_behind },
	{ "at_once", at_once },
	{},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, cases);
}
