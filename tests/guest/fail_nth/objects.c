// SPDX-License-Identifier: GPL-2.0
/* Verbs that make and destroy objects. */
#include "stage.h"

#include <unistd.h>

/* libibverbs tries another name when it cannot open the first: ENOENT. */
static int open_device(void)
{
	int error = made(ibv_open_device(st.d.ctx->device));

	return error == ENOENT ? ENOMEM : error;
}

static void close_device(void)
{
	REQUIRE_ERRNO(ibv_close_device(st.made), 0);
}

/*
 * libibverbs answers EINVAL for a file that it cannot look at, and ENODEV for
 * devices that it cannot list.
 */
static int import_device(void)
{
	int fd = dup(st.d.ctx->cmd_fd);
	int error;

	if (fd < 0)
		return errno;
	error = made(ibv_import_device(fd));
	if (error)
		close(fd);

	return error == EINVAL || error == ENODEV ? ENOMEM : error;
}

static int alloc_pd(void)
{
	return made(ibv_alloc_pd(st.d.ctx));
}

static void dealloc_pd(void)
{
	REQUIRE_ERRNO(ibv_dealloc_pd(st.made), 0);
}

static int reg_mr_small(void)
{
	return made(ibv_reg_mr(st.d.pd, memory(), 100, ACCESS_ALL));
}

static int reg_mr_large(void)
{
	return made(ibv_reg_mr(st.d.pd, memory(), 4 << 20, ACCESS_ALL));
}

void dereg_mr(void)
{
	REQUIRE_ERRNO(ibv_dereg_mr(st.made), 0);
}

static int alloc_dm(void)
{
	struct ibv_alloc_dm_attr attr = { .length = 10000 };

	return made(ibv_alloc_dm(st.d.ctx, &attr));
}

static void free_dm(void)
{
	REQUIRE_ERRNO(ibv_free_dm(st.made), 0);
}

static int reg_dm_mr(void)
{
	return made(ibv_reg_dm_mr(st.d.pd, st.dm, 4, 4096,
				  IBV_ACCESS_ZERO_BASED));
}

static int alloc_mw_1(void)
{
	return made(ibv_alloc_mw(st.d.pd, IBV_MW_TYPE_1));
}

static int alloc_mw(void)
{
	return made(ibv_alloc_mw(st.d.pd, IBV_MW_TYPE_2));
}

static void dealloc_mw(void)
{
	REQUIRE_ERRNO(ibv_dealloc_mw(st.made), 0);
}

static int create_channel(void)
{
	return made(ibv_create_comp_channel(st.d.ctx));
}

static void destroy_channel(void)
{
	REQUIRE_ERRNO(ibv_destroy_comp_channel(st.made), 0);
}

static int create_cq_small(void)
{
	return made(ibv_create_cq(st.d.ctx, 4, NULL, st.channel, 0));
}

static int create_cq_large(void)
{
	return made(ibv_create_cq(st.d.ctx, 16384, NULL, NULL, 0));
}

static int create_cq_ex(void)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 4, .channel = st.channel,
		.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
	};

	return made(ibv_create_cq_ex(st.d.ctx, &attr));
}

static void destroy_cq(void)
{
	REQUIRE_ERRNO(ibv_destroy_cq(st.made), 0);
}

static int create_qp(enum ibv_qp_type type, struct ibv_srq *srq,
		     uint32_t depth, uint32_t sge)
{
	struct ibv_qp_init_attr init = {
		.send_cq = st.a.scq, .recv_cq = st.a.rcq, .srq = srq,
		.qp_type = type, .cap = { depth, depth, sge, sge, 0 },
	};

	return made(ibv_create_qp(st.d.pd, &init));
}

static int create_qp_small(void)
{
	return create_qp(IBV_QPT_RC, NULL, 4, 1);
}

static int create_qp_large(void)
{
	return create_qp(IBV_QPT_RC, NULL, 4096, 16);
}

static int create_qp_with_srq(void)
{
	return create_qp(IBV_QPT_RC, st.srq, 4, 1);
}

static int create_qp_uc(void)
{
	return create_qp(IBV_QPT_UC, NULL, 4, 1);
}

