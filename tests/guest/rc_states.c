// SPDX-License-Identifier: GPL-2.0
/*
 * The state machine of an RC queue pair: every transition with every
 * attribute, legal and not (IBA volume 1, table 91 of 11.2.5.2 and
 * ibv_modify_qp(3)), values that no attribute may have, what query tells, and
 * what may be posted in which state.
 */
#include "common.h"

#include <stdio.h>

#define REQ_INIT (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define REQ_RTR (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | \
		 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | \
		 IBV_QP_MIN_RNR_TIMER)
#define REQ_RTS (IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | \
		 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC)
#define OPT_RTS (IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER)
#define OPT_SQD (IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | \
		 IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | \
		 IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | \
		 IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER)

/*
 * Alternate paths (ALT_PATH, PATH_MIG_STATE) are optional in the table, but
 * Linux has none over Ethernet; they are tried separately.
 */
static const struct {
	enum ibv_qp_state from, to;
	int required, optional;
} legal[] = {
	{ IBV_QPS_RESET, IBV_QPS_INIT, REQ_INIT, 0 },
	{ IBV_QPS_INIT, IBV_QPS_INIT, 0, REQ_INIT },
	{ IBV_QPS_INIT, IBV_QPS_RTR, REQ_RTR,
	  IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX },
	{ IBV_QPS_RTR, IBV_QPS_RTS, REQ_RTS, OPT_RTS },
	{ IBV_QPS_RTS, IBV_QPS_RTS, 0, OPT_RTS },
	{ IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ IBV_QPS_SQD, IBV_QPS_SQD, 0, OPT_SQD },
	{ IBV_QPS_SQD, IBV_QPS_RTS, 0, OPT_RTS },
	/* From any state to these two, with nothing else. */
	{ IBV_QPS_RESET, IBV_QPS_RESET }, { IBV_QPS_INIT, IBV_QPS_RESET },
	{ IBV_QPS_RTR, IBV_QPS_RESET }, { IBV_QPS_RTS, IBV_QPS_RESET },
	{ IBV_QPS_SQD, IBV_QPS_RESET }, { IBV_QPS_ERR, IBV_QPS_RESET },
	{ IBV_QPS_INIT, IBV_QPS_ERR }, { IBV_QPS_RTR, IBV_QPS_ERR },
	{ IBV_QPS_RTS, IBV_QPS_ERR }, { IBV_QPS_SQD, IBV_QPS_ERR },
	{ IBV_QPS_ERR, IBV_QPS_ERR },
};

/* The states that an RC queue pair can be in; it has no SQE. */
static const enum ibv_qp_state states[] = {
	IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD,
	IBV_QPS_ERR,
};

static const struct {
	int bit;
	const char *name;
} attributes[] = {
	{ IBV_QP_CUR_STATE, "CUR_STATE" },
	{ IBV_QP_EN_SQD_ASYNC_NOTIFY, "EN_SQD_ASYNC_NOTIFY" },
	{ IBV_QP_ACCESS_FLAGS, "ACCESS_FLAGS" },
	{ IBV_QP_PKEY_INDEX, "PKEY_INDEX" },
	{ IBV_QP_PORT, "PORT" },
	{ IBV_QP_QKEY, "QKEY" },
	{ IBV_QP_AV, "AV" },
	{ IBV_QP_PATH_MTU, "PATH_MTU" },
	{ IBV_QP_TIMEOUT, "TIMEOUT" },
	{ IBV_QP_RETRY_CNT, "RETRY_CNT" },
	{ IBV_QP_RNR_RETRY, "RNR_RETRY" },
	{ IBV_QP_RQ_PSN, "RQ_PSN" },
	{ IBV_QP_MAX_QP_RD_ATOMIC, "MAX_QP_RD_ATOMIC" },
	{ IBV_QP_ALT_PATH, "ALT_PATH" },
	{ IBV_QP_MIN_RNR_TIMER, "MIN_RNR_TIMER" },
	{ IBV_QP_SQ_PSN, "SQ_PSN" },
	{ IBV_QP_MAX_DEST_RD_ATOMIC, "MAX_DEST_RD_ATOMIC" },
	{ IBV_QP_CAP, "CAP" },
	{ IBV_QP_DEST_QPN, "DEST_QPN" },
};

static const char *state_name(enum ibv_qp_state state)
{
	static const char *const names[] = {
		"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"
	};

	return state < ARRAY_SIZE(names) ? names[state] : "?";
}

