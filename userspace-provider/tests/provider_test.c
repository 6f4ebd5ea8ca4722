// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Tests of the provider that need neither module nor guest. */
#define _GNU_SOURCE

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ccan/array_size.h>

#include "fake_kernel.h"

static struct ibv_cq *new_cq(int cqe)
{
	struct ibv_cq *cq = fake.ops->create_cq(fake.context, cqe, NULL, 0);

	CHECK(cq);
	return cq;
}

static struct ibv_qp *new_qp(enum ibv_qp_type type, struct ibv_cq *cq,
			     uint32_t depth)
{
	struct ibv_pd pd = { .context = fake.context };
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = depth, .max_recv_wr = depth },
		.qp_type = type,
	};
	struct ibv_qp *qp = fake.ops->create_qp(&pd, &attr);

	CHECK(qp);
	CHECK(attr.cap.max_inline_data == 64);
	qp->state = IBV_QPS_RTS;
	return qp;
}

static int post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;
	int ret = fake.ops->post_send(qp, wr, &bad);

	CHECK(!ret == !bad);
	return ret;
}

static int post_id(struct ibv_qp *qp, uint64_t wr_id)
{
	struct ibv_send_wr wr = { .wr_id = wr_id, .opcode = IBV_WR_SEND };

	return post(qp, &wr);
}

static int poll(struct ibv_cq *cq, int num, struct ibv_wc *wc)
{
	return fake.ops->poll_cq(cq, num, wc);
}

/* Slots hold what was asked for, and zero where nothing was. */
static void test_send_wqe(void)
{
	struct ibv_sge sges[5] = {
		{ .addr = 0x1122334455667788, .length = 3, .lkey = 0x99 },
		{ .addr = 8, .length = 4, .lkey = 5 },
	};
	struct ibv_qp *qp = new_qp(IBV_QPT_RC, new_cq(16), 16);
	struct fake_qp *fqp = fake_qp(qp);
	struct ferrule_send_wqe want = {};
	struct ferrule_send_wqe *wqe;
	struct ferrule_sge *sge;
	struct ibv_send_wr wr = {
		.wr_id = 0x123456789abcdef0,
		.sg_list = sges,
		.num_sge = 2,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED,
		.imm_data = htobe32(0x01020304),
		.wr.rdma = { .remote_addr = 0x42, .rkey = 0x43 },
	};

	CHECK(!post(qp, &wr));
	wqe = fake_send_slot(fqp, 0);
	sge = (struct ferrule_sge *)(wqe + 1);
	want.wr_id = htole64(wr.wr_id);
	want.opcode = FERRULE_WR_RDMA_WRITE_WITH_IMM;
	want.flags = FERRULE_WR_SIGNALED | FERRULE_WR_SOLICITED;
	want.num_sge = htole16(2);
	want.remote_addr = htole64(0x42);
	want.rkey = htole32(0x43);
	memcpy(want.imm_or_inv, "\1\2\3\4", 4);
	CHECK(!memcmp(wqe, &want, sizeof(want)));
	CHECK(le64toh(sge[0].addr) == 0x1122334455667788);
	CHECK(le32toh(sge[0].length) == 3 && le32toh(sge[0].lkey) == 0x99);
	CHECK(le64toh(sge[1].addr) == 8);

	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr.num_sge = 1;
	wr.send_flags = IBV_SEND_FENCE;
	wr.wr.atomic.remote_addr = 0x50;
	wr.wr.atomic.compare_add = 0x51;
	wr.wr.atomic.swap = 0x52;
	wr.wr.atomic.rkey = 0x53;
	CHECK(!post(qp, &wr));
	wqe = fake_send_slot(fqp, 1);
	CHECK(wqe->opcode == FERRULE_WR_ATOMIC_FETCH_AND_ADD);
	CHECK(wqe->flags == FERRULE_WR_FENCE);
	CHECK(le64toh(wqe->remote_addr) == 0x50);
	CHECK(le64toh(wqe->atomic.compare_add) == 0x51 && !wqe->atomic.swap);
	CHECK(le32toh(wqe->rkey) == 0x53);

	wr.opcode = IBV_WR_SEND_WITH_INV;
	wr.invalidate_rkey = 0x0a0b0c0d;
	wr.send_flags = IBV_SEND_INLINE;
	sges[0].addr = (uintptr_t)"abc";
	sges[0].length = 3;
	sges[1].addr = (uintptr_t)"defgh";
	sges[1].length = 5;
	wr.num_sge = 2;
	CHECK(!post(qp, &wr));
	wqe = fake_send_slot(fqp, 2);
	CHECK(wqe->flags == FERRULE_WR_INLINE && !wqe->num_sge);
	CHECK(le32toh(wqe->inline_len) == 8);
	CHECK(!memcmp(wqe + 1, "abcdefgh", 8));
	CHECK(!memcmp(wqe->imm_or_inv, "\x0d\x0c\x0b\x0a", 4));
	CHECK(!wqe->remote_addr && !wqe->rkey);

	wr.opcode = IBV_WR_LOCAL_INV;
	wr.send_flags = 0;
	CHECK(!post(qp, &wr));
	wqe = fake_send_slot(fqp, 3);
	CHECK(wqe->opcode == FERRULE_WR_LOCAL_INV && !wqe->num_sge);
	CHECK(!memcmp(wqe->imm_or_inv, "\x0d\x0c\x0b\x0a", 4));

	CHECK(le32toh(fqp->ctrl->sq_producer) == 4);
}

