// SPDX-License-Identifier: GPL-2.0
/* One end of a connection: its queue pair, and the states of that. */
#define _GNU_SOURCE
#include "../common.h"

#include <stdlib.h>

static struct ibv_cq *make_cq(struct device *d, int cqe,
			      struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq = ibv_create_cq(d->ctx, cqe, NULL, channel, 0);

	if (!cq)
		FAIL("ibv_create_cq of %d: %s", cqe, strerror(errno));
	return cq;
}

/*
 * 67 ms; or 1.1 s where the guest is slow, which takes some milliseconds for a
 * packet there, and may have to wait for its machine. By the wire, what is late
 * is taken for lost.
 */
static uint8_t ack_timeout(void)
{
	return opt.slow > 1 ? 18 : 14;
}

static struct ibv_qp *create_qp_ex(struct device *d, uint64_t send_ops,
				   struct ibv_qp_init_attr *init)
{
	struct ibv_qp_init_attr_ex ex = {
		.qp_type = init->qp_type,
		.send_cq = init->send_cq,
		.recv_cq = init->recv_cq,
		.srq = init->srq,
		.sq_sig_all = init->sq_sig_all,
		.cap = init->cap,
		.pd = d->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = send_ops,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(d->ctx, &ex);

	init->cap = ex.cap;
	return qp;
}

void end_make(struct end *e, struct device *d, const struct end_config *config)
{
	struct ibv_qp_init_attr init = { };
	struct end_config *c = &e->config;

	memset(e, 0, sizeof(*e));
	if (config)
		*c = *config;
	c->type = c->type ?: IBV_QPT_RC;
	c->send_wr = c->send_wr ?: 64;
	c->recv_wr = c->recv_wr ?: 64;
	c->send_sge = c->send_sge ?: 1;
	c->recv_sge = c->recv_sge ?: 1;
	c->cqe = c->cqe ?: (int)(c->send_wr + c->recv_wr);
	c->access = c->access ?: ACCESS_ALL;
	c->timeout = c->timeout ?: ack_timeout();
	c->retry = c->retry ?: 7;
	c->rnr_retry = c->rnr_none ? 0 : c->rnr_retry ?: 7;
	c->rnr_timer = c->rnr_timer ?: 12;

	e->d = d;
	e->own_cq = !c->cq;
	e->scq = c->cq ?: make_cq(d, c->cqe, c->channel);
	e->rcq = c->cq ?: make_cq(d, c->cqe, c->channel);

	init.qp_type = c->type;
	init.send_cq = e->scq;
	init.recv_cq = e->rcq;
	init.srq = c->srq;
	init.sq_sig_all = c->signal_all;
	init.cap.max_send_wr = c->send_wr;
	init.cap.max_recv_wr = c->recv_wr;
	init.cap.max_send_sge = c->send_sge;
	init.cap.max_recv_sge = c->recv_sge;
	init.cap.max_inline_data = c->inline_data;
	e->qp = c->send_ops ? create_qp_ex(d, c->send_ops, &init) :
			      ibv_create_qp(d->pd, &init);
	if (!e->qp)
		FAIL("ibv_create_qp: %s", strerror(errno));
	e->cap = init.cap;
	/* Near the end of the 24 bits, so that every test crosses it. */
	e->psn = 0xffff00 | (e->qp->qp_num & 0xff);
}

void end_free(struct end *e)
{
	REQUIRE_ERRNO(ibv_destroy_qp(e->qp), 0);
	if (e->own_cq) {
		REQUIRE_ERRNO(ibv_destroy_cq(e->rcq), 0);
		REQUIRE_ERRNO(ibv_destroy_cq(e->scq), 0);
	}
}

struct peer end_address(const struct end *e, const struct region *r)
{
	struct peer p = {
		.qpn = e->qp->qp_num,
		.psn = e->psn,
		.gid = e->d->gid,
		.addr = r ? (uintptr_t)r->data : 0,
		.rkey = r ? r->mr->rkey : 0,
	};

	return p;
}

void end_to_init(struct end *e)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = e->config.access,
		.qkey = QKEY,
	};
	int own = e->config.type == IBV_QPT_UD ? IBV_QP_QKEY :
						 IBV_QP_ACCESS_FLAGS;

	REQUIRE_ERRNO(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE |
				    IBV_QP_PKEY_INDEX | IBV_QP_PORT | own), 0);
}

void end_to_rtr(struct end *e, const struct peer *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = e->d->port.active_mtu,
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = e->d->attr.max_qp_rd_atom ? 1 : 0,
		.min_rnr_timer = e->config.rnr_timer,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = {
				.dgid = peer->gid,
				.sgid_index = e->d->gid_index,
				.hop_limit = 64,
			},
		},
	};

	int mask = IBV_QP_STATE;

	if (e->config.type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			IBV_QP_RQ_PSN;
	if (e->config.type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	REQUIRE_ERRNO(ibv_modify_qp(e->qp, &attr, mask), 0);
}

void end_to_rts(struct end *e)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = e->psn,
		.timeout = e->config.timeout,
		.retry_cnt = e->config.retry,
		.rnr_retry = e->config.rnr_retry,
		.max_rd_atomic = e->d->attr.max_qp_init_rd_atom ? 1 : 0,
	};

	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (e->config.type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	REQUIRE_ERRNO(ibv_modify_qp(e->qp, &attr, mask), 0);
}

void end_connect(struct end *e, const struct peer *peer)
{
	end_to_init(e);
	end_to_rtr(e, peer);
	end_to_rts(e);
}

void end_reset(struct end *e)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	REQUIRE_ERRNO(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE), 0);
}

static bool end_draining(struct end *e)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	REQUIRE_ERRNO(ibv_query_qp(e->qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.sq_draining;
}

/* From RESET; the QP's peer is itself, which the specification allows. */
void end_to_state(struct end *e, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	struct peer self = end_address(e, NULL);

	if (state == IBV_QPS_RESET)
		return;
	end_to_init(e);
	if (state == IBV_QPS_INIT)
		return;
	if (state != IBV_QPS_ERR)
		end_to_rtr(e, &self);
	if (state == IBV_QPS_RTR)
		return;
	if (state != IBV_QPS_ERR)
		end_to_rts(e);
	if (state == IBV_QPS_RTS)
		return;
	REQUIRE_ERRNO(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE), 0);
	/* Draining takes its time even when there is nothing to drain. */
	while (state == IBV_QPS_SQD && end_draining(e))
		sleep_us(1000);
}

enum ibv_qp_state end_state(struct end *e)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	REQUIRE_ERRNO(ibv_query_qp(e->qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

void end_await_state(struct end *e, enum ibv_qp_state state)
{
	uint64_t end = now_us() + PATIENCE_US;

	while (end_state(e) != state) {
		if (now_us() > end)
			FAIL("the QP is in state %d, expected %d",
			     end_state(e), state);
		sleep_us(1000);
	}
}
