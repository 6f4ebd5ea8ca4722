// SPDX-License-Identifier: GPL-2.0
/* The verbs that are tried, and what they work on. */
#define _GNU_SOURCE
#include "fail_nth.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>

#define MULTICAST_QPN 0xffffff
#define QP_ACCESS (ACCESS_ALL | IBV_ACCESS_REMOTE_READ | \
		   IBV_ACCESS_REMOTE_ATOMIC)

/* Made before each verb, with no injection. */
static struct stage {
	struct device d;
	struct ibv_comp_channel *channel;
	struct end a;			/* RC, connected with itself */
	struct end b;			/* RC, whose state is changed */
	struct end u;			/* UD */
	struct region r;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_mw *mw1, *mw2;	/* of types 1 and 2 */
	uint32_t key;			/* that mw2 had last */
	struct ibv_ah *ah, *group_ah;	/* the device itself, and a group */
	union ibv_gid group;
	void *made;
} st;

void *stage_made(void)
{
	return st.made;
}

/* ---- Objects ---- */

static int made(void *object)
{
	st.made = object;
	return object ? 0 : errno;
}

/* libibverbs tries another name when it cannot open the first: ENOENT. */
static int open_device(void)
{
	int error = made(ibv_open_device(st.d.ctx->device));

	return error == ENOENT ? ENOMEM : error;
}

static void close_device(void)
{
	REQUIRE_ERRNO(ibv_close_device(st.made), 0);
}

static int alloc_pd(void)
{
	return made(ibv_alloc_pd(st.d.ctx));
}

static void dealloc_pd(void)
{
	REQUIRE_ERRNO(ibv_dealloc_pd(st.made), 0);
}

static char *memory(void)
{
	static char *map;

	if (!map) {
		map = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE |
			   MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		REQUIRE(map != MAP_FAILED);
	}
	return map;
}

static int reg_mr_small(void)
{
	return made(ibv_reg_mr(st.d.pd, memory(), 100, ACCESS_ALL));
}

static int reg_mr_large(void)
{
	return made(ibv_reg_mr(st.d.pd, memory(), 4 << 20, ACCESS_ALL));
}

static void dereg_mr(void)
{
	REQUIRE_ERRNO(ibv_dereg_mr(st.made), 0);
}

/* Other memory, and back: a region that changes in place pins pages, too. */
static int rereg_mr(void)
{
	bool low = st.mr->addr == memory();

	errno = 0;
	return ibv_rereg_mr(st.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
			    memory() + (low ? 1 << 20 : 0), 1 << 20, 0) ?
		       errno :
		       0;
}

static int alloc_mw_1(void)
{
	return made(ibv_alloc_mw(st.d.pd, IBV_MW_TYPE_1));
}

static int alloc_mw(void)
{
	return made(ibv_alloc_mw(st.d.pd, IBV_MW_TYPE_2));
}

static void dealloc_mw(void)
{
	REQUIRE_ERRNO(ibv_dealloc_mw(st.made), 0);
}

static int create_channel(void)
{
	return made(ibv_create_comp_channel(st.d.ctx));
}

static void destroy_channel(void)
{
	REQUIRE_ERRNO(ibv_destroy_comp_channel(st.made), 0);
}

static int create_cq_small(void)
{
	return made(ibv_create_cq(st.d.ctx, 4, NULL, st.channel, 0));
}

static int create_cq_large(void)
{
	return made(ibv_create_cq(st.d.ctx, 16384, NULL, NULL, 0));
}

static int create_cq_ex(void)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 4, .channel = st.channel,
		.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
	};

	return made(ibv_create_cq_ex(st.d.ctx, &attr));
}

static int resize_cq(void)
{
	return ibv_resize_cq(st.cq, 1024);
}

static void resized_back(void)
{
	REQUIRE_ERRNO(ibv_resize_cq(st.cq, 4), 0);
}

static void destroy_cq(void)
{
	REQUIRE_ERRNO(ibv_destroy_cq(st.made), 0);
}

