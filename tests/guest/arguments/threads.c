// SPDX-License-Identifier: GPL-2.0
/* Threads that make and destroy objects of one device file at the same time. */
#include "arguments.h"

#include <pthread.h>

enum { THREADS = 6, ROUNDS = 40 };

/* Some of each kind, all of which are there together. */
static void *make_objects(void *arg)
{
	struct device d = *(struct device *)arg;
	struct ibv_srq_init_attr srq_init = { .attr = { 8, 1 } };
	struct ibv_ah_attr ah_attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = { .dgid = d.gid, .sgid_index = d.gid_index, .hop_limit = 1 },
	};
	static char buf[4096];

	for (int i = 0; i < ROUNDS; i++) {
		struct ibv_context *ctx = open_by_name(opt.device);
		struct ibv_pd *pd = ibv_alloc_pd(d.ctx);
		struct ibv_comp_channel *channel = ibv_create_comp_channel(d.ctx);
		struct ibv_cq *cq = ibv_create_cq(d.ctx, 16, NULL, channel, 0);
		struct ibv_cq_ex *ex = ibv_create_cq_ex(d.ctx,
			&(struct ibv_cq_init_attr_ex){ .cqe = 16 });
		struct ibv_qp_init_attr qp_init = small_qp(cq);
		struct ibv_mr *mr;
		struct ibv_mw *mw;
		struct ibv_srq *srq;
		struct ibv_ah *ah;
		struct ibv_qp *qp;

		REQUIRE(ctx && pd && channel && cq && ex);
		mr = ibv_reg_mr(pd, buf, sizeof(buf), ACCESS_ALL);
		mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
		srq = ibv_create_srq(pd, &srq_init);
		ah = ibv_create_ah(pd, &ah_attr);
		qp = ibv_create_qp(pd, &qp_init);
		REQUIRE(mr && mw && srq && ah && qp);
		REQUIRE_ERRNO(ibv_destroy_qp(qp), 0);
		REQUIRE_ERRNO(ibv_destroy_ah(ah), 0);
		REQUIRE_ERRNO(ibv_destroy_srq(srq), 0);
		REQUIRE_ERRNO(ibv_dealloc_mw(mw), 0);
		REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);
		REQUIRE_ERRNO(ibv_destroy_cq(ibv_cq_ex_to_cq(ex)), 0);
		REQUIRE_ERRNO(ibv_destroy_cq(cq), 0);
		REQUIRE_ERRNO(ibv_destroy_comp_channel(channel), 0);
		REQUIRE_ERRNO(ibv_dealloc_pd(pd), 0);
		REQUIRE_EQ(ibv_close_device(ctx), 0);
	}
	return NULL;
}

static void objects_by_threads(void)
{
	pthread_t threads[THREADS];
	struct device d;

	device_open(&d);
	for (int i = 0; i < THREADS; i++)
		REQUIRE(!pthread_create(&threads[i], NULL, make_objects, &d));
	for (int i = 0; i < THREADS; i++)
		REQUIRE(!pthread_join(threads[i], NULL));
	/* Nothing of them holds these. */
	device_close(&d);
}

const struct test_case thread_cases[] = {
	{ "objects_by_threads", objects_by_threads, 120 },
	{ }
};
