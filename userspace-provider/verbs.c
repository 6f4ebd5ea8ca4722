// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Verbs that are the kernel's work alone: device and port, memory regions and
 * windows.
 */

#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "abi.h"
#include "ferrule.h"

int ferrule_query_device(struct ibv_context *context,
			 const struct ibv_query_device_ex_input *input,
			 struct ibv_device_attr_ex *attr, size_t attr_size)
{
	struct ib_uverbs_ex_query_device_resp resp;
	size_t resp_size = sizeof(resp);
	uint64_t fw_ver;
	int ret;

	ret = ibv_cmd_query_device_any(context, input, attr, attr_size, &resp,
				       &resp_size);
	if (ret)
		return ret;

	fw_ver = resp.base.fw_ver;
	snprintf(attr->orig_attr.fw_ver, sizeof(attr->orig_attr.fw_ver),
		 "%u.%u.%u", (unsigned int)(fw_ver >> 32),
		 (unsigned int)(fw_ver >> 16 & 0xffff),
		 (unsigned int)(fw_ver & 0xffff));

	return 0;
}

int ferrule_query_port(struct ibv_context *context, uint8_t port,
		       struct ibv_port_attr *attr)
{
	struct ibv_query_port cmd = {};

	return ibv_cmd_query_port(context, port, attr, &cmd, sizeof(cmd));
}

struct ibv_mr *ferrule_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			      uint64_t hca_va, int access)
{
	struct ib_uverbs_reg_mr_resp resp;
	struct ibv_reg_mr cmd = {};
	struct verbs_mr *mr;

	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return NULL;

	if (ibv_cmd_reg_mr(pd, addr, length, hca_va, access, mr, &cmd,
			   sizeof(cmd), &resp, sizeof(resp))) {
		free(mr);
		return NULL;
	}

	return &mr->ibv_mr;
}

struct ibv_mr *ferrule_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
				     size_t length, uint64_t iova, int fd,
				     int access)
{
	struct verbs_mr *mr;
	int ret;

	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return NULL;

	ret = ibv_cmd_reg_dmabuf_mr(pd, offset, length, iova, fd, access,
				    mr AND_54(NULL));
	if (ret) {
		free(mr);
		errno = ret;
		return NULL;
	}

	return &mr->ibv_mr;
}

/* The keys stay. */
int ferrule_rereg_mr(struct verbs_mr *mr, int flags, struct ibv_pd *pd,
		     void *addr, size_t length, int access)
{
	struct ib_uverbs_rereg_mr_resp resp;
	struct ibv_rereg_mr cmd = {};

	return ibv_cmd_rereg_mr(mr, flags, addr, length, (uintptr_t)addr,
				access, pd, &cmd, sizeof(cmd), &resp,
				sizeof(resp));
}

int ferrule_dereg_mr(struct verbs_mr *mr)
{
	int ret;

	ret = ibv_cmd_dereg_mr(mr);
	if (ret)
		return ret;

	free(mr);
	return 0;
}

/* A region of another program by its handle; the kernel knows its keys. */
struct ibv_mr *ferrule_import_mr(struct ibv_pd *pd, uint32_t mr_handle)
{
	struct verbs_mr *mr;
	int err;

	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return NULL;

	err = ibv_cmd_query_mr(pd, mr, mr_handle);
	if (err) {
		free(mr);
		errno = err;
		return NULL;
	}

	return &mr->ibv_mr;
}

void ferrule_unimport_mr(struct ibv_mr *mr)
{
	free(verbs_get_mr(mr));
}

struct ibv_mw *ferrule_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ib_uverbs_alloc_mw_resp resp;
	struct ibv_alloc_mw cmd = {};
	struct ibv_mw *mw;

	mw = calloc(1, sizeof(*mw));
	if (!mw)
		return NULL;

	if (ibv_cmd_alloc_mw(pd, type, mw, &cmd, sizeof(cmd), &resp,
			     sizeof(resp))) {
		free(mw);
		return NULL;
	}

	return mw;
}

int ferrule_dealloc_mw(struct ibv_mw *mw)
{
	int ret;

	ret = ibv_cmd_dealloc_mw(mw);
	if (ret)
		return ret;

	free(mw);
	return 0;
}
