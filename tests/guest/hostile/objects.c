// SPDX-License-Identifier: GPL-2.0
/* Keys, numbers and handles of others; memory; privileges. */
#define _GNU_SOURCE
#include "hostile.h"

#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>

/* ---- Keys, numbers and handles of others ---- */

/* The status that the request must end with, whatever else is wrong with it. */
static void must_fail(struct hostile *h, const char *what, uint32_t lkey,
		      uint64_t addr, const struct peer *to)
{
	struct ibv_sge sge = { .addr = addr, .length = 64, .lkey = lkey };
	struct ibv_wc wc;

	send_sges(&h->a.e, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 1,
		  to, 0, 0);
	next_wc(h->cq, &wc);
	if (wc.status == IBV_WC_SUCCESS)
		FAIL("%s was granted: key %#x, address %#llx", what,
		     to ? to->rkey : lkey, (unsigned long long)addr);
	connect_prey(h);
}

void attack_keys(struct hostile *h)
{
	struct peer own = end_address(&h->b.e, &h->r);

	while (on(h)) {
		struct peer forged = own;
		uint32_t key = below(h, 2) ? h->n->lkey : h->n->peer.rkey;

		key += below(h, 3) - 1;
		if (below(h, 4) == 0)
			key = number(h);
		if (key == own.rkey)
			continue;
		forged.addr = an_address(h);
		forged.rkey = key;
		must_fail(h, "a remote key", h->r.mr->lkey,
			  (uintptr_t)h->r.data, &forged);
		must_fail(h, "a local key", key, an_address(h), &own);
		/* The key is right, and the bytes lie outside. */
		forged = own;
		forged.addr = own.addr + MEMORY - below(h, 64);
		must_fail(h, "a remote range", h->r.mr->lkey,
			  (uintptr_t)h->r.data, &forged);
		must_fail(h, "a local range", h->r.mr->lkey,
			  (uintptr_t)h->r.data - 1 - below(h, PAGE), &own);
	}
}

/* Connects itself to the neighbour, which is connected to somebody else. */
void attack_stranger(struct hostile *h)
{
	struct ibv_wc wc;

	for (int i = 0; on(h); i++) {
		struct end *e = &h->a.e;

		end_reset(e);
		e->psn = (h->n->peer.psn + i) & 0xffffff;
		end_connect(e, &h->n->peer);
		if (i % 2)
			send_region(e, 1, &h->r, 0, 64);
		else
			send_sges(e, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED,
				  &(struct ibv_sge){ (uintptr_t)h->r.data, 64,
						     h->r.mr->lkey },
				  1, &h->n->peer, 0, 0);
		next_wc(h->cq, &wc);
		if (wc.status == IBV_WC_SUCCESS)
			FAIL("a stranger's message was taken");
	}
}

/*
 * Objects by handles that are not this file's, through the old command
 * interface, which takes numbers as they are.
 */
void attack_handles(struct hostile *h)
{
	static const uint32_t commands[] = {
		IB_USER_VERBS_CMD_DESTROY_QP, IB_USER_VERBS_CMD_DESTROY_CQ,
		IB_USER_VERBS_CMD_DEREG_MR, IB_USER_VERBS_CMD_DEALLOC_PD,
		IB_USER_VERBS_CMD_MODIFY_QP, IB_USER_VERBS_CMD_QUERY_QP,
		IB_USER_VERBS_CMD_REG_MR, IB_USER_VERBS_CMD_CREATE_QP,
		IB_USER_VERBS_CMD_CREATE_CQ, IB_USER_VERBS_CMD_RESIZE_CQ,
		IB_USER_VERBS_CMD_POLL_CQ, IB_USER_VERBS_CMD_POST_SEND,
		IB_USER_VERBS_CMD_POST_RECV, IB_USER_VERBS_CMD_CREATE_AH,
		IB_USER_VERBS_CMD_ATTACH_MCAST, IB_USER_VERBS_CMD_CREATE_SRQ,
		IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, IB_USER_VERBS_CMD_ALLOC_MW,
		IB_USER_VERBS_CMD_POST_SRQ_RECV,
		IB_USER_VERBS_CMD_MODIFY_SRQ, IB_USER_VERBS_CMD_DESTROY_SRQ,
		IB_USER_VERBS_CMD_REREG_MR, IB_USER_VERBS_CMD_DEALLOC_MW,
		IB_USER_VERBS_CMD_OPEN_XRCD, IB_USER_VERBS_CMD_CLOSE_XRCD,
		IB_USER_VERBS_CMD_CREATE_XSRQ, IB_USER_VERBS_CMD_OPEN_QP,
	};
	uint32_t answer[64];

	while (on(h)) {
		struct {
			struct ib_uverbs_cmd_hdr hdr;
			uint32_t words[30];
		} cmd;
		size_t len;

		cmd.hdr.command = commands[below(h, ARRAY_SIZE(commands))];
		cmd.hdr.in_words = 2 + below(h, 31);
		cmd.hdr.out_words = below(h, 2) ? below(h, 64) : 0;
		for (unsigned int i = 0; i < ARRAY_SIZE(cmd.words); i++)
			cmd.words[i] = number(h);
		/* Where commands have the address of their answer. */
		memcpy(cmd.words, &(uint64_t){ (uintptr_t)answer }, 8);
		len = cmd.hdr.in_words * 4;
		if (write(h->d.ctx->cmd_fd, &cmd, len) < 0)
			continue;
	}
}

