/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Tests of the provider that need neither module nor guest. */
#ifndef PROVIDER_TEST_H
#define PROVIDER_TEST_H

#include "fake_kernel.h"

static inline struct ibv_cq *new_cq(int cqe)
{
	struct ibv_cq *cq = fake.ops->create_cq(fake.context, cqe, NULL, 0);

	CHECK(cq);
	return cq;
}

static inline struct ibv_pd *new_pd(void)
{
	struct ibv_pd *pd = fake.ops->alloc_pd(fake.context);

	CHECK(pd);
	return pd;
}

static inline struct ibv_qp *new_qp_of_cqs(enum ibv_qp_type type,
					   struct ibv_cq *send_cq,
					   struct ibv_cq *recv_cq,
					   uint32_t depth)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = send_cq,
		.recv_cq = recv_cq,
		.cap = { .max_send_wr = depth, .max_recv_wr = depth },
		.qp_type = type,
	};
	struct ibv_qp *qp = fake.ops->create_qp(new_pd(), &attr);

	CHECK(qp);
	CHECK(attr.cap.max_inline_data == 64);
	qp->state = IBV_QPS_RTS;
	return qp;
}

static inline struct ibv_qp *new_qp(enum ibv_qp_type type, struct ibv_cq *cq,
				    uint32_t depth)
{
	return new_qp_of_cqs(type, cq, cq, depth);
}

static inline int post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;
	int ret = fake.ops->post_send(qp, wr, &bad);

	CHECK(!ret == !bad);
	return ret;
}

static inline int post_id(struct ibv_qp *qp, uint64_t wr_id)
{
	struct ibv_send_wr wr = { .wr_id = wr_id, .opcode = IBV_WR_SEND };

	return post(qp, &wr);
}

static inline int poll(struct ibv_cq *cq, int num, struct ibv_wc *wc)
{
	return fake.ops->poll_cq(cq, num, wc);
}

/* send_test.c */
void test_send_wqe(void);
void test_bind(void);
void test_send_errors(void);
void test_wr_api(void);
void test_placement(void);
void test_xrc(void);

/* queue_test.c */
void test_recv(void);
void test_srq(void);
void test_doorbell(void);
void test_deferred_kicks(void);
void test_credit(void);

/* cq_test.c */
void test_resize(void);
void test_resize_no_memory(void);
void test_poll_ex(void);
void test_clock(void);
void test_arm(void);
void test_lost_event(void);
void test_unflushed(void);
void test_yield(void);

/* qp_test.c */
void test_stale(void);
void test_stale_slots(void);
void test_reset_locks(void);
void test_initiator_cqs(void);

/* pd_test.c */
void test_domains(void);
void test_allocators(void);
void test_thread_domain(void);

/* threads_test.c */
void test_threads(void);
void test_threads_refused(void);
void test_threads_unsupported(void);
void test_threads_crossed(void);
void test_threads_srq(void);
void test_threads_failed(void);
void test_threads_all(void);
void test_threads_imported(void);

/* stress_test.c */
void test_stress_worker(void);
void test_stress_worker_drain(void);
void test_stress_inline_drain(void);
void test_stress_deferred_drain(void);

#endif
