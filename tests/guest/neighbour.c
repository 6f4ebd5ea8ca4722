// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE
#include "neighbour.h"

#include <unistd.h>

enum {
	MEMORY = 40000,		/* bytes of each region; not whole pages */
	SMALL = 3000,
	/* So often all of the memory is looked at, and all of it is moved. */
	THOROUGH = 32,
};

struct home {
	struct neighbour *n;
	struct device d;
	struct end a, b;
	struct region from, to;
};

/* Nothing but the bytes of the last transfer may have changed. */
static void check_transfer(struct home *h, size_t offset, size_t len,
			   uint64_t seed)
{
	VERIFY(h->to.data + offset, len, seed);
	if (seed % THOROUGH == 0) {
		VERIFY_BYTE(h->to.data, offset, 0);
		VERIFY_BYTE(h->to.data + offset + len, MEMORY - offset - len,
			    0);
		VERIFY(h->from.data + offset, len, seed);
		REGION_CHECK(&h->from);
		REGION_CHECK(&h->to);
	}
	memset(h->to.data + offset, 0, len);
}

#define ACCESS_READ (ACCESS_ALL | IBV_ACCESS_REMOTE_READ)

/* By turns a SEND, an RDMA WRITE and an RDMA READ, in both directions. */
static void transfer(struct home *h, uint64_t i)
{
	size_t max = i % THOROUGH ? SMALL : MEMORY;
	size_t len = 1 + i * 7919 % max;
	size_t offset = i * 104729 % (MEMORY - len + 1);
	struct end *from = i & 2 ? &h->a : &h->b;
	struct end *to = i & 2 ? &h->b : &h->a;
	bool read = i % 3 == 2, send = i % 3 == 1;
	struct region *local = read ? &h->to : &h->from;
	struct region *remote = read ? &h->from : &h->to;
	struct peer peer = end_address(to, remote);
	struct ibv_sge sge = sge_of(local, offset, len);
	struct ibv_wc wc;

	fill(h->from.data + offset, len, i);
	if (send)
		recv_region(to, i, &h->to, offset, len);
	send_sges(from, i, send ? IBV_WR_SEND :
		  read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
		  IBV_SEND_SIGNALED, &sge, 1, &peer, offset, 0);
	EXPECT_OK(from->scq, i);
	if (send) {
		wc = EXPECT_OK(to->rcq, i);
		REQUIRE_EQ(wc.byte_len, len);
		REQUIRE_EQ(wc.qp_num, to->qp->qp_num);
	}
	check_transfer(h, offset, len, i);
}

static void neighbour_main(void *arg)
{
	struct end_config c = { .access = ACCESS_READ };
	struct home h = { .n = arg };
	struct neighbour *n = h.n;
	uint64_t begin, us;

	/*
	 * A process that yields has the processor again behind all that ask for
	 * it, some milliseconds later. But the case is about the time that the
	 * engine takes.
	 */
	looks_before_rest = 10000;
	device_open(&h.d);
	ends_make(&h.a, &h.b, &h.d, &c);
	region_make(&h.from, &h.d, MEMORY, 123, ACCESS_READ);
	region_make(&h.to, &h.d, MEMORY, 57, ACCESS_ALL);
	n->peer = end_address(&h.a, &h.to);
	n->lkey = h.from.mr->lkey;
	put_bytes(n->ready[1], "", 1);
	/* As long as the case: its time limit ends this process, too. */
	alarm(0);
	while (!n->stop) {
		begin = now_us();
		transfer(&h, n->transfers + 1);
		us = now_us() - begin;
		if (us > n->longest_us)
			n->longest_us = us;
		n->transfers++;
	}
	REQUIRE_EQ(end_state(&h.a), IBV_QPS_RTS);
	REQUIRE_EQ(end_state(&h.b), IBV_QPS_RTS);
	expect_no_async(h.d.ctx);
	EXPECT_NO_WC(h.a.scq);
	EXPECT_NO_WC(h.a.rcq);
	EXPECT_NO_WC(h.b.scq);
	EXPECT_NO_WC(h.b.rcq);
	end_free(&h.a);
	end_free(&h.b);
	region_free(&h.from);
	region_free(&h.to);
	device_close(&h.d);
}

struct neighbour *neighbour_start(void)
{
	struct neighbour *n = shared_map(sizeof(*n));
	char byte;

	REQUIRE_EQ(pipe(n->ready), 0);
	n->pid = fork_process(neighbour_main, n);
	close(n->ready[1]);
	get_bytes(n->ready[0], &byte, 1);
	close(n->ready[0]);
	return n;
}

void neighbour_await(struct neighbour *n, uint64_t transfers)
{
	uint64_t want = n->transfers + transfers;
	uint64_t end = now_us() + PATIENCE_US;

	while (n->transfers < want) {
		if (now_us() > end)
			FAIL("the neighbour has stopped after %llu transfers",
			     (unsigned long long)n->transfers);
		sleep_us(1000);
	}
}

void neighbour_stop(struct neighbour *n)
{
	n->stop = true;
	join_process(n->pid);
	test_note("the neighbour made %llu transfers, the longest took %.1f ms",
		  (unsigned long long)n->transfers, n->longest_us / 1e3);
	shared_unmap(n, sizeof(*n));
}
