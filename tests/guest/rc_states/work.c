// SPDX-License-Identifier: GPL-2.0
/* The fate of work in each state. */
#include "rc_states.h"

#include <pthread.h>

/* The work that may be posted in each state (10.8.3.1, 10.8.3.2). */
static void posting(void)
{
	struct device d;
	struct region r;

	device_open(&d);
	region_make(&r, &d, 64, 0, ACCESS_ALL);
	for (unsigned int i = 0; i < ARRAY_SIZE(states); i++) {
		enum ibv_qp_state state = states[i];
		bool send = state == IBV_QPS_RTS || state == IBV_QPS_SQD ||
			    state == IBV_QPS_ERR;
		bool recv = state != IBV_QPS_RESET;
		struct ibv_sge sge = sge_of(&r, 0, 64);
		struct end e;
		int ret;

		end_make(&e, &d, NULL);
		end_to_state(&e, state);
		ret = try_recv(&e, 1, &sge, 1);
		if (ret != (recv ? 0 : EINVAL))
			FAIL("ibv_post_recv in %s answered %d (%s)",
			     state_name(state), ret, strerror(ret));
		ret = try_send(&e, 2, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED,
			       NULL, 0, NULL, 0, 0);
		if (ret != (send ? 0 : EINVAL))
			FAIL("ibv_post_send in %s answered %d (%s)",
			     state_name(state), ret, strerror(ret));
		if (state == IBV_QPS_ERR) {
			EXPECT_WC(e.rcq, 1, IBV_WC_WR_FLUSH_ERR);
			EXPECT_WC(e.scq, 2, IBV_WC_WR_FLUSH_ERR);
		} else if (state == IBV_QPS_RTS) {
			EXPECT_OK(e.scq, 2);
		} else {
			EXPECT_NO_WC(e.scq);
		}
		EXPECT_NO_WC(e.rcq);
		end_free(&e);
	}
	region_free(&r);
	device_close(&d);
}

/*
 * SQD: requests that were begun end, later ones wait, receives are served, the
 * event comes once all is drained (10.3.1.5).
 */
static void send_queue_drain(void)
{
	const struct end_config config = { .rnr_timer = 20 };
	struct pair p;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1
	};
	uint64_t refused;

	pair_open(&p, &config);
	region_make(&p.mine, &p.d, 64, 0, 0);
	region_make(&p.theirs, &p.d, 64, 0, IBV_ACCESS_LOCAL_WRITE);
	refused = port_counter("hw_counters/receiver_not_ready");
	/* Begun, and not to be ended as long as b has no receive. */
	send_region(&p.a, 1, &p.mine, 0, 64);
	for (uint64_t end = now_us() + PATIENCE_US;
	     port_counter("hw_counters/receiver_not_ready") == refused;)
		REQUIRE(now_us() < end);
	REQUIRE_ERRNO(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE |
				    IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	send_region(&p.a, 2, &p.mine, 0, 64);
	expect_no_async(p.d.ctx);
	recv_region(&p.b, 1, &p.theirs, 0, 64);
	recv_region(&p.b, 2, &p.theirs, 0, 64);
	EXPECT_OK(p.a.scq, 1);
	EXPECT_OK(p.b.rcq, 1);
	expect_async(p.d.ctx, IBV_EVENT_SQ_DRAINED, p.a.qp);
	EXPECT_NO_WC(p.a.scq);
	EXPECT_NO_WC(p.b.rcq);
	/* The receive queue of a drained QP works. */
	recv_region(&p.a, 3, &p.theirs, 0, 64);
	send_region(&p.b, 4, &p.mine, 0, 64);
	EXPECT_OK(p.a.rcq, 3);
	EXPECT_OK(p.b.scq, 4);

	attr.qp_state = IBV_QPS_RTS;
	REQUIRE_ERRNO(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), 0);
	EXPECT_OK(p.a.scq, 2);
	EXPECT_OK(p.b.rcq, 2);

	/* Drained at once when there is nothing to do. */
	attr.qp_state = IBV_QPS_SQD;
	REQUIRE_ERRNO(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE |
				    IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	expect_async(p.d.ctx, IBV_EVENT_SQ_DRAINED, p.a.qp);

	/* And no event that nobody asked for. */
	attr.qp_state = IBV_QPS_RTS;
	REQUIRE_ERRNO(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_SQD;
	attr.en_sqd_async_notify = 0;
	REQUIRE_ERRNO(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), 0);
	expect_no_async(p.d.ctx);

	/* The peer's address may change there; here it stays the same. */
	attr = good_attr(&p.a, IBV_QPS_SQD);
	REQUIRE_ERRNO(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE | IBV_QP_AV |
				    IBV_QP_TIMEOUT), 0);
	attr.qp_state = IBV_QPS_RTS;
	REQUIRE_ERRNO(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), 0);
	recv_region(&p.b, 5, &p.theirs, 0, 64);
	send_region(&p.a, 6, &p.mine, 0, 64);
	EXPECT_OK(p.a.scq, 6);
	EXPECT_OK(p.b.rcq, 5);
	pair_close(&p);
}

