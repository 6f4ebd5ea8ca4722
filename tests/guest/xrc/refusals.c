// SPDX-License-Identifier: GPL-2.0
/* Refusals of extended reliable connections: by the target, and by the verbs. */
#include <fcntl.h>

#include "xrc.h"

/*
 * The target refuses a request, and both sides are in error; the target's owner
 * is told.
 */
static void refused(struct connection *c, uint64_t wr_id,
		    enum ibv_wc_status status, enum ibv_event_type event)
{
	uint64_t end = now_us() + PATIENCE_US;

	EXPECT_WC(c->cq, wr_id, status);
	REQUIRE_EQ(state_of(c->from), IBV_QPS_ERR);
	while (state_of(c->to) != IBV_QPS_ERR) {
		REQUIRE(now_us() < end);
		sleep_us(1000);
	}
	expect_async(c->d->ctx, event, c->to);
	expect_no_async(c->d->ctx);
}

enum wrong { OTHER_DOMAIN, NO_QUEUE, BASIC_QUEUE, OTHER_KEY, WRONGS };

static void refuse(enum wrong wrong)
{
	enum ibv_wc_status status = IBV_WC_REM_INV_REQ_ERR;
	enum ibv_event_type event = IBV_EVENT_QP_REQ_ERR;
	struct ibv_send_wr wr = { .wr_id = 1, .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE };
	struct ibv_srq_init_attr basic = { .attr = { .max_wr = 4,
						     .max_sge = 1 } };
	struct ibv_xrcd *xrcd, *other;
	struct receiver own, foreign;
	struct connection c;
	struct ibv_srq *srq;
	struct region mine;
	struct ibv_sge sge;
	struct device d;
	uint32_t number;

	device_open(&d);
	xrcd = xrcd_open(&d, -1, O_CREAT);
	other = xrcd_open(&d, -1, O_CREAT);
	REQUIRE(xrcd && other);
	connection_make(&c, &d, xrcd);
	receiver_make(&own, &d, xrcd);
	receiver_make(&foreign, &d, other);
	srq = ibv_create_srq(d.pd, &basic);
	REQUIRE(srq);
	region_make(&mine, &d, 64, 0, ACCESS_ALL);
	fill(mine.data, 64, 1);
	memset(foreign.r.data, 0xee, 64);
	receiver_post(&foreign, 9, 0, 64);
	receiver_post(&own, 9, 0, 64);

	sge = sge_of(&mine, 0, 64);
	wr.sg_list = &sge;
	wr.wr.rdma.remote_addr = (uintptr_t)foreign.r.data;
	wr.wr.rdma.rkey = foreign.r.mr->rkey;
	switch (wrong) {
	case OTHER_DOMAIN:
		number = foreign.number;
		break;
	case OTHER_KEY:
		/* The key is judged by the queue's protection domain. */
		number = own.number;
		status = IBV_WC_REM_ACCESS_ERR;
		event = IBV_EVENT_QP_ACCESS_ERR;
		break;
	default:
		/* A basic queue has a number, too, which is nobody's here. */
		number = wrong == NO_QUEUE ? 0xfffffe : srq->handle;
		break;
	}
	REQUIRE_ERRNO(try_to(&c, &wr, number), 0);
	refused(&c, 1, status, event);
	VERIFY_BYTE(foreign.r.data, 64, 0xee);
	EXPECT_NO_WC(foreign.cq);
	EXPECT_NO_WC(own.cq);

	region_free(&mine);
	REQUIRE_ERRNO(ibv_destroy_srq(srq), 0);
	receiver_free(&foreign);
	receiver_free(&own);
	connection_free(&c);
	REQUIRE_ERRNO(ibv_close_xrcd(other), 0);
	REQUIRE_ERRNO(ibv_close_xrcd(xrcd), 0);
	device_close(&d);
}

void refusals(void)
{
	for (int wrong = 0; wrong < WRONGS; wrong++)
		refuse(wrong);
}

