// SPDX-License-Identifier: GPL-2.0
/* The places of messages: queues that connections share, and memory that is paged on demand. */
#define _GNU_SOURCE
#include "interop.h"

#include <arpa/inet.h>
#include <sys/mman.h>
#include <unistd.h>

static void post_shared(struct ibv_srq *srq, uint64_t wr_id,
			const struct region *r, size_t offset, size_t len)
{
	struct ibv_sge sge = sge_of(r, offset, len);
	struct ibv_recv_wr wr = {
		.wr_id = wr_id, .sg_list = &sge, .num_sge = 1,
	}, *bad;

	REQUIRE_ERRNO(ibv_post_srq_recv(srq, &wr, &bad), 0);
}

static void connect_anew(struct scene *s, struct end *a, struct end *b)
{
	struct peer from, to;

	from = end_address(a, &s->a.r);
	to = end_address(b, &s->b.r);
	end_connect(b, &from);
	end_connect(a, &to);
}

/*
 * Two connections whose responders take from one queue: in its order, whichever
 * of them a message is for; and a message that finds none waits for it.
 */
void shared_queue(bool from_peer)
{
	enum { SIZE = 5000, N = 8 };
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM,
	};
	struct ibv_srq_init_attr init = { .attr = { N, 1 } };
	struct end_config c = rc;
	struct end *a[2], *b[2], second_a, second_b;
	struct ibv_srq *srq;
	uint64_t next = 0;
	struct scene s;

	scene_make(&s, from_peer, &rc, N * SIZE);
	c.timeout = s.a.e.config.timeout;
	end_reset(&s.a.e);
	end_free(&s.b.e);
	srq = ibv_create_srq(s.b.d.pd, &init);
	REQUIRE(srq);
	c.srq = srq;
	end_make(&s.b.e, &s.b.d, &c);
	end_make(&second_b, &s.b.d, &c);
	c.srq = NULL;
	end_make(&second_a, &s.a.d, &c);
	a[0] = &s.a.e;
	b[0] = &s.b.e;
	a[1] = &second_a;
	b[1] = &second_b;
	for (int i = 0; i < 2; i++)
		connect_anew(&s, a[i], b[i]);
	s.to = end_address(&s.b.e, &s.b.r);

	for (unsigned long round = 0; round < rounds(); round++) {
		for (uint64_t i = 0; i < N; i++)
			post_shared(srq, i, &s.b.r, i * SIZE, SIZE);
		memset(s.b.r.data, 0, s.b.r.len);
		for (uint64_t i = 0; i < N; i++, next++) {
			enum ibv_wr_opcode opcode =
				opcodes[next % ARRAY_SIZE(opcodes)];
			bool is_write = opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
			struct ibv_sge sge = sge_of(&s.a.r, 0, SIZE - i);
			int which = next / 2 % 2;
			struct ibv_wc wc;

			fill(s.a.r.data, SIZE, next);
			send_sges(a[which], next, opcode, IBV_SEND_SIGNALED,
				  &sge, 1, &s.to, i * SIZE, htonl(next));
			EXPECT_OK(a[which]->scq, next);
			wc = EXPECT_OK(b[which]->rcq, i);
			REQUIRE_EQ(wc.qp_num, b[which]->qp->qp_num);
			REQUIRE_EQ(wc.byte_len, SIZE - i);
			REQUIRE_EQ(wc.opcode, is_write ?
				   IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
			if (opcode != IBV_WR_SEND)
				REQUIRE_EQ(ntohl(wc.imm_data), next);
			VERIFY(s.b.r.data + i * SIZE, SIZE - i, next);
			VERIFY_BYTE(s.b.r.data + (i + 1) * SIZE - i, i, 0);
		}
		/* None is left. */
		fill(s.a.r.data, SIZE, 3);
		send_region(a[1], 100, &s.a.r, 0, SIZE);
		EXPECT_NO_WC(a[1]->scq);
		post_shared(srq, 101, &s.b.r, 0, SIZE);
		EXPECT_OK(a[1]->scq, 100);
		EXPECT_OK(b[1]->rcq, 101);
		VERIFY(s.b.r.data, SIZE, 3);
	}
	end_free(&second_a);
	end_free(&second_b);
	end_free(&s.b.e);
	REQUIRE_ERRNO(ibv_destroy_srq(srq), 0);
	end_make(&s.b.e, &s.b.d, &rc);
	scene_free(&s);
}

