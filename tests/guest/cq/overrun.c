// SPDX-License-Identifier: GPL-2.0
/* Completion queues that receive requests overrun. */
#define _GNU_SOURCE
#include "cq.h"

/*
 * One more message than the receiver's queue has slots, and nobody polls. The
 * messages before it have arrived; the receiver cannot tell of this one, so it
 * takes no more (IBA volume 1, 11.6.3.2).
 */
static void by_receives(void)
{
	struct end_config config = { };
	struct ibv_wc wc;
	struct region r;
	struct device d;
	struct end a, b;
	int fit;

	device_open(&d);
	region_make(&r, &d, 64, 0, ACCESS_ALL);
	config.cq = ibv_create_cq(d.ctx, 16, NULL, NULL, 0);
	REQUIRE(config.cq);
	fit = config.cq->cqe;
	config.recv_wr = fit + 8;
	config.send_wr = 8;
	end_make(&b, &d, &config);
	end_make(&a, &d, &(struct end_config){ .send_wr = fit + 8 });
	ends_connect(&a, &b);
	for (int i = 0; i < fit + 8; i++)
		recv_region(&b, i, &r, 0, 8);
	for (int i = 0; i < fit; i++) {
		send_region(&a, i, &r, 8, 8);
		EXPECT_OK(a.scq, i);
	}
	expect_no_async(d.ctx);
	send_region(&a, fit, &r, 8, 8);
	next_wc(a.scq, &wc);
	REQUIRE_EQ(wc.wr_id, fit);
	REQUIRE(wc.status != IBV_WC_SUCCESS);
	expect_async(d.ctx, IBV_EVENT_CQ_ERR, config.cq);
	expect_async(d.ctx, IBV_EVENT_QP_FATAL, b.qp);
	expect_no_async(d.ctx);
	end_await_state(&b, IBV_QPS_ERR);
	expect_earlier(b.rcq, fit);
	end_free(&a);
	end_free(&b);
	REQUIRE_ERRNO(ibv_destroy_cq(config.cq), 0);
	region_free(&r);
	device_close(&d);
}

const struct test_case overrun_cases[] = {
	{ "overrun_by_receives", by_receives },
	{ }
};