/* Attributes that are all acceptable, where their bit is. */
static struct ibv_qp_attr good_attr(struct end *e, enum ibv_qp_state to)
{
	struct ibv_qp_attr attr = {
		.qp_state = to,
		.cur_qp_state = end_state(e),
		.en_sqd_async_notify = 1,
		.qp_access_flags = ACCESS_ALL,
		.port_num = 1,
		.qkey = 0x1234,
		.path_mtu = e->d->port.active_mtu,
		.timeout = 15,
		.retry_cnt = 5,
		.rnr_retry = 4,
		.rq_psn = 0x123456,
		.sq_psn = 0x654321,
		.max_rd_atomic = e->d->attr.max_qp_init_rd_atom ? 1 : 0,
		.max_dest_rd_atomic = e->d->attr.max_qp_rd_atom ? 1 : 0,
		.min_rnr_timer = 9,
		.dest_qp_num = e->qp->qp_num,
		.cap = e->cap,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.sl = 3,
			.grh = {
				.dgid = e->d->gid,
				.sgid_index = e->d->gid_index,
				.hop_limit = 63,
				.traffic_class = 0x28,
				.flow_label = 0xabcde,
			},
		},
	};

	attr.alt_ah_attr = attr.ah_attr;
	attr.alt_port_num = 1;
	return attr;
}

static void query(struct end *e, struct ibv_qp_attr *attr)
{
	struct ibv_qp_init_attr init;

	memset(attr, 0, sizeof(*attr));
	REQUIRE_ERRNO(ibv_query_qp(e->qp, attr, 0x1fffff, &init), 0);
	/* What may change by itself. */
	attr->sq_draining = 0;
}

/*
 * One attempt on a queue pair in the given state. A refusal is EINVAL, and
 * then nothing may have changed.
 */
static void attempt(struct device *d, enum ibv_qp_state from,
		    enum ibv_qp_state to, int mask, bool good,
		    const char *what)
{
	struct ibv_qp_attr attr, before, after;
	struct end e;
	int ret;

	end_make(&e, d, &(struct end_config){ .send_wr = 4, .recv_wr = 4 });
	end_to_state(&e, from);
	attr = good_attr(&e, to);
	query(&e, &before);
	ret = ibv_modify_qp(e.qp, &attr, mask | IBV_QP_STATE);
	query(&e, &after);
	if (ret != (good ? 0 : EINVAL))
		FAIL("%s to %s, %s: answered %d (%s), expected %s",
		     state_name(from), state_name(to), what, ret, strerror(ret),
		     good ? "success" : strerror(EINVAL));
	if (good && after.qp_state != to)
		FAIL("%s to %s, %s: the state is %s", state_name(from),
		     state_name(to), what, state_name(after.qp_state));
	if (!good && memcmp(&before, &after, sizeof(before)))
		FAIL("%s to %s, %s: refused, but an attribute has changed",
		     state_name(from), state_name(to), what);
	end_free(&e);
}

static void legal_transitions(void)
{
	struct device d;

	device_open(&d);
	for (unsigned int i = 0; i < ARRAY_SIZE(legal); i++) {
		char what[64];

		attempt(&d, legal[i].from, legal[i].to, legal[i].required,
			true, "required attributes");
		attempt(&d, legal[i].from, legal[i].to,
			legal[i].required | legal[i].optional, true,
			"required and optional attributes");
		for (unsigned int j = 0; j < ARRAY_SIZE(attributes); j++) {
			int bit = attributes[j].bit;

			if (legal[i].required & bit) {
				snprintf(what, sizeof(what), "without %s",
					 attributes[j].name);
				attempt(&d, legal[i].from, legal[i].to,
					legal[i].required & ~bit, false, what);
			} else {
				snprintf(what, sizeof(what), "with %s",
					 attributes[j].name);
				attempt(&d, legal[i].from, legal[i].to,
					legal[i].required | bit,
					legal[i].optional & bit, what);
			}
		}
	}
	device_close(&d);
}