static int create_qp_ud(void)
{
	return create_qp(IBV_QPT_UD, NULL, 4, 1);
}

static int create_qp_ex(void)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = st.a.scq, .recv_cq = st.a.rcq, .pd = st.d.pd,
		.qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 },
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};

	return made(ibv_create_qp_ex(st.d.ctx, &init));
}

void destroy_qp(void)
{
	REQUIRE_ERRNO(ibv_destroy_qp(st.made), 0);
}

static int create_srq(uint32_t depth, uint32_t sge)
{
	struct ibv_srq_init_attr init = {
		.attr = { .max_wr = depth, .max_sge = sge },
	};

	return made(ibv_create_srq(st.d.pd, &init));
}

static int create_srq_small(void)
{
	return create_srq(4, 1);
}

static int create_srq_large(void)
{
	return create_srq(4096, 16);
}

void destroy_srq(void)
{
	REQUIRE_ERRNO(ibv_destroy_srq(st.made), 0);
}

static int create_ah(void)
{
	return made(ah_to(&st.d.gid));
}

static void destroy_ah(void)
{
	REQUIRE_ERRNO(ibv_destroy_ah(st.made), 0);
}

const struct verb object_verbs[] = {
	{ "ibv_open_device", open_device, close_device },
	{ "ibv_import_device", import_device, close_device },
	{ "ibv_alloc_pd", alloc_pd, dealloc_pd },
	{ "ibv_reg_mr, a page", reg_mr_small, dereg_mr },
	{ "ibv_reg_mr, 4 MiB", reg_mr_large, dereg_mr },
	{ "ibv_alloc_dm", alloc_dm, free_dm },
	{ "ibv_reg_dm_mr", reg_dm_mr, dereg_mr },
	{ "ibv_alloc_mw, type 1", alloc_mw_1, dealloc_mw },
	{ "ibv_alloc_mw, type 2", alloc_mw, dealloc_mw },
	{ "ibv_create_comp_channel", create_channel, destroy_channel },
	{ "ibv_create_cq, small", create_cq_small, destroy_cq },
	{ "ibv_create_cq, large", create_cq_large, destroy_cq },
	{ "ibv_create_cq_ex", create_cq_ex, destroy_cq },
	{ "ibv_create_srq, small", create_srq_small, destroy_srq },
	{ "ibv_create_srq, large", create_srq_large, destroy_srq },
	{ "ibv_create_qp, small", create_qp_small, destroy_qp },
	{ "ibv_create_qp, large", create_qp_large, destroy_qp },
	{ "ibv_create_qp, with an SRQ", create_qp_with_srq, destroy_qp },
	{ "ibv_create_qp, UC", create_qp_uc, destroy_qp },
	{ "ibv_create_qp, UD", create_qp_ud, destroy_qp },
	{ "ibv_create_qp_ex", create_qp_ex, destroy_qp },
	{ "ibv_create_ah", create_ah, destroy_ah },
	{ }
};

const struct destroyed destroyed[] = {
	{ "ibv_close_device", open_device, (int (*)(void *))ibv_close_device },
	{ "ibv_dealloc_pd", alloc_pd, (int (*)(void *))ibv_dealloc_pd },
	{ "ibv_dereg_mr", reg_mr_small, (int (*)(void *))ibv_dereg_mr },
	{ "ibv_free_dm", alloc_dm, (int (*)(void *))ibv_free_dm },
	{ "ibv_dealloc_mw", alloc_mw, (int (*)(void *))ibv_dealloc_mw },
	{ "ibv_destroy_comp_channel", create_channel,
	  (int (*)(void *))ibv_destroy_comp_channel },
	{ "ibv_destroy_cq", create_cq_large, (int (*)(void *))ibv_destroy_cq },
	{ "ibv_destroy_srq", create_srq_small,
	  (int (*)(void *))ibv_destroy_srq },
	{ "ibv_destroy_qp", create_qp_small, (int (*)(void *))ibv_destroy_qp },
	{ "ibv_destroy_qp, UD", create_qp_ud,
	  (int (*)(void *))ibv_destroy_qp },
	{ "ibv_destroy_ah", create_ah, (int (*)(void *))ibv_destroy_ah },
	{ }
};
