// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#define _GNU_SOURCE

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../abi.h"
#include "fake_kernel.h"

#define FILE_SIZE (16 << 20)
#define FAKE_PAGE 4096

struct fake_kernel fake;

static const struct verbs_device_ops *driver;
static uint8_t *file;
static size_t file_used;

/* Pages of the command file, and where user space maps them. */
static void *new_pages(size_t size, __u64 *offset)
{
	void *pages = file + file_used;

	*offset = file_used;
	file_used += (size + FAKE_PAGE - 1) / FAKE_PAGE * FAKE_PAGE;
	CHECK(file_used <= FILE_SIZE);

	return pages;
}

struct fake_areas fake_new_areas(struct ferrule_alloc_ucontext_resp *resp)
{
	uint8_t *mine, *theirs;

	mine = new_pages(FERRULE_DB_AREA_SIZE, &resp->db_offset);
	theirs = new_pages(FERRULE_DB_AREA_SIZE, &resp->status_offset);

	return (struct fake_areas){
		.db = (void *)mine,
		.leaf = (void *)(mine + FERRULE_DB_LEAF_OFFSET),
		.status = (void *)theirs,
		.leaf_ack = (void *)(theirs + FERRULE_DB_LEAF_OFFSET),
	};
}

void fake_new_first(struct ferrule_alloc_ucontext_resp *resp)
{
	struct fake_areas areas = fake_new_areas(resp);

	fake.db = areas.db;
	fake.leaf = areas.leaf;
	fake.status = areas.status;
	fake.leaf_ack = areas.leaf_ack;
}

static int new_file(void)
{
	int fd;

	memset(&fake, 0, sizeof(fake));
	fake.next_qp_num = 17;
	fake.next_gen = 1;
	file_used = 0;

	fd = memfd_create("ferrule", 0);
	CHECK(fd >= 0);
	CHECK(!ftruncate(fd, FILE_SIZE));
	file = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(file != MAP_FAILED);

	return fd;
}

void fake_open(void)
{
	struct verbs_context *ctx;

	ctx = driver->alloc_context(NULL, new_file(), NULL);
	CHECK(ctx);
	fake.context = &ctx->context;
}

void fake_import(void)
{
	struct verbs_context *ctx;

	ctx = driver->import_context(NULL, new_file());
	CHECK(ctx);
	fake.context = &ctx->context;
}

void fake_close(void)
{
	int fd = fake.context->cmd_fd;

	fake.ops->free_context(fake.context);
	munmap(file, FILE_SIZE);
	close(fd);
}

void fake_complete(struct fake_cq *cq, struct ferrule_cqe cqe)
{
	uint32_t nth = cq->producer - cq->base;
	struct ferrule_cqe *slot = &cq->ring[nth % cq->depth];
	uint32_t consumer;

	consumer = le32toh(__atomic_load_n(&cq->ctrl->consumer,
					   __ATOMIC_ACQUIRE));
	/* Nobody who keeps to the depths that were agreed sees an overrun. */
	CHECK(cq->producer - consumer < cq->depth);

	cqe.phase = slot->phase;
	*slot = cqe;
	__atomic_store_n(&slot->phase,
			 htole32(!(nth / cq->depth & 1)),
			 __ATOMIC_RELEASE);
	cq->producer++;
}

void fake_complete_send(struct fake_qp *qp, uint64_t wr_id, uint32_t index)
{
	struct ferrule_cqe cqe = {
		.wr_id = htole64(wr_id),
		.qp_num = htole32(qp->qp_num),
		.qp_gen = htole32(qp->layout.qp_gen),
		.queue_index = htole32(index),
		.opcode = FERRULE_WC_SEND,
	};

	fake_complete(qp->send_cq, cqe);
}

void fake_event(struct fake_cq *cq, bool solicited)
{
	uint32_t arm;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	arm = le32toh(__atomic_load_n(&cq->ctrl->arm, __ATOMIC_RELAXED));
	if (arm >> FERRULE_CQ_ARM_SN_SHIFT == cq->last_event)
		return;
	if ((arm & FERRULE_CQ_ARM_SOLICITED) && !solicited)
		return;
	cq->last_event = arm >> FERRULE_CQ_ARM_SN_SHIFT;
	cq->events++;
}