static void check_bind(const struct ferrule_send_wqe *wqe, uint32_t mw_rkey,
		       uint32_t key, uint32_t lkey)
{
	CHECK(wqe->opcode == FERRULE_WR_BIND_MW && !wqe->num_sge);
	CHECK(wqe->flags == FERRULE_WR_SIGNALED && !wqe->inline_len);
	CHECK(le64toh(wqe->remote_addr) == 0x123456789a);
	CHECK(le32toh(wqe->rkey) == key);
	CHECK(wqe->imm_or_inv[0] == lkey && !wqe->imm_or_inv[1]);
	CHECK(le32toh(wqe->bind.mw_rkey) == mw_rkey);
	CHECK(le32toh(wqe->bind.access) == IBV_ACCESS_REMOTE_READ);
	CHECK(le64toh(wqe->bind.length) == 0x1000000001);
}

static void test_bind(void)
{
	struct ibv_qp *qp = new_qp(IBV_QPT_RC, new_cq(8), 2);
	struct ibv_mr mr = { .lkey = 0x77 };
	struct ibv_mw mw = { .context = fake.context, .rkey = 0x800001ff };
	struct ibv_mw_bind bind = {
		.wr_id = 5,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = {
			.mr = &mr,
			.addr = 0x123456789a,
			.length = 0x1000000001,
			.mw_access_flags = IBV_ACCESS_REMOTE_READ,
		},
	};
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = {
			.mw = &mw,
			.rkey = 0x80000142,
			.bind_info = bind.bind_info,
		},
	};

	/* The verb is for windows of type 1, and makes the next key itself. */
	mw.type = IBV_MW_TYPE_1;
	CHECK(!fake.ops->bind_mw(qp, &mw, &bind));
	CHECK(mw.rkey == 0x80000100);
	check_bind(fake_send_slot(fake_qp(qp), 0), 0x800001ff, 0x80000100,
		   0x77);
	CHECK(post(qp, &wr) == EINVAL);
	/* The request is for windows of type 2, whose keys the program makes. */
	mw.type = IBV_MW_TYPE_2;
	CHECK(!post(qp, &wr));
	CHECK(mw.rkey == 0x80000100);
	check_bind(fake_send_slot(fake_qp(qp), 1), 0x80000100, 0x80000142,
		   0x77);
	/* The queue is full; the key stays. */
	CHECK(fake.ops->bind_mw(qp, &mw, &bind) == ENOMEM);
	CHECK(mw.rkey == 0x80000100);
	bind.bind_info.mw_access_flags = IBV_ACCESS_ZERO_BASED;
	CHECK(fake.ops->bind_mw(qp, &mw, &bind) == EINVAL);
}

static void test_send_errors(void)
{
	uint8_t data[65];
	struct ibv_sge sges[5] = {
		{ .addr = (uintptr_t)data, .length = sizeof(data) },
	};
	struct ibv_qp *qp = new_qp(IBV_QPT_RC, new_cq(8), 3);
	struct ibv_qp *uc = new_qp(IBV_QPT_UC, new_cq(8), 3);
	struct ibv_qp *ud = new_qp(IBV_QPT_UD, new_cq(8), 3);
	struct fake_qp *fqp = fake_qp(qp);
	struct ibv_send_wr wr = { .sg_list = sges, .opcode = IBV_WR_SEND };
	struct ibv_send_wr chain[4] = {};
	struct ibv_send_wr *bad;
	unsigned int i;

	for (i = IBV_QPS_RESET; i < IBV_QPS_RTS; i++) {
		qp->state = i;
		CHECK(post(qp, &wr) == EINVAL);
	}
	qp->state = IBV_QPS_RTS;

	wr.num_sge = 5;
	CHECK(post(qp, &wr) == EINVAL);
	wr.num_sge = -1;
	CHECK(post(qp, &wr) == EINVAL);
	wr.num_sge = 1;
	wr.send_flags = IBV_SEND_INLINE;
	CHECK(post(qp, &wr) == EINVAL);
	sges[0].length = 8;
	wr.opcode = IBV_WR_RDMA_READ;
	CHECK(post(qp, &wr) == EINVAL);
	wr.send_flags = IBV_SEND_IP_CSUM;
	CHECK(post(qp, &wr) == EINVAL);
	wr.send_flags = 0;
	wr.opcode = IBV_WR_BIND_MW;
	CHECK(post(qp, &wr) == EINVAL);
	wr.opcode = IBV_WR_TSO;
	CHECK(post(qp, &wr) == EINVAL);
	wr.opcode = IBV_WR_ATOMIC_WRITE;
	CHECK(post(qp, &wr) == EINVAL);
	wr.opcode = -1;
	CHECK(post(qp, &wr) == EINVAL);

	wr.opcode = IBV_WR_RDMA_WRITE;
	CHECK(post(ud, &wr) == EINVAL);
	wr.opcode = IBV_WR_SEND;
	CHECK(post(ud, &wr) == EINVAL); /* without an address handle */
	wr.opcode = IBV_WR_SEND_WITH_INV;
	CHECK(post(ud, &wr) == EINVAL);
	CHECK(post(uc, &wr) == EINVAL);
	wr.opcode = IBV_WR_LOCAL_INV;
	CHECK(post(ud, &wr) == EINVAL);
	CHECK(!post(uc, &wr));

	CHECK(!fqp->ctrl->sq_producer);

	/* The good ones before the bad one are posted. Three fit, in 4 slots. */
	for (i = 0; i < 4; i++) {
		chain[i].wr_id = i;
		chain[i].opcode = IBV_WR_SEND;
		chain[i].next = i < 3 ? &chain[i + 1] : NULL;
	}
	CHECK(fake.ops->post_send(qp, chain, &bad) == ENOMEM);
	CHECK(bad == &chain[3]);
	CHECK(le32toh(fqp->ctrl->sq_producer) == 3);

	fake.status->dead = htole32(1);
	CHECK(post(qp, &wr) == EIO);
	fake.status->dead = 0;
}

