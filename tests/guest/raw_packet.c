// SPDX-License-Identifier: GPL-2.0
/*
 * Raw packet queue pairs (IBV_QPT_RAW_PACKET) and flow steering
 * (ibv_create_flow(3)).
 */
#include "raw_packet/raw_packet.h"

#include <unistd.h>

static void sends(void)
{
	static const size_t lengths[] = { 14, 60, 64, 1000, 1514, 1518 };
	uint8_t bytes[2048];
	struct raw r;

	setup();
	raw_make(&r);
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		frame(r.tx.data, mac_a, TYPE, lengths[i], i);
		post(&r, i, lengths[i], lengths[i] <= 64 && i % 2 ? IBV_SEND_INLINE : 0);
		EXPECT_OK(r.scq, i);
		REQUIRE_EQ(take(judge, bytes, sizeof(bytes), 10000), lengths[i]);
		REQUIRE(!memcmp(bytes, r.tx.data, lengths[i]));
	}
	raw_free(&r);
	teardown();
}

/* Many, which wait for the network device where need be. */
static void sends_many(void)
{
	unsigned int rounds = opt.rounds ? opt.rounds : 2000;
	struct raw r;

	setup();
	raw_make(&r);
	frame(r.tx.data, mac_a, TYPE, 1514, 1);
	for (unsigned int i = 0; i < rounds; i++) {
		if (i >= 16)
			EXPECT_OK(r.scq, i - 16);
		post(&r, i, 1514, 0);
	}
	for (unsigned int i = rounds - 16; i < rounds; i++)
		EXPECT_OK(r.scq, i);
	raw_free(&r);
	teardown();
}

static void wrong_lengths(void)
{
	static const size_t lengths[] = { 0, 13, MTU + 19, 8000 };
	uint8_t bytes[64];
	struct raw r;

	setup();
	raw_make(&r);
	frame(r.tx.data, mac_a, TYPE, 8000, 1);
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		post(&r, i, lengths[i], 0);
		EXPECT_WC(r.scq, i, IBV_WC_LOC_LEN_ERR);
		REQUIRE_EQ(take(judge, bytes, sizeof(bytes), 20), -1);
		/* The send queue alone is in error. */
		to_state(r.qp, IBV_QPS_RTS);
	}
	post(&r, 9, 60, 0);
	EXPECT_OK(r.scq, 9);
	REQUIRE_EQ(take(judge, bytes, sizeof(bytes), 10000), 60);
	raw_free(&r);
	teardown();
}

static void receives(void)
{
	uint8_t bytes[2048], tagged[64] = { 0 };
	struct ibv_flow *flow;
	struct raw r;

	setup();
	raw_make(&r);
	post_recv(&r, 1, r.rx.len);
	frame(bytes, mac_a, TYPE, 1514, 3);
	judge_sends(bytes, 1514);
	MISSES(&r, bytes, 1514);
	flow = flow_to(&r, mac_a, 0);
	for (size_t len = 14; len <= 1514; len += 250) {
		judge_sends(bytes, len);
		GETS(&r, bytes, len);
	}
	frame(bytes, mac_b, TYPE, 60, 4);
	judge_sends(bytes, 60);
	MISSES(&r, bytes, 60);
	end_flow(flow);

	/* The tag, which the stack takes out of the bytes, is there again. */
	frame(tagged, mac_a, ETH_P_8021Q, 64, 5);
	tagged[14] = 0xa0;
	tagged[15] = 7;
	tagged[16] = TYPE >> 8;
	tagged[17] = TYPE & 0xff;
	{
		struct rule rule;

		rule_begin(&rule, IBV_FLOW_ATTR_NORMAL, 0);
		rule_eth(&rule, mac_a, TYPE, 7);
		flow = must_flow(&r, &rule);
	}
	judge_sends(tagged, 64);
	GETS(&r, tagged, 64);
	tagged[15] = 8;
	judge_sends(tagged, 64);
	MISSES(&r, tagged, 64);
	end_flow(flow);
	judge_sends(tagged, 64);
	MISSES(&r, tagged, 64);
	raw_free(&r);
	teardown();
}

/* No request, one that is too short, and what comes then. */
static void drops(void)
{
	struct ibv_flow *flow;
	uint8_t bytes[128];
	struct raw r;

	setup();
	raw_make(&r);
	flow = flow_to(&r, mac_a, 0);
	frame(bytes, mac_a, TYPE, 128, 1);
	judge_sends(bytes, 128);
	EXPECT_NO_WC(r.rcq);
	post_recv(&r, 1, 100);
	judge_sends(bytes, 128);
	EXPECT_NO_WC(r.rcq);
	judge_sends(bytes, 100);
	GETS(&r, bytes, 100);
	REQUIRE_EQ(run_command("rdma statistic show link " DEVICE "/1 | "
			       "grep -q 'dropped 2 '"), 0);
	end_flow(flow);
	raw_free(&r);
	teardown();
}

