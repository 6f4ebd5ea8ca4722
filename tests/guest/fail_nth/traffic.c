// SPDX-License-Identifier: GPL-2.0
/* Traffic, which never fails for want of memory, and is only delayed; and events. */
#include "stage.h"

#include <poll.h>

#define MULTICAST_QPN 0xffffff

static int send_and_poll(void)
{
	recv_region(&st.a, 1, &st.r, 0, 1000);
	send_region(&st.a, 2, &st.r, 1000, 1000);
	EXPECT_OK(st.a.scq, 2);
	EXPECT_OK(st.a.rcq, 1);
	return 0;
}

static int rdma_and_poll(void)
{
	struct peer self = end_address(&st.a, &st.r);
	struct ibv_sge sge = sge_of(&st.r, 0, 1000);
	struct ibv_send_wr atomic = {
		.wr_id = 3, .sg_list = &sge, .num_sge = 1,
		.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.atomic = { .remote_addr = self.addr, .rkey = self.rkey,
			       .compare_add = 1 },
	}, *bad;

	send_sges(&st.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 1,
		  &self, 1000, 0);
	send_sges(&st.a, 2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &sge, 1,
		  &self, 1000, 0);
	sge.length = 8;
	REQUIRE_ERRNO(ibv_post_send(st.a.qp, &atomic, &bad), 0);
	for (int i = 1; i <= 3; i++)
		EXPECT_OK(st.a.scq, i);
	return 0;
}

static int datagrams(struct ibv_ah *ah, uint32_t qpn)
{
	struct ibv_sge sge = sge_of(&st.r, 1000, 100);
	struct ibv_send_wr wr = {
		.wr_id = 2, .sg_list = &sge, .num_sge = 1,
		.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
		.wr.ud = { .ah = ah, .remote_qpn = qpn, .remote_qkey = QKEY },
	}, *bad;

	recv_region(&st.u, 1, &st.r, 0, 1000);
	REQUIRE_ERRNO(ibv_post_send(st.u.qp, &wr, &bad), 0);
	EXPECT_OK(st.u.scq, 2);
	EXPECT_OK(st.u.rcq, 1);
	return 0;
}

static int datagram_and_poll(void)
{
	return datagrams(st.ah, st.u.qp->qp_num);
}

static int multicast_and_poll(void)
{
	return datagrams(st.group_ah, MULTICAST_QPN);
}

static int bind_type_1(void)
{
	struct ibv_mw_bind bind = {
		.wr_id = 1, .send_flags = IBV_SEND_SIGNALED,
		.bind_info = { .mr = st.r.mr, .addr = (uintptr_t)st.r.data,
			       .length = 100,
			       .mw_access_flags = IBV_ACCESS_REMOTE_WRITE },
	};
	int ret = ibv_bind_mw(st.a.qp, st.mw1, &bind);

	if (!ret)
		EXPECT_OK(st.a.scq, 1);
	return ret;
}

static int bind_and_invalidate(void)
{
	struct ibv_mw_bind_info info = {
		.mr = st.r.mr, .length = 100,
		.addr = (uintptr_t)st.r.data,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};

	st.key = ibv_inc_rkey(st.key);
	send_bind(&st.a, 1, st.mw2, st.key, info);
	EXPECT_OK(st.a.scq, 1);
	send_local_inv(&st.a, 2, st.key);
	EXPECT_OK(st.a.scq, 2);
	return 0;
}

/*
 * The core allocates an entry for an event where it cannot wait, and drops the
 * event if there is none (ib_uverbs_comp_handler). And an event that could not
 * be copied to the program has been read, and wants to be acknowledged.
 */
static bool event_comes(int fd)
{
	struct pollfd event = { .fd = fd, .events = POLLIN };

	return poll(&event, 1, 1000 * opt.slow) == 1;
}

static int arm_and_wake(void)
{
	struct ibv_cq *cq;
	void *context;
	int ret = ibv_req_notify_cq(st.a.rcq, 0);

	if (ret)
		return ret;
	send_and_poll();
	if (!event_comes(st.channel->fd))
		return ENOMEM;
	ret = ibv_get_cq_event(st.channel, &cq, &context) ? errno : 0;
	if (!ret || ret == EFAULT)
		ibv_ack_cq_events(st.a.rcq, 1);
	return ret;
}

/* A limit that is undercut already. */
static int limit_and_event(void)
{
	struct ibv_async_event event = {
		.event_type = IBV_EVENT_SRQ_LIMIT_REACHED,
		.element.srq = st.srq,
	};
	int ret = set_srq_limit(1);

	if (ret)
		return ret;
	if (!event_comes(st.d.ctx->async_fd))
		return ENOMEM;
	ret = ibv_get_async_event(st.d.ctx, &event) ? errno : 0;
	if (!ret || ret == EFAULT)
		ibv_ack_async_event(&event);
	return ret;
}

const struct verb traffic_verbs[] = {
	{ "ibv_bind_mw", bind_type_1 },
	{ "SEND and completions", send_and_poll },
	{ "WRITE, READ and atomic", rdma_and_poll },
	{ "bind and invalidate", bind_and_invalidate },
	{ "a datagram", datagram_and_poll },
	{ "a datagram to a group", multicast_and_poll, detached, attached },
	{ "arming and an event", arm_and_wake },
	{ "a limit and its event", limit_and_event },
	{ }
};