/* Error states by the engine, as a program sees them by query. */
static void states_after_error(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	struct region r;
	struct peer to;
	struct pair p;

	pair_open(&p, NULL);
	region_make(&r, &p.d, 64, 0, ACCESS_ALL);
	to = end_address(&p.b, &r);
	to.rkey ^= 1;
	send_sges(&p.a, 1, IBV_WR_RDMA_WRITE, 0,
		  &(struct ibv_sge){ (uintptr_t)r.data, 8, r.mr->lkey }, 1, &to,
		  0, 0);
	EXPECT_WC(p.a.scq, 1, IBV_WC_REM_ACCESS_ERR);
	end_await_state(&p.a, IBV_QPS_ERR);
	end_await_state(&p.b, IBV_QPS_ERR);
	/* No way back but RESET. */
	REQUIRE_ERRNO(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), EINVAL);
	attr.qp_state = IBV_QPS_SQD;
	REQUIRE_ERRNO(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), EINVAL);
	attr.qp_state = IBV_QPS_RESET;
	REQUIRE_ERRNO(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), 0);
	REQUIRE_EQ(end_state(&p.a), IBV_QPS_RESET);
	region_free(&r);
	pair_close(&p);
}

static void *enter_rts(void *arg)
{
	sleep_us(5000);
	end_to_rts(arg);
	return NULL;
}

/* A responder answers in RTR as in RTS, and on the way from one to the other. */
static void read_while_it_enters_rts(void)
{
	const int access = ACCESS_ALL | IBV_ACCESS_REMOTE_READ;
	const struct end_config config = { .access = access };
	struct peer to_a;
	pthread_t thread;
	struct pair p;

	pair_make(&p, &config);
	pair_memory(&p, 64, 64, access);
	fill(p.theirs.data, 64, 8);
	to_a = end_address(&p.a, NULL);
	end_to_init(&p.b);
	end_to_rtr(&p.b, &to_a);
	end_connect(&p.a, &p.to);
	REQUIRE(!pthread_create(&thread, NULL, enter_rts, &p.b));
	for (int i = 0, after = 0; after < 100; i++) {
		struct ibv_sge sge = sge_of(&p.mine, 0, 64);

		memset(p.mine.data, 0, 64);
		send_sges(&p.a, i, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &sge, 1,
			  &p.to, 0, 0);
		EXPECT_OK(p.a.scq, i);
		VERIFY(p.mine.data, 64, 8);
		after += end_state(&p.b) == IBV_QPS_RTS;
	}
	REQUIRE(!pthread_join(thread, NULL));
	pair_close(&p);
}

const struct test_case work_cases[] = {
	{ "posting", posting },
	{ "send_queue_drain", send_queue_drain },
	{ "states_after_error", states_after_error },
	{ "read_while_it_enters_rts", read_while_it_enters_rts },
	{ }
};