/*
 * Each frame that leaves comes to all sniffers, and the engine sends more
 * frames than it takes. Those that find no space are counted, each one.
 */
static void inbox_full(void)
{
	enum { SNIFFERS = 16, FRAMES = 512, ALL = SNIFFERS * FRAMES };
	static const char *const names[] = {
		"hw_counters/rcvd_pkts", "hw_counters/dropped",
		"hw_counters/inbox_full", "counters/port_rcv_errors",
	};
	static struct ibv_send_wr wr[FRAMES];
	struct raw sniffers[SNIFFERS], r;
	struct ibv_flow *flows[SNIFFERS];
	struct ibv_send_wr *bad;
	struct ibv_qp_init_attr attr;
	uint64_t counts[4], end;
	struct ibv_cq *small;
	struct ibv_sge sge;
	struct ibv_qp *qp;

	setup();
	for (int i = 0; i < SNIFFERS; i++) {
		raw_make(&sniffers[i]);
		flows[i] = flow_of(&sniffers[i], IBV_FLOW_ATTR_SNIFFER);
	}
	raw_make(&r);
	qp = r.qp;
	small = r.scq;
	r.scq = ibv_create_cq(dev.ctx, FRAMES, NULL, NULL, 0);
	REQUIRE(r.scq);
	attr = init_attr(&r, NULL);
	attr.cap.max_send_wr = FRAMES;
	r.qp = ibv_create_qp(dev.pd, &attr);
	REQUIRE(r.qp);
	to_rts(r.qp);
	for (int i = 0; i < 4; i++)
		counts[i] = port_counter(names[i]);
	frame(r.tx.data, mac_a, TYPE, 60, 1);
	sge = sge_of(&r.tx, 0, 60);
	for (int i = 0; i < FRAMES; i++)
		wr[i] = (struct ibv_send_wr){
			.wr_id = i, .opcode = IBV_WR_SEND, .sg_list = &sge,
			.num_sge = 1, .next = i + 1 < FRAMES ? &wr[i + 1] : NULL,
		};
	REQUIRE_ERRNO(ibv_post_send(r.qp, wr, &bad), 0);
	for (int i = 0; i < FRAMES; i++)
		EXPECT_OK(r.scq, i);
	for (end = now_us() + PATIENCE_US;
	     port_counter(names[0]) - counts[0] < ALL;)
		REQUIRE(now_us() < end);
	for (int i = 0; i < 4; i++)
		counts[i] = port_counter(names[i]) - counts[i];
	test_note("of %d frames, the inbox had no space for %llu", ALL,
		  (unsigned long long)counts[2]);
	REQUIRE_EQ(counts[0], ALL);
	REQUIRE_EQ(counts[1] + counts[2], ALL);
	/* An inbox holds 1024. */
	REQUIRE(counts[2] && counts[1] >= 1024);
	REQUIRE_EQ(counts[3], counts[2]);
	for (int i = 0; i < SNIFFERS; i++) {
		end_flow(flows[i]);
		raw_free(&sniffers[i]);
	}
	REQUIRE_ERRNO(ibv_destroy_qp(r.qp), 0);
	REQUIRE_ERRNO(ibv_destroy_cq(r.scq), 0);
	r.qp = qp;
	r.scq = small;
	raw_free(&r);
	teardown();
}

static void shared_queue(void)
{
	struct ibv_srq_init_attr srq_attr = {
		.attr = { .max_wr = 16, .max_sge = 1 },
	};
	struct ibv_qp_init_attr attr;
	struct ibv_flow *flow;
	struct ibv_recv_wr wr = { .wr_id = 1, .num_sge = 1 }, *bad;
	struct ibv_srq *srq;
	struct ibv_sge sge;
	uint8_t bytes[60];
	struct ibv_qp *qp;
	struct ibv_wc wc;
	struct raw r;

	setup();
	raw_make(&r);
	srq = ibv_create_srq(dev.pd, &srq_attr);
	REQUIRE(srq);
	attr = init_attr(&r, srq);
	qp = r.qp;
	r.qp = ibv_create_qp(dev.pd, &attr);
	REQUIRE(r.qp);
	to_rts(r.qp);
	flow = flow_to(&r, mac_a, 0);
	sge = sge_of(&r.rx, 0, 100);
	wr.sg_list = &sge;
	REQUIRE_ERRNO(ibv_post_srq_recv(srq, &wr, &bad), 0);
	frame(bytes, mac_a, TYPE, 60, 1);
	judge_sends(bytes, 60);
	next_wc(r.rcq, &wc);
	REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
	REQUIRE(!memcmp(r.rx.data, bytes, 60));
	end_flow(flow);
	REQUIRE_ERRNO(ibv_destroy_qp(r.qp), 0);
	REQUIRE_ERRNO(ibv_destroy_srq(srq), 0);
	r.qp = qp;
	raw_free(&r);
	teardown();
}