static void illegal_transitions(void)
{
	static const int masks[] = { 0, REQ_INIT, REQ_RTR, REQ_RTS };
	struct device d;

	device_open(&d);
	for (unsigned int i = 0; i < ARRAY_SIZE(states); i++) {
		for (int to = IBV_QPS_RESET; to <= IBV_QPS_UNKNOWN; to++) {
			bool found = false;

			for (unsigned int j = 0; j < ARRAY_SIZE(legal); j++)
				if (legal[j].from == states[i] &&
				    (int)legal[j].to == to)
					found = true;
			for (unsigned int m = 0; !found && m < ARRAY_SIZE(masks);
			     m++)
				attempt(&d, states[i], to, masks[m], false,
					"illegal transition");
		}
	}
	device_close(&d);
}

/* Values beyond an attribute's range, each alone. */
static void bad_values(void)
{
	static const struct {
		const char *what;
		enum ibv_qp_state to;
		size_t offset;
		size_t size;
		uint32_t value;
	} bad[] = {
#define BAD(to, field, value) \
	{ #field " " #value, to, offsetof(struct ibv_qp_attr, field), \
	  sizeof(((struct ibv_qp_attr *)0)->field), value }
		BAD(IBV_QPS_INIT, port_num, 0),
		BAD(IBV_QPS_INIT, port_num, 2),
		BAD(IBV_QPS_INIT, pkey_index, 0xffff),
		BAD(IBV_QPS_RTR, path_mtu, 0),
		BAD(IBV_QPS_RTR, path_mtu, 6),
		BAD(IBV_QPS_RTR, min_rnr_timer, 32),
		BAD(IBV_QPS_RTR, max_dest_rd_atomic, 255),
		BAD(IBV_QPS_RTR, ah_attr.port_num, 2),
		BAD(IBV_QPS_RTR, ah_attr.is_global, 0),
		BAD(IBV_QPS_RTS, timeout, 32),
		BAD(IBV_QPS_RTS, retry_cnt, 8),
		BAD(IBV_QPS_RTS, rnr_retry, 8),
		BAD(IBV_QPS_RTS, max_rd_atomic, 255),
		BAD(IBV_QPS_RTS, cur_qp_state, IBV_QPS_INIT),
#undef BAD
	};
	unsigned int refused = 0;
	struct device d;

	device_open(&d);
	for (unsigned int i = 0; i < ARRAY_SIZE(bad); i++) {
		int mask = bad[i].to == IBV_QPS_INIT ? REQ_INIT :
			   bad[i].to == IBV_QPS_RTR ? REQ_RTR :
			   REQ_RTS | IBV_QP_CUR_STATE;
		struct ibv_qp_attr attr, before, after;
		struct end e;
		int ret;

		end_make(&e, &d, NULL);
		end_to_state(&e, bad[i].to - 1);
		attr = good_attr(&e, bad[i].to);
		memcpy((char *)&attr + bad[i].offset, &bad[i].value,
		       bad[i].size);
		query(&e, &before);
		ret = ibv_modify_qp(e.qp, &attr, mask | IBV_QP_STATE);
		query(&e, &after);
		if (ret != EINVAL)
			test_note("%s: answered %d (%s), expected %s",
				  bad[i].what, ret, strerror(ret),
				  strerror(EINVAL));
		else if (memcmp(&before, &after, sizeof(before)))
			test_note("%s: refused, but an attribute has changed",
				  bad[i].what);
		else
			refused++;
		end_free(&e);
	}
	device_close(&d);
	REQUIRE_EQ(refused, ARRAY_SIZE(bad));
}

/* The path MTU: any up to the port's, which is that of a netdev of 1500. */
static void path_mtu(void)
{
	struct own_device own;
	struct device d;

	own_device_make(&own, 0, 1500);
	opt.device = own.device;
	device_open(&d);
	REQUIRE_EQ(d.port.max_mtu, IBV_MTU_4096);
	REQUIRE_EQ(d.port.active_mtu, IBV_MTU_1024);
	for (enum ibv_mtu mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; mtu++) {
		struct ibv_qp_attr attr, got;
		struct end e;

		end_make(&e, &d, NULL);
		end_to_init(&e);
		attr = good_attr(&e, IBV_QPS_RTR);
		attr.path_mtu = mtu;
		REQUIRE_ERRNO(ibv_modify_qp(e.qp, &attr,
					    IBV_QP_STATE | REQ_RTR),
			      mtu <= IBV_MTU_1024 ? 0 : EINVAL);
		query(&e, &got);
		if (mtu <= IBV_MTU_1024)
			REQUIRE_EQ(got.path_mtu, mtu);
		end_free(&e);
	}
	device_close(&d);
	own_device_remove(&own);
}

