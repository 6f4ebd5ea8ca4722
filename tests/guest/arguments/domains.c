// SPDX-License-Identifier: GPL-2.0
/*
 * Thread and parent domains, and the answers of verbs of domains and regions.
 */
#include "arguments.h"

static struct ibv_qp *qp_of(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = small_qp(cq);

	return ibv_create_qp(pd, &init);
}

/*
 * A parent domain is its protection domain to the kernel, so objects of both
 * fit each other. A domain in use stays (ibv_alloc_parent_domain(3),
 * ibv_alloc_td(3): objects are destroyed first).
 */
static void parent_domain(void)
{
	struct ibv_td_init_attr td_attr = {};
	struct ibv_parent_domain_init_attr attr = {};
	struct ibv_pd *parent;
	struct ibv_td *td;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct device d;
	char memory[64];

	device_open(&d);
	td = ibv_alloc_td(d.ctx, &td_attr);
	REQUIRE(td);
	REQUIRE_NULL_ERRNO(ibv_alloc_parent_domain(d.ctx, &attr), EINVAL);
	attr.pd = d.pd;
	attr.td = td;
	parent = ibv_alloc_parent_domain(d.ctx, &attr);
	REQUIRE(parent);
	attr.pd = parent;
	REQUIRE_NULL_ERRNO(ibv_alloc_parent_domain(d.ctx, &attr), EINVAL);
	REQUIRE_ERRNO(ibv_dealloc_pd(d.pd), EBUSY);
	REQUIRE_ERRNO(ibv_dealloc_td(td), EBUSY);

	cq = ibv_create_cq(d.ctx, 8, NULL, NULL, 0);
	REQUIRE(cq);
	qp = qp_of(parent, cq);
	REQUIRE(qp);
	REQUIRE_ERRNO(ibv_dealloc_pd(parent), EBUSY);
	REQUIRE_ERRNO(ibv_destroy_qp(qp), 0);
	mr = ibv_reg_mr(parent, memory, sizeof(memory), 0);
	REQUIRE(mr);
	REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);
	REQUIRE_ERRNO(ibv_destroy_cq(cq), 0);
	REQUIRE_ERRNO(ibv_dealloc_pd(parent), 0);
	REQUIRE_ERRNO(ibv_dealloc_td(td), 0);
	device_close(&d);
}

/*
 * A region's address for its users may be another than the program's, with the
 * same place in the page. Verbs that the device lacks say so; of the order in
 * which bytes arrive nothing is promised.
 */
static void other_verbs(void)
{
	struct ibv_srq_init_attr_ex srq_attr = {
		.attr = { .max_wr = 4, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_BASIC,
	};
	static _Alignas(4096) char memory[4096];
	struct ibv_sge sge = { .length = sizeof(memory) };
	struct ibv_device_attr_ex attr;
	bool pages;
	struct ibv_srq *srq;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct device d;

	device_open(&d);
	REQUIRE_ERRNO(ibv_query_device_ex(d.ctx, NULL, &attr), 0);
	pages = attr.odp_caps.general_caps & IBV_ODP_SUPPORT;
	mr = ibv_reg_mr_iova(d.pd, memory, sizeof(memory), 0, 0);
	REQUIRE(mr);
	sge.lkey = mr->lkey;
	/* A pinned region takes no advice. */
	REQUIRE_ERRNO(ibv_advise_mr(d.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0,
				    &sge, 1),
		      pages ? EINVAL : EOPNOTSUPP);
	REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);
	REQUIRE_NULL_ERRNO(ibv_reg_mr_iova(d.pd, memory, sizeof(memory), 8, 0),
			   EINVAL);
	REQUIRE_NULL_ERRNO(ibv_alloc_null_mr(d.pd), EOPNOTSUPP);

	srq_attr.pd = d.pd;
	srq = ibv_create_srq_ex(d.ctx, &srq_attr);
	REQUIRE(srq);
	REQUIRE_ERRNO(ibv_destroy_srq(srq), 0);
	/* One of XRC has a domain and a completion queue. */
	srq_attr.srq_type = IBV_SRQT_XRC;
	REQUIRE_NULL_ERRNO(ibv_create_srq_ex(d.ctx, &srq_attr), EINVAL);

	cq = ibv_create_cq(d.ctx, 8, NULL, NULL, 0);
	REQUIRE(cq);
	qp = qp_of(d.pd, cq);
	REQUIRE(qp);
	REQUIRE_EQ(ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 0), 0);
	REQUIRE_ERRNO(ibv_destroy_qp(qp), 0);
	REQUIRE_ERRNO(ibv_destroy_cq(cq), 0);
	device_close(&d);
}

const struct test_case domain_cases[] = {
	{ "parent_domain", parent_domain },
	{ "other_verbs", other_verbs },
	{ }
};