/* Acknowledges what is rung in a word, and returns it. */
static uint64_t acknowledge(const void *word, void *ack)
{
	uint64_t rung = __atomic_load_n((const uint64_t *)word,
					__ATOMIC_ACQUIRE) ^
			*(uint64_t *)ack;

	__atomic_store_n((uint64_t *)ack, *(uint64_t *)ack ^ rung,
			 __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);

	return le64toh(rung);
}

static struct fake_qp *find_qp(unsigned int d)
{
	unsigned int i;

	for (i = 0; i < fake.num_qps; i++)
		if (fake.qps[i].ibqp &&
		    (fake.qps[i].qp_num & FERRULE_DB_INDEX_MASK) == d)
			return &fake.qps[i];

	return NULL;
}

unsigned int fake_scan(void (*visit)(struct fake_qp *qp))
{
	unsigned int visits = 0;
	uint64_t tops, leaves;
	struct fake_qp *qp;
	unsigned int i, t;

	for (i = 0; i < FERRULE_DB_TOP_WORDS; i++) {
		tops = acknowledge(&fake.db->top[i], &fake.status->top[i]);
		for (; tops; tops &= tops - 1) {
			t = i * 64 + __builtin_ctzll(tops);
			leaves = acknowledge(&fake.leaf[t], &fake.leaf_ack[t]);
			for (; leaves; leaves &= leaves - 1) {
				qp = find_qp(t * 64 + __builtin_ctzll(leaves));
				if (!qp)
					continue;
				visit(qp);
				visits++;
			}
		}
	}

	return visits;
}

