// SPDX-License-Identifier: GPL-2.0
/*
 * Values that no attribute may have, and the query of those that it may have.
 */
#include "rc_states.h"

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

/* A flow label has 20 bits. UCX sets the others, too, and they mean nothing. */
static void flow_label(void)
{
	struct ibv_qp_attr attr, got;
	struct ibv_ah *ah;
	struct device d;
	struct end e;

	device_open(&d);
	end_make(&e, &d, NULL);
	end_to_init(&e);
	attr = good_attr(&e, IBV_QPS_RTR);
	attr.ah_attr.grh.flow_label = ~0u;
	REQUIRE_ERRNO(ibv_modify_qp(e.qp, &attr, IBV_QP_STATE | REQ_RTR), 0);
	query(&e, &got);
	REQUIRE_EQ(got.ah_attr.grh.flow_label & 0xfffff, 0xfffff);
	ah = ibv_create_ah(d.pd, &attr.ah_attr);
	REQUIRE(ah);
	REQUIRE_EQ(ibv_destroy_ah(ah), 0);
	end_free(&e);
	device_close(&d);
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

const struct test_case attribute_cases[] = {
	{ "bad_values", bad_values },
	{ "path_mtu", path_mtu },
	{ "flow_label", flow_label },
	{ "query_tells_truth", query_tells_truth },
	{ "modify_without_state", modify_without_state },
	{ }
};
