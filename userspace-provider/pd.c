// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Protection domains, thread domains, and parent domains, which tie a
 * protection domain to a thread domain and to a program's allocator.
 *
 * The kernel sees only the protection domain inside a parent domain. The
 * provider reads from a parent domain which objects take no locks, and where
 * its own part of an object lies. (Rings are the kernel's memory.)
 */

#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "abi.h"
#include "ferrule.h"

/* Objects have a cache line to themselves. */
#define OBJECT_ALIGNMENT 64

struct ferrule_td {
	struct ibv_td ibv_td;
	atomic_uint users;	/* parent domains */
};

struct ferrule_pd {
	struct ibv_pd ibv_pd;
	/* Parent domains of this one, or of a parent domain its objects. */
	atomic_uint users;
	/* The rest is a parent domain's alone. */
	struct ferrule_pd *contained;
	struct ferrule_td *td;
	void *(*alloc)(struct ibv_pd *pd, void *pd_context, size_t size,
		       size_t alignment, uint64_t resource_type);
	void (*free)(struct ibv_pd *pd, void *pd_context, void *ptr,
		     uint64_t resource_type);
	void *pd_context;
};

static struct ferrule_td *to_ftd(struct ibv_td *td)
{
	return container_of(td, struct ferrule_td, ibv_td);
}

static struct ferrule_pd *to_fpd(struct ibv_pd *pd)
{
	return container_of(pd, struct ferrule_pd, ibv_pd);
}

/*
 * Protection domains
 */

struct ibv_pd *ferrule_alloc_pd(struct ibv_context *context)
{
	struct ib_uverbs_alloc_pd_resp resp;
	struct ibv_alloc_pd cmd = {};
	struct ferrule_pd *pd;

	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;

	if (ibv_cmd_alloc_pd(context, &pd->ibv_pd, &cmd, sizeof(cmd), &resp,
			     sizeof(resp))) {
		free(pd);
		return NULL;
	}

	return &pd->ibv_pd;
}

static void free_parent(struct ferrule_pd *parent)
{
	atomic_fetch_sub(&parent->contained->users, 1);
	if (parent->td)
		atomic_fetch_sub(&parent->td->users, 1);
	free(parent);
}

int ferrule_dealloc_pd(struct ibv_pd *ibpd)
{
	struct ferrule_pd *pd = to_fpd(ibpd);
	int ret;

	if (atomic_load(&pd->users))
		return EBUSY;
	if (pd->contained) {
		free_parent(pd);
		return 0;
	}

	ret = ibv_cmd_dealloc_pd(ibpd);
	if (ret)
		return ret;

	free(pd);
	return 0;
}

/*
 * A domain of another program by its handle. There is nothing that the kernel
 * could be asked about it: a handle that is none is refused by the first verb
 * that takes the domain.
 */
struct ibv_pd *ferrule_import_pd(struct ibv_context *context,
				 uint32_t pd_handle)
{
	struct ferrule_pd *pd;

	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;

	pd->ibv_pd.context = context;
	pd->ibv_pd.handle = pd_handle;

	return &pd->ibv_pd;
}

void ferrule_unimport_pd(struct ibv_pd *pd)
{
	free(to_fpd(pd));
}

/*
 * Thread domains and parent domains
 */

struct ibv_td *ferrule_alloc_td(struct ibv_context *context,
				struct ibv_td_init_attr *attr)
{
	struct ferrule_td *td;

	if (attr->comp_mask) {
		errno = EOPNOTSUPP;
		return NULL;
	}

	td = calloc(1, sizeof(*td));
	if (!td)
		return NULL;

	td->ibv_td.context = context;
	return &td->ibv_td;
}

int ferrule_dealloc_td(struct ibv_td *ibtd)
{
	struct ferrule_td *td = to_ftd(ibtd);

	if (atomic_load(&td->users))
		return EBUSY;

	free(td);
	return 0;
}

struct ibv_pd *
ferrule_alloc_parent_domain(struct ibv_context *context,
			    struct ibv_parent_domain_init_attr *attr)
{
	bool allocators = attr->comp_mask &
			  IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
	struct ferrule_pd *parent;

	if (ibv_check_alloc_parent_domain(attr))
		return NULL;
	if (!check_comp_mask(attr->comp_mask,
			     IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			     IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT |
			     PD_CC_SHARED)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	/* A parent domain contains a protection domain, and not another one. */
	if (to_fpd(attr->pd)->contained || attr->pd->context != context ||
	    (attr->td && attr->td->context != context) ||
	    (allocators && (!attr->alloc || !attr->free))) {
		errno = EINVAL;
		return NULL;
	}

	parent = calloc(1, sizeof(*parent));
	if (!parent)
		return NULL;

	parent->contained = to_fpd(attr->pd);
	atomic_fetch_add(&parent->contained->users, 1);
	if (attr->td) {
		parent->td = to_ftd(attr->td);
		atomic_fetch_add(&parent->td->users, 1);
	}
	if (allocators) {
		parent->alloc = attr->alloc;
		parent->free = attr->free;
	}
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
		parent->pd_context = attr->pd_context;
	ibv_initialize_parent_domain(&parent->ibv_pd, attr->pd);

	return &parent->ibv_pd;
}

bool ferrule_is_parent_domain(struct ibv_pd *pd)
{
	return to_fpd(pd)->contained;
}

bool ferrule_single_threaded(struct ibv_pd *pd)
{
	return pd && to_fpd(pd)->td;
}

/*
 * Objects
 */

/* So that a program's allocator can tell what it is asked for. */
static uint64_t resource_type(enum ferrule_resource resource)
{
	return (uint64_t)FERRULE_DRIVER_ID << 32 | resource;
}

/*
 * The size is a multiple of the alignment: an allocator that hands out one
 * piece behind the other keeps them aligned.
 */
static void *alloc_theirs(struct ferrule_pd *parent, size_t size,
			  enum ferrule_resource resource)
{
	size = (size + OBJECT_ALIGNMENT - 1) & ~(size_t)(OBJECT_ALIGNMENT - 1);

	return parent->alloc(&parent->ibv_pd, parent->pd_context, size,
			     OBJECT_ALIGNMENT, resource_type(resource));
}

void *ferrule_alloc_object(struct ibv_pd *pd, size_t size,
			   enum ferrule_resource resource,
			   struct ferrule_origin *origin)
{
	struct ferrule_pd *parent = pd ? to_fpd(pd) : NULL;
	void *object = IBV_ALLOCATOR_USE_DEFAULT;

	memset(origin, 0, sizeof(*origin));
	if (parent && parent->contained)
		origin->parent = parent;
	if (origin->parent && parent->alloc)
		object = alloc_theirs(parent, size, resource);
	if (object == IBV_ALLOCATOR_USE_DEFAULT)
		object = calloc(1, size);
	else
		origin->theirs = true;

	if (!object)
		errno = ENOMEM;
	else if (origin->parent)
		atomic_fetch_add(&origin->parent->users, 1);

	return object;
}

void ferrule_free_object(void *object, enum ferrule_resource resource,
			 struct ferrule_origin origin)
{
	struct ferrule_pd *parent = origin.parent;

	if (origin.theirs)
		parent->free(&parent->ibv_pd, parent->pd_context, object,
			     resource_type(resource));
	else
		free(object);
	if (parent)
		atomic_fetch_sub(&parent->users, 1);
}