static int create_qp(enum ibv_qp_type type, struct ibv_srq *srq,
		     uint32_t depth, uint32_t sge)
{
	struct ibv_qp_init_attr init = {
		.send_cq = st.a.scq, .recv_cq = st.a.rcq, .srq = srq,
		.qp_type = type, .cap = { depth, depth, sge, sge, 0 },
	};

	return made(ibv_create_qp(st.d.pd, &init));
}

static int create_qp_small(void)
{
	return create_qp(IBV_QPT_RC, NULL, 4, 1);
}

static int create_qp_large(void)
{
	return create_qp(IBV_QPT_RC, NULL, 4096, 16);
}

static int create_qp_with_srq(void)
{
	return create_qp(IBV_QPT_RC, st.srq, 4, 1);
}

static int create_qp_uc(void)
{
	return create_qp(IBV_QPT_UC, NULL, 4, 1);
}

static int create_qp_ud(void)
{
	return create_qp(IBV_QPT_UD, NULL, 4, 1);
}

static int create_qp_ex(void)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = st.a.scq, .recv_cq = st.a.rcq, .pd = st.d.pd,
		.qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 },
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};

	return made(ibv_create_qp_ex(st.d.ctx, &init));
}

static void destroy_qp(void)
{
	REQUIRE_ERRNO(ibv_destroy_qp(st.made), 0);
}

static int create_srq(uint32_t depth, uint32_t sge)
{
	struct ibv_srq_init_attr init = {
		.attr = { .max_wr = depth, .max_sge = sge },
	};

	return made(ibv_create_srq(st.d.pd, &init));
}

static int create_srq_small(void)
{
	return create_srq(4, 1);
}

static int create_srq_large(void)
{
	return create_srq(4096, 16);
}

static void destroy_srq(void)
{
	REQUIRE_ERRNO(ibv_destroy_srq(st.made), 0);
}

/* ibv_modify_srq answers -1 for some errors of commands. */
static int set_srq_limit(uint32_t limit)
{
	struct ibv_srq_attr attr = { .srq_limit = limit };

	errno = 0;
	return ibv_modify_srq(st.srq, &attr, IBV_SRQ_LIMIT) ? errno : 0;
}

static int modify_srq(void)
{
	return set_srq_limit(0);
}

static int query_srq(void)
{
	struct ibv_srq_attr attr;

	return ibv_query_srq(st.srq, &attr);
}

static struct ibv_ah *ah_to(const union ibv_gid *gid)
{
	struct ibv_ah_attr attr = {
		.is_global = 1, .port_num = 1,
		.grh = { .dgid = *gid, .sgid_index = st.d.gid_index,
			 .hop_limit = 1 },
	};

	return ibv_create_ah(st.d.pd, &attr);
}

static int create_ah(void)
{
	return made(ah_to(&st.d.gid));
}

static void destroy_ah(void)
{
	REQUIRE_ERRNO(ibv_destroy_ah(st.made), 0);
}

static int attach_mcast(void)
{
	return ibv_attach_mcast(st.u.qp, &st.group, 0);
}

static int detach_mcast(void)
{
	return ibv_detach_mcast(st.u.qp, &st.group, 0);
}

static void detached(void)
{
	REQUIRE_ERRNO(detach_mcast(), 0);
}

/* Attached already, if detaching has just failed. */
static void attached(void)
{
	int error = attach_mcast();

	REQUIRE(!error || error == EINVAL);
}

static int query_device(void)
{
	struct ibv_device_attr attr;

	return ibv_query_device(st.d.ctx, &attr);
}

static int query_port(void)
{
	struct ibv_port_attr attr;

	return ibv_query_port(st.d.ctx, 1, &attr);
}

static int query_device_ex(void)
{
	struct ibv_device_attr_ex attr;

	return ibv_query_device_ex(st.d.ctx, NULL, &attr);
}

static int query_gid(void)
{
	struct ibv_gid_entry entry;

	return ibv_query_gid_ex(st.d.ctx, 1, st.d.gid_index, &entry, 0);
}

static int query_gid_table(void)
{
	struct ibv_gid_entry entries[16];
	ssize_t n = ibv_query_gid_table(st.d.ctx, entries,
					ARRAY_SIZE(entries), 0);

	return n < 0 ? -n : 0;
}

