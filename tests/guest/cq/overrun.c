// SPDX-License-Identifier: GPL-2.0
/*
 * Completion queues that receive requests overrun, and such as queue pairs that
 * are reset or destroyed must not.
 */
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

int one_cq_open(struct device *d, struct end *e, int more)
{
	struct end_config config = { };

	device_open(d);
	config.cq = ibv_create_cq(d->ctx, 16, NULL, NULL, 0);
	REQUIRE(config.cq);
	config.send_wr = config.cq->cqe + more;
	end_make(e, d, &config);
	end_to_state(e, IBV_QPS_RTS);
	return config.cq->cqe;
}

void one_cq_close(struct device *d, struct end *e)
{
	end_free(e);
	REQUIRE_ERRNO(ibv_destroy_cq(e->config.cq), 0);
	device_close(d);
}

void write_signalled(struct end *e, int count)
{
	for (int i = 0; i < count; i++)
		send_sges(e, i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, NULL, 0,
			  NULL, 0, 0);
}

static void write_what_fits(struct end *e, int fit)
{
	write_signalled(e, fit);
	expect_no_async(e->d->ctx);
}

/*
 * Completions that nobody has polled go with their queue pair, or by its RESET
 * (IBA volume 1, 10.3.1), and leave the queue to the next ones.
 */
static void not_by_earlier_ones(void)
{
	struct end_config config;
	struct device d;
	struct end e;
	int fit = one_cq_open(&d, &e, 0);

	write_what_fits(&e, fit);
	end_reset(&e);
	end_to_state(&e, IBV_QPS_RTS);
	write_what_fits(&e, fit);
	config = e.config;
	end_free(&e);
	end_make(&e, &d, &config);
	end_to_state(&e, IBV_QPS_RTS);
	write_what_fits(&e, fit);
	for (int i = 0; i < fit; i++)
		EXPECT_OK(e.scq, i);
	EXPECT_NO_WC(e.scq);
	one_cq_close(&d, &e);
}

const struct test_case overrun_cases[] = {
	{ "overrun_by_receives", by_receives },
	{ "no_overrun_by_earlier_ones", not_by_earlier_ones },
	{ }
};
