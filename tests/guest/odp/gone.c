// SPDX-License-Identifier: GPL-2.0
/* Memory that cannot be had: requests end with an error. */
#define _GNU_SOURCE
#include "odp.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A request ends with an error where its memory is no more, at either end. */
static void gone(void (*take)(void *addr, int fd), bool at_target)
{
	int fds[2];
	uint8_t *maps[2] = { map_file(SIZE, &fds[0]), map_file(SIZE, &fds[1]) };
	struct scene s;

	scene_open_on(&s, maps[0], maps[1]);
	fill(s.mine, SIZE, 1);
	request(&s, IBV_WR_RDMA_WRITE, SIZE);
	EXPECT_OK(s.p.a.scq, 1);
	take(maps[at_target], fds[at_target]);
	request(&s, IBV_WR_RDMA_WRITE, SIZE);
	EXPECT_WC(s.p.a.scq, 1, at_target ? IBV_WC_REM_ACCESS_ERR :
					    IBV_WC_LOC_PROT_ERR);
	scene_close(&s);
}

static void take_map(void *addr, int fd)
{
	(void)fd;
	REQUIRE_EQ(munmap(addr, SIZE), 0);
}

static void take_file(void *addr, int fd)
{
	(void)addr;
	REQUIRE_EQ(ftruncate(fd, PAGE), 0);
}

static void take_rights(void *addr, int fd)
{
	(void)fd;
	REQUIRE_EQ(mprotect(addr, SIZE, PROT_NONE), 0);
}

void unmapped(void)
{
	gone(take_map, false);
	gone(take_map, true);
}

void truncated(void)
{
	gone(take_file, false);
	gone(take_file, true);
}

void protected(void)
{
	gone(take_rights, false);
	gone(take_rights, true);
}

/* Memory that may only be read is read, and not written to. */
void read_only(void)
{
	uint8_t *from = map_anonymous(SIZE), *to = map_anonymous(SIZE);
	struct scene s;

	fill(from, SIZE, 1);
	REQUIRE_EQ(mprotect(from, SIZE, PROT_READ), 0);
	REQUIRE_EQ(mprotect(to, SIZE, PROT_READ), 0);
	scene_open_on(&s, from, to);
	request(&s, IBV_WR_RDMA_WRITE, SIZE);
	EXPECT_WC(s.p.a.scq, 1, IBV_WC_REM_ACCESS_ERR);
	VERIFY_BYTE(to, SIZE, 0);
	scene_close(&s);
}

/* A buffer of a receive request that cannot be had ends that, and tells the sender. */
void receive_buffer(void)
{
	struct scene s;

	scene_open(&s);
	REQUIRE_EQ(munmap(s.theirs, SIZE), 0);
	receive(&s, SIZE);
	request(&s, IBV_WR_SEND, SIZE);
	EXPECT_WC(s.p.a.scq, 1, IBV_WC_REM_OP_ERR);
	EXPECT_WC(s.p.b.rcq, 2, IBV_WC_LOC_PROT_ERR);
	scene_close(&s);
}

/* Another mapping at the same place is what the region opens from then on. */
void mapped_again(void)
{
	struct scene s;

	scene_open(&s);
	for (unsigned int round = 1; round <= 5; round++) {
		void *map;

		fill(s.mine, SIZE, round);
		request(&s, IBV_WR_RDMA_WRITE, SIZE);
		EXPECT_OK(s.p.a.scq, 1);
		VERIFY(s.theirs, SIZE, round);
		map = mmap(s.theirs, SIZE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		REQUIRE(map == s.theirs);
		VERIFY_BYTE(s.theirs, SIZE, 0);
	}
	scene_close(&s);
}

/*
 * A request that was given up has no say about those after it: memory that
 * could not be had for it may be there by then.
 */
void mapped_after_a_reset(void)
{
	struct scene s;

	scene_open(&s);
	for (unsigned int round = 1; round <= 10; round++) {
		REQUIRE_EQ(munmap(s.theirs, SIZE), 0);
		request(&s, IBV_WR_RDMA_WRITE, SIZE);
		pair_reset(&s.p);
		REQUIRE(mmap(s.theirs, SIZE, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
			     -1, 0) == s.theirs);
		ends_connect(&s.p.a, &s.p.b);
		fill(s.mine, SIZE, round);
		request(&s, IBV_WR_RDMA_WRITE, SIZE);
		EXPECT_OK(s.p.a.scq, 1);
		VERIFY(s.theirs, SIZE, round);
	}
	scene_close(&s);
}

/* Pages of memfd_secret() have no kernel address. */
void secret(void)
{
	int fd = syscall(SYS_memfd_secret, 0);
	struct scene s;
	uint8_t *map;

	if (fd < 0)
		test_skip("the kernel has no memfd_secret: %s", strerror(errno));
	REQUIRE_EQ(ftruncate(fd, SIZE), 0);
	map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		test_skip("no memory of memfd_secret: %s", strerror(errno));
	memset(map, 1, SIZE);
	scene_open_on(&s, map_anonymous(SIZE), map);
	request(&s, IBV_WR_RDMA_READ, SIZE);
	EXPECT_WC(s.p.a.scq, 1, IBV_WC_REM_ACCESS_ERR);
	scene_close(&s);
}
