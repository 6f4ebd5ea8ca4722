// SPDX-License-Identifier: GPL-2.0
/*
 * Extended reliable connections (IBA volume 1, annex A14): one target queue pair
 * for many shared receive queues, which programs have in one domain.
 */
#include <fcntl.h>

#include "xrc/xrc.h"

void receiver_make(struct receiver *r, const struct device *d,
		   struct ibv_xrcd *xrcd)
{
	struct ibv_srq_attr attr = { .max_wr = 64, .max_sge = 2 };

	memset(r, 0, sizeof(*r));
	r->d = device_other_pd(d);
	r->cq = ibv_create_cq(d->ctx, 256, NULL, NULL, 0);
	REQUIRE(r->cq);
	r->srq = xrc_create_srq(&r->d, xrcd, r->cq, &attr);
	if (!r->srq)
		FAIL("ibv_create_srq_ex: %s", strerror(errno));
	REQUIRE(attr.max_wr >= 64 && attr.max_sge >= 2);
	REQUIRE_ERRNO(ibv_get_srq_num(r->srq, &r->number), 0);
	region_make(&r->r, &r->d, 64 * LEN, 0, ACCESS);
}

void receiver_free(struct receiver *r)
{
	if (r->srq)
		REQUIRE_ERRNO(ibv_destroy_srq(r->srq), 0);
	REQUIRE_ERRNO(ibv_destroy_cq(r->cq), 0);
	REGION_CHECK(&r->r);
	region_free(&r->r);
	device_free_pd(&r->d);
}

void receiver_post(struct receiver *r, uint64_t wr_id, size_t offset,
		   size_t len)
{
	struct ibv_sge sge = sge_of(&r->r, offset, len);
	struct ibv_recv_wr wr = {
		.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
	}, *bad;

	REQUIRE_ERRNO(ibv_post_srq_recv(r->srq, &wr, &bad), 0);
}

struct ibv_qp *target_make(struct device *d, struct ibv_xrcd *xrcd)
{
	struct ibv_qp *qp = xrc_create_target(d, xrcd);

	if (!qp)
		FAIL("ibv_create_qp_ex of a target: %s", strerror(errno));
	return qp;
}

void connection_make(struct connection *c, struct device *d,
		     struct ibv_xrcd *xrcd)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_XRC_SEND,
		.cap = { .max_send_wr = 64, .max_send_sge = 2,
			 .max_inline_data = 64 },
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = d->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND |
				  IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
				  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
				  IBV_QP_EX_WITH_LOCAL_INV,
	};

	c->d = d;
	c->cq = ibv_create_cq(d->ctx, 64, NULL, NULL, 0);
	REQUIRE(c->cq);
	init.send_cq = c->cq;
	c->from = ibv_create_qp_ex(d->ctx, &init);
	if (!c->from)
		FAIL("ibv_create_qp_ex of an initiator: %s", strerror(errno));
	REQUIRE_EQ(init.cap.max_recv_wr, 0);
	c->to = target_make(d, xrcd);
	xrc_connect(d, c->from, c->to, ACCESS);
	xrc_connect(d, c->to, c->from, ACCESS);
}

void connection_free(struct connection *c)
{
	REQUIRE_ERRNO(ibv_destroy_qp(c->from), 0);
	REQUIRE_ERRNO(ibv_destroy_qp(c->to), 0);
	REQUIRE_ERRNO(ibv_destroy_cq(c->cq), 0);
}

enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	REQUIRE_ERRNO(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

int try_to(struct connection *c, struct ibv_send_wr *wr, uint32_t srq)
{
	struct ibv_send_wr *bad = NULL;
	int ret;

	wr->send_flags |= IBV_SEND_SIGNALED;
	wr->qp_type.xrc.remote_srqn = srq;
	ret = ibv_post_send(c->from, wr, &bad);
	REQUIRE(!ret == !bad);
	return ret;
}

void send_to(struct connection *c, uint64_t wr_id, const struct region *r,
	     size_t offset, size_t len, uint32_t srq)
{
	struct ibv_sge sge = sge_of(r, offset, len);
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.opcode = IBV_WR_SEND,
		.sg_list = &sge,
		.num_sge = 1,
	};

	REQUIRE_ERRNO(try_to(c, &wr, srq), 0);
}

