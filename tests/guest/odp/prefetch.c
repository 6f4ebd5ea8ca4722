// SPDX-License-Identifier: GPL-2.0
/* ibv_advise_mr(3). */
#define _GNU_SOURCE
#include "odp.h"

#include <sys/mman.h>

static size_t resident(void *map, size_t len)
{
	unsigned char pages[SIZE / PAGE];
	size_t count = 0;

	REQUIRE_EQ(mincore(map, len, pages), 0);
	for (size_t i = 0; i < len / PAGE; i++)
		count += pages[i] & 1;
	return count;
}

static int advise(struct device *d, enum ibv_advise_mr_advice advice,
		  uint32_t flags, uint32_t lkey, void *addr, size_t len)
{
	struct ibv_sge sge = { (uintptr_t)addr, len, lkey };

	return ibv_advise_mr(d->pd, advice, flags, &sge, 1);
}

void prefetch(void)
{
	uint8_t *map = map_anonymous(SIZE);
	struct device d, other;
	struct ibv_mr *mr, *readable, *pinned, *whole;
	uint64_t end;

	/*
	 * A huge page would bring in more than what was asked for. A kernel
	 * without them, as with PREEMPT_RT, does not know the advice.
	 */
	REQUIRE(madvise(map, SIZE, MADV_NOHUGEPAGE) == 0 || errno == EINVAL);
	device_open(&d);
	other = device_other_pd(&d);
	mr = reg(&d, map, SIZE, ACCESS);
	readable = reg(&d, map, SIZE, IBV_ACCESS_REMOTE_READ);
	whole = ibv_reg_mr(d.pd, NULL, SIZE_MAX, ACCESS | IBV_ACCESS_ON_DEMAND);
	REQUIRE(whole);

	REQUIRE_EQ(resident(map, SIZE), 0);
	REQUIRE_ERRNO(advise(&d, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
			     IBV_ADVISE_MR_FLAG_FLUSH, mr->lkey, map, SIZE), 0);
	REQUIRE_EQ(resident(map, SIZE), 0);
	REQUIRE_ERRNO(advise(&d, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
			     IBV_ADVISE_MR_FLAG_FLUSH, mr->lkey, map + PAGE,
			     2 * PAGE), 0);
	REQUIRE_EQ(resident(map, SIZE), 2);
	REQUIRE_ERRNO(advise(&d, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
			     IBV_ADVISE_MR_FLAG_FLUSH, whole->lkey, map, SIZE), 0);
	REQUIRE_EQ(resident(map, SIZE), SIZE / PAGE);

	/* Without FLUSH, some time later. */
	drop(map, SIZE);
	REQUIRE_ERRNO(advise(&d, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0,
			     mr->lkey, map, SIZE), 0);
	for (end = now_us() + PATIENCE_US; resident(map, SIZE) != SIZE / PAGE;)
		REQUIRE(now_us() < end);

	/* As the manual page has it. */
	REQUIRE_ERRNO(advise(&d, IBV_ADVISE_MR_ADVICE_PREFETCH, 0,
			     mr->lkey ^ 0x55, map, SIZE), EFAULT);
	REQUIRE_ERRNO(advise(&d, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, mr->lkey,
			     map + PAGE, SIZE), EFAULT);
	REQUIRE_ERRNO(advise(&d, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0,
			     readable->lkey, map, SIZE), EFAULT);
	REQUIRE_ERRNO(advise(&other, IBV_ADVISE_MR_ADVICE_PREFETCH, 0,
			     mr->lkey, map, SIZE), EFAULT);
	REQUIRE_ERRNO(advise(&d, IBV_ADVISE_MR_ADVICE_PREFETCH, 2, mr->lkey,
			     map, SIZE), EINVAL);
	REQUIRE_ERRNO(advise(&d, 99, 0, mr->lkey, map, SIZE), EOPNOTSUPP);
	pinned = ibv_reg_mr(d.pd, map, SIZE, ACCESS);
	REQUIRE(pinned);
	REQUIRE_ERRNO(advise(&d, IBV_ADVISE_MR_ADVICE_PREFETCH, 0,
			     pinned->lkey, map, SIZE), EINVAL);
	REQUIRE_ERRNO(ibv_dereg_mr(pinned), 0);
	REQUIRE_EQ(munmap(map + PAGE, PAGE), 0);
	REQUIRE_ERRNO(advise(&d, IBV_ADVISE_MR_ADVICE_PREFETCH,
			     IBV_ADVISE_MR_FLAG_FLUSH, mr->lkey, map, SIZE),
		      EFAULT);
	REQUIRE_ERRNO(advise(&d, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, mr->lkey,
			     map, SIZE), 0);

	REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);
	REQUIRE_ERRNO(ibv_dereg_mr(readable), 0);
	REQUIRE_ERRNO(ibv_dereg_mr(whole), 0);
	device_free_pd(&other);
	device_close(&d);
}