static void test_recv(void)
{
	struct ibv_sge sges[8] = { { .addr = 1, .length = 2, .lkey = 3 } };
	struct ibv_qp *qp = new_qp(IBV_QPT_RC, new_cq(8), 2);
	struct fake_qp *fqp = fake_qp(qp);
	struct ibv_recv_wr wr = { .wr_id = 7, .sg_list = sges, .num_sge = 8 };
	struct ibv_recv_wr *bad = NULL;
	struct ferrule_recv_wqe *wqe;
	struct ferrule_cqe cqe = {
		.qp_num = htole32(fqp->qp_num),
		.qp_gen = htole32(fqp->layout.qp_gen),
		.opcode = FERRULE_WC_RECV,
		.queue_index = htole32(1),
	};
	struct ibv_wc wc;

	CHECK(fake.ops->post_recv(qp, &wr, &bad) == EINVAL && bad == &wr);
	wr.num_sge = 1;
	qp->state = IBV_QPS_RESET;
	CHECK(fake.ops->post_recv(qp, &wr, &bad) == EINVAL);
	qp->state = IBV_QPS_INIT;
	CHECK(!fake.ops->post_recv(qp, &wr, &bad));
	wqe = fake_recv_slot(fqp, 0);
	CHECK(le64toh(wqe->wr_id) == 7 && le16toh(wqe->num_sge) == 1);
	CHECK(!memcmp(wqe->reserved, "\0\0\0\0\0\0", 6));
	CHECK(le32toh(((struct ferrule_sge *)(wqe + 1))->lkey) == 3);
	CHECK(!fake.db->seq);

	/* In error, the engine asks for the doorbell. */
	fqp->ctrl->rq_doorbell = htole32(1);
	CHECK(!fake.ops->post_recv(qp, &wr, &bad));
	CHECK(le32toh(fake.db->seq) == 1);

	CHECK(fake.ops->post_recv(qp, &wr, &bad) == ENOMEM);
	fake_complete(fqp->recv_cq, cqe);
	CHECK(poll(qp->recv_cq, 1, &wc) == 1);
	CHECK(!fake.ops->post_recv(qp, &wr, &bad));
	CHECK(fake.ops->post_recv(qp, &wr, &bad) == ENOMEM);
}

static unsigned int visits;

static void count_visit(struct fake_qp *qp)
{
	visits++;
}

static int post_srq(struct ibv_srq *srq, struct ibv_recv_wr *wr)
{
	struct ibv_recv_wr *bad = NULL;
	int ret = fake.ops->post_srq_recv(srq, wr, &bad);

	CHECK(!ret == !bad);
	return ret;
}

/* A shared receive queue: slots are free when the engine says so. */
static void test_srq(void)
{
	struct ibv_sge sges[4] = { { .addr = 1, .length = 2, .lkey = 3 } };
	struct ibv_pd pd = { .context = fake.context };
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 3 } };
	struct ibv_srq *srq = fake.ops->create_srq(&pd, &attr);
	struct ibv_recv_wr wr = { .wr_id = 7, .sg_list = sges, .num_sge = 1 };
	struct ferrule_recv_wqe *wqe;
	struct fake_srq *fsrq;

	CHECK(srq);
	fsrq = fake_srq(srq);
	CHECK(fsrq->layout.depth == 4);
	CHECK(!post_srq(srq, &wr));
	wqe = fake_srq_slot(fsrq, 0);
	CHECK(le64toh(wqe->wr_id) == 7 && le16toh(wqe->num_sge) == 1);
	CHECK(!memcmp(wqe->reserved, "\0\0\0\0\0\0", 6));
	CHECK(le64toh(((struct ferrule_sge *)(wqe + 1))->addr) == 1);
	CHECK(le32toh(fsrq->ctrl->producer) == 1);

	wr.num_sge = 4;
	CHECK(post_srq(srq, &wr) == EINVAL);
	wr.num_sge = -1;
	CHECK(post_srq(srq, &wr) == EINVAL);
	wr.num_sge = 3;
	CHECK(!post_srq(srq, &wr));
	CHECK(!post_srq(srq, &wr));
	/* Three were asked for, though there are four slots. */
	CHECK(post_srq(srq, &wr) == ENOMEM);
	CHECK(le32toh(fsrq->ctrl->producer) == 3);
	fsrq->ctrl->consumer = htole32(2);
	CHECK(!post_srq(srq, &wr));
	CHECK(!post_srq(srq, &wr));
	CHECK(post_srq(srq, &wr) == ENOMEM);
	CHECK(le32toh(fsrq->ctrl->producer) == 5);
	/* Nothing of this rings or kicks. */
	CHECK(!fake.db->seq && !fake.kicks);

	fake.status->dead = htole32(1);
	fsrq->ctrl->consumer = htole32(5);
	CHECK(post_srq(srq, &wr) == EIO);
	CHECK(!fake.ops->destroy_srq(srq));
}

