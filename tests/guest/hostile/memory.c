// SPDX-License-Identifier: GPL-2.0
/* Device memory and buffers of other drivers, under requests that name them. */
#define _GNU_SOURCE
#include "hostile.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LENGTH = 4 * PAGE };

/* Both regions have this address, and one key that comes and goes. */
static void use_passing_key(struct hostile *h, uint64_t addr)
{
	struct peer to = end_address(&h->b.e, &h->r);

	to.addr = addr;
	for (int i = 0; i < 8; i++) {
		struct ibv_sge sge = sge_of(&h->r, below(h, LENGTH),
					    below(h, 2 * LENGTH));

		to.rkey = h->passing_key;
		try_send(&h->a.e, 1, below(h, 2) ? IBV_WR_RDMA_READ :
			 IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 1, &to,
			 below(h, 8) ? below(h, LENGTH) : number(h), 0);
	}
	connect_prey(h);
}

static void *storm_dm(void *arg)
{
	struct hostile own = *(struct hostile *)arg, *h = &own;
	struct ibv_alloc_dm_attr attr = { .length = LENGTH };
	uint8_t bytes[256];

	while (on(h)) {
		struct ibv_dm *dm = ibv_alloc_dm(h->d.ctx, &attr);
		struct ibv_mr *mr;

		if (!dm)
			continue;
		mr = ibv_reg_dm_mr(h->d.pd, dm, 0, LENGTH, ACCESS_ALL |
				   IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_ZERO_BASED);
		if (mr)
			((struct hostile *)arg)->passing_key = mr->rkey;
		ibv_memcpy_to_dm(dm, number(h), bytes, below(h, 256));
		ibv_memcpy_from_dm(bytes, dm, number(h), below(h, 256));
		/* It has a region as yet, so it stays. */
		if (mr && !ibv_free_dm(dm))
			FAIL("device memory went before its region");
		if (mr)
			ibv_dereg_mr(mr);
		if (below(h, 8))
			ibv_free_dm(dm);
	}
	return NULL;
}

/* All that a context may have is taken, and lost with the process. */
void attack_device_memory(struct hostile *h)
{
	pthread_t thread;

	REQUIRE_EQ(pthread_create(&thread, NULL, storm_dm, h), 0);
	while (on(h))
		use_passing_key(h, 0);
	pthread_join(thread, NULL);
}

static void *storm_buffers(void *arg)
{
	struct hostile own = *(struct hostile *)arg, *h = &own;

	while (on(h)) {
		int fd = udmabuf_make(LENGTH, NULL);
		struct ibv_mr *mr;

		if (fd < 0)
			return NULL;
		mr = ibv_reg_dmabuf_mr(h->d.pd, 0, LENGTH, 0, fd, ACCESS_ALL |
				       IBV_ACCESS_REMOTE_READ);
		if (mr)
			((struct hostile *)arg)->passing_key = mr->rkey;
		/* The region holds the buffer. */
		close(fd);
		ibv_reg_dmabuf_mr(h->d.pd, number(h), number(h), 0,
				  below(h, 64), ACCESS_ALL);
		if (mr)
			ibv_dereg_mr(mr);
	}
	return NULL;
}

void attack_buffers(struct hostile *h)
{
	pthread_t thread;

	REQUIRE_EQ(pthread_create(&thread, NULL, storm_buffers, h), 0);
	while (on(h))
		use_passing_key(h, 0);
	pthread_join(thread, NULL);
}
