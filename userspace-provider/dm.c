// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Device memory. It is memory of the kernel's, which is mapped here, so that
 * copying needs no system call.
 */

#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <infiniband/cmd_ioctl.h>

#include "ferrule.h"

/*
 * Offsets and lengths of copies are multiples of it. The memory would take any,
 * but that of adapters does not, and programs are to find out here.
 */
#define COPY_ALIGNMENT 4

struct ferrule_dm {
	struct verbs_dm verbs;
	void *map;
	size_t length;		/* bytes, which whole pages are mapped for */
};

static struct ferrule_dm *to_fdm(struct ibv_dm *dm)
{
	return container_of(dm, struct ferrule_dm, verbs.dm);
}

static int check_copy(const struct ferrule_dm *dm, uint64_t offset,
		      size_t length)
{
	if (offset > dm->length || length > dm->length - offset)
		return EFAULT;
	if ((offset | length) % COPY_ALIGNMENT)
		return EINVAL;

	return 0;
}

static int memcpy_to_dm(struct ibv_dm *ibdm, uint64_t dm_offset,
			const void *host_addr, size_t length)
{
	struct ferrule_dm *dm = to_fdm(ibdm);
	int ret;

	ret = check_copy(dm, dm_offset, length);
	if (!ret)
		memcpy(dm->map + dm_offset, host_addr, length);

	return ret;
}

static int memcpy_from_dm(void *host_addr, struct ibv_dm *ibdm,
			  uint64_t dm_offset, size_t length)
{
	struct ferrule_dm *dm = to_fdm(ibdm);
	int ret;

	ret = check_copy(dm, dm_offset, length);
	if (!ret)
		memcpy(host_addr, dm->map + dm_offset, length);

	return ret;
}

/* Maps the memory that dm->verbs.handle names; returns an errno value. */
static int map_dm(struct ibv_context *context, struct ferrule_dm *dm)
{
	DECLARE_COMMAND_BUFFER(cmd, UVERBS_OBJECT_DEVICE,
			       FERRULE_METHOD_QUERY_DM, 2);
	struct ferrule_dm_place place;

	fill_attr_in_obj(cmd, FERRULE_ATTR_DM, dm->verbs.handle);
	fill_attr_out_ptr(cmd, FERRULE_ATTR_DM_PLACE, &place);
	if (execute_ioctl(context, cmd))
		return errno;

	dm->map = mmap(NULL, place.length, PROT_READ | PROT_WRITE, MAP_SHARED,
		       context->cmd_fd, place.offset);
	if (dm->map == MAP_FAILED)
		return errno;

	dm->length = place.length;
	dm->verbs.dm.context = context;
	dm->verbs.dm.handle = dm->verbs.handle;
	dm->verbs.dm.comp_mask = IBV_DM_MASK_HANDLE;
	dm->verbs.dm.memcpy_to_dm = memcpy_to_dm;
	dm->verbs.dm.memcpy_from_dm = memcpy_from_dm;

	return 0;
}

struct ibv_dm *ferrule_alloc_dm(struct ibv_context *context,
				struct ibv_alloc_dm_attr *attr)
{
	struct ferrule_dm *dm;
	int ret;

	if (!check_comp_mask(attr->comp_mask, 0)) {
		errno = EINVAL;
		return NULL;
	}

	dm = calloc(1, sizeof(*dm));
	if (!dm)
		return NULL;

	ret = ibv_cmd_alloc_dm(context, attr, &dm->verbs, NULL);
	if (ret)
		goto err_free;

	ret = map_dm(context, dm);
	if (ret)
		goto err_free_dm;

	return &dm->verbs.dm;

err_free_dm:
	ibv_cmd_free_dm(&dm->verbs);
err_free:
	free(dm);
	errno = ret;
	return NULL;
}

int ferrule_free_dm(struct ibv_dm *ibdm)
{
	struct ferrule_dm *dm = to_fdm(ibdm);
	int ret;

	ret = ibv_cmd_free_dm(&dm->verbs);
	if (ret)
		return ret;

	ferrule_unimport_dm(ibdm);
	return 0;
}

struct ibv_dm *ferrule_import_dm(struct ibv_context *context, uint32_t handle)
{
	struct ferrule_dm *dm;
	int ret;

	dm = calloc(1, sizeof(*dm));
	if (!dm)
		return NULL;

	dm->verbs.handle = handle;
	ret = map_dm(context, dm);
	if (ret) {
		free(dm);
		errno = ret;
		return NULL;
	}

	return &dm->verbs.dm;
}

/* The memory stays: it belongs to the program that has allocated it. */
void ferrule_unimport_dm(struct ibv_dm *ibdm)
{
	struct ferrule_dm *dm = to_fdm(ibdm);

	munmap(dm->map, dm->length);
	free(dm);
}

struct ibv_mr *ferrule_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm,
				 uint64_t dm_offset, size_t length,
				 unsigned int access)
{
	struct verbs_mr *mr;
	int ret;

	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return NULL;

	ret = ibv_cmd_reg_dm_mr(pd, &to_fdm(dm)->verbs, dm_offset, length,
				access, mr, NULL);
	if (ret) {
		free(mr);
		errno = ret;
		return NULL;
	}

	return &mr->ibv_mr;
}