unsigned int fake_look(uint32_t *count, void (*visit)(struct fake_qp *qp))
{
	uint64_t rung = le64toh(__atomic_load_n((uint64_t *)&fake.db->rung,
						__ATOMIC_ACQUIRE));
	uint32_t missed = (rung >> FERRULE_RUNG_COUNT_SHIFT) - *count;
	struct fake_qp *qp;

	if (!missed)
		return 0;

	*count += missed;
	__atomic_store_n((uint32_t *)&fake.status->taken, htole32(*count),
			 __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (missed > (uint16_t)rung)
		return fake_scan(visit);

	qp = find_qp(rung >> FERRULE_RUNG_DB_SHIFT &
		     FERRULE_DB_INDEX_MASK);
	CHECK(qp);
	visit(qp);

	return 1;
}

/*
 * libibverbs
 */

void verbs_register_driver(const struct verbs_device_ops *ops)
{
	driver = ops;
}

void *_verbs_init_and_alloc_context(struct ibv_device *device, int cmd_fd,
				    size_t alloc_size,
				    struct verbs_context *context_offset,
				    uint32_t driver_id)
{
	uint8_t *ctx = calloc(1, alloc_size);
	struct verbs_context *vctx;

	CHECK(ctx);
	CHECK(driver_id == FERRULE_DRIVER_ID);
	vctx = (void *)(ctx + (uintptr_t)context_offset);
	vctx->context.cmd_fd = cmd_fd;

	return ctx;
}

void verbs_uninit_context(struct verbs_context *context)
{
}

void verbs_set_ops(struct verbs_context *vctx,
		   const struct verbs_context_ops *ops)
{
	fake.ops = ops;
}

int ibv_cmd_get_context(struct verbs_context *context,
			struct ibv_get_context *cmd, size_t cmd_size
				AND_57(struct ibv_fd_arr *fd_arr),
			struct ib_uverbs_get_context_resp *resp,
			size_t resp_size)
{
	struct alloc_ucontext_resp *r = (void *)resp;

	CHECK(resp_size == sizeof(*r));
	fake_new_first(&r->drv);

	return 0;
}

int ibv_cmd_query_context(struct ibv_context *context,
			  struct ibv_command_buffer *of_driver)
{
	CHECK(!of_driver);

	return 0;
}

int ibv_cmd_alloc_pd(struct ibv_context *context, struct ibv_pd *pd,
		     struct ibv_alloc_pd *cmd, size_t cmd_size,
		     struct ib_uverbs_alloc_pd_resp *resp, size_t resp_size)
{
	pd->context = context;
	pd->handle = ++fake.num_pds;

	return 0;
}

int ibv_cmd_dealloc_pd(struct ibv_pd *pd)
{
	return 0;
}

int ibv_cmd_create_cq_ex(struct ibv_context *context,
			 const struct ibv_cq_init_attr_ex *attr
				 AND_59(struct verbs_create_cq_prov_attr *prov),
			 struct verbs_cq *cq, struct ibv_create_cq_ex *cmd,
			 size_t cmd_size,
			 struct ib_uverbs_ex_create_cq_resp *resp,
			 size_t resp_size, uint32_t cmd_flags)
{
	struct fake_cq *fcq = &fake.cqs[fake.num_cqs];
	struct create_cq_cmd *c = (void *)cmd;
	struct create_cq_resp *r = (void *)resp;

	CHECK(cmd_size == sizeof(*c) && resp_size == sizeof(*r));
	CHECK(!c->drv.reserved);
	if (fake.cq_refusal)
		return fake.cq_refusal;
	fcq->doorbells = c->drv.doorbells;
	CHECK(fake.num_cqs < FAKE_MAX_CQ);
	fcq->depth = 1;
	while (fcq->depth < attr->cqe)
		fcq->depth *= 2;

	r->drv.ring_size = fcq->depth * sizeof(struct ferrule_cqe);
	r->drv.ctrl_size = sizeof(struct ferrule_cq_ctrl);
	r->drv.depth = fcq->depth;
	r->drv.cqn = fake.num_cqs;
	fcq->ring = new_pages(r->drv.ring_size, &r->drv.ring_offset);
	fcq->ctrl = new_pages(r->drv.ctrl_size, &r->drv.ctrl_offset);

	cq->cq.context = context;
	cq->cq.handle = fake.num_cqs++;
	cq->cq.cqe = fcq->depth;

	return 0;
}

int ibv_cmd_resize_cq(struct ibv_cq *cq, int cqe, struct ibv_resize_cq *cmd,
		      size_t cmd_size, struct ib_uverbs_resize_cq_resp *resp,
		      size_t resp_size)
{
	struct resize_cq_resp *r = (void *)resp;
	struct fake_cq *fcq = fake_cq(cq);

	CHECK(resp_size == sizeof(*r));
	fcq->depth = 1;
	while (fcq->depth < cqe)
		fcq->depth *= 2;
	fcq->base = fcq->producer;

	r->drv.ring_size = fcq->depth * sizeof(struct ferrule_cqe);
	r->drv.depth = fcq->depth;
	r->drv.base = fcq->base;
	fcq->ring = new_pages(r->drv.ring_size, &r->drv.ring_offset);
	cq->cqe = fcq->depth;

	return 0;
}

int ibv_cmd_destroy_cq(struct ibv_cq *cq)
{
	return 0;
}

int ibv_cmd_create_qp_ex2(struct ibv_context *context, struct verbs_qp *qp,
			  struct ibv_qp_init_attr_ex *attr,
			  struct ibv_create_qp_ex *cmd, size_t cmd_size,
			  struct ib_uverbs_ex_create_qp_resp *resp,
			  size_t resp_size
				  AND_64(struct ibv_command_buffer *more))
{
	struct fake_qp *fqp = &fake.qps[fake.num_qps];
	struct create_qp_cmd *c = (void *)cmd;
	struct create_qp_resp *r = (void *)resp;
	struct ferrule_create_qp_resp *l = &r->drv;

	CHECK(cmd_size == sizeof(*c) && resp_size == sizeof(*r));
	CHECK(!c->drv.reserved);
	fqp->doorbells = c->drv.doorbells;
	CHECK(fake.num_qps < FAKE_MAX_QP);
	attr->cap.max_send_sge = 4;
	attr->cap.max_recv_sge = 7;
	attr->cap.max_inline_data = 64;

	/* Send: 48 + 64 bytes; receive: 16 + 7 * 16. */
	l->sq_stride = 128;
	l->rq_stride = 128;
	l->sq_depth = 1;
	while (l->sq_depth < attr->cap.max_send_wr)
		l->sq_depth *= 2;
	l->rq_depth = 1;
	while (l->rq_depth < attr->cap.max_recv_wr)
		l->rq_depth *= 2;
	l->ctrl_offset = 0;
	l->sq_offset = sizeof(struct ferrule_qp_ctrl);
	l->rq_offset = l->sq_offset + l->sq_depth * l->sq_stride;
	l->buf_size = l->rq_offset + l->rq_depth * l->rq_stride;
	l->qp_gen = fake.next_gen++;

	fqp->buf = new_pages(l->buf_size, &l->buf_offset);
	/* Whatever is left over in a slot must not be taken for a request. */
	memset(fqp->buf + l->sq_offset, 0xa5, l->buf_size - l->sq_offset);
	fqp->layout = *l;
	fqp->ctrl = (void *)(fqp->buf + l->ctrl_offset);
	fqp->qp_num = fake.next_qp_num;
	fqp->send_cq = fake_cq(attr->send_cq);
	fqp->recv_cq = fake_cq(attr->recv_cq);
	fqp->ibqp = &qp->qp;
	fake.next_qp_num += 64;

	qp->qp.context = context;
	qp->qp.handle = fake.num_qps++;
	qp->qp.qp_num = fqp->qp_num;
	qp->qp.qp_type = attr->qp_type;
	qp->qp.send_cq = attr->send_cq;
	qp->qp.recv_cq = attr->recv_cq;
	qp->qp.state = IBV_QPS_RESET;

	return 0;
}

int ibv_cmd_destroy_qp(struct ibv_qp *qp)
{
	fake_qp(qp)->ibqp = NULL;
	return 0;
}

int ibv_cmd_create_srq(struct ibv_pd *pd, struct ibv_srq *srq,
		       struct ibv_srq_init_attr *attr,
		       struct ibv_create_srq *cmd, size_t cmd_size,
		       struct ib_uverbs_create_srq_resp *resp, size_t resp_size)
{
	struct fake_srq *fsrq = &fake.srqs[fake.num_srqs];
	struct create_srq_cmd *c = (void *)cmd;
	struct create_srq_resp *r = (void *)resp;
	struct ferrule_create_srq_resp *l = &r->drv;

	CHECK(cmd_size == sizeof(*c) && resp_size == sizeof(*r));
	CHECK(!c->drv.reserved);
	CHECK(fake.num_srqs < FAKE_MAX_SRQ);
	fsrq->doorbells = c->drv.doorbells;
	attr->attr.max_sge = 3;
	l->stride = 64;
	l->depth = 1;
	while (l->depth < attr->attr.max_wr)
		l->depth *= 2;
	l->ctrl_offset = 0;
	l->ring_offset = sizeof(struct ferrule_srq_ctrl);
	l->buf_size = l->ring_offset + l->depth * l->stride;
	fsrq->buf = new_pages(l->buf_size, &l->buf_offset);
	memset(fsrq->buf + l->ring_offset, 0xa5, l->depth * l->stride);
	fsrq->layout = *l;
	fsrq->ctrl = (void *)(fsrq->buf + l->ctrl_offset);

	srq->context = pd->context;
	srq->handle = fake.num_srqs++;

	return 0;
}

int ibv_cmd_destroy_srq(struct ibv_srq *srq)
{
	return 0;
}

int ibv_cmd_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr,
		      int attr_mask, struct ibv_modify_qp *cmd, size_t cmd_size)
{
	if (attr->qp_state == IBV_QPS_RESET)
		fake_qp(qp)->consumer = 0;
	return 0;
}

int ibv_cmd_create_ah(struct ibv_pd *pd, struct ibv_ah *ah,
		      struct ibv_ah_attr *attr,
		      struct ib_uverbs_create_ah_resp *resp, size_t resp_size)
{
	struct create_ah_resp *r = (void *)resp;

	CHECK(resp_size == sizeof(*r));
	r->drv.ah = 0xa4;
	return 0;
}

int ibv_cmd_destroy_ah(struct ibv_ah *ah)
{
	return 0;
}
