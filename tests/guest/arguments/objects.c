// SPDX-License-Identifier: GPL-2.0
/* Completion queues, queue pairs, memory regions: making them, and while they are in use. */
#include "arguments.h"

#include <sys/mman.h>

static void cq_arguments(void)
{
	struct ibv_cq *cq;
	struct device d;

	device_open(&d);
	REQUIRE_NULL_ERRNO(ibv_create_cq(d.ctx, 0, NULL, NULL, 0), EINVAL);
	REQUIRE_NULL_ERRNO(ibv_create_cq(d.ctx, -1, NULL, NULL, 0), EINVAL);
	REQUIRE_NULL_ERRNO(ibv_create_cq(d.ctx, d.attr.max_cqe + 1, NULL, NULL,
					 0), EINVAL);
	REQUIRE_NULL_ERRNO(ibv_create_cq(d.ctx, 16, NULL, NULL,
					 d.ctx->num_comp_vectors), EINVAL);
	REQUIRE_NULL_ERRNO(ibv_create_cq(d.ctx, 16, NULL, NULL, -1), EINVAL);
	REQUIRE(d.ctx->num_comp_vectors >= 1);
	for (int cqe = 1; cqe <= d.attr.max_cqe; cqe *= 4) {
		cq = ibv_create_cq(d.ctx, cqe, &d, NULL, 0);
		if (!cq)
			FAIL("ibv_create_cq of %d: %s", cqe, strerror(errno));
		REQUIRE(cq->cqe >= cqe);
		REQUIRE(cq->cq_context == &d);
		REQUIRE_ERRNO(ibv_destroy_cq(cq), 0);
	}
	cq = ibv_create_cq(d.ctx, d.attr.max_cqe, NULL, NULL, 0);
	if (!cq)
		FAIL("ibv_create_cq of max_cqe: %s", strerror(errno));
	REQUIRE_ERRNO(ibv_destroy_cq(cq), 0);
	device_close(&d);
}

static void qp_arguments(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct device d;

	device_open(&d);
	cq = ibv_create_cq(d.ctx, 16, NULL, NULL, 0);
	REQUIRE(cq);
#define REFUSED(field, value, error) \
	do { \
		init = small_qp(cq); \
		init.field = value; \
		REQUIRE_NULL_ERRNO(ibv_create_qp(d.pd, &init), error); \
	} while (0)
	REFUSED(cap.max_send_wr, d.attr.max_qp_wr + 1, EINVAL);
	REFUSED(cap.max_recv_wr, d.attr.max_qp_wr + 1, EINVAL);
	REFUSED(cap.max_send_wr, UINT32_MAX, EINVAL);
	REFUSED(cap.max_recv_wr, 0x80000000, EINVAL);
	REFUSED(cap.max_send_sge, d.attr.max_sge + 1, EINVAL);
	REFUSED(cap.max_recv_sge, d.attr.max_sge + 1, EINVAL);
	REFUSED(cap.max_send_sge, UINT32_MAX, EINVAL);
	REFUSED(cap.max_inline_data, UINT32_MAX, EINVAL);
	REFUSED(cap.max_inline_data, 1 << 16, EINVAL);
	REFUSED(qp_type, 0, EINVAL);
	REFUSED(qp_type, 77, EINVAL);
#undef REFUSED

	/* No receive queue, no send queue: both have their uses. */
	init = small_qp(cq);
	init.cap.max_recv_wr = init.cap.max_recv_sge = 0;
	qp = ibv_create_qp(d.pd, &init);
	REQUIRE(qp);
	REQUIRE_ERRNO(ibv_destroy_qp(qp), 0);
	init = small_qp(cq);
	init.cap.max_send_wr = init.cap.max_send_sge = 0;
	qp = ibv_create_qp(d.pd, &init);
	REQUIRE(qp);
	REQUIRE_ERRNO(ibv_destroy_qp(qp), 0);

	/* The largest there is, with every slot in its longest form. */
	init = small_qp(cq);
	init.cap.max_send_wr = init.cap.max_recv_wr = d.attr.max_qp_wr;
	init.cap.max_send_sge = init.cap.max_recv_sge = d.attr.max_sge;
	qp = ibv_create_qp(d.pd, &init);
	if (!qp)
		FAIL("a QP of max_qp_wr %d and max_sge %d: %s",
		     d.attr.max_qp_wr, d.attr.max_sge, strerror(errno));
	REQUIRE(init.cap.max_send_wr >= (uint32_t)d.attr.max_qp_wr);
	REQUIRE(init.cap.max_recv_sge >= (uint32_t)d.attr.max_sge);
	REQUIRE_ERRNO(ibv_destroy_qp(qp), 0);
	REQUIRE_ERRNO(ibv_destroy_cq(cq), 0);
	device_close(&d);
}

