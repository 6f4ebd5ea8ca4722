// SPDX-License-Identifier: GPL-2.0
/* Verbs of XRC domains, of other drivers' buffers, of on-demand memory, and of imported objects. */
#include "stage.h"

#include <fcntl.h>

static int open_xrcd(void)
{
	return made(xrcd_open(&st.d, -1, O_CREAT));
}

static void close_xrcd(void)
{
	REQUIRE_ERRNO(ibv_close_xrcd(st.made), 0);
}

static int create_xrc_srq(void)
{
	struct ibv_srq_attr attr = { .max_wr = 4, .max_sge = 1 };

	return made(xrc_create_srq(&st.d, st.xrcd, st.cq, &attr));
}

/*
 * Destroyed alone: when the core cannot open a target that it has just made,
 * Linux's create_xrc_qp_user() destroys it and keeps its use of the domain,
 * which then cannot be closed any more.
 */
static int create_target(void)
{
	return made(xrc_create_target(&st.d, st.xrcd));
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