static void test_doorbell(void)
{
	struct ibv_cq *cq = new_cq(64);
	struct ibv_qp *a = new_qp(IBV_QPT_RC, cq, 16);
	struct ibv_qp *b = new_qp(IBV_QPT_RC, cq, 16);

	/* One bit each, and one ring of a bit that is rung. */
	CHECK(!post_id(a, 0) && !post_id(a, 1) && !post_id(b, 0));
	CHECK(fake.leaf[0] == htole64(1ULL << 17));
	CHECK(fake.leaf[1] == htole64(1ULL << 17));
	CHECK(fake.db->top[0] == htole64(3));
	CHECK(fake_scan(count_visit) == 2 && visits == 2);
	CHECK(!fake_scan(count_visit));

	/* Back again. */
	CHECK(!post_id(a, 2));
	CHECK(!fake.leaf[0] && fake.db->top[0] == htole64(2));
	CHECK(fake_scan(count_visit) == 1);

	CHECK(!fake.kicks);
	fake.status->sleeping = htole32(1);
	CHECK(!post_id(a, 3));
	CHECK(fake.kicks == 1);
	fake.status->sleeping = 0;
}

/* Three laps over both rings, with one completion for several requests. */
static void test_credit(void)
{
	struct ibv_cq *cq = new_cq(4);
	struct ibv_qp *qp = new_qp(IBV_QPT_RC, cq, 4);
	struct fake_qp *fqp = fake_qp(qp);
	struct ibv_wc wc[4];
	uint32_t lap, i;

	CHECK(!poll(cq, 4, wc));
	for (lap = 0; lap < 12; lap++) {
		for (i = 0; i < 4; i++)
			CHECK(!post_id(qp, lap * 4 + i));
		CHECK(post_id(qp, 0) == ENOMEM);

		fake_complete_send(fqp, lap * 4 + 1, lap * 4 + 2);
		CHECK(poll(cq, 4, wc) == 1);
		CHECK(wc[0].wr_id == lap * 4 + 1 && !wc[0].status);
		CHECK(wc[0].qp_num == qp->qp_num);
		CHECK(le32toh(fake_cq(cq)->ctrl->consumer) == lap * 3 + 1);

		fake_complete_send(fqp, lap * 4 + 2, lap * 4 + 3);
		fake_complete_send(fqp, lap * 4 + 3, lap * 4 + 4);
		CHECK(poll(cq, 1, wc) == 1 && wc[0].wr_id == lap * 4 + 2);
		CHECK(poll(cq, 4, wc) == 1 && wc[0].wr_id == lap * 4 + 3);
	}
}

/* Completions are taken in order through all rings that the queue had. */
static void test_resize(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	struct ibv_cq *cq = new_cq(8);
	struct ibv_qp *qp = new_qp(IBV_QPT_RC, cq, 8);
	struct fake_qp *fqp = fake_qp(qp);
	struct ibv_wc wc[8];
	uint32_t n = 0, taken = 0, i;

	/* Not from the start of the ring, nor in its first lap. */
	for (; n < 11; n++) {
		fake_complete_send(fqp, n, n + 1);
		CHECK(poll(cq, 1, wc) == 1 && wc[0].wr_id == taken++);
	}
	for (i = 0; i < 3; i++, n++)
		fake_complete_send(fqp, n, n + 1);
	CHECK(!fake.ops->resize_cq(cq, 16));
	CHECK(cq->cqe == 16);
	CHECK(poll(cq, 2, wc) == 2 && wc[1].wr_id == 12);
	taken += 2;
	for (i = 0; i < 2; i++, n++)
		fake_complete_send(fqp, n, n + 1);
	/* Twice with nothing between, and smaller. */
	CHECK(!fake.ops->resize_cq(cq, 2));
	CHECK(!fake.ops->resize_cq(cq, 4));
	fake_complete_send(fqp, n, n + 1);
	n++;
	CHECK(poll(cq, 8, wc) == 4);
	for (i = 0; i < 4; i++)
		CHECK(wc[i].wr_id == taken++);
	CHECK(!poll(cq, 8, wc));
	CHECK(le32toh(fake_cq(cq)->ctrl->consumer) == n && taken == n);
	for (i = 0; i < 30; i++, n++) {
		fake_complete_send(fqp, n, n + 1);
		CHECK(poll(cq, 8, wc) == 1 && wc[0].wr_id == taken++);
	}

	/* What was written before a reset is not seen, whichever ring it is in. */
	fake_complete_send(fqp, 100, 1);
	CHECK(!fake.ops->resize_cq(cq, 8));
	fake_complete_send(fqp, 101, 2);
	CHECK(!fake.ops->modify_qp(qp, &attr, IBV_QP_STATE));
	qp->state = IBV_QPS_RTS;
	fake_complete_send(fqp, 102, 1);
	CHECK(poll(cq, 8, wc) == 1 && wc[0].wr_id == 102);

	/* A queue goes with rings that were not emptied. */
	fake_complete_send(fqp, 103, 2);
	CHECK(!fake.ops->resize_cq(cq, 8));
	CHECK(!fake.ops->resize_cq(cq, 8));
	CHECK(!fake.ops->destroy_qp(qp));
	CHECK(!fake.ops->destroy_cq(cq));
}

