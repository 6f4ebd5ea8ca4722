// SPDX-License-Identifier: GPL-2.0
/* Other kinds of requests that wait for memory: datagrams, XRC, ATOMIC WRITE, FLUSH. */
#define _GNU_SOURCE
#include "odp.h"

#include <fcntl.h>
#include <sys/mman.h>

enum { GRH = 40, LEN = 2000 };

/*
 * A datagram that comes by the wire does not wait for the receiver's memory:
 * it is dropped, and the page comes for the next one.
 */
static struct ibv_wc until_received(struct end *a, struct end *b,
				    const struct region *sent,
				    struct datagram d)
{
	struct ibv_wc wc;

	for (int attempt = 0; attempt < 20; attempt++) {
		send_datagram(a, 1, sent, d);
		EXPECT_OK(a->scq, 1);
		if (next_wc_within(b->rcq, &wc, 200000ull * opt.slow)) {
			REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
			REQUIRE_EQ(wc.wr_id, 2);
			return wc;
		}
	}
	FAIL("no datagram came of 20");
}

/* Both ends of a datagram lie across two pages that are absent. */
void datagrams(void)
{
	const struct end_config config = { .type = IBV_QPT_UD };
	uint8_t *from = map_anonymous(SIZE), *to = map_anonymous(SIZE);
	struct ibv_ah_attr vector = { .is_global = 1, .port_num = 1 };
	struct region sent = { .len = LEN };
	struct ibv_sge sge;
	struct ibv_ah *ah;
	struct peer self;
	struct end a, b;
	struct device d;

	device_open(&d);
	end_make(&a, &d, &config);
	self = end_address(&a, NULL);
	end_connect(&a, &self);
	end_make(&b, &d, &config);
	self = end_address(&b, NULL);
	end_connect(&b, &self);
	vector.grh.dgid = d.gid;
	vector.grh.sgid_index = d.gid_index;
	vector.grh.hop_limit = 64;
	ah = ibv_create_ah(d.pd, &vector);
	REQUIRE(ah);
	sent.mr = reg(&d, from, SIZE, ACCESS);
	sent.data = from + PAGE - LEN / 2;
	sge = (struct ibv_sge){ (uintptr_t)to + PAGE - LEN / 2, GRH + LEN };
	for (unsigned int round = 1; round <= 8; round++) {
		struct ibv_mr *mr = reg(&d, to, SIZE, ACCESS);
		struct ibv_wc wc;

		drop(to, SIZE);
		if (round % 2)
			drop(from, SIZE);
		else
			fill(sent.data, LEN, round);
		sge.lkey = mr->lkey;
		REQUIRE_ERRNO(try_recv(&b, 2, &sge, 1), 0);
		wc = until_received(&a, &b, &sent, (struct datagram){
				    ah, b.qp->qp_num, QKEY, LEN });
		REQUIRE_EQ(wc.byte_len, GRH + LEN);
		if (round % 2)
			VERIFY_BYTE((uint8_t *)sge.addr + GRH, LEN, 0);
		else
			VERIFY((uint8_t *)sge.addr + GRH, LEN, round);
		REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);
	}
	REQUIRE_ERRNO(ibv_dereg_mr(sent.mr), 0);
	REQUIRE_ERRNO(ibv_destroy_ah(ah), 0);
	end_free(&a);
	end_free(&b);
	device_close(&d);
}