static void mr_arguments(void)
{
	size_t len = 1 << 20;
	struct ibv_mr *mr;
	struct device d;
	char *map;

	device_open(&d);
	map = mmap(NULL, len, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(map != MAP_FAILED);
	/* Remote write and remote atomic want local write (ibv_reg_mr(3)). */
	REQUIRE_NULL_ERRNO(ibv_reg_mr(d.pd, map, len, IBV_ACCESS_REMOTE_WRITE),
			   EINVAL);
	REQUIRE_NULL_ERRNO(ibv_reg_mr(d.pd, map, len, IBV_ACCESS_REMOTE_ATOMIC),
			   EINVAL);
	/* Flags that do not exist. */
	REQUIRE_NULL_ERRNO(ibv_reg_mr(d.pd, map, len, 1 << 15), EINVAL);
	/* Memory that is not there, in whole and in its last page. */
	REQUIRE_EQ(munmap(map + len - 4096, 4096), 0);
	REQUIRE_NULL_ERRNO(ibv_reg_mr(d.pd, map, len, IBV_ACCESS_LOCAL_WRITE),
			   EFAULT);
	REQUIRE_NULL_ERRNO(ibv_reg_mr(d.pd, (void *)8192, 4096,
				      IBV_ACCESS_LOCAL_WRITE), EFAULT);
	/* An address and a length that wrap around. */
	REQUIRE_NULL_ERRNO(ibv_reg_mr(d.pd, map, -4096ul,
				      IBV_ACCESS_LOCAL_WRITE), EINVAL);
	/* An address whose place in the page is not the memory's. */
	REQUIRE_NULL_ERRNO(ibv_reg_mr_iova(d.pd, map, 4096, 0x1001,
					   IBV_ACCESS_LOCAL_WRITE), EINVAL);

	mr = ibv_reg_mr(d.pd, map + 1, 1, ACCESS_ALL);
	REQUIRE(mr);
	REQUIRE(mr->addr == map + 1 && mr->length == 1 && mr->pd == d.pd);
	REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);
	munmap(map, len - 4096);
	device_close(&d);
}

/* Keys differ, and a key that was given back does not come back at once. */
static void mr_keys(void)
{
	enum { N = 200 };
	uint32_t old[N], fresh;
	struct ibv_mr *mr[N];
	static char buf[4096];
	struct device d;

	device_open(&d);
	for (int i = 0; i < N; i++) {
		mr[i] = ibv_reg_mr(d.pd, buf, sizeof(buf), ACCESS_ALL);
		REQUIRE(mr[i]);
		old[i] = mr[i]->rkey;
		for (int j = 0; j < i; j++)
			REQUIRE(mr[i]->rkey != mr[j]->rkey &&
				mr[i]->lkey != mr[j]->lkey);
	}
	for (int i = 0; i < N; i++)
		REQUIRE_ERRNO(ibv_dereg_mr(mr[i]), 0);
	for (int i = 0; i < N; i++) {
		mr[i] = ibv_reg_mr(d.pd, buf, sizeof(buf), ACCESS_ALL);
		REQUIRE(mr[i]);
		fresh = mr[i]->rkey;
		for (int j = 0; j < N; j++)
			REQUIRE(fresh != old[j]);
	}
	for (int i = 0; i < N; i++)
		REQUIRE_ERRNO(ibv_dereg_mr(mr[i]), 0);
	device_close(&d);
}

static void busy_objects(void)
{
	struct ibv_comp_channel *channel;
	struct ibv_qp_init_attr init;
	static char buf[4096];
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct device d;

	device_open(&d);
	mr = ibv_reg_mr(d.pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE);
	REQUIRE(mr);
	REQUIRE_ERRNO(ibv_dealloc_pd(d.pd), EBUSY);
	REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);

	channel = ibv_create_comp_channel(d.ctx);
	REQUIRE(channel);
	cq = ibv_create_cq(d.ctx, 16, NULL, channel, 0);
	REQUIRE(cq);
	REQUIRE_ERRNO(ibv_destroy_comp_channel(channel), EBUSY);
	init = small_qp(cq);
	qp = ibv_create_qp(d.pd, &init);
	REQUIRE(qp);
	REQUIRE_ERRNO(ibv_destroy_cq(cq), EBUSY);
	REQUIRE_ERRNO(ibv_dealloc_pd(d.pd), EBUSY);
	REQUIRE_ERRNO(ibv_destroy_qp(qp), 0);
	REQUIRE_ERRNO(ibv_destroy_cq(cq), 0);
	REQUIRE_ERRNO(ibv_destroy_comp_channel(channel), 0);
	device_close(&d);
}

const struct test_case object_cases[] = {
	{ "cq_arguments", cq_arguments },
	{ "qp_arguments", qp_arguments },
	{ "mr_arguments", mr_arguments },
	{ "mr_keys", mr_keys },
	{ "busy_objects", busy_objects },
	{ }
};
