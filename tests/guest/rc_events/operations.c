// SPDX-License-Identifier: GPL-2.0
/* Each operation's completion raises the event of an arming. */
#include "rc_events.h"

#define REMOTE (ACCESS_ALL | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static void one_event(struct scene *s, uint64_t wr_id, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc;

	expect_event(s->channel, s->a.scq);
	wc = EXPECT_OK(s->a.scq, wr_id);
	REQUIRE_EQ(wc.opcode, opcode);
	expect_no_event(s->channel);
	REQUIRE_ERRNO(ibv_req_notify_cq(s->a.scq, 0), 0);
}

static void each_operation(void)
{
	struct end_config config = { .access = REMOTE };
	struct ibv_mw_bind_info info;
	struct ibv_mw *mw;
	struct ibv_sge sge;
	struct scene s;
	struct peer to;
	uint32_t key;

	device_open(&s.d);
	s.channel = ibv_create_comp_channel(s.d.ctx);
	REQUIRE(s.channel);
	config.channel = s.channel;
	ends_make(&s.a, &s.b, &s.d, &config);
	region_make(&s.r, &s.d, 2 * LEN, 0, REMOTE | IBV_ACCESS_MW_BIND);
	mw = ibv_alloc_mw(s.d.pd, IBV_MW_TYPE_2);
	REQUIRE(mw);
	key = ibv_inc_rkey(mw->rkey);
	info = (struct ibv_mw_bind_info){
		.mr = s.r.mr, .addr = (uintptr_t)s.r.data, .length = 8,
		.mw_access_flags = IBV_ACCESS_REMOTE_READ,
	};
	to = end_address(&s.b, &s.r);
	sge = sge_of(&s.r, LEN, 8);

	REQUIRE_ERRNO(ibv_req_notify_cq(s.a.scq, 0), 0);
	send_sges(&s.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 1, &to,
		  0, 0);
	one_event(&s, 1, IBV_WC_RDMA_WRITE);
	send_sges(&s.a, 2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &sge, 1, &to, 0,
		  0);
	one_event(&s, 2, IBV_WC_RDMA_READ);
	send_atomic(&s.a, 3, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_SEND_SIGNALED,
		    sge, &to, 0, 1, 0);
	one_event(&s, 3, IBV_WC_FETCH_ADD);
	send_atomic(&s.a, 4, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_SEND_SIGNALED, sge,
		    &to, 0, 1, 0);
	one_event(&s, 4, IBV_WC_COMP_SWAP);
	send_bind(&s.a, 5, mw, key, info);
	one_event(&s, 5, IBV_WC_BIND_MW);
	send_local_inv(&s.a, 6, key);
	one_event(&s, 6, IBV_WC_LOCAL_INV);
	/* One that nobody signals raises none. */
	send_sges(&s.a, 7, IBV_WR_RDMA_WRITE, 0, &sge, 1, &to, 0, 0);
	expect_no_event(s.channel);
	REQUIRE_ERRNO(ibv_dealloc_mw(mw), 0);
	scene_free(&s);
}

const struct test_case operation_cases[] = {
	{ "each_operation", each_operation },
	{ }
};