/* Completions of a destroyed queue pair, or of before a reset, are not seen. */
static void test_stale(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	struct ibv_cq *cq = new_cq(16);
	struct ibv_qp *gone, *qp;
	struct fake_qp *fqp;
	struct ibv_wc wc[8];

	gone = new_qp(IBV_QPT_RC, cq, 4);
	fake_complete_send(fake_qp(gone), 1, 1);
	fake_complete_send(fake_qp(gone), 2, 2);
	/* The next one gets the number at once. */
	fake.next_qp_num = gone->qp_num;
	CHECK(!fake.ops->destroy_qp(gone));
	qp = new_qp(IBV_QPT_RC, cq, 4);
	fqp = fake_qp(qp);
	CHECK(!post_id(qp, 0) && !post_id(qp, 1) && !post_id(qp, 2));
	fake_complete_send(fqp, 3, 1);
	CHECK(poll(cq, 8, wc) == 1 && wc[0].wr_id == 3);

	fake_complete_send(fqp, 4, 2);
	CHECK(!fake.ops->modify_qp(qp, &attr, IBV_QP_STATE));
	CHECK(qp->state == IBV_QPS_RESET);
	CHECK(!fqp->ctrl->sq_producer && !fqp->ctrl->rq_producer);
	qp->state = IBV_QPS_RTS;
	CHECK(!post_id(qp, 5) && !post_id(qp, 6));
	fake_complete_send(fqp, 5, 1);
	CHECK(poll(cq, 8, wc) == 1 && wc[0].wr_id == 5);
	CHECK(!post_id(qp, 7) && !post_id(qp, 8) && !post_id(qp, 9));
	CHECK(post_id(qp, 10) == ENOMEM);

	/* Likewise when the destroyed one's number has no owner. */
	fake_complete_send(fqp, 6, 2);
	CHECK(!fake.ops->destroy_qp(qp));
	CHECK(!poll(cq, 8, wc));
	CHECK(!fake.ops->destroy_cq(cq));
}

static void test_poll_ex(void)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 8,
		.wc_flags = IBV_WC_STANDARD_FLAGS |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
	};
	struct ibv_values_ex clock = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	struct ibv_poll_cq_attr poll_attr = {};
	struct ibv_cq_ex *cq;
	struct fake_qp *fqp;
	struct ibv_wc wc;
	struct ferrule_cqe cqe = {
		.wr_id = htole64(5),
		.byte_len = htole32(6),
		.imm_or_inv = { 1, 2, 3, 4 },
		.src_qp = htole32(7),
		.opcode = FERRULE_WC_RECV,
		.flags = FERRULE_WC_WITH_IMM,
		.sl = 3,
		.vendor_err = htole16(9),
	};

	attr.wc_flags |= IBV_WC_EX_WITH_CVLAN;
	CHECK(!fake.ops->create_cq_ex(fake.context, &attr));
	CHECK(errno == EOPNOTSUPP);
	attr.wc_flags &= ~IBV_WC_EX_WITH_CVLAN;
	cq = fake.ops->create_cq_ex(fake.context, &attr);
	CHECK(cq);
	fqp = fake_qp(new_qp(IBV_QPT_RC, ibv_cq_ex_to_cq(cq), 4));
	cqe.qp_num = htole32(fqp->qp_num);
	cqe.qp_gen = htole32(fqp->layout.qp_gen);

	CHECK(ibv_start_poll(cq, &poll_attr) == ENOENT);
	CHECK(!fake.ops->query_rt_values(fake.context, &clock));
	cqe.timestamp = htole64(clock.raw_clock.tv_nsec);
	fake_complete(fqp->recv_cq, cqe);
	cqe.flags = FERRULE_WC_WITH_INV;
	cqe.status = FERRULE_WC_WR_FLUSH_ERR;
	fake_complete(fqp->recv_cq, cqe);
	fake_complete(fqp->recv_cq, cqe);

	CHECK(!ibv_start_poll(cq, &poll_attr));
	CHECK(cq->wr_id == 5 && cq->status == IBV_WC_SUCCESS);
	CHECK(ibv_wc_read_opcode(cq) == IBV_WC_RECV);
	CHECK(ibv_wc_read_byte_len(cq) == 6 && ibv_wc_read_src_qp(cq) == 7);
	CHECK(ibv_wc_read_imm_data(cq) == htobe32(0x01020304));
	CHECK(ibv_wc_read_wc_flags(cq) == IBV_WC_WITH_IMM);
	CHECK(ibv_wc_read_sl(cq) == 3 && ibv_wc_read_vendor_err(cq) == 9);
	CHECK(ibv_wc_read_completion_ts(cq) == clock.raw_clock.tv_nsec);
	CHECK(ibv_wc_read_completion_wallclock_ns(cq) / 1000000000 + 60 >
	      (uint64_t)time(NULL));
	CHECK(!ibv_next_poll(cq));
	CHECK(cq->status == IBV_WC_WR_FLUSH_ERR);
	CHECK(ibv_wc_read_invalidated_rkey(cq) == 0x04030201);
	ibv_end_poll(cq);

	CHECK(!ibv_start_poll(cq, &poll_attr));
	CHECK(ibv_next_poll(cq) == ENOENT);
	ibv_end_poll(cq);

	/* The other way to poll the same queue. */
	fake_complete(fqp->recv_cq, cqe);
	CHECK(poll(ibv_cq_ex_to_cq(cq), 1, &wc) == 1);
	CHECK(wc.invalidated_rkey == 0x04030201);
	CHECK(wc.wc_flags == IBV_WC_WITH_INV && wc.byte_len == 6);
}

