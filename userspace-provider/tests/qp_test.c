// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Queue pairs that are reset or destroyed, and their completion queues. */
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "provider_test.h"

/* Completions of a destroyed queue pair, or from before a reset, are not seen. */
void test_stale(void)
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

static void complete_sends(struct ibv_qp *qp, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		fake_complete_send(fake_qp(qp), i, i + 1);
}

/*
 * Nor do they keep slots from others: the engine, which overruns here if there
 * is none, has as many as before, though nobody has polled.
 */
void test_stale_slots(void)
{
	enum { DEPTH = 4 };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	struct ibv_cq *cq = new_cq(DEPTH), *recv_cq = new_cq(DEPTH);
	struct ibv_qp *qp = new_qp_of_cqs(IBV_QPT_RC, cq, recv_cq, DEPTH);
	struct ibv_qp *other = new_qp(IBV_QPT_RC, cq, DEPTH);
	struct fake_cq *fcq = fake_cq(cq);
	struct ferrule_cqe recv = {
		.qp_num = htole32(qp->qp_num),
		.qp_gen = htole32(fake_qp(qp)->layout.qp_gen),
		.opcode = FERRULE_WC_RECV,
	};
	struct ibv_wc wc[DEPTH];
	uint32_t i;

	complete_sends(qp, DEPTH);
	for (i = 0; i < DEPTH; i++)
		fake_complete(fake_cq(recv_cq), recv);
	CHECK(!fake.ops->modify_qp(qp, &attr, IBV_QP_STATE));
	for (i = 0; i < DEPTH; i++)
		fake_complete(fake_cq(recv_cq), recv);

	/* In whichever ring they are. */
	complete_sends(qp, 2);
	CHECK(!fake.ops->resize_cq(cq, DEPTH));
	complete_sends(qp, 2);
	CHECK(!fake.ops->destroy_qp(qp));
	for (i = 0; i < DEPTH; i++)
		fake_complete(fake_cq(recv_cq), recv);
	complete_sends(other, DEPTH);
	CHECK(poll(cq, DEPTH, wc) == DEPTH && wc[0].wr_id == 0);

	/* Those behind one that is yet to be polled stay until it is. */
	qp = new_qp(IBV_QPT_RC, cq, DEPTH);
	complete_sends(qp, 1);
	complete_sends(other, 1);
	complete_sends(qp, 1);
	CHECK(!fake.ops->destroy_qp(qp));
	CHECK(le32toh(fcq->ctrl->consumer) == fcq->producer - 2);
	CHECK(poll(cq, DEPTH, wc) == 1 && wc[0].qp_num == other->qp_num);
	CHECK(!poll(cq, DEPTH, wc));
	CHECK(le32toh(fcq->ctrl->consumer) == fcq->producer);
}

static void *reset(void *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	CHECK(!fake.ops->modify_qp(qp, &attr, IBV_QP_STATE));
	return NULL;
}

/* Another thread that resets, and has begun to wait for a lock. */
static pthread_t start_reset(struct ibv_qp *qp)
{
	pthread_t thread;

	fake.yields = 0;
	CHECK(!pthread_create(&thread, NULL, reset, qp));
	while (!__atomic_load_n(&fake.yields, __ATOMIC_RELAXED))
		usleep(1000);

	return thread;
}

/*
 * A program may poll while it posts, and post while it polls. Beside a reset
 * neither waits for ever, and what is posted is gone with the rest.
 */
void test_reset_locks(void)
{
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 8 };
	struct ibv_qp_init_attr_ex attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = new_pd(),
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	struct ibv_poll_cq_attr poll_attr = {};
	struct ibv_recv_wr recv = {}, *bad;
	struct ferrule_qp_ctrl *ctrl;
	struct ibv_cq_ex *cq;
	struct ibv_qp_ex *x;
	struct ibv_qp *qp;
	struct ibv_wc wc;
	pthread_t thread;

	cq = fake.ops->create_cq_ex(fake.context, &cq_attr);
	CHECK(cq);
	attr.send_cq = ibv_cq_ex_to_cq(cq);
	attr.recv_cq = attr.send_cq;
	qp = fake.ops->create_qp_ex(fake.context, &attr);
	CHECK(qp);
	x = &container_of(qp, struct verbs_qp, qp)->qp_ex;
	ctrl = fake_qp(qp)->ctrl;
	alarm(20);

	qp->state = IBV_QPS_RTS;
	ibv_wr_start(x);
	ibv_wr_send(x);
	thread = start_reset(qp);
	CHECK(!poll(attr.send_cq, 1, &wc));
	CHECK(!ibv_wr_complete(x));
	pthread_join(thread, NULL);
	CHECK(!ctrl->sq_producer && qp->state == IBV_QPS_RESET);

	qp->state = IBV_QPS_RTS;
	CHECK(!post_id(qp, 1));
	fake_complete_send(fake_qp(qp), 1, 1);
	CHECK(!ibv_start_poll(cq, &poll_attr) && cq->wr_id == 1);
	thread = start_reset(qp);
	CHECK(!fake.ops->post_recv(qp, &recv, &bad) && !post_id(qp, 2));
	ibv_end_poll(cq);
	pthread_join(thread, NULL);
	CHECK(!ctrl->sq_producer && !ctrl->rq_producer);

	alarm(0);
}

/*
 * The kernel knows of no completion queue for receives of an XRC initiator, so
 * one that the program names may go before it.
 */
void test_initiator_cqs(void)
{
	struct ibv_cq *cq = new_cq(4), *named = new_cq(4);
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = named,
		.cap = { .max_send_wr = 4 },
		.qp_type = IBV_QPT_XRC_SEND,
	};
	struct ibv_qp *qp = fake.ops->create_qp(new_pd(), &attr);

	CHECK(qp && !qp->recv_cq);
	CHECK(!fake.ops->destroy_cq(named));
	reset(qp);
	CHECK(!fake.ops->destroy_qp(qp));
	CHECK(!fake.ops->destroy_cq(cq));
}
