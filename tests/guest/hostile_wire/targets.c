// SPDX-License-Identifier: GPL-2.0
/* Queue pairs whose peer is the hostile machine. */
#include "hostile_wire.h"

enum { RECEIVES = 16, PEER_QPN = 0x99 };

static void post_receives(struct target *t, unsigned int count)
{
	while (count--)
		recv_region(&t->e, 0, &t->inbox, 0, MEMORY);
}

static void target_connect(struct target *t)
{
	end_connect(&t->e, &t->peer);
	post_receives(t, RECEIVES);
}

void target_make(struct scene *s, bool six, struct target *t,
			enum ibv_qp_type type)
{
	struct device *d = &s->d[six];
	struct end_config c = {
		.type = type,
		.send_wr = RECEIVES,
		.recv_wr = RECEIVES,
		.access = ACCESS_ALL | IBV_ACCESS_REMOTE_READ |
			  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_FLUSH_GLOBAL,
		.timeout = 10,	/* 4 ms */
		.retry = 1,
	};

	end_make(&t->e, d, &c);
	region_make(&t->inbox, d, MEMORY, 57, ACCESS_ALL);
	region_make(&t->open, d, MEMORY, 123, c.access);
	t->peer = end_address(&t->e, &t->open);
	t->peer.qpn = PEER_QPN;
	t->peer.gid = s->hostile[six];
	target_connect(t);
}

/* A request whose answer only chance can bring. */
static void ask(struct scene *s, struct target *t)
{
	static const enum ibv_wr_opcode kinds[] = {
		IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_WRITE,
	};
	enum ibv_wr_opcode kind = kinds[below(s, ARRAY_SIZE(kinds))];
	struct ibv_sge sge = sge_of(&t->inbox, 0, 1 + below(s, MEMORY));

	if (kind == IBV_WR_ATOMIC_WRITE)
		sge.length = 8;
	/* With no space left that fails, which is right. */
	try_send(&t->e, 0, kind, IBV_SEND_SIGNALED, &sge, 1, &t->peer, 0, 0);
}

void tend(struct scene *s, struct target *t)
{
	struct ibv_wc wc[RECEIVES];
	int got;

	REQUIRE(ibv_poll_cq(t->e.scq, ARRAY_SIZE(wc), wc) >= 0);
	got = ibv_poll_cq(t->e.rcq, ARRAY_SIZE(wc), wc);
	REQUIRE(got >= 0);
	if (end_state(&t->e) == IBV_QPS_RTS) {
		post_receives(t, got);
		if (t->e.config.type == IBV_QPT_RC)
			ask(s, t);
		return;
	}
	t->broken++;
	end_reset(&t->e);
	while (ibv_poll_cq(t->e.scq, ARRAY_SIZE(wc), wc) > 0 ||
	       ibv_poll_cq(t->e.rcq, ARRAY_SIZE(wc), wc) > 0)
		;
	target_connect(t);
}

void check_memory(struct target *t)
{
	REGION_CHECK(&t->inbox);
	REGION_CHECK(&t->open);
}
