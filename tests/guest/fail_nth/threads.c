// SPDX-License-Identifier: GPL-2.0
/* A thread that gets an engine of its own, for which regions are replicated. */
#include "stage.h"

#include <pthread.h>

enum { REGIONS = 70 };	/* of more than one block of keys */

/* A program of its own: the stage's has memory windows, so one engine has all of it. */
static struct {
	struct device d;
	struct ibv_cq *first;	/* of the other thread */
	struct ibv_mr *mrs[REGIONS];
	struct ibv_srq *srq;
	struct end end;
	struct ibv_mr *late;
} program;

static void *be_first(void *arg)
{
	(void)arg;
	program.first = ibv_create_cq(program.d.ctx, 4, NULL, NULL, 0);
	REQUIRE(program.first);
	return NULL;
}

static void begin(void)
{
	pthread_t other;

	device_open(&program.d);
	for (int i = 0; i < REGIONS; i++) {
		program.mrs[i] = ibv_reg_mr(program.d.pd, memory(), 4096,
					    ACCESS_ALL);
		REQUIRE(program.mrs[i]);
	}
	REQUIRE_ERRNO(pthread_create(&other, NULL, be_first, NULL), 0);
	REQUIRE_ERRNO(pthread_join(other, NULL), 0);
}

static void end_all(void)
{
	for (int i = 0; i < REGIONS; i++)
		REQUIRE_ERRNO(ibv_dereg_mr(program.mrs[i]), 0);
	REQUIRE_ERRNO(ibv_destroy_cq(program.first), 0);
	device_close(&program.d);
}

static void destroy_queues(void)
{
	REQUIRE_ERRNO(ibv_destroy_srq(program.srq), 0);
	REQUIRE_ERRNO(ibv_destroy_cq(program.end.scq), 0);
}

static int try_make(void)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { 4, 0, 1, 0, 0 },
	};
	struct ibv_cq *cq = ibv_create_cq(program.d.ctx, 8, NULL, NULL, 0);
	int error;

	if (!cq)
		return errno;
	program.srq = ibv_create_srq(program.d.pd, &srq);
	if (!program.srq) {
		error = errno;
		REQUIRE_ERRNO(ibv_destroy_cq(cq), 0);
		return error;
	}
	init.send_cq = init.recv_cq = cq;
	init.srq = program.srq;
	program.end = (struct end){ .d = &program.d, .scq = cq, .rcq = cq };
	program.end.config = st.a.config;
	program.end.qp = ibv_create_qp(program.d.pd, &init);
	if (!program.end.qp) {
		error = errno;
		destroy_queues();
		return error;
	}
	program.late = ibv_reg_mr(program.d.pd, memory(), 4096, ACCESS_ALL);
	if (program.late)
		return 0;
	error = errno;
	REQUIRE_ERRNO(ibv_destroy_qp(program.end.qp), 0);
	destroy_queues();
	return error;
}

static int second_thread(void)
{
	int error = try_make();

	if (error)
		end_all();
	return error;
}

static void receive_one(struct end *e)
{
	struct ibv_sge from = { (uintptr_t)memory(), 64, program.late->lkey };
	struct ibv_sge into = { (uintptr_t)memory() + 64, 64,
				program.mrs[0]->lkey };
	struct ibv_recv_wr wr = { .wr_id = 2, .sg_list = &into, .num_sge = 1 };
	struct ibv_recv_wr *bad;

	REQUIRE_ERRNO(ibv_post_srq_recv(program.srq, &wr, &bad), 0);
	fill(memory(), 64, REGIONS);
	send_sges(e, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, &from, 1, NULL, 0, 0);
	EXPECT_OK(e->rcq, 2);
	EXPECT_OK(e->scq, 1);
	VERIFY(memory() + 64, 64, REGIONS);
}

/* All regions are at its service, those from before and the last one. */
static void use_and_end(void)
{
	struct end *e = &program.end;

	end_to_state(e, IBV_QPS_RTS);
	for (int i = 0; i < REGIONS; i++) {
		struct ibv_sge from = { (uintptr_t)memory(), 64,
					program.late->lkey };
		struct peer to = { .addr = (uintptr_t)memory() + 64,
				   .rkey = program.mrs[i]->rkey };

		fill(memory(), 64, i);
		send_sges(e, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &from, 1,
			  &to, 0, 0);
		EXPECT_OK(e->scq, 1);
		VERIFY(memory() + 64, 64, i);
	}
	receive_one(e);
	REQUIRE_ERRNO(ibv_dereg_mr(program.late), 0);
	REQUIRE_ERRNO(ibv_destroy_qp(e->qp), 0);
	destroy_queues();
	end_all();
}

const struct verb thread_verbs[] = {
	{ "second_thread", second_thread, use_and_end, begin },
	{ }
};