/* A connection, two receivers in its domain, and memory of the sender. */
struct scene {
	struct device d;
	struct ibv_xrcd *xrcd;
	struct connection c;
	struct receiver one, two;
	struct region mine;
};

static void scene_make(struct scene *s)
{
	device_open(&s->d);
	s->xrcd = xrcd_open(&s->d, -1, O_CREAT);
	if (!s->xrcd)
		FAIL("ibv_open_xrcd: %s", strerror(errno));
	connection_make(&s->c, &s->d, s->xrcd);
	receiver_make(&s->one, &s->d, s->xrcd);
	receiver_make(&s->two, &s->d, s->xrcd);
	region_make(&s->mine, &s->d, 64 * LEN, 0, ACCESS);
	fill(s->mine.data, s->mine.len, 1);
}

static void scene_free(struct scene *s)
{
	REGION_CHECK(&s->mine);
	region_free(&s->mine);
	receiver_free(&s->two);
	receiver_free(&s->one);
	connection_free(&s->c);
	REQUIRE_ERRNO(ibv_close_xrcd(s->xrcd), 0);
	device_close(&s->d);
}

static void capability(void)
{
	struct device d;

	device_open(&d);
	REQUIRE(d.attr.device_cap_flags & IBV_DEVICE_XRC);
	device_close(&d);
}

/* The completion names the target and the sender. */
static void each_goes_where_it_is_sent(void)
{
	struct scene s;
	struct ibv_wc wc;

	scene_make(&s);
	receiver_post(&s.one, 10, 0, LEN);
	receiver_post(&s.two, 20, 0, LEN);
	send_to(&s.c, 1, &s.mine, 0, 5000, s.two.number);
	send_to(&s.c, 2, &s.mine, 0, 60, s.one.number);
	EXPECT_OK(s.c.cq, 1);
	EXPECT_OK(s.c.cq, 2);
	wc = EXPECT_OK(s.one.cq, 10);
	REQUIRE_EQ(wc.byte_len, 60);
	REQUIRE_EQ(wc.qp_num, s.c.to->qp_num);
	REQUIRE_EQ(wc.src_qp, s.c.from->qp_num);
	wc = EXPECT_OK(s.two.cq, 20);
	REQUIRE_EQ(wc.byte_len, 5000);
	VERIFY(s.one.r.data, 60, 1);
	VERIFY(s.two.r.data, 5000, 1);
	scene_free(&s);
}

