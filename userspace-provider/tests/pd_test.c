// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Protection, thread and parent domains, and allocators of programs. */
#include <errno.h>
#include <string.h>

#include "../abi.h"
#include "../ferrule.h"
#include "provider_test.h"

static struct ibv_pd *new_parent(struct ibv_parent_domain_init_attr *attr)
{
	errno = 0;
	return fake.ops->alloc_parent_domain(fake.context, attr);
}

static struct ibv_td *new_td(void)
{
	struct ibv_td_init_attr attr = {};
	struct ibv_td *td = fake.ops->alloc_td(fake.context, &attr);

	CHECK(td && td->context == fake.context);
	return td;
}

static struct ibv_cq *cq_of(struct ibv_pd *pd)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 4,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
		.parent_domain = pd,
	};
	struct ibv_cq_ex *cq = fake.ops->create_cq_ex(fake.context, &attr);

	return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}

static struct ibv_qp *qp_of(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = fake.ops->create_qp(pd, &attr);

	if (qp) {
		qp->pd = pd;
		qp->state = IBV_QPS_RTS;
	}
	return qp;
}

static struct ibv_srq *srq_of(struct ibv_pd *pd)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 4 } };

	return fake.ops->create_srq(pd, &attr);
}

/*
 * A domain that is in use is not freed, and arguments that make no sense are
 * refused.
 */
void test_domains(void)
{
	struct ibv_td_init_attr td_attr = { .comp_mask = 1 };
	struct ibv_parent_domain_init_attr attr = {};
	struct ibv_pd *pd = new_pd(), *parent;
	struct ibv_td *td = new_td();
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	CHECK(!fake.ops->alloc_td(fake.context, &td_attr));
	CHECK(errno == EOPNOTSUPP);

	CHECK(!new_parent(&attr) && errno == EINVAL);
	attr.pd = pd;
	attr.comp_mask = 1 << 7;
	CHECK(!new_parent(&attr) && errno == EOPNOTSUPP);
	attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
	CHECK(!new_parent(&attr) && errno == EINVAL);
	attr.comp_mask = PD_CC_SHARED;
	attr.td = td;
	parent = new_parent(&attr);
	CHECK(parent && parent->context == fake.context);
	CHECK(parent->handle == pd->handle);
	attr.pd = parent;
	CHECK(!new_parent(&attr) && errno == EINVAL);

	CHECK(fake.ops->dealloc_pd(pd) == EBUSY);
	CHECK(fake.ops->dealloc_td(td) == EBUSY);
	CHECK(!cq_of(pd) && errno == EINVAL);
	cq = cq_of(parent);
	CHECK(cq && fake.ops->dealloc_pd(parent) == EBUSY);
	qp = qp_of(parent, cq);
	CHECK(qp && !fake.ops->destroy_qp(qp));
	CHECK(fake.ops->dealloc_pd(parent) == EBUSY);
	CHECK(!fake.ops->destroy_cq(cq));
	CHECK(!fake.ops->dealloc_pd(parent));
	CHECK(!fake.ops->dealloc_pd(pd));
	CHECK(!fake.ops->dealloc_td(td));
}

/* An allocator with one piece of memory and one answer. */
static struct {
	_Alignas(64) uint8_t memory[16384];
	size_t used;
	bool refuses;
	bool leaves;	/* it to the provider */
	unsigned int freed;
	uint64_t type;
	struct ibv_pd *parent;
} pool;

static bool is_in_pool(const void *memory)
{
	return (const uint8_t *)memory >= pool.memory &&
	       (const uint8_t *)memory < pool.memory + pool.used;
}

static void *take(struct ibv_pd *pd, void *context, size_t size,
		  size_t alignment, uint64_t type)
{
	void *memory = pool.memory + pool.used;

	CHECK(context == &pool && pd == pool.parent);
	CHECK(size % alignment == 0 && alignment == 64);
	CHECK(type >> 32 == FERRULE_DRIVER_ID);
	pool.type = type;
	if (pool.refuses)
		return NULL;
	if (pool.leaves)
		return IBV_ALLOCATOR_USE_DEFAULT;
	pool.used += size;
	CHECK(pool.used <= sizeof(pool.memory));
	return memory;
}

static void give_back(struct ibv_pd *pd, void *context, void *memory,
		      uint64_t type)
{
	CHECK(context == &pool && pd == pool.parent && type == pool.type);
	CHECK(is_in_pool(memory));
	pool.freed++;
}

void test_allocators(void)
{
	struct ibv_parent_domain_init_attr attr = {
		.pd = new_pd(),
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			     IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
		.alloc = take,
		.free = give_back,
		.pd_context = &pool,
	};
	struct ibv_pd *parent = new_parent(&attr);
	struct ibv_srq *srq;
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	CHECK(parent);
	pool.parent = parent;
	cq = cq_of(parent);
	CHECK(is_in_pool(cq) && (uint32_t)pool.type == FERRULE_RESOURCE_CQ);
	srq = srq_of(parent);
	CHECK(is_in_pool(srq) && (uint32_t)pool.type == FERRULE_RESOURCE_SRQ);
	CHECK(!fake.ops->destroy_srq(srq) && pool.freed == 1);
	qp = qp_of(parent, cq);
	CHECK(is_in_pool(qp) && (uint32_t)pool.type == FERRULE_RESOURCE_QP);
	CHECK(!post_id(qp, 7));
	CHECK(!fake.ops->destroy_qp(qp) && pool.freed == 2);

	/* A buffer that the pool leaves to the provider does not come back. */
	pool.leaves = true;
	qp = qp_of(parent, cq);
	CHECK(qp && !is_in_pool(qp));
	CHECK(!fake.ops->destroy_qp(qp) && pool.freed == 2);

	/* An object that the pool refuses is made for nobody. */
	pool.refuses = true;
	CHECK(!cq_of(parent) && errno == ENOMEM);
	CHECK(!srq_of(parent) && errno == ENOMEM);
	CHECK(!qp_of(parent, cq) && errno == ENOMEM);
	pool.type = (uint64_t)FERRULE_DRIVER_ID << 32 | FERRULE_RESOURCE_CQ;
	CHECK(!fake.ops->destroy_cq(cq) && pool.freed == 3);
	CHECK(!fake.ops->dealloc_pd(parent));
}

/* Objects of a thread domain take no locks. */
void test_thread_domain(void)
{
	struct ibv_parent_domain_init_attr attr = { .pd = new_pd() };
	struct ibv_pd *without = new_parent(&attr), *with;
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	attr.td = new_td();
	with = new_parent(&attr);
	CHECK(with && without);

	cq = cq_of(without);
	qp = qp_of(without, cq);
	CHECK(!to_fcq(cq)->lock.single_threaded);
	CHECK(!to_fqp(qp)->sq.lock.single_threaded);
	CHECK(!to_fqp(qp)->rq.lock.single_threaded);
	CHECK(!to_fsrq(srq_of(without))->rq.lock.single_threaded);

	cq = cq_of(with);
	qp = qp_of(with, cq);
	CHECK(to_fcq(cq)->lock.single_threaded);
	CHECK(to_fqp(qp)->sq.lock.single_threaded);
	CHECK(to_fqp(qp)->rq.lock.single_threaded);
	CHECK(to_fsrq(srq_of(with))->rq.lock.single_threaded);
	/* The doorbells are the whole process's. */
	CHECK(!to_fctx(fake.context)->db->lock.single_threaded);
	CHECK(!post_id(qp, 1));
}