/* Query tells what was set, in each state, and where the streams stand. */
static void query_tells_truth(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr set, got;
	struct region r;
	struct device d;
	struct end e;

	device_open(&d);
	end_make(&e, &d, &(struct end_config){
			.send_wr = 10, .recv_wr = 20, .send_sge = 3,
			.recv_sge = 2, .inline_data = 40, .signal_all = true });
	region_make(&r, &d, 64, 0, ACCESS_ALL);
	set = good_attr(&e, IBV_QPS_INIT);
	set.sq_psn = set.rq_psn = 0xfffffe;

	REQUIRE_ERRNO(ibv_query_qp(e.qp, &got, 0x1fffff, &init), 0);
	REQUIRE_EQ(got.qp_state, IBV_QPS_RESET);
	REQUIRE_EQ(init.qp_type, IBV_QPT_RC);
	REQUIRE_EQ(init.sq_sig_all, 1);
	REQUIRE(init.send_cq == e.scq && init.recv_cq == e.rcq && !init.srq);
	REQUIRE_EQ(init.cap.max_send_wr, e.cap.max_send_wr);
	REQUIRE_EQ(init.cap.max_recv_wr, e.cap.max_recv_wr);
	REQUIRE_EQ(init.cap.max_send_sge, e.cap.max_send_sge);
	REQUIRE_EQ(init.cap.max_recv_sge, e.cap.max_recv_sge);
	REQUIRE_EQ(init.cap.max_inline_data, e.cap.max_inline_data);
	REQUIRE(e.cap.max_send_wr >= 10 && e.cap.max_recv_wr >= 20 &&
		e.cap.max_send_sge >= 3 && e.cap.max_recv_sge >= 2 &&
		e.cap.max_inline_data >= 40);

	REQUIRE_ERRNO(ibv_modify_qp(e.qp, &set, IBV_QP_STATE | REQ_INIT), 0);
	REQUIRE_ERRNO(ibv_query_qp(e.qp, &got, 0x1fffff, &init), 0);
	REQUIRE_EQ(got.qp_state, IBV_QPS_INIT);
	REQUIRE_EQ(got.cur_qp_state, IBV_QPS_INIT);
	REQUIRE_EQ(got.port_num, 1);
	REQUIRE_EQ(got.pkey_index, 0);
	REQUIRE_EQ(got.qp_access_flags, ACCESS_ALL);

	set.qp_state = IBV_QPS_RTR;
	REQUIRE_ERRNO(ibv_modify_qp(e.qp, &set, IBV_QP_STATE | REQ_RTR), 0);
	REQUIRE_ERRNO(ibv_query_qp(e.qp, &got, 0x1fffff, &init), 0);
	REQUIRE_EQ(got.qp_state, IBV_QPS_RTR);
	REQUIRE_EQ(got.path_mtu, set.path_mtu);
	REQUIRE_EQ(got.dest_qp_num, e.qp->qp_num);
	REQUIRE_EQ(got.rq_psn, set.rq_psn);
	REQUIRE_EQ(got.max_dest_rd_atomic, set.max_dest_rd_atomic);
	REQUIRE_EQ(got.min_rnr_timer, set.min_rnr_timer);
	REQUIRE(!memcmp(&got.ah_attr.grh.dgid, &d.gid, sizeof(d.gid)));
	REQUIRE_EQ(got.ah_attr.grh.sgid_index, d.gid_index);
	/* Linux puts the route's hop limit in the place of the caller's. */
	REQUIRE(got.ah_attr.grh.hop_limit >= 1);
	REQUIRE_EQ(got.ah_attr.grh.traffic_class,
		   set.ah_attr.grh.traffic_class);
	REQUIRE_EQ(got.ah_attr.grh.flow_label, set.ah_attr.grh.flow_label);
	REQUIRE_EQ(got.ah_attr.is_global, 1);
	REQUIRE_EQ(got.ah_attr.sl, set.ah_attr.sl);
	REQUIRE_EQ(got.ah_attr.port_num, 1);

	set.qp_state = IBV_QPS_RTS;
	REQUIRE_ERRNO(ibv_modify_qp(e.qp, &set, IBV_QP_STATE | REQ_RTS), 0);
	REQUIRE_ERRNO(ibv_query_qp(e.qp, &got, 0x1fffff, &init), 0);
	REQUIRE_EQ(got.qp_state, IBV_QPS_RTS);
	REQUIRE_EQ(got.sq_psn, set.sq_psn);
	REQUIRE_EQ(got.timeout, set.timeout);
	REQUIRE_EQ(got.retry_cnt, set.retry_cnt);
	REQUIRE_EQ(got.rnr_retry, set.rnr_retry);
	REQUIRE_EQ(got.max_rd_atomic, set.max_rd_atomic);

	/* Each message of one packet takes one number, modulo 2^24. */
	for (int i = 0; i < 5; i++) {
		recv_region(&e, i, &r, 0, 32);
		send_region(&e, i, &r, 32, 32);
		EXPECT_OK(e.scq, i);
		EXPECT_OK(e.rcq, i);
	}
	REQUIRE_ERRNO(ibv_query_qp(e.qp, &got, 0x1fffff, &init), 0);
	REQUIRE_EQ(got.sq_psn, 3);
	REQUIRE_EQ(got.rq_psn, 3);

	set.qp_access_flags = IBV_ACCESS_LOCAL_WRITE;
	set.min_rnr_timer = 20;
	REQUIRE_ERRNO(ibv_modify_qp(e.qp, &set, IBV_QP_STATE |
				    IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER),
		      0);
	REQUIRE_ERRNO(ibv_query_qp(e.qp, &got, 0x1fffff, &init), 0);
	REQUIRE_EQ(got.min_rnr_timer, 20);
	REQUIRE_EQ(got.qp_access_flags & IBV_ACCESS_REMOTE_WRITE, 0);
	region_free(&r);
	end_free(&e);
	device_close(&d);
}