static void test_arm(void)
{
	struct ibv_cq *cq = new_cq(8);
	struct fake_cq *fcq = fake_cq(cq);

	fake_event(fcq, false);
	CHECK(!fcq->events);

	CHECK(!fake.ops->req_notify_cq(cq, 0));
	/* "Solicited" does not weaken "any". */
	CHECK(!fake.ops->req_notify_cq(cq, 1));
	fake_event(fcq, false);
	CHECK(fcq->events == 1);
	/* One event at a time: this arming is of the number that was used. */
	CHECK(!fake.ops->req_notify_cq(cq, 0));
	fake_event(fcq, false);
	CHECK(fcq->events == 1);

	fake.ops->cq_event(cq);
	fake_event(fcq, false);
	CHECK(fcq->events == 1);
	CHECK(!fake.ops->req_notify_cq(cq, 1));
	fake_event(fcq, false);
	CHECK(fcq->events == 1);
	fake_event(fcq, true);
	CHECK(fcq->events == 2);

	fake.ops->cq_event(cq);
	CHECK(!fake.ops->req_notify_cq(cq, 1));
	/* "Any" strengthens "solicited". */
	CHECK(!fake.ops->req_notify_cq(cq, 0));
	fake_event(fcq, false);
	CHECK(fcq->events == 3);
}

/* An event that the kernel drops does not make the queue deaf. */
static void test_lost_event(void)
{
	struct ibv_cq *cq = new_cq(8);
	struct fake_cq *fcq = fake_cq(cq);
	struct ibv_comp_channel channel;
	int ends[2];

	CHECK(!pipe(ends));
	channel.fd = ends[0];
	cq->channel = &channel;

	CHECK(!fake.ops->req_notify_cq(cq, 0));
	/* Armed twice is armed once, and "solicited" does not weaken "any". */
	CHECK(!fake.ops->req_notify_cq(cq, 1));
	fake_event(fcq, false);
	fake_event(fcq, false);
	CHECK(fcq->events == 1);

	/* Nothing has come of it. */
	CHECK(!fake.ops->req_notify_cq(cq, 0));
	fake_event(fcq, false);
	CHECK(fcq->events == 2);

	/* This one is there, and has not been taken yet. */
	CHECK(write(ends[1], "", 1) == 1);
	CHECK(!fake.ops->req_notify_cq(cq, 0));
	fake_event(fcq, false);
	CHECK(fcq->events == 2);

	fake.ops->cq_event(cq);
	CHECK(!fake.ops->req_notify_cq(cq, 0));
	fake_event(fcq, false);
	CHECK(fcq->events == 3);

	cq->channel = NULL;
	close(ends[0]);
	close(ends[1]);
}