/* Commands of any object, method and attributes, in the newer interface. */
void attack_commands(struct hostile *h)
{
	char memory[512];

	while (on(h)) {
		struct {
			struct ib_uverbs_ioctl_hdr hdr;
			struct ib_uverbs_attr attr[6];
		} cmd = {
			.hdr = {
				.object_id = below(h, 24),
				.method_id = below(h, 4) ? below(h, 8) :
					(1 << 12) + below(h, 4),
				.num_attrs = below(h, 7),
				.driver_id = FERRULE_DRIVER_ID,
			},
		};

		/*
		 * Where this one fails, as it does in a file that has its
		 * context, Linux 7.2 forgets to give the reference to the
		 * process back that it took: its task_struct stays.
		 */
		if (cmd.hdr.object_id == UVERBS_OBJECT_DEVICE &&
		    cmd.hdr.method_id == UVERBS_METHOD_GET_CONTEXT)
			continue;
		for (unsigned int i = 0; i < cmd.hdr.num_attrs; i++) {
			cmd.attr[i].attr_id = below(h, 4) ? below(h, 12) :
				(1 << 12) + below(h, 4);
			cmd.attr[i].len = below(h, 2) ? below(h, 64) :
				number(h);
			cmd.attr[i].flags = below(h, 2);
			cmd.attr[i].data = below(h, 2) ? (uintptr_t)memory :
				number(h);
		}
		cmd.hdr.length = sizeof(cmd.hdr) +
			cmd.hdr.num_attrs * sizeof(cmd.attr[0]);
		ioctl(h->d.ctx->cmd_fd, RDMA_VERBS_IOCTL, &cmd);
	}
}

/* ---- Memory ---- */

/* Regions over the pages of the rings: the engine's copies go to itself. */
void attack_ring_regions(struct hostile *h)
{
	struct ibv_mr *mr[16] = { };

	for (unsigned int i = 0; i < h->maps; i++) {
		struct mapping *m = &h->map[i];

		mr[i] = ibv_reg_mr(h->d.pd, (void *)m->begin,
				   m->end - m->begin, ACCESS_ALL);
		if (mr[i] && !mapping_writable(m))
			FAIL("a read-only ring was registered to be written");
		if (!mr[i])
			mr[i] = ibv_reg_mr(h->d.pd, (void *)m->begin,
					   m->end - m->begin, 0);
	}
	while (on(h)) {
		for (int i = 0; i < 8; i++) {
			struct ibv_mr *from = mr[below(h, h->maps)];
			struct ibv_mr *to = mr[below(h, h->maps)];
			struct ibv_sge sge;
			struct peer peer;

			if (!from || !to)
				continue;
			sge.addr = (uintptr_t)from->addr;
			sge.length = 1 + below(h, from->length);
			sge.lkey = from->lkey;
			peer.addr = (uintptr_t)to->addr;
			peer.rkey = to->rkey;
			try_send(&h->a.e, 1, IBV_WR_RDMA_WRITE,
				 IBV_SEND_SIGNALED, &sge, 1, &peer, 0, 0);
		}
		connect_prey(h);
	}
	/* The pages stay pinned beyond the end of what they belonged to. */
	ibv_destroy_qp(h->a.e.qp);
	ibv_destroy_qp(h->b.e.qp);
	ibv_destroy_cq(h->cq);
}

/* Regions come and go under requests that name them. */
static void *storm_regions(void *arg)
{
	struct hostile own = *(struct hostile *)arg, *h = &own;

	while (on(h)) {
		struct ibv_mr *mr = ibv_reg_mr(h->d.pd, h->r.data, MEMORY,
					       ACCESS_ALL);

		if (!mr)
			continue;
		((struct hostile *)arg)->passing_key = mr->lkey;
		ibv_dereg_mr(mr);
	}
	return NULL;
}

void attack_regions(struct hostile *h)
{
	struct peer to = end_address(&h->b.e, &h->r);
	pthread_t thread;

	REQUIRE_EQ(pthread_create(&thread, NULL, storm_regions, h), 0);
	while (on(h)) {
		struct ibv_sge sge = { (uintptr_t)h->r.data, MEMORY / 2,
				       h->passing_key };

		to.rkey = h->passing_key;
		for (int i = 0; i < 4; i++)
			try_send(&h->a.e, 1, IBV_WR_RDMA_WRITE,
				 IBV_SEND_SIGNALED, &sge, 1, &to, MEMORY / 2,
				 0);
		connect_prey(h);
	}
	pthread_join(thread, NULL);
}