/* ATOMIC WRITE and FLUSH, of memory that comes and of memory that does not. */
void placement(void)
{
	const int access = ACCESS | IBV_ACCESS_FLUSH_GLOBAL;
	const struct end_config config = {
		.access = access,
		.send_ops = IBV_QP_EX_WITH_FLUSH | IBV_QP_EX_WITH_ATOMIC_WRITE,
	};
	struct scene s;

	pair_open(&s.p, &config);
	s.theirs = map_anonymous(SIZE);
	s.their_mr = reg(&s.p.d, s.theirs, SIZE, access);
	s.to = end_address(&s.p.b, NULL);
	s.to.addr = (uintptr_t)s.theirs;
	s.to.rkey = s.their_mr->rkey;
	for (uint64_t round = 1; round <= 8; round++) {
		const size_t place = (round * 5 + 1) * PAGE - 8;

		drop(s.theirs, SIZE);
		send_atomic_write(&s.p.a, 1, IBV_SEND_SIGNALED, &s.to, place,
				  round);
		EXPECT_OK(s.p.a.scq, 1);
		REQUIRE_EQ(*(uint64_t *)(s.theirs + place), round);
		VERIFY_BYTE(s.theirs, place, 0);
		VERIFY_BYTE(s.theirs + place + 8, SIZE - place - 8, 0);

		/* A flush waits for its pages, and what was written before stays. */
		drop(s.theirs, SIZE);
		send_atomic_write(&s.p.a, 2, 0, &s.to, 0, round + 100);
		send_flush(&s.p.a, 3, IBV_SEND_SIGNALED, &s.to, 0, SIZE,
			   IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
		EXPECT_OK(s.p.a.scq, 3);
		REQUIRE_EQ(*(uint64_t *)s.theirs, round + 100);
		drop(s.theirs, SIZE);
		send_flush(&s.p.a, 4, IBV_SEND_SIGNALED, &s.to, 0, 0,
			   IBV_FLUSH_GLOBAL, IBV_FLUSH_MR);
		EXPECT_OK(s.p.a.scq, 4);
		VERIFY_BYTE(s.theirs, SIZE, 0);
	}
	REQUIRE_EQ(munmap(s.theirs, SIZE), 0);
	send_atomic_write(&s.p.a, 5, IBV_SEND_SIGNALED, &s.to, 8, 1);
	EXPECT_WC(s.p.a.scq, 5, IBV_WC_REM_ACCESS_ERR);
	REQUIRE_ERRNO(ibv_dereg_mr(s.their_mr), 0);
	pair_close(&s.p);
}

/* XRC: an initiator, a target, and a queue in their domain. */
struct extended {
	struct device d;
	struct ibv_xrcd *xrcd;
	struct ibv_cq *scq, *rcq;
	struct ibv_srq *srq;
	struct ibv_qp *from, *to;
};

static void extended_open(struct extended *x)
{
	struct ibv_srq_attr queue = { .max_wr = 8, .max_sge = 1 };
	struct ibv_qp_init_attr_ex initiator = {
		.qp_type = IBV_QPT_XRC_SEND,
		.cap = { .max_send_wr = 8, .max_send_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD,
	};

	device_open(&x->d);
	x->xrcd = xrcd_open(&x->d, -1, O_CREAT);
	x->scq = ibv_create_cq(x->d.ctx, 8, NULL, NULL, 0);
	x->rcq = ibv_create_cq(x->d.ctx, 8, NULL, NULL, 0);
	REQUIRE(x->xrcd && x->scq && x->rcq);
	x->srq = xrc_create_srq(&x->d, x->xrcd, x->rcq, &queue);
	x->to = xrc_create_target(&x->d, x->xrcd);
	initiator.pd = x->d.pd;
	initiator.send_cq = x->scq;
	x->from = ibv_create_qp_ex(x->d.ctx, &initiator);
	REQUIRE(x->srq && x->to && x->from);
	xrc_connect(&x->d, x->to, x->from, ACCESS);
	xrc_connect(&x->d, x->from, x->to, ACCESS);
}

static void extended_close(struct extended *x)
{
	REQUIRE_ERRNO(ibv_destroy_qp(x->from), 0);
	REQUIRE_ERRNO(ibv_destroy_qp(x->to), 0);
	REQUIRE_ERRNO(ibv_destroy_srq(x->srq), 0);
	REQUIRE_ERRNO(ibv_destroy_cq(x->scq), 0);
	REQUIRE_ERRNO(ibv_destroy_cq(x->rcq), 0);
	REQUIRE_ERRNO(ibv_close_xrcd(x->xrcd), 0);
	device_close(&x->d);
}

void extended(void)
{
	uint8_t *from = map_anonymous(SIZE), *to = map_anonymous(SIZE);
	struct ibv_sge sge = { (uintptr_t)from, SIZE }, into = { (uintptr_t)to, SIZE };
	struct ibv_recv_wr receive = { .wr_id = 2, .sg_list = &into, .num_sge = 1 };
	struct ibv_send_wr wr = {
		.wr_id = 1, .sg_list = &sge, .num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	struct ibv_recv_wr *bad_receive;
	struct ibv_mr *my_mr, *their_mr;
	struct extended x;

	extended_open(&x);
	my_mr = reg(&x.d, from, SIZE, ACCESS);
	their_mr = reg(&x.d, to, SIZE, ACCESS);
	sge.lkey = my_mr->lkey;
	into.lkey = their_mr->lkey;
	REQUIRE_ERRNO(ibv_get_srq_num(x.srq, &wr.qp_type.xrc.remote_srqn), 0);
	for (unsigned int round = 1; round <= 4; round++) {
		fill(from, SIZE, round);
		drop(to, SIZE);
		REQUIRE_ERRNO(ibv_post_srq_recv(x.srq, &receive, &bad_receive), 0);
		sge.length = SIZE;
		wr.opcode = IBV_WR_SEND;
		REQUIRE_ERRNO(ibv_post_send(x.from, &wr, &bad), 0);
		EXPECT_OK(x.scq, 1);
		EXPECT_OK(x.rcq, 2);
		VERIFY(to, SIZE, round);

		drop(to, SIZE);
		wr.opcode = IBV_WR_RDMA_WRITE;
		wr.wr.rdma.remote_addr = (uintptr_t)to;
		wr.wr.rdma.rkey = their_mr->rkey;
		REQUIRE_ERRNO(ibv_post_send(x.from, &wr, &bad), 0);
		EXPECT_OK(x.scq, 1);
		VERIFY(to, SIZE, round);

		drop(from, SIZE);
		wr.opcode = IBV_WR_RDMA_READ;
		REQUIRE_ERRNO(ibv_post_send(x.from, &wr, &bad), 0);
		EXPECT_OK(x.scq, 1);
		VERIFY(from, SIZE, round);

		/* Both the word and the place of the answer are absent. */
		drop(from, SIZE);
		drop(to, SIZE);
		sge.length = 8;
		wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr.wr.atomic.remote_addr = (uintptr_t)to;
		wr.wr.atomic.rkey = their_mr->rkey;
		wr.wr.atomic.compare_add = round;
		REQUIRE_ERRNO(ibv_post_send(x.from, &wr, &bad), 0);
		EXPECT_OK(x.scq, 1);
		REQUIRE_EQ(*(uint64_t *)from, 0);
		REQUIRE_EQ(*(uint64_t *)to, round);
	}
	REQUIRE_ERRNO(ibv_dereg_mr(my_mr), 0);
	REQUIRE_ERRNO(ibv_dereg_mr(their_mr), 0);
	extended_close(&x);
}
