// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The devices that are ours, and the mappings of an open one. */

#include <config.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <infiniband/cmd_ioctl.h>

#include "abi.h"
#include "ferrule.h"

/*
 * Every mapping that the module gives out is DONTCOPY: a child does not have
 * it, and touching it there is a fault. So ibv_fork_init() has nothing to do
 * for rings and doorbells, and nothing here calls ibv_dontfork_range().
 */

/* By driver_id; by name only where sysfs is all there is. */
static const struct verbs_match_ent match_table[] = {
	VERBS_DRIVER_ID(FERRULE_DRIVER_ID),
	VERBS_NAME_MATCH("ferrule", NULL),
	{},
};

static void ferrule_free_context(struct ibv_context *ibctx);

static const struct verbs_context_ops context_ops = {
	.advise_mr = ibv_cmd_advise_mr,
	.alloc_dm = ferrule_alloc_dm,
	.alloc_mw = ferrule_alloc_mw,
	.alloc_parent_domain = ferrule_alloc_parent_domain,
	.alloc_pd = ferrule_alloc_pd,
	.alloc_td = ferrule_alloc_td,
	.attach_mcast = ibv_cmd_attach_mcast,
	.bind_mw = ferrule_bind_mw,
	.close_xrcd = ferrule_close_xrcd,
	.cq_event = ferrule_cq_event,
	.create_ah = ferrule_create_ah,
	.create_cq = ferrule_create_cq,
	.create_cq_ex = ferrule_create_cq_ex,
	.create_flow = ferrule_create_flow,
	.create_qp = ferrule_create_qp,
	.create_qp_ex = ferrule_create_qp_ex,
	.create_srq = ferrule_create_srq,
	.create_srq_ex = ferrule_create_srq_ex,
	.dealloc_mw = ferrule_dealloc_mw,
	.dealloc_pd = ferrule_dealloc_pd,
	.dealloc_td = ferrule_dealloc_td,
	.dereg_mr = ferrule_dereg_mr,
	.destroy_ah = ferrule_destroy_ah,
	.destroy_cq = ferrule_destroy_cq,
	.destroy_flow = ferrule_destroy_flow,
	.destroy_qp = ferrule_destroy_qp,
	.destroy_srq = ferrule_destroy_srq,
	.detach_mcast = ibv_cmd_detach_mcast,
	.free_context = ferrule_free_context,
	.free_dm = ferrule_free_dm,
	.get_srq_num = ferrule_get_srq_num,
	.import_dm = ferrule_import_dm,
	.import_mr = ferrule_import_mr,
	.import_pd = ferrule_import_pd,
	.modify_cq = ferrule_modify_cq,
	.modify_qp = ferrule_modify_qp,
	.modify_srq = ferrule_modify_srq,
	.open_qp = ferrule_open_qp,
	.open_xrcd = ferrule_open_xrcd,
	.poll_cq = ferrule_poll_cq,
	.post_recv = ferrule_post_recv,
	.post_send = ferrule_post_send,
	.post_srq_recv = ferrule_post_srq_recv,
	.query_device_ex = ferrule_query_device,
	.query_port = ferrule_query_port,
	.query_qp = ferrule_query_qp,
	.query_rt_values = ferrule_query_rt_values,
	.query_srq = ferrule_query_srq,
	.reg_dm_mr = ferrule_reg_dm_mr,
	.reg_dmabuf_mr = ferrule_reg_dmabuf_mr,
	.reg_mr = ferrule_reg_mr,
	.req_notify_cq = ferrule_req_notify_cq,
	.rereg_mr = ferrule_rereg_mr,
	.resize_cq = ferrule_resize_cq,
	.unimport_dm = ferrule_unimport_dm,
	.unimport_mr = ferrule_unimport_mr,
	.unimport_pd = ferrule_unimport_pd,
};

static int open_context(struct ferrule_context *ctx, int cmd_fd)
{
	struct alloc_ucontext_resp resp = {};
	struct ibv_get_context cmd = {};
	int err;

	err = ibv_cmd_get_context(&ctx->verbs, &cmd,
				  sizeof(cmd) AND_57(NULL), &resp.core,
				  sizeof(resp));
	if (err)
		return err;

	ctx->db = ferrule_map_doorbells(cmd_fd, &resp.drv);

	return ctx->db ? 0 : errno;
}

