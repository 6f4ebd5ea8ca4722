// SPDX-License-Identifier: GPL-2.0
/* The time of a registration, and the rate of traffic, beside those of pinned memory. */
#define _GNU_SOURCE
#include "odp.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* An odd number: there is one in the middle. */
#define ROUNDS 15

/* A busy host makes rates say little, so one of several has to do. */
#define ATTEMPTS 4

/* The best of several times, in microseconds; the memory is all there. */
static uint64_t registration_us(struct device *d, void *addr, size_t len,
				int access)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < 5; i++) {
		uint64_t begin = now_us();
		struct ibv_mr *mr = ibv_reg_mr(d->pd, addr, len, access);
		uint64_t us = now_us() - begin;

		REQUIRE(mr);
		REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);
		best = us < best ? us : best;
	}
	return best ? best : 1;
}

static double write_rate(struct scene *s, uint8_t *from, struct ibv_mr *local,
			 struct ibv_mr *remote, size_t len)
{
	const int window = 16;
	struct peer to = s->to;
	uint64_t begin, bytes = 0;
	int posted = 0, done = 0;

	to.addr = (uintptr_t)s->theirs;
	to.rkey = remote->rkey;
	begin = now_us();
	while (now_us() - begin < 60000 || done < posted) {
		struct ibv_wc wc;

		while (posted - done < window && now_us() - begin < 60000) {
			struct ibv_sge sge = { (uintptr_t)from, len,
					       local->lkey };

			send_sges(&s->p.a, 1, IBV_WR_RDMA_WRITE,
				  IBV_SEND_SIGNALED, &sge, 1, &to, 0, 0);
			posted++;
		}
		if (done == posted)
			continue;
		next_wc(s->p.a.scq, &wc);
		REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
		done++;
		bytes += len;
	}
	return bytes / (double)(now_us() - begin);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* WRITEs over memory that is all there: medians, of rounds by turns. */
static double compare_rates(struct scene *s, struct ibv_mr *pinned[2],
			    size_t len)
{
	double rates[2][ROUNDS], pinned_rate, paged_rate;

	for (int round = 0; round < ROUNDS; round++) {
		rates[0][round] = write_rate(s, s->mine, pinned[0], pinned[1],
					     len);
		rates[1][round] = write_rate(s, s->mine, s->my_mr, s->their_mr,
					     len);
	}
	for (int i = 0; i < 2; i++)
		qsort(rates[i], ROUNDS, sizeof(double), by_value);
	pinned_rate = rates[0][ROUNDS / 2];
	paged_rate = rates[1][ROUNDS / 2];
	test_note("WRITE of %zu bytes: %.0f MB/s pinned, %.0f MB/s on demand: %.2f",
		  len, pinned_rate, paged_rate, paged_rate / pinned_rate);
	return paged_rate / pinned_rate;
}

/* Copy jobs copy 8 KiB and more, but no memory that is paged. */
static void require_rates(struct scene *s, struct ibv_mr *pinned[2], size_t len)
{
	double wanted = len < 8192 ? 0.85 : 0.75;

	for (int attempt = 0; attempt < ATTEMPTS; attempt++)
		if (compare_rates(s, pinned, len) >= wanted || opt.slow > 1)
			return;
	FAIL("no attempt has %.2f of the pinned rate", wanted);
}

/* Whether the queue pairs of the device reach each other by packets (wire_only.sh). */
static bool is_by_wire(struct device *d)
{
	char path[256], now = 0;
	int fd;

	snprintf(path, sizeof(path), "/sys/kernel/debug/ferrule/%s/wire_only",
		 ibv_get_device_name(d->ctx->device));
	fd = open(path, O_RDONLY);
	REQUIRE(fd >= 0);
	REQUIRE_EQ(read(fd, &now, 1), 1);
	close(fd);
	return now == '1' || now == 'Y';
}

/* 1 GiB of addresses, which have less memory than that. */
void figures(void)
{
	const size_t whole = 1ul << 30, part = 1ul << 26;
	struct ibv_mr *pinned[2];
	uint64_t slow, fast;
	struct scene s;
	uint8_t *map;
	int fd = memfd_create("whole", 0);

	REQUIRE_EQ(ftruncate(fd, part), 0);
	map = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(map != MAP_FAILED);
	for (size_t at = 0; at < whole; at += part)
		REQUIRE(mmap(map + at, part, PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0) ==
			map + at);
	scene_open(&s);
	slow = registration_us(&s.p.d, map, whole, ACCESS);
	fast = registration_us(&s.p.d, map, whole, ACCESS | IBV_ACCESS_ON_DEMAND);
	test_note("1 GiB registers in %lu us pinned, in %lu us on demand: %.0f times as fast",
		  slow, fast, slow / (double)fast);
	REQUIRE(slow >= 50 * fast);
	if (is_by_wire(&s.p.d))
		test_skip("packets take most of the time by the wire");
	REQUIRE_EQ(munmap(map, whole), 0);
	close(fd);

	pinned[0] = ibv_reg_mr(s.p.d.pd, s.mine, SIZE, ACCESS);
	pinned[1] = ibv_reg_mr(s.p.d.pd, s.theirs, SIZE, ACCESS);
	REQUIRE(pinned[0] && pinned[1]);
	require_rates(&s, pinned, 65536);
	require_rates(&s, pinned, 4096);
	REQUIRE_ERRNO(ibv_dereg_mr(pinned[0]), 0);
	REQUIRE_ERRNO(ibv_dereg_mr(pinned[1]), 0);
	scene_close(&s);
}
