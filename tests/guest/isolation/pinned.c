// SPDX-License-Identifier: GPL-2.0
/* How much memory a user may pin, and that failures unpin it. */
#include "isolation.h"

#include <sys/mman.h>

/* An unprivileged user pins up to RLIMIT_MEMLOCK, again and again. */
static void memlock_limit(void)
{
	const size_t limit = 256 << 10;
	struct ibv_mr *mr, *more;
	struct device d;
	long before;
	char *map;

	become_nobody(limit);
	device_open(&d);
	before = pinned_kib();
	map = mmap(NULL, 4 * limit, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(map != MAP_FAILED);
	for (int round = 0; round < 50; round++) {
		REQUIRE_NULL_ERRNO(ibv_reg_mr(d.pd, map, limit + 4096,
					      IBV_ACCESS_LOCAL_WRITE), ENOMEM);
		REQUIRE_EQ(pinned_kib(), before);
		mr = ibv_reg_mr(d.pd, map, limit / 2, IBV_ACCESS_LOCAL_WRITE);
		if (!mr)
			FAIL("ibv_reg_mr of half the limit, round %d: %s",
			     round, strerror(errno));
		REQUIRE_EQ(pinned_kib(), before + (long)limit / 2048);
		/* The limit is of all regions together. */
		REQUIRE_NULL_ERRNO(ibv_reg_mr(d.pd, map + limit,
					      limit / 2 + 4096,
					      IBV_ACCESS_LOCAL_WRITE), ENOMEM);
		more = ibv_reg_mr(d.pd, map + limit, limit / 4,
				  IBV_ACCESS_LOCAL_WRITE);
		REQUIRE(more);
		REQUIRE_ERRNO(ibv_dereg_mr(more), 0);
		REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);
		REQUIRE_EQ(pinned_kib(), before);
	}
	munmap(map, 4 * limit);
	device_close(&d);
}

/* A region that cannot be registered is unpinned again, in every case. */
static void failures_unpin(void)
{
	struct device d;
	long before;
	char *map;

	device_open(&d);
	before = pinned_kib();
	map = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(map != MAP_FAILED);
	REQUIRE_EQ(munmap(map + (1 << 20) - 4096, 4096), 0);
	for (int i = 0; i < 20; i++) {
		REQUIRE_NULL_ERRNO(ibv_reg_mr(d.pd, map, 1 << 20,
					      IBV_ACCESS_LOCAL_WRITE), EFAULT);
		REQUIRE_NULL_ERRNO(ibv_reg_mr(d.pd, map, 8192,
					      IBV_ACCESS_REMOTE_WRITE), EINVAL);
		REQUIRE_NULL_ERRNO(ibv_reg_mr_iova(d.pd, map, 8192, 1,
						   IBV_ACCESS_LOCAL_WRITE),
				   EINVAL);
	}
	REQUIRE_EQ(pinned_kib(), before);
	device_close(&d);
}

const struct test_case pinned_cases[] = {
	{ "memlock_limit", memlock_limit },
	{ "failures_unpin", failures_unpin },
	{ }
};
