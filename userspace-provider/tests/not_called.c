// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include <stdlib.h>

#include "../abi.h"
#include "fake_kernel.h"

/* Functions that the provider hands through and no test calls. */
#define NOT_CALLED(_name, ...)                                                 \
	int _name(__VA_ARGS__)                                                 \
	{                                                                      \
		abort();                                                       \
	}

NOT_CALLED(ibv_cmd_query_device_any, struct ibv_context *context,
	   const struct ibv_query_device_ex_input *input,
	   struct ibv_device_attr_ex *attr, size_t attr_size,
	   struct ib_uverbs_ex_query_device_resp *resp, size_t *resp_size)
NOT_CALLED(ibv_cmd_query_port, struct ibv_context *context, uint8_t port_num,
	   struct ibv_port_attr *port_attr, struct ibv_query_port *cmd,
	   size_t cmd_size)
NOT_CALLED(ibv_cmd_reg_mr, struct ibv_pd *pd, void *addr, size_t length,
	   uint64_t hca_va, int access, struct verbs_mr *vmr,
	   struct ibv_reg_mr *cmd, size_t cmd_size,
	   struct ib_uverbs_reg_mr_resp *resp, size_t resp_size)
NOT_CALLED(ibv_cmd_reg_dmabuf_mr, struct ibv_pd *pd, uint64_t offset,
	   size_t length, uint64_t iova, int fd, int access,
	   struct verbs_mr *vmr AND_54(struct ibv_command_buffer *driver))
NOT_CALLED(ibv_cmd_dereg_mr, struct verbs_mr *vmr)
NOT_CALLED(ibv_cmd_advise_mr, struct ibv_pd *pd,
	   enum ibv_advise_mr_advice advice, uint32_t flags,
	   struct ibv_sge *sg_list, uint32_t num_sge)
NOT_CALLED(ibv_cmd_rereg_mr, struct verbs_mr *vmr, uint32_t flags, void *addr,
	   size_t length, uint64_t hca_va, int access, struct ibv_pd *pd,
	   struct ibv_rereg_mr *cmd, size_t cmd_sz,
	   struct ib_uverbs_rereg_mr_resp *resp, size_t resp_sz)
NOT_CALLED(ibv_cmd_alloc_dm, struct ibv_context *ctx,
	   const struct ibv_alloc_dm_attr *dm_attr, struct verbs_dm *dm,
	   struct ibv_command_buffer *link)
NOT_CALLED(ibv_cmd_free_dm, struct verbs_dm *dm)
NOT_CALLED(ibv_cmd_reg_dm_mr, struct ibv_pd *pd, struct verbs_dm *dm,
	   uint64_t offset, size_t length, unsigned int access,
	   struct verbs_mr *vmr, struct ibv_command_buffer *link)
NOT_CALLED(ibv_cmd_alloc_mw, struct ibv_pd *pd, enum ibv_mw_type type,
	   struct ibv_mw *mw, struct ibv_alloc_mw *cmd, size_t cmd_size,
	   struct ib_uverbs_alloc_mw_resp *resp, size_t resp_size)
NOT_CALLED(ibv_cmd_dealloc_mw, struct ibv_mw *mw)
NOT_CALLED(ibv_cmd_query_qp, struct ibv_qp *qp, struct ibv_qp_attr *qp_attr,
	   int attr_mask, struct ibv_qp_init_attr *qp_init_attr,
	   struct ibv_query_qp *cmd, size_t cmd_size)
NOT_CALLED(ibv_cmd_query_mr, struct ibv_pd *pd, struct verbs_mr *mr,
	   uint32_t mr_handle)
NOT_CALLED(ibv_cmd_modify_cq, struct ibv_cq *cq,
	   struct ibv_modify_cq_attr *attr, struct ibv_modify_cq *cmd,
	   size_t cmd_size)
NOT_CALLED(ibv_cmd_create_srq_ex, struct ibv_context *context,
	   struct verbs_srq *srq, struct ibv_srq_init_attr_ex *attr_ex,
	   struct ibv_create_xsrq *cmd, size_t cmd_size,
	   struct ib_uverbs_create_srq_resp *resp, size_t resp_size)
NOT_CALLED(ibv_cmd_open_xrcd, struct ibv_context *context,
	   struct verbs_xrcd *xrcd, int vxrcd_size,
	   struct ibv_xrcd_init_attr *attr, struct ibv_open_xrcd *cmd,
	   size_t cmd_size, struct ib_uverbs_open_xrcd_resp *resp,
	   size_t resp_size)
NOT_CALLED(ibv_cmd_close_xrcd, struct verbs_xrcd *xrcd)
NOT_CALLED(ibv_cmd_open_qp, struct ibv_context *context, struct verbs_qp *qp,
	   int vqp_sz, struct ibv_qp_open_attr *attr, struct ibv_open_qp *cmd,
	   size_t cmd_size, struct ib_uverbs_create_qp_resp *resp,
	   size_t resp_size)
NOT_CALLED(ibv_cmd_modify_srq, struct ibv_srq *srq, struct ibv_srq_attr *attr,
	   int attr_mask, struct ibv_modify_srq *cmd, size_t cmd_size)
NOT_CALLED(ibv_cmd_query_srq, struct ibv_srq *srq, struct ibv_srq_attr *attr,
	   struct ibv_query_srq *cmd, size_t cmd_size)
NOT_CALLED(ibv_cmd_create_flow, struct ibv_qp *qp, struct ibv_flow *flow,
	   struct ibv_flow_attr *attr, void *ucmd, size_t ucmd_size)
NOT_CALLED(ibv_cmd_destroy_flow, struct ibv_flow *flow)
NOT_CALLED(ibv_cmd_attach_mcast, struct ibv_qp *qp, const union ibv_gid *gid,
	   uint16_t lid)
NOT_CALLED(ibv_cmd_detach_mcast, struct ibv_qp *qp, const union ibv_gid *gid,
	   uint16_t lid)