static void states(void)
{
	static const struct {
		enum ibv_qp_state state;
		int mask, err;
	} changes[] = {
		{ IBV_QPS_INIT, 0, EINVAL },
		{ IBV_QPS_INIT, IBV_QP_PORT | IBV_QP_QKEY, EINVAL },
		{ IBV_QPS_INIT, IBV_QP_PORT | IBV_QP_PKEY_INDEX, EINVAL },
		{ IBV_QPS_RTR, 0, EINVAL },
		{ IBV_QPS_INIT, IBV_QP_PORT, 0 },
		{ IBV_QPS_RTS, 0, EINVAL },
		{ IBV_QPS_RTR, IBV_QP_DEST_QPN, EINVAL },
		{ IBV_QPS_RTR, 0, 0 },
		{ IBV_QPS_RTS, IBV_QP_SQ_PSN, EINVAL },
		{ IBV_QPS_RTS, 0, 0 },
		{ IBV_QPS_SQD, 0, 0 },
		{ IBV_QPS_RTS, 0, 0 },
		{ IBV_QPS_ERR, 0, 0 },
		{ IBV_QPS_RTS, 0, EINVAL },
		{ IBV_QPS_RESET, 0, 0 },
	};
	struct ibv_qp_init_attr attr;
	struct ibv_qp_attr change, got;
	struct raw r;

	setup();
	raw_make(&r);
	to_state(r.qp, IBV_QPS_RESET);
	for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
		memset(&change, 0, sizeof(change));
		change.qp_state = changes[i].state;
		change.port_num = 1;
		REQUIRE_ERRNO(ibv_modify_qp(r.qp, &change,
					    IBV_QP_STATE | changes[i].mask),
			      changes[i].err);
		REQUIRE_ERRNO(ibv_query_qp(r.qp, &got, IBV_QP_STATE, &attr), 0);
		REQUIRE_EQ(attr.qp_type, IBV_QPT_RAW_PACKET);
		if (!changes[i].err)
			REQUIRE_EQ(got.qp_state, changes[i].state);
	}
	to_rts(r.qp);
	post_recv(&r, 5, 100);
	to_state(r.qp, IBV_QPS_ERR);
	EXPECT_WC(r.rcq, 5, IBV_WC_WR_FLUSH_ERR);
	raw_free(&r);
	teardown();
}

/* Without CAP_NET_RAW there is neither the one nor the other. */
static void nobodys(struct raw *r)
{
	struct ibv_qp_init_attr attr = init_attr(r, NULL);
	struct rule rule;

	become_nobody(1 << 20);
	REQUIRE_NULL_ERRNO(ibv_create_qp(dev.pd, &attr), EPERM);
	rule_begin(&rule, IBV_FLOW_ATTR_NORMAL, 0);
	rule_eth(&rule, mac_a, 0, 0);
	REQUIRE_NULL_ERRNO(ibv_create_flow(r->qp, &rule.attr), EPERM);
}

static void rights(void)
{
	struct raw r;

	setup();
	raw_make(&r);
	nobodys(&r);
	raw_free(&r);
	device_close(&dev);
}

/* The device goes, and then the netdev, with rules and frames on their way. */
static void removal(void)
{
	uint8_t bytes[60];
	struct raw r;

	setup();
	raw_make(&r);
	flow_to(&r, mac_a, 0);
	flow_of(&r, IBV_FLOW_ATTR_SNIFFER);
	frame(bytes, mac_a, TYPE, 60, 1);
	frame(r.tx.data, mac_group, TYPE, 60, 1);
	for (int i = 0; i < 8; i++) {
		post_recv(&r, i, r.rx.len);
		post(&r, i, 60, 0);
		judge_sends(bytes, 60);
	}
	REQUIRE_EQ(run_command("ip link delete " NETDEV), 0);
	for (uint64_t end = now_us() + PATIENCE_US;
	     !run_command("[ -e /sys/class/infiniband/" DEVICE " ]");
	     sleep_us(10000))
		REQUIRE(now_us() < end);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "sends", sends },
		{ "sends_many", sends_many },
		{ "wrong_lengths", wrong_lengths },
		{ "receives", receives },
		{ "drops", drops },
		{ "inbox_full", inbox_full },
		{ "shared_queue", shared_queue },
		{ "states", states },
		{ "rights", rights },
		{ "removal", removal },
		{ }
	};
	static const struct test_case *const tables[] = {
		cases,
		steering_cases,
		NULL,
	};

	return test_main_of(argc, argv, tables);
}