/* Without IBV_QP_STATE attributes are changed in the present state. */
static void modify_without_state(void)
{
	struct ibv_qp_attr attr, got;
	struct device d;
	struct end e;

	device_open(&d);
	end_make(&e, &d, NULL);
	end_to_state(&e, IBV_QPS_RTS);
	attr = good_attr(&e, IBV_QPS_RTS);
	attr.min_rnr_timer = 7;
	REQUIRE_ERRNO(ibv_modify_qp(e.qp, &attr, IBV_QP_MIN_RNR_TIMER), 0);
	query(&e, &got);
	REQUIRE_EQ(got.qp_state, IBV_QPS_RTS);
	REQUIRE_EQ(got.min_rnr_timer, 7);
	REQUIRE_ERRNO(ibv_modify_qp(e.qp, &attr, IBV_QP_RQ_PSN), EINVAL);
	end_free(&e);
	device_close(&d);
}

/* What may be posted in which state (10.8.3.1, 10.8.3.2). */
static void posting(void)
{
	struct device d;
	struct region r;

	device_open(&d);
	region_make(&r, &d, 64, 0, ACCESS_ALL);
	for (unsigned int i = 0; i < ARRAY_SIZE(states); i++) {
		enum ibv_qp_state state = states[i];
		bool send = state == IBV_QPS_RTS || state == IBV_QPS_SQD ||
			    state == IBV_QPS_ERR;
		bool recv = state != IBV_QPS_RESET;
		struct ibv_sge sge = sge_of(&r, 0, 64);
		struct end e;
		int ret;

		end_make(&e, &d, NULL);
		end_to_state(&e, state);
		ret = try_recv(&e, 1, &sge, 1);
		if (ret != (recv ? 0 : EINVAL))
			FAIL("ibv_post_recv in %s answered %d (%s)",
			     state_name(state), ret, strerror(ret));
		ret = try_send(&e, 2, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED,
			       NULL, 0, NULL, 0, 0);
		if (ret != (send ? 0 : EINVAL))
			FAIL("ibv_post_send in %s answered %d (%s)",
			     state_name(state), ret, strerror(ret));
		if (state == IBV_QPS_ERR) {
			EXPECT_WC(e.rcq, 1, IBV_WC_WR_FLUSH_ERR);
			EXPECT_WC(e.scq, 2, IBV_WC_WR_FLUSH_ERR);
		} else if (state == IBV_QPS_RTS) {
			EXPECT_OK(e.scq, 2);
		} else {
			EXPECT_NO_WC(e.scq);
		}
		EXPECT_NO_WC(e.rcq);
		end_free(&e);
	}
	region_free(&r);
	device_close(&d);
}

/*
 * SQD: what was begun ends, what is posted waits, receives are served, the
 * event comes once all is drained (10.3.1.5).
 */