static void test_wr_api(void)
{
	struct ibv_pd pd = { .context = fake.context };
	struct ibv_cq *cq = new_cq(8);
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4 },
		.qp_type = IBV_QPT_UD,
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = &pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND |
				  IBV_QP_EX_WITH_RDMA_WRITE,
	};
	struct ibv_data_buf bufs[2] = { { (void *)"ab", 2 },
					{ (void *)"cde", 3 } };
	struct ibv_ah_attr ah_attr = {};
	struct ferrule_send_wqe *wqe;
	struct ibv_sge sges[5] = {};
	struct fake_qp *fqp;
	struct ibv_qp_ex *x;
	struct ibv_qp *qp;
	struct ibv_ah *ah;
	unsigned int i;

	CHECK(!fake.ops->create_qp_ex(fake.context, &attr));
	CHECK(errno == EOPNOTSUPP);
	attr.qp_type = IBV_QPT_UC;
	attr.send_ops_flags = IBV_QP_EX_WITH_SEND_WITH_INV;
	CHECK(!fake.ops->create_qp_ex(fake.context, &attr));
	CHECK(errno == EOPNOTSUPP);
	attr.send_ops_flags = IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
	CHECK(fake.ops->create_qp_ex(fake.context, &attr));
	attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE;
	attr.qp_type = IBV_QPT_RC;
	qp = fake.ops->create_qp_ex(fake.context, &attr);
	CHECK(qp);
	fqp = fake_qp(qp);
	x = &container_of(qp, struct verbs_qp, qp)->qp_ex;

	ibv_wr_start(x);
	ibv_wr_send(x);
	CHECK(ibv_wr_complete(x) == EINVAL); /* in RESET */
	qp->state = IBV_QPS_RTS;

	ibv_wr_start(x);
	x->wr_id = 1;
	x->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(x, 0x11, 0x22);
	ibv_wr_set_inline_data_list(x, 2, bufs);
	x->wr_id = 2;
	x->wr_flags = 0;
	ibv_wr_send(x);
	ibv_wr_set_sge(x, 3, 4, 5);
	CHECK(!fqp->ctrl->sq_producer);
	CHECK(!ibv_wr_complete(x));
	CHECK(le32toh(fqp->ctrl->sq_producer) == 2);
	wqe = fake_send_slot(fqp, 0);
	CHECK(wqe->flags == (FERRULE_WR_SIGNALED | FERRULE_WR_INLINE));
	CHECK(le32toh(wqe->inline_len) == 5 && !memcmp(wqe + 1, "abcde", 5));
	CHECK(le32toh(wqe->rkey) == 0x11 && le64toh(wqe->remote_addr) == 0x22);
	wqe = fake_send_slot(fqp, 1);
	CHECK(le64toh(wqe->wr_id) == 2 && !wqe->flags);
	CHECK(le16toh(wqe->num_sge) == 1 && !wqe->remote_addr && !wqe->rkey);

	/* Whatever fails, nothing is posted, and the next batch is clean. */
	ibv_wr_start(x);
	ibv_wr_set_sge(x, 1, 2, 3);
	CHECK(ibv_wr_complete(x) == EINVAL);
	ibv_wr_start(x);
	ibv_wr_send(x);
	ibv_wr_set_sge_list(x, 5, sges);
	ibv_wr_send(x);
	CHECK(ibv_wr_complete(x) == EINVAL);
	ibv_wr_start(x);
	for (i = 0; i < 3; i++)
		ibv_wr_send(x);
	CHECK(ibv_wr_complete(x) == ENOMEM);
	ibv_wr_start(x);
	ibv_wr_send(x);
	ibv_wr_abort(x);
	CHECK(le32toh(fqp->ctrl->sq_producer) == 2);
	ibv_wr_start(x);
	ibv_wr_send(x);
	CHECK(!ibv_wr_complete(x));
	CHECK(le32toh(fqp->ctrl->sq_producer) == 3);

	/* Datagrams name an address handle. */
	ah = fake.ops->create_ah(&pd, &ah_attr);
	CHECK(ah);
	attr.qp_type = IBV_QPT_UD;
	attr.send_ops_flags = IBV_QP_EX_WITH_SEND_WITH_IMM;
	qp = fake.ops->create_qp_ex(fake.context, &attr);
	CHECK(qp);
	qp->state = IBV_QPS_RTS;
	x = &container_of(qp, struct verbs_qp, qp)->qp_ex;
	ibv_wr_start(x);
	ibv_wr_send_imm(x, htobe32(0x05060708));
	ibv_wr_set_ud_addr(x, ah, 0x77, 0x88);
	ibv_wr_set_inline_data(x, (void *)"x", 1);
	CHECK(!ibv_wr_complete(x));
	wqe = fake_send_slot(fake_qp(qp), 0);
	CHECK(le32toh(wqe->ud.ah) == 0xa4 && !wqe->ud.reserved);
	CHECK(le32toh(wqe->ud.remote_qpn) == 0x77);
	CHECK(le32toh(wqe->ud.remote_qkey) == 0x88);
	CHECK(!memcmp(wqe->imm_or_inv, "\5\6\7\10", 4));
	CHECK(!fake.ops->destroy_ah(ah));
}

/*
 * Many threads against an engine. A lost doorbell or a lost kick is a test that
 * does not end; a completion queue whose slots come back too late is an
 * overrun, which fails.
 */
#define STRESS_THREADS	4
#define STRESS_QPS	8
#define STRESS_DEPTH	2
#define STRESS_POSTS	100000

static struct {
	/*
	 * Wait for all of one's completions before posting again. So nobody's
	 * next doorbell makes up for one that was lost.
	 */
	bool drain;
	sem_t wake;
	pthread_mutex_t engine;
	struct ibv_cq *cq;
	struct ibv_qp *qps[STRESS_QPS];
	uint32_t done[STRESS_QPS];
	bool stop;
} stress;

static void stress_visit(struct fake_qp *qp)
{
	uint32_t producer = le32toh(__atomic_load_n(&qp->ctrl->sq_producer,
						    __ATOMIC_ACQUIRE));

	CHECK(producer - qp->consumer <= STRESS_DEPTH);
	while (qp->consumer != producer) {
		uint64_t wr_id = le64toh(
			fake_send_slot(qp, qp->consumer)->wr_id);

		CHECK(wr_id == qp->next_wr_id++);
		qp->consumer++;
		fake_complete_send(qp, wr_id, qp->consumer);
	}
}