/* Takes memory away under an on-demand region, and maps it again. */
static void *storm_pages(void *arg)
{
	struct hostile own = *(struct hostile *)arg, *h = &own;
	const int rights[] = { PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE };

	while (on(h)) {
		uint8_t *at = h->r.data + below(h, MEMORY / PAGE) * PAGE;
		size_t len = PAGE * (1 + below(h, 8));

		at = (uint8_t *)((uintptr_t)at & ~(PAGE - 1ul));
		if (at + len > h->r.data + MEMORY)
			continue;
		switch (below(h, 4)) {
		case 0:
			madvise(at, len, MADV_DONTNEED);
			break;
		case 1:
			mprotect(at, len, rights[below(h, 3)]);
			break;
		case 2:
			munmap(at, len);
			break;
		case 3:
			mmap(at, len, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
			break;
		}
	}
	return NULL;
}

/* All addresses are open: rings, memory in a storm, and what is no memory. */
void attack_paging(struct hostile *h)
{
	struct ibv_mr *mr = ibv_reg_mr(h->d.pd, NULL, SIZE_MAX, ACCESS_ALL |
				       IBV_ACCESS_REMOTE_READ |
				       IBV_ACCESS_REMOTE_ATOMIC |
				       IBV_ACCESS_ON_DEMAND);
	pthread_t thread;

	/* A PCI function has none. */
	if (!mr && errno == EOPNOTSUPP)
		return;
	REQUIRE(mr);
	REQUIRE_EQ(pthread_create(&thread, NULL, storm_pages, h), 0);
	while (on(h)) {
		for (int i = 0; i < 8; i++) {
			uint64_t places[] = {
				number(h),
				h->map[below(h, h->maps)].begin,
				(uintptr_t)h->r.data + below(h, MEMORY),
				(uintptr_t)h->r.data + below(h, MEMORY),
			};
			struct ibv_sge sge = {
				places[below(h, 4)], below(h, 4 * PAGE),
				mr->lkey
			};
			struct peer to = {
				.addr = places[below(h, 4)], .rkey = mr->rkey,
			};

			if (below(h, 8) == 0)
				ibv_advise_mr(h->d.pd, below(h, 4), below(h, 2),
					      &sge, 1);
			else
				try_send(&h->a.e, 1, below(h, 2) ?
					 IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
					 IBV_SEND_SIGNALED, &sge, 1, &to, 0, 0);
		}
		connect_prey(h);
	}
	pthread_join(thread, NULL);
	/* It is left with requests that wait. */
}

/* Much is under way when this is killed, and when it forgets to stop. */
void attack_bulk(struct hostile *h)
{
	struct peer to = end_address(&h->b.e, &h->r);
	struct ibv_sge sge = sge_of(&h->r, 0, MEMORY);
	struct ibv_wc wc[16];

	while (on(h)) {
		try_send(&h->a.e, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
			 1, &to, 0, 0);
		ibv_poll_cq(h->cq, ARRAY_SIZE(wc), wc);
	}
}

/* ---- Privileges ---- */

/*
 * A device that it opened as root serves it on, and gives it no more than
 * others have.
 */
void attack_privileges(struct hostile *h)
{
	struct end_config c = { .cq = h->cq };
	struct region big;
	struct end more;

	become_nobody(2 * MEMORY);
	if (ibv_reg_mr(h->d.pd, h->r.map, h->r.map_len, 0))
		FAIL("more was pinned than the limit allows");
	end_make(&more, &h->d, &c);
	end_to_state(&more, IBV_QPS_RTS);
	region_make(&big, &h->d, 1000, 0, ACCESS_ALL);
	recv_region(&h->b.e, 1, &h->r, 0, 100);
	send_region(&h->a.e, 2, &h->r, 0, 100);
	EXPECT_OK(h->cq, 1);
	EXPECT_OK(h->cq, 2);
	attack_handles(h);
}

/* As much as may be pinned, piece by piece, and then more of everything. */
void attack_memlock(struct hostile *h)
{
	const size_t limit = MEMORY + (1 << 20);
	struct ibv_mr *mr[512];
	unsigned int n = 0;
	struct end more[4];
	uint8_t *map;

	become_nobody(limit);
	map = mmap(NULL, limit, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(map != MAP_FAILED);
	while (n < ARRAY_SIZE(mr)) {
		errno = 0;
		mr[n] = ibv_reg_mr(h->d.pd, map + n * PAGE % limit, PAGE,
				   ACCESS_ALL);
		if (!mr[n])
			break;
		n++;
	}
	REQUIRE_EQ(errno, ENOMEM);
	REQUIRE(n <= limit / PAGE);
	/* Queues take nothing of that limit. */
	for (unsigned int i = 0; i < ARRAY_SIZE(more); i++)
		end_make(&more[i], &h->d, NULL);
	while (on(h)) {
		unsigned int i = below(h, n);

		REQUIRE_ERRNO(ibv_dereg_mr(mr[i]), 0);
		mr[i] = ibv_reg_mr(h->d.pd, map, PAGE, ACCESS_ALL);
		REQUIRE(mr[i]);
		REQUIRE_NULL_ERRNO(ibv_reg_mr(h->d.pd, map, PAGE, ACCESS_ALL),
				   ENOMEM);
	}
}