static void operations(void)
{
	struct ibv_send_wr wr = { .num_sge = 1 };
	struct ibv_sge sge;
	struct ibv_wc wc;
	struct scene s;

	scene_make(&s);
	wr.sg_list = &sge;
	wr.wr.rdma.remote_addr = (uintptr_t)s.two.r.data;
	wr.wr.rdma.rkey = s.two.r.mr->rkey;

	sge = sge_of(&s.mine, 0, LEN);
	wr.wr_id = 1;
	wr.opcode = IBV_WR_RDMA_WRITE;
	REQUIRE_ERRNO(try_to(&s.c, &wr, s.two.number), 0);
	EXPECT_OK(s.c.cq, 1);
	VERIFY(s.two.r.data, LEN, 1);

	receiver_post(&s.two, 2, LEN, 16);
	wr.wr_id = 2;
	wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr.imm_data = 0x01020304;
	wr.send_flags = IBV_SEND_INLINE;
	sge.length = 32;
	REQUIRE_ERRNO(try_to(&s.c, &wr, s.two.number), 0);
	EXPECT_OK(s.c.cq, 2);
	wc = EXPECT_OK(s.two.cq, 2);
	REQUIRE_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	REQUIRE_EQ(wc.imm_data, 0x01020304);
	wr.send_flags = 0;

	memset(s.mine.data + LEN, 0, LEN);
	sge = sge_of(&s.mine, LEN, LEN);
	wr.wr_id = 3;
	wr.opcode = IBV_WR_RDMA_READ;
	REQUIRE_ERRNO(try_to(&s.c, &wr, s.two.number), 0);
	EXPECT_OK(s.c.cq, 3);
	VERIFY(s.mine.data + LEN, LEN, 1);

	memset(s.two.r.data, 0, 8);
	sge = sge_of(&s.mine, 0, 8);
	wr.wr_id = 4;
	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr.wr.atomic.remote_addr = (uintptr_t)s.two.r.data;
	wr.wr.atomic.rkey = s.two.r.mr->rkey;
	wr.wr.atomic.compare_add = 7;
	REQUIRE_ERRNO(try_to(&s.c, &wr, s.two.number), 0);
	EXPECT_OK(s.c.cq, 4);
	REQUIRE_EQ(*(uint64_t *)s.two.r.data, 7);
	wr.wr_id = 5;
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.swap = 9;
	REQUIRE_ERRNO(try_to(&s.c, &wr, s.two.number), 0);
	EXPECT_OK(s.c.cq, 5);
	REQUIRE_EQ(*(uint64_t *)s.two.r.data, 9);
	REQUIRE_EQ(*(uint64_t *)s.mine.data, 7);
	EXPECT_NO_WC(s.one.cq);
	scene_free(&s);
}

/* ibv_wr_set_xrc_srqn(3). */
static void work_requests(void)
{
	struct ibv_qp_ex *qp;
	struct scene s;
	struct ibv_wc wc;

	scene_make(&s);
	qp = ibv_qp_to_qp_ex(s.c.from);
	memset(s.one.r.data, 0, 8);
	receiver_post(&s.one, 10, LEN, LEN);
	receiver_post(&s.two, 20, 0, 0);

	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_SIGNALED;
	qp->wr_id = 1;
	ibv_wr_send(qp);
	ibv_wr_set_xrc_srqn(qp, s.one.number);
	ibv_wr_set_sge(qp, s.mine.mr->lkey, (uintptr_t)s.mine.data, 3000);
	qp->wr_id = 2;
	ibv_wr_rdma_write_imm(qp, s.two.r.mr->rkey, (uintptr_t)s.two.r.data, 5);
	ibv_wr_set_xrc_srqn(qp, s.two.number);
	ibv_wr_set_inline_data(qp, s.mine.data, 8);
	qp->wr_id = 3;
	ibv_wr_atomic_fetch_add(qp, s.one.r.mr->rkey,
				(uintptr_t)s.one.r.data, 4);
	ibv_wr_set_xrc_srqn(qp, s.one.number);
	ibv_wr_set_sge(qp, s.mine.mr->lkey, (uintptr_t)s.mine.data + LEN, 8);
	REQUIRE_ERRNO(ibv_wr_complete(qp), 0);
	for (int i = 1; i <= 3; i++)
		EXPECT_OK(s.c.cq, i);
	EXPECT_OK(s.one.cq, 10);
	wc = EXPECT_OK(s.two.cq, 20);
	REQUIRE_EQ(wc.imm_data, 5);
	VERIFY(s.one.r.data + LEN, 3000, 1);
	VERIFY(s.two.r.data, 8, 1);
	REQUIRE_EQ(*(uint64_t *)s.one.r.data, 4);

	/* No number has more than 24 bits. */
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_set_xrc_srqn(qp, 1 << 24);
	REQUIRE_ERRNO(ibv_wr_complete(qp), EINVAL);
	EXPECT_NO_WC(s.c.cq);
	scene_free(&s);
}