/* An engine that sleeps whenever it finds nothing to do. */
static void *stress_worker(void *arg)
{
	uint32_t *sleeping = (uint32_t *)&fake.status->sleeping;
	const uint32_t *seq = (const uint32_t *)&fake.db->seq;
	uint32_t seen = 0;
	uint32_t now;

	while (!__atomic_load_n(&stress.stop, __ATOMIC_RELAXED)) {
		now = __atomic_load_n(seq, __ATOMIC_ACQUIRE);
		if (now != seen) {
			seen = now;
			fake_scan(stress_visit);
			continue;
		}

		__atomic_store_n(sleeping, htole32(1), __ATOMIC_RELAXED);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (__atomic_load_n(seq, __ATOMIC_ACQUIRE) == seen)
			sem_wait(&stress.wake);
		__atomic_store_n(sleeping, 0, __ATOMIC_RELAXED);
	}

	return NULL;
}

static void stress_wake(void)
{
	sem_post(&stress.wake);
}

/* An engine that works only for who kicks it, and while it does. */
static void stress_inline(void)
{
	pthread_mutex_lock(&stress.engine);
	fake_scan(stress_visit);
	pthread_mutex_unlock(&stress.engine);
}

static void stress_poll(void)
{
	struct ibv_wc wc[3];
	unsigned int i;
	int n;

	n = poll(stress.cq, ARRAY_SIZE(wc), wc);
	if (!n)
		sched_yield();
	while (n--) {
		for (i = 0; stress.qps[i]->qp_num != wc[n].qp_num; i++)
			;
		__atomic_add_fetch(&stress.done[i], 1, __ATOMIC_RELAXED);
	}
}

/*
 * Posts to two queue pairs of its own, whose doorbells have neighbours, and
 * polls the completion queue that all threads share.
 */
static void *stress_thread(void *arg)
{
	unsigned int first = (uintptr_t)arg * 2;
	uint32_t posted[2] = {};
	unsigned int i;
	bool more;

	do {
		more = false;
		for (i = 0; i < 2; i++) {
			while (posted[i] < STRESS_POSTS &&
			       !post_id(stress.qps[first + i], posted[i]))
				posted[i]++;
			while (stress.drain && posted[i] !=
			       __atomic_load_n(&stress.done[first + i],
					       __ATOMIC_RELAXED))
				stress_poll();
			more |= STRESS_POSTS !=
				__atomic_load_n(&stress.done[first + i],
						__ATOMIC_RELAXED);
		}
		stress_poll();
	} while (more);

	return NULL;
}

static void run_stress(bool drain, bool worker)
{
	pthread_t engine, threads[STRESS_THREADS];
	unsigned int i;

	memset(&stress, 0, sizeof(stress));
	stress.drain = drain;
	sem_init(&stress.wake, 0, 0);
	pthread_mutex_init(&stress.engine, NULL);
	stress.cq = new_cq(STRESS_QPS * STRESS_DEPTH);
	for (i = 0; i < STRESS_QPS; i++) {
		/* Those of different threads are neighbours under one leaf. */
		fake.next_qp_num = 0x30000 + i % 2 * 64 + i / 2;
		stress.qps[i] = new_qp(IBV_QPT_RC, stress.cq, STRESS_DEPTH);
	}

	alarm(120);
	fake.on_kick = worker ? stress_wake : stress_inline;
	if (worker)
		CHECK(!pthread_create(&engine, NULL, stress_worker, NULL));
	else
		fake.status->sleeping = htole32(1);
	for (i = 0; i < STRESS_THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, stress_thread,
				      (void *)(uintptr_t)i));
	for (i = 0; i < STRESS_THREADS; i++)
		pthread_join(threads[i], NULL);
	if (worker) {
		__atomic_store_n(&stress.stop, true, __ATOMIC_RELAXED);
		sem_post(&stress.wake);
		pthread_join(engine, NULL);
	}
	alarm(0);

	for (i = 0; i < STRESS_QPS; i++)
		CHECK(stress.done[i] == STRESS_POSTS);
}

static void test_stress_worker(void)
{
	run_stress(false, true);
}

static void test_stress_worker_drain(void)
{
	run_stress(true, true);
}

static void test_stress_inline_drain(void)
{
	run_stress(true, false);
}

int main(void)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} tests[] = {
		{ "send_wqe", test_send_wqe },
		{ "bind", test_bind },
		{ "send_errors", test_send_errors },
		{ "recv", test_recv },
		{ "srq", test_srq },
		{ "doorbell", test_doorbell },
		{ "credit", test_credit },
		{ "stale", test_stale },
		{ "resize", test_resize },
		{ "poll_ex", test_poll_ex },
		{ "arm", test_arm },
		{ "lost_event", test_lost_event },
		{ "wr_api", test_wr_api },
		{ "stress_worker", test_stress_worker },
		{ "stress_worker_drain", test_stress_worker_drain },
		{ "stress_inline_drain", test_stress_inline_drain },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(tests); i++) {
		printf("%s\n", tests[i].name);
		fflush(stdout);
		fake_open();
		tests[i].run();
		fake_close();
	}
	printf("%u tests passed\n", i);

	return 0;
}