static void send_queue_drain(void)
{
	const struct end_config config = { .rnr_timer = 20 };
	struct pair p;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1
	};

	pair_open(&p, &config);
	region_make(&p.mine, &p.d, 64, 0, 0);
	region_make(&p.theirs, &p.d, 64, 0, IBV_ACCESS_LOCAL_WRITE);
	/* Begun, and not to be ended as long as b has no receive. */
	send_region(&p.a, 1, &p.mine, 0, 64);
	sleep_us(30000);
	REQUIRE_ERRNO(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE |
				    IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	send_region(&p.a, 2, &p.mine, 0, 64);
	expect_no_async(p.d.ctx);
	recv_region(&p.b, 1, &p.theirs, 0, 64);
	recv_region(&p.b, 2, &p.theirs, 0, 64);
	EXPECT_OK(p.a.scq, 1);
	EXPECT_OK(p.b.rcq, 1);
	expect_async(p.d.ctx, IBV_EVENT_SQ_DRAINED, p.a.qp);
	EXPECT_NO_WC(p.a.scq);
	EXPECT_NO_WC(p.b.rcq);
	/* The receive queue of a drained QP works. */
	recv_region(&p.a, 3, &p.theirs, 0, 64);
	send_region(&p.b, 4, &p.mine, 0, 64);
	EXPECT_OK(p.a.rcq, 3);
	EXPECT_OK(p.b.scq, 4);

	attr.qp_state = IBV_QPS_RTS;
	REQUIRE_ERRNO(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), 0);
	EXPECT_OK(p.a.scq, 2);
	EXPECT_OK(p.b.rcq, 2);

	/* Drained at once when there is nothing to do. */
	attr.qp_state = IBV_QPS_SQD;
	REQUIRE_ERRNO(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE |
				    IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	expect_async(p.d.ctx, IBV_EVENT_SQ_DRAINED, p.a.qp);

	/* And no event that nobody asked for. */
	attr.qp_state = IBV_QPS_RTS;
	REQUIRE_ERRNO(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_SQD;
	attr.en_sqd_async_notify = 0;
	REQUIRE_ERRNO(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), 0);
	expect_no_async(p.d.ctx);

	/* The peer's address may change there; here it stays the same. */
	attr = good_attr(&p.a, IBV_QPS_SQD);
	REQUIRE_ERRNO(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE | IBV_QP_AV |
				    IBV_QP_TIMEOUT), 0);
	attr.qp_state = IBV_QPS_RTS;
	REQUIRE_ERRNO(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), 0);
	recv_region(&p.b, 5, &p.theirs, 0, 64);
	send_region(&p.a, 6, &p.mine, 0, 64);
	EXPECT_OK(p.a.scq, 6);
	EXPECT_OK(p.b.rcq, 5);
	pair_close(&p);
}

/* Error states by the engine, and what a program sees of them by query. */
static void states_after_error(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	struct region r;
	struct peer to;
	struct pair p;

	pair_open(&p, NULL);
	region_make(&r, &p.d, 64, 0, ACCESS_ALL);
	to = end_address(&p.b, &r);
	to.rkey ^= 1;
	send_sges(&p.a, 1, IBV_WR_RDMA_WRITE, 0,
		  &(struct ibv_sge){ (uintptr_t)r.data, 8, r.mr->lkey }, 1, &to,
		  0, 0);
	EXPECT_WC(p.a.scq, 1, IBV_WC_REM_ACCESS_ERR);
	end_await_state(&p.a, IBV_QPS_ERR);
	end_await_state(&p.b, IBV_QPS_ERR);
	/* No way back but RESET. */
	REQUIRE_ERRNO(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), EINVAL);
	attr.qp_state = IBV_QPS_SQD;
	REQUIRE_ERRNO(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), EINVAL);
	attr.qp_state = IBV_QPS_RESET;
	REQUIRE_ERRNO(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), 0);
	REQUIRE_EQ(end_state(&p.a), IBV_QPS_RESET);
	region_free(&r);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "legal_transitions", legal_transitions, 60 },
		{ "illegal_transitions", illegal_transitions, 60 },
		{ "bad_values", bad_values },
		{ "path_mtu", path_mtu },
		{ "query_tells_truth", query_tells_truth },
		{ "modify_without_state", modify_without_state },
		{ "posting", posting },
		{ "send_queue_drain", send_queue_drain },
		{ "states_after_error", states_after_error },
		{ }
	};

	return test_main(argc, argv, cases);
}