/* The sender waits until a request is posted. */
static void not_ready(void)
{
	struct scene s;

	scene_make(&s);
	send_to(&s.c, 1, &s.mine, 0, 100, s.one.number);
	EXPECT_NO_WC(s.c.cq);
	receiver_post(&s.one, 10, 0, LEN);
	EXPECT_OK(s.one.cq, 10);
	EXPECT_OK(s.c.cq, 1);
	VERIFY(s.one.r.data, 100, 1);
	scene_free(&s);
}

static void limit(void)
{
	struct ibv_srq_attr attr = { .srq_limit = 2 };
	struct scene s;

	scene_make(&s);
	receiver_post(&s.one, 10, 0, LEN);
	receiver_post(&s.one, 11, 0, LEN);
	REQUIRE_ERRNO(ibv_modify_srq(s.one.srq, &attr, IBV_SRQ_LIMIT), 0);
	expect_no_async(s.d.ctx);
	send_to(&s.c, 1, &s.mine, 0, 100, s.one.number);
	EXPECT_OK(s.c.cq, 1);
	expect_async(s.d.ctx, IBV_EVENT_SRQ_LIMIT_REACHED, s.one.srq);
	EXPECT_OK(s.one.cq, 10);
	scene_free(&s);
}

/*
 * Queues come and go, each with completions that nobody polls, and these do not
 * fill the completion queue.
 */
static void let_queues_go(struct scene *s)
{
	enum { MESSAGES = 64 };

	for (int left = s->one.cq->cqe; left >= 0; left -= MESSAGES) {
		struct ibv_srq_attr attr = { .max_wr = MESSAGES, .max_sge = 1 };
		struct receiver *r = &s->one;

		r->srq = xrc_create_srq(&r->d, s->xrcd, r->cq, &attr);
		REQUIRE(r->srq);
		REQUIRE_ERRNO(ibv_get_srq_num(r->srq, &r->number), 0);
		for (int i = 0; i < MESSAGES; i++) {
			receiver_post(r, i, 0, LEN);
			send_to(&s->c, i, &s->mine, 0, 100, r->number);
		}
		for (int i = 0; i < MESSAGES; i++)
			EXPECT_OK(s->c.cq, i);
		REQUIRE_ERRNO(ibv_destroy_srq(r->srq), 0);
		r->srq = NULL;
	}
	expect_no_async(s->d.ctx);
}

/* Completions go with their queue, and the next one begins anew. */
static void completions_of_a_queue_that_is_gone(void)
{
	struct receiver next;
	struct scene s;

	scene_make(&s);
	receiver_post(&s.one, 10, 0, LEN);
	send_to(&s.c, 1, &s.mine, 0, 100, s.one.number);
	EXPECT_OK(s.c.cq, 1);
	REQUIRE_ERRNO(ibv_destroy_srq(s.one.srq), 0);
	s.one.srq = NULL;
	EXPECT_NO_WC(s.one.cq);

	receiver_make(&next, &s.d, s.xrcd);
	REQUIRE(next.number != s.one.number);
	receiver_post(&next, 12, 0, LEN);
	send_to(&s.c, 2, &s.mine, 0, 100, next.number);
	EXPECT_OK(s.c.cq, 2);
	EXPECT_OK(next.cq, 12);
	receiver_free(&next);
	let_queues_go(&s);
	scene_free(&s);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "capability", capability },
		{ "domains", domains },
		{ "each_goes_where_it_is_sent", each_goes_where_it_is_sent },
		{ "operations", operations },
		{ "work_requests", work_requests },
		{ "not_ready", not_ready },
		{ "limit", limit },
		{ "completions_of_a_queue_that_is_gone",
		  completions_of_a_queue_that_is_gone },
		{ "in_use", in_use },
		{ "errnos", errnos },
		{ "refusals", refusals },
		{ "another_process", another_process },
		{ "many", many, 120 },
		{ }
	};

	return test_main(argc, argv, cases);
}
