// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Receive requests, doorbells, and slots that are free again. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "provider_test.h"

/* Whether the word rung has these parts. */
static bool rung_is(uint64_t count, uint32_t qp_num, uint64_t run)
{
	uint64_t d = qp_num & FERRULE_DB_INDEX_MASK;

	return le64toh(fake.db->rung) ==
	       (count << FERRULE_RUNG_COUNT_SHIFT |
		d << FERRULE_RUNG_DB_SHIFT | run);
}

void test_recv(void)
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
	CHECK(!fake.db->rung);

	/* In error, the engine asks for the doorbell. */
	fqp->ctrl->rq_doorbell = htole32(1);
	CHECK(!fake.ops->post_recv(qp, &wr, &bad));
	CHECK(rung_is(1, fqp->qp_num, 1));

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
void test_srq(void)
{
	struct ibv_sge sges[4] = { { .addr = 1, .length = 2, .lkey = 3 } };
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 3 } };
	struct ibv_srq *srq = fake.ops->create_srq(new_pd(), &attr);
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
	CHECK(!fake.db->rung && !fake.kicks);

	fake.status->dead = htole32(1);
	fsrq->ctrl->consumer = htole32(5);
	CHECK(post_srq(srq, &wr) == EIO);
	CHECK(!fake.ops->destroy_srq(srq));
}

void test_doorbell(void)
{
	struct ibv_cq *cq = new_cq(64);
	struct ibv_qp *a = new_qp(IBV_QPT_RC, cq, 16);
	struct ibv_qp *b = new_qp(IBV_QPT_RC, cq, 16);

	/* One bit each, and one ring of a bit that is rung. */
	CHECK(!post_id(a, 0) && !post_id(a, 1) && !post_id(b, 0));
	CHECK(fake.leaf[0] == htole64(1ULL << 17));
	CHECK(fake.leaf[1] == htole64(1ULL << 17));
	CHECK(fake.db->top[0] == htole64(3));
	CHECK(rung_is(3, b->qp_num, 1));
	CHECK(fake_scan(count_visit) == 2 && visits == 2);
	CHECK(!fake_scan(count_visit));

	/* Back again. */
	CHECK(!post_id(a, 2));
	CHECK(!fake.leaf[0] && fake.db->top[0] == htole64(2));
	CHECK(!post_id(a, 3) && rung_is(5, a->qp_num, 2));
	CHECK(fake_scan(count_visit) == 1);

	CHECK(!fake.kicks);
	fake.status->sleeping = htole32(1);
	CHECK(!post_id(a, 4));
	CHECK(fake.kicks == 1);
	fake.status->sleeping = 0;
}

/*
 * A program with a backlog says so. While its kicks are deferred, it kicks when
 * it waits, and once for all that it has rung.
 */
void test_deferred_kicks(void)
{
	enum { BACKLOG = 16 };	/* that the provider takes for one */
	struct ibv_cq *cq = new_cq(64);
	struct ibv_qp *qp = new_qp(IBV_QPT_RC, cq, 64);
	struct ibv_sge sge = { .length = 128 * 1024 };
	struct ibv_send_wr large = { .opcode = IBV_WR_SEND, .sg_list = &sge,
				     .num_sge = 1 };
	struct ibv_comp_channel channel;
	struct ibv_wc wc[4];
	uint32_t count = 0;
	int ends[2];
	uint32_t i;

	fake.status->sleeping = htole32(1);
	for (i = 0; i < BACKLOG - 1; i++)
		CHECK(!post_id(qp, i));
	CHECK(fake.kicks == i && !fake.db->backlog);
	CHECK(!post_id(qp, i++));
	CHECK(fake.kicks == i && fake.db->backlog == htole32(1));
	/* The engine has yet to look, so the last one did not ring. */
	CHECK(rung_is(i - 1, qp->qp_num, i - 1));
	visits = 0;
	CHECK(fake_look(&count, count_visit) == 1 && visits == 1);
	CHECK(!post_id(qp, i++) && !post_id(qp, i++));
	CHECK(rung_is(i - 2, qp->qp_num, i - 2));

	fake.kicks = 0;
	fake.status->sleeping = 0;
	fake.status->deferred = htole32(1);
	CHECK(!poll(cq, 4, wc) && !fake.kicks);
	for (; i < 2 * BACKLOG; i++)
		CHECK(!post_id(qp, i));
	CHECK(!fake.kicks);

	/* A poll that finds something does not wait. */
	fake_complete_send(fake_qp(qp), i - 2, i - 1);
	CHECK(poll(cq, 4, wc) == 1 && !fake.kicks);
	CHECK(!poll(cq, 4, wc) && fake.kicks == 1);
	CHECK(!poll(cq, 4, wc) && fake.kicks == 1);

	/* Large requests are no backlog, and a kick waits for 512 KiB at most. */
	fake.kicks = 0;
	for (; i < 3 * BACKLOG; i++) {
		CHECK(fake.kicks == i % BACKLOG / 4);
		CHECK(!post(qp, &large) && !fake.db->backlog);
	}
	CHECK(fake.kicks == 4 && !poll(cq, 4, wc) && fake.kicks == 4);
	CHECK(!post_id(qp, i++) && fake.db->backlog == htole32(1));
	fake_complete_send(fake_qp(qp), i - 1, i);
	CHECK(poll(cq, 4, wc) == 1 && !poll(cq, 4, wc));
	fake.kicks = 1;

	/* One request is no backlog; its kick is deferred all the same. */
	CHECK(!post_id(qp, i));
	CHECK(!fake.db->backlog && fake.kicks == 1);
	CHECK(!pipe(ends));
	channel.fd = ends[0];
	cq->channel = &channel;
	CHECK(!fake.ops->req_notify_cq(cq, 0) && fake.kicks == 2);
	CHECK(!fake.ops->req_notify_cq(cq, 0) && fake.kicks == 2);
	cq->channel = NULL;
	close(ends[0]);
	close(ends[1]);
	fake.status->deferred = 0;
}

/* Three laps over both rings, with one completion for several requests. */
void test_credit(void)
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