static int query_qp(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	return ibv_query_qp(st.a.qp, &attr, IBV_QP_STATE, &init);
}

static int modify_to_init(void)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = ACCESS_ALL,
	};

	return ibv_modify_qp(st.b.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
			     IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int modify_to_rtr(void)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = st.d.port.active_mtu,
		.dest_qp_num = st.b.qp->qp_num,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1, .port_num = 1,
			.grh = { .dgid = st.d.gid,
				 .sgid_index = st.d.gid_index,
				 .hop_limit = 64 },
		},
	};

	return ibv_modify_qp(st.b.qp, &attr, IBV_QP_STATE | IBV_QP_AV |
			     IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			     IBV_QP_MIN_RNR_TIMER);
}

static int modify_to_rts(void)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7,
		.rnr_retry = 7,
	};

	return ibv_modify_qp(st.b.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN |
			     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

static int modify_to_err(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	return ibv_modify_qp(st.b.qp, &attr, IBV_QP_STATE);
}

static int modify_to_reset(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	return ibv_modify_qp(st.b.qp, &attr, IBV_QP_STATE);
}

static void in_reset(void)
{
	REQUIRE_ERRNO(modify_to_reset(), 0);
}

static void in_init(void)
{
	in_reset();
	REQUIRE_ERRNO(modify_to_init(), 0);
}

static void in_rtr(void)
{
	in_init();
	REQUIRE_ERRNO(modify_to_rtr(), 0);
}

static void in_rts(void)
{
	in_rtr();
	REQUIRE_ERRNO(modify_to_rts(), 0);
}

/* ---- Traffic, which never fails for want of memory, and is only delayed ---- */

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

/* ---- Events ---- */

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

/* ---- All of them ---- */

const struct verb verbs[] = {
	{ "ibv_open_device", open_device, close_device },
	{ "ibv_query_device", query_device },
	{ "ibv_query_device_ex", query_device_ex },
	{ "ibv_query_port", query_port },
	{ "ibv_query_gid_ex", query_gid },
	{ "ibv_query_gid_table", query_gid_table },
	{ "ibv_alloc_pd", alloc_pd, dealloc_pd },
	{ "ibv_reg_mr, a page", reg_mr_small, dereg_mr },
	{ "ibv_reg_mr, 4 MiB", reg_mr_large, dereg_mr },
	{ "ibv_rereg_mr", rereg_mr },
	{ "ibv_alloc_mw, type 1", alloc_mw_1, dealloc_mw },
	{ "ibv_alloc_mw, type 2", alloc_mw, dealloc_mw },
	{ "ibv_create_comp_channel", create_channel, destroy_channel },
	{ "ibv_create_cq, small", create_cq_small, destroy_cq },
	{ "ibv_create_cq, large", create_cq_large, destroy_cq },
	{ "ibv_create_cq_ex", create_cq_ex, destroy_cq },
	{ "ibv_resize_cq", resize_cq, resized_back, resized_back },
	{ "ibv_create_srq, small", create_srq_small, destroy_srq },
	{ "ibv_create_srq, large", create_srq_large, destroy_srq },
	{ "ibv_modify_srq", modify_srq },
	{ "ibv_query_srq", query_srq },
	{ "ibv_create_qp, small", create_qp_small, destroy_qp },
	{ "ibv_create_qp, large", create_qp_large, destroy_qp },
	{ "ibv_create_qp, with an SRQ", create_qp_with_srq, destroy_qp },
	{ "ibv_create_qp, UC", create_qp_uc, destroy_qp },
	{ "ibv_create_qp, UD", create_qp_ud, destroy_qp },
	{ "ibv_create_qp_ex", create_qp_ex, destroy_qp },
	{ "ibv_query_qp", query_qp },
	{ "ibv_modify_qp to INIT", modify_to_init, NULL, in_reset },
	{ "ibv_modify_qp to RTR", modify_to_rtr, NULL, in_init },
	{ "ibv_modify_qp to RTS", modify_to_rts, NULL, in_rtr },
	{ "ibv_modify_qp to ERR", modify_to_err, NULL, in_rts },
	{ "ibv_modify_qp to RESET", modify_to_reset, NULL, in_rts },
	{ "ibv_create_ah", create_ah, destroy_ah },
	{ "ibv_attach_mcast", attach_mcast, detached },
	{ "ibv_detach_mcast", detach_mcast, NULL, attached },
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

const struct destroyed destroyed[] = {
	{ "ibv_close_device", open_device, (int (*)(void *))ibv_close_device },
	{ "ibv_dealloc_pd", alloc_pd, (int (*)(void *))ibv_dealloc_pd },
	{ "ibv_dereg_mr", reg_mr_small, (int (*)(void *))ibv_dereg_mr },
	{ "ibv_dealloc_mw", alloc_mw, (int (*)(void *))ibv_dealloc_mw },
	{ "ibv_destroy_comp_channel", create_channel,
	  (int (*)(void *))ibv_destroy_comp_channel },
	{ "ibv_destroy_cq", create_cq_large, (int (*)(void *))ibv_destroy_cq },
	{ "ibv_destroy_srq", create_srq_small,
	  (int (*)(void *))ibv_destroy_srq },
	{ "ibv_destroy_qp", create_qp_small, (int (*)(void *))ibv_destroy_qp },
	{ "ibv_destroy_qp, UD", create_qp_ud,
	  (int (*)(void *))ibv_destroy_qp },
	{ "ibv_destroy_ah", create_ah, (int (*)(void *))ibv_destroy_ah },
	{ }
};

void stage_make(void)
{
	struct end_config config = { .access = QP_ACCESS };
	struct end_config datagrams = { .type = IBV_QPT_UD };
	struct peer self;

	device_open(&st.d);
	st.channel = ibv_create_comp_channel(st.d.ctx);
	REQUIRE(st.channel);
	config.channel = st.channel;
	end_make(&st.a, &st.d, &config);
	end_to_state(&st.a, IBV_QPS_RTS);
	end_make(&st.b, &st.d, &config);
	end_make(&st.u, &st.d, &datagrams);
	self = end_address(&st.u, NULL);
	end_connect(&st.u, &self);
	region_make(&st.r, &st.d, 2000, 0, QP_ACCESS | IBV_ACCESS_MW_BIND);
	st.mr = ibv_reg_mr(st.d.pd, memory(), 1 << 20, ACCESS_ALL);
	st.cq = ibv_create_cq(st.d.ctx, 4, NULL, NULL, 0);
	REQUIRE(st.mr && st.cq);
	REQUIRE_ERRNO(create_srq_small(), 0);
	st.srq = st.made;
	REQUIRE_ERRNO(alloc_mw_1(), 0);
	st.mw1 = st.made;
	REQUIRE_ERRNO(alloc_mw(), 0);
	st.mw2 = st.made;
	st.key = st.mw2->rkey;
	memcpy(st.group.raw + 10, "\xff\xff\xef\x01\x02\x03", 6);
	st.ah = ah_to(&st.d.gid);
	st.group_ah = ah_to(&st.group);
	REQUIRE(st.ah && st.group_ah);
}

void stage_free(void)
{
	REQUIRE_ERRNO(ibv_destroy_ah(st.ah), 0);
	REQUIRE_ERRNO(ibv_destroy_ah(st.group_ah), 0);
	REQUIRE_ERRNO(ibv_dealloc_mw(st.mw1), 0);
	REQUIRE_ERRNO(ibv_dealloc_mw(st.mw2), 0);
	REQUIRE_ERRNO(ibv_dereg_mr(st.mr), 0);
	REQUIRE_ERRNO(ibv_destroy_cq(st.cq), 0);
	REQUIRE_ERRNO(ibv_destroy_srq(st.srq), 0);
	region_free(&st.r);
	end_free(&st.a);
	end_free(&st.b);
	end_free(&st.u);
	REQUIRE_ERRNO(ibv_destroy_comp_channel(st.channel), 0);
	device_close(&st.d);
}