static int recv_on(struct ibv_qp *qp)
{
	struct ibv_recv_wr wr = { }, *bad;

	return ibv_post_recv(qp, &wr, &bad);
}

/* ibv_create_srq_ex(3), ibv_create_qp_ex(3), ibv_post_send(3), ibv_get_srq_num(3). */
void errnos(void)
{
	struct ibv_srq_init_attr basic = { .attr = { .max_wr = 4,
						     .max_sge = 1 } };
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = 4, .max_sge = 1 },
		.srq_type = IBV_SRQT_XRC,
	};
	const uint32_t mask[] = { IBV_SRQ_INIT_ATTR_PD,
				  IBV_SRQ_INIT_ATTR_XRCD,
				  IBV_SRQ_INIT_ATTR_CQ };
	struct ibv_qp_init_attr_ex qp_init = {
		.qp_type = IBV_QPT_XRC_RECV,
	};
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;
	struct connection c;
	struct receiver r;
	struct ibv_srq *srq;
	struct ibv_xrcd *xrcd;
	struct device d;
	uint32_t number;

	device_open(&d);
	xrcd = xrcd_open(&d, -1, O_CREAT);
	REQUIRE(xrcd);
	connection_make(&c, &d, xrcd);
	receiver_make(&r, &d, xrcd);

	/* A queue needs all three. */
	init.pd = r.d.pd;
	init.xrcd = xrcd;
	init.cq = r.cq;
	for (size_t i = 0; i < ARRAY_SIZE(mask); i++) {
		init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
		for (size_t j = 0; j < ARRAY_SIZE(mask); j++)
			init.comp_mask |= j == i ? 0 : mask[j];
		REQUIRE_NULL_ERRNO(ibv_create_srq_ex(d.ctx, &init), EINVAL);
	}
	init.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
	init.attr.max_wr = d.attr.max_srq_wr + 1;
	REQUIRE_NULL_ERRNO(ibv_create_srq_ex(d.ctx, &init), EINVAL);
	init.attr.max_wr = 4;
	init.srq_type = IBV_SRQT_TM;
	REQUIRE_NULL_ERRNO(ibv_create_srq_ex(d.ctx, &init), EOPNOTSUPP);
	/* Nobody names basic queues. */
	srq = ibv_create_srq(d.pd, &basic);
	REQUIRE(srq);
	REQUIRE_ERRNO(ibv_get_srq_num(srq, &number), EINVAL);
	REQUIRE_ERRNO(ibv_destroy_srq(srq), 0);

	/* A target needs a domain, and posts nothing. */
	REQUIRE_NULL_ERRNO(ibv_create_qp_ex(d.ctx, &qp_init), EINVAL);
	REQUIRE_ERRNO(recv_on(c.to), EINVAL);
	REQUIRE_ERRNO(ibv_post_send(c.to, &wr, &bad), EINVAL);
	/* An initiator receives nothing, and has no operations of annex A19. */
	REQUIRE_ERRNO(recv_on(c.from), EINVAL);
	wr.opcode = IBV_WR_ATOMIC_WRITE;
	REQUIRE_ERRNO(try_to(&c, &wr, r.number), EINVAL);
	wr.opcode = IBV_WR_SEND;
	REQUIRE_ERRNO(try_to(&c, &wr, 1 << 24), EINVAL);
	EXPECT_NO_WC(c.cq);
	qp_init = (struct ibv_qp_init_attr_ex){
		.qp_type = IBV_QPT_XRC_SEND,
		.send_cq = c.cq,
		.cap = { .max_send_wr = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = d.pd,
		.send_ops_flags = IBV_QP_EX_WITH_FLUSH,
	};
	REQUIRE_NULL_ERRNO(ibv_create_qp_ex(d.ctx, &qp_init), EOPNOTSUPP);

	receiver_free(&r);
	connection_free(&c);
	REQUIRE_ERRNO(ibv_close_xrcd(xrcd), 0);
	device_close(&d);
}