/* Memory of a file, paged on demand; the data stay when its pages are let go. */
static struct region on_demand_region(struct side *s, size_t len, size_t misalign)
{
	struct region r = { .len = len };
	int fd = memfd_create("interop", 0);

	REQUIRE(fd >= 0);
	r.map_len = len + 4096;
	REQUIRE_EQ(ftruncate(fd, r.map_len), 0);
	r.map = mmap(NULL, r.map_len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	REQUIRE(r.map != MAP_FAILED);
	close(fd);
	r.data = r.map + misalign;
	r.mr = ibv_reg_mr(s->d.pd, r.data, len, IBV_ACCESS_LOCAL_WRITE |
			  REMOTE | IBV_ACCESS_ON_DEMAND);
	if (!r.mr)
		FAIL("ibv_reg_mr: %s", strerror(errno));
	return r;
}

/* Each operation from and to memory of this side that is not there. */
void on_demand(bool from_peer)
{
	enum { SIZE = 64 * 4096 };
	static const size_t lengths[] = { 1, 4096, 70000, SIZE };
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
	};
	struct region kept;
	struct side *ours;
	struct scene s;

	scene_make(&s, from_peer, &rc, SIZE);
	ours = from_peer ? &s.b : &s.a;
	REQUIRE(!is_rxe(ours));
	kept = ours->r;
	ours->r = on_demand_region(ours, SIZE, from_peer ? MISALIGN_B :
						       MISALIGN_A);
	s.to = end_address(&s.b.e, &s.b.r);
	for (size_t i = 0; i < rounds() * ARRAY_SIZE(lengths) *
			       ARRAY_SIZE(opcodes); i++) {
		enum ibv_wr_opcode opcode = opcodes[i % ARRAY_SIZE(opcodes)];
		size_t len = lengths[i / ARRAY_SIZE(opcodes) %
				     ARRAY_SIZE(lengths)];
		bool is_read = opcode == IBV_WR_RDMA_READ;
		struct region *from = is_read ? &s.b.r : &s.a.r;
		struct region *into = is_read ? &s.a.r : &s.b.r;
		struct ibv_sge sge = sge_of(&s.a.r, 0, len);

		fill(from->data, len, i);
		memset(into->data, 0, SIZE);
		if (opcode == IBV_WR_SEND)
			recv_region(&s.b.e, i, &s.b.r, 0, len);
		REQUIRE_EQ(madvise(ours->r.map, ours->r.map_len, MADV_DONTNEED),
			   0);
		send_sges(&s.a.e, i, opcode, IBV_SEND_SIGNALED, &sge, 1, &s.to,
			  0, 0);
		EXPECT_OK(s.a.e.scq, i);
		if (opcode == IBV_WR_SEND)
			EXPECT_OK(s.b.e.rcq, i);
		VERIFY(into->data, len, i);
		VERIFY_BYTE(into->data + len, SIZE - len, 0);
	}
	/* A word of theirs, and the old value here. */
	for (uint64_t i = 0; i < 20; i++) {
		uint64_t old = 100 + i;

		memcpy(s.b.r.data + WORD, &old, sizeof(old));
		REQUIRE_EQ(madvise(ours->r.map, ours->r.map_len, MADV_DONTNEED),
			   0);
		post_atomic(&s, i, IBV_WR_ATOMIC_FETCH_AND_ADD,
			    IBV_SEND_SIGNALED, 4095, WORD, 5, 0);
		EXPECT_OK(s.a.e.scq, i);
		REQUIRE(!memcmp(s.a.r.data + 4095, &old, sizeof(old)));
		old += 5;
		REQUIRE(!memcmp(s.b.r.data + WORD, &old, sizeof(old)));
	}
	REQUIRE_ERRNO(ibv_dereg_mr(ours->r.mr), 0);
	REQUIRE_EQ(munmap(ours->r.map, ours->r.map_len), 0);
	ours->r = kept;
	scene_free(&s);
}