static void release_doorbells(struct ibv_context *context, uint32_t number)
{
	DECLARE_COMMAND_BUFFER(cmd, UVERBS_OBJECT_DEVICE,
			       FERRULE_METHOD_UNIMPORT, 1);

	fill_attr_in(cmd, FERRULE_ATTR_NUMBER, &number, sizeof(number));
	execute_ioctl(context, cmd);
}

/* Takes doorbells of its own for a context that another program has opened. */
static int import_context(struct ferrule_context *ctx, int cmd_fd)
{
	DECLARE_COMMAND_BUFFER(cmd, UVERBS_OBJECT_DEVICE, FERRULE_METHOD_IMPORT,
			       1);
	struct ibv_context *context = &ctx->verbs.context;
	struct ferrule_alloc_ucontext_resp resp = {};
	int err;

	err = ibv_cmd_query_context(context, NULL);
	if (err)
		return err;

	fill_attr_out(cmd, FERRULE_ATTR_DOORBELLS, &resp, sizeof(resp));
	err = execute_ioctl(context, cmd);
	if (err)
		return err;

	ctx->db = ferrule_map_doorbells(cmd_fd, &resp);
	if (!ctx->db) {
		err = errno;
		release_doorbells(context, resp.number);
	}

	return err;
}

/* Says whether threads that poll in vain yield: unless the user forbids it. */
static bool may_yield(void)
{
	const char *value = getenv("FERRULE_YIELD_CQ_POLL");

	return !value || strcmp(value, "0");
}

static struct verbs_context *
new_context(struct ibv_device *device, int cmd_fd,
	    int (*fill)(struct ferrule_context *ctx, int cmd_fd))
{
	struct ferrule_context *ctx;
	int err;

	ctx = verbs_init_and_alloc_context(device, cmd_fd, ctx, verbs,
					   FERRULE_DRIVER_ID);
	if (!ctx)
		return NULL;

	err = fill(ctx, cmd_fd);
	if (err) {
		verbs_uninit_context(&ctx->verbs);
		free(ctx);
		errno = err;
		return NULL;
	}

	ctx->yields = may_yield();
	ferrule_threads_init(ctx);
	ferrule_qp_table_init(&ctx->qps);
	verbs_set_ops(&ctx->verbs, &context_ops);

	return &ctx->verbs;
}

static struct verbs_context *ferrule_alloc_context(struct ibv_device *device,
						   int cmd_fd,
						   void *private_data)
{
	return new_context(device, cmd_fd, open_context);
}

static struct verbs_context *ferrule_import_context(struct ibv_device *device,
						    int cmd_fd)
{
	return new_context(device, cmd_fd, import_context);
}

static void ferrule_free_context(struct ibv_context *ibctx)
{
	struct ferrule_context *ctx = to_fctx(ibctx);
	uint32_t number = ctx->db->number;

	ferrule_qp_table_free(&ctx->qps);
	ferrule_threads_free(ctx);
	if (number)
		release_doorbells(ibctx, number);
	verbs_uninit_context(&ctx->verbs);
	free(ctx);
}

static struct verbs_device *
ferrule_alloc_device(struct verbs_sysfs_dev *sysfs_dev)
{
	return calloc(1, sizeof(struct verbs_device));
}

static void ferrule_uninit_device(struct verbs_device *device)
{
	free(device);
}

static const struct verbs_device_ops ferrule_device_ops = {
	.name = "ferrule",
	.match_min_abi_version = FERRULE_ABI_VERSION,
	.match_max_abi_version = FERRULE_ABI_VERSION,
	.match_table = match_table,
	.alloc_device = ferrule_alloc_device,
	.uninit_device = ferrule_uninit_device,
	.alloc_context = ferrule_alloc_context,
	.import_context = ferrule_import_context,
};
PROVIDER_DRIVER(ferrule, ferrule_device_ops);
