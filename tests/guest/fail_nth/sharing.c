// SPDX-License-Identifier: GPL-2.0
/* Verbs of what several share: XRC domains, buffers of other drivers, imported objects. */
#include "stage.h"

#include <fcntl.h>

static int open_xrcd(void)
{
	struct ibv_xrcd_init_attr domain = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1, .oflags = O_CREAT,
	};

	return made(ibv_open_xrcd(st.d.ctx, &domain));
}

static void close_xrcd(void)
{
	REQUIRE_ERRNO(ibv_close_xrcd(st.made), 0);
}

static int create_xrc_srq(void)
{
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = 4, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = st.d.pd, .xrcd = st.xrcd, .cq = st.cq,
	};

	return made(ibv_create_srq_ex(st.d.ctx, &init));
}

static void destroy_srq(void)
{
	REQUIRE_ERRNO(ibv_destroy_srq(st.made), 0);
}

/*
 * Destroyed alone: when the core cannot open a target that it has just made,
 * Linux's create_xrc_qp_user() destroys it and keeps its use of the domain,
 * which then cannot be closed any more.
 */
static int create_target(void)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = st.xrcd,
	};

	return made(ibv_create_qp_ex(st.d.ctx, &init));
}

static int create_initiator(void)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_XRC_SEND, .send_cq = st.cq,
		.cap = { .max_send_wr = 4, .max_send_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = st.d.pd,
	};

	return made(ibv_create_qp_ex(st.d.ctx, &init));
}

static void destroy_qp(void)
{
	REQUIRE_ERRNO(ibv_destroy_qp(st.made), 0);
}

/*
 * Destroyed alone: when the exporter has no memory for a mapping, Linux's
 * dma_buf_vmap() warns.
 */
static int reg_dmabuf_mr(void)
{
	return made(ibv_reg_dmabuf_mr(st.d.pd, 0, 4096, 0, st.buffer,
				      ACCESS_ALL));
}

static int reg_mr_on_demand(void)
{
	return made(ibv_reg_mr(st.d.pd, memory(), 4 << 20,
			       ACCESS_ALL | IBV_ACCESS_ON_DEMAND));
}

static void dereg_mr(void)
{
	REQUIRE_ERRNO(ibv_dereg_mr(st.made), 0);
}

static int import_pd(void)
{
	return made(ibv_import_pd(st.d.ctx, st.d.pd->handle));
}

static void unimport_pd(void)
{
	ibv_unimport_pd(st.made);
}

static int import_mr(void)
{
	return made(ibv_import_mr(st.d.pd, st.mr->handle));
}

static void unimport_mr(void)
{
	ibv_unimport_mr(st.made);
}

static int import_dm(void)
{
	return made(ibv_import_dm(st.d.ctx, st.dm->handle));
}

static void unimport_dm(void)
{
	ibv_unimport_dm(st.made);
}

static int advise_mr(void)
{
	struct ibv_sge sge = { (uintptr_t)memory(), 1 << 16,
			       st.on_demand->lkey };

	return ibv_advise_mr(st.d.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
			     IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1);
}

/* Some time later, by another thread: nothing is told of its errors. */
static int advise_mr_later(void)
{
	struct ibv_sge sge = { (uintptr_t)memory(), 1 << 16,
			       st.on_demand->lkey };

	return ibv_advise_mr(st.d.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1);
}

const struct verb sharing_verbs[] = {
	{ "ibv_open_xrcd", open_xrcd, close_xrcd },
	{ "ibv_create_srq_ex, XRC", create_xrc_srq, destroy_srq },
	{ "ibv_create_qp_ex, an XRC initiator", create_initiator, destroy_qp },
	{ "ibv_import_pd", import_pd, unimport_pd },
	{ "ibv_import_mr", import_mr, unimport_mr },
	{ "ibv_import_dm", import_dm, unimport_dm },
	{ }
};

const struct verb paging_verbs[] = {
	{ "ibv_reg_mr, on demand", reg_mr_on_demand, dereg_mr },
	{ "ibv_advise_mr, at once", advise_mr },
	{ "ibv_advise_mr, later", advise_mr_later },
	{ }
};

const struct destroyed sharing_destroyed[] = {
	{ "ibv_close_xrcd", open_xrcd, (int (*)(void *))ibv_close_xrcd },
	{ "ibv_destroy_srq, XRC", create_xrc_srq,
	  (int (*)(void *))ibv_destroy_srq },
	{ "ibv_destroy_qp, an XRC target", create_target,
	  (int (*)(void *))ibv_destroy_qp },
	{ "ibv_dereg_mr, of a buffer", reg_dmabuf_mr,
	  (int (*)(void *))ibv_dereg_mr },
	{ }
};

const struct destroyed paging_destroyed[] = {
	{ "ibv_dereg_mr, on demand", reg_mr_on_demand,
	  (int (*)(void *))ibv_dereg_mr },
	{ }
};
