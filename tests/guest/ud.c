// SPDX-License-Identifier: GPL-2.0
/*
 * Datagrams: the header before the data, Q_Keys, the length of a packet, what
 * is lost, address handles, and groups.
 */
#include "common.h"

#include <arpa/inet.h>
#include <stdlib.h>

enum { LEN = 64, GRH = 40 };

#define MULTICAST_QPN 0xffffff

struct scene {
	struct device d;
	struct end a, b;
	struct ibv_ah *ah;	/* the device itself */
	struct region from, to;
};

static struct ibv_ah *try_ah(struct device *d, const union ibv_gid *gid)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.sl = 3,
		.grh = {
			.dgid = *gid,
			.sgid_index = d->gid_index,
			.hop_limit = 64,
			.traffic_class = 0x20,
		},
	};

	return ibv_create_ah(d->pd, &attr);
}

static struct ibv_ah *make_ah(struct device *d, const union ibv_gid *gid)
{
	struct ibv_ah *ah = try_ah(d, gid);

	if (!ah)
		FAIL("ibv_create_ah: %s", strerror(errno));
	return ah;
}

static void ud_make(struct end *e, struct device *d)
{
	const struct end_config config = { .type = IBV_QPT_UD,
					   .inline_data = LEN };

	struct peer self;

	end_make(e, d, &config);
	self = end_address(e, NULL);
	end_connect(e, &self);
}

static void scene_make(struct scene *s)
{
	device_open(&s->d);
	ud_make(&s->a, &s->d);
	ud_make(&s->b, &s->d);
	s->ah = make_ah(&s->d, &s->d.gid);
	region_make(&s->from, &s->d, 8192, 3, ACCESS_ALL);
	region_make(&s->to, &s->d, 8192, 5, ACCESS_ALL);
	fill(s->from.data, s->from.len, 1);
}

static void scene_free(struct scene *s)
{
	REQUIRE_ERRNO(ibv_destroy_ah(s->ah), 0);
	end_free(&s->a);
	end_free(&s->b);
	REGION_CHECK(&s->from);
	REGION_CHECK(&s->to);
	region_free(&s->from);
	region_free(&s->to);
	device_close(&s->d);
}

/* From a to b, with all as it should be. */
static void send_plain(struct scene *s, uint64_t wr_id, size_t len)
{
	send_datagram(&s->a, wr_id, &s->from,
		      (struct datagram){ s->ah, s->b.qp->qp_num, QKEY, len });
	EXPECT_OK(s->a.scq, wr_id);
}

/* The part of the service level that UCX reads: UDP, and the version of IP. */
static uint8_t kind_of_packet(const union ibv_gid *gid)
{
	enum { IPV6 = 1, IPV4 = 2, UDP = 8 };

	return UDP | (gid->global.subnet_prefix ? IPV6 : IPV4);
}

static void expect_datagram(struct scene *s, uint64_t wr_id, size_t len)
{
	struct ibv_wc wc = EXPECT_OK(s->b.rcq, wr_id);
	REQUIRE_EQ(wc.byte_len, GRH + len);
	REQUIRE(wc.wc_flags & IBV_WC_GRH);
	REQUIRE_EQ(wc.src_qp, s->a.qp->qp_num);
	REQUIRE_EQ(wc.opcode, IBV_WC_RECV);
	REQUIRE_EQ(wc.sl, kind_of_packet(&s->d.gid));
	VERIFY(s->to.data + GRH, len, 1);
}

static size_t port_mtu(const struct device *d)
{
	return 128u << d->port.active_mtu;
}

static void sizes(void)
{
	struct scene s;
	size_t mtu;

	scene_make(&s);
	mtu = port_mtu(&s.d);
	for (size_t len = 0; len <= mtu; len = len ? len * 2 : 1) {
		recv_region(&s.b, len, &s.to, 0, GRH + len);
		send_plain(&s, len, len);
		expect_datagram(&s, len, len);
	}
	/* IBA volume 1, C10-87: a datagram is one packet. */
	send_datagram(&s.a, 1, &s.from,
		      (struct datagram){ s.ah, s.b.qp->qp_num, QKEY, mtu + 1 });
	EXPECT_WC(s.a.scq, 1, IBV_WC_LOC_LEN_ERR);
	end_await_state(&s.a, IBV_QPS_SQE);
	scene_free(&s);
}

static void immediate_and_inline(void)
{
	struct ibv_wc wc;
	struct scene s;

	scene_make(&s);
	recv_region(&s.b, 1, &s.to, 0, GRH + LEN);
	send_datagram(&s.a, 2, &s.from,
		      (struct datagram){ s.ah, s.b.qp->qp_num, QKEY, LEN,
					 IBV_WR_SEND_WITH_IMM, IBV_SEND_INLINE,
					 0x01020304 });
	wc = EXPECT_OK(s.b.rcq, 1);
	REQUIRE_EQ(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
	REQUIRE_EQ(ntohl(wc.imm_data), 0x01020304);
	VERIFY(s.to.data + GRH, LEN, 1);
	EXPECT_OK(s.a.scq, 2);
	scene_free(&s);
}

/* The header is such that an answer finds its way by it. */
static void answer(void)
{
	struct ibv_ah *back;
	struct ibv_wc wc;
	struct scene s;

	scene_make(&s);
	recv_region(&s.b, 1, &s.to, 0, GRH + LEN);
	send_plain(&s, 2, LEN);
	wc = EXPECT_OK(s.b.rcq, 1);
	if (!s.d.gid.global.subnet_prefix) {
		/* The header of an IPv4 packet, in the last 20 bytes. */
		const uint8_t *ip = s.to.data + 20;
		uint32_t sum = 0;

		REQUIRE_EQ(ip[0], 0x45);
		REQUIRE_EQ(ip[1], 0x20);
		REQUIRE_EQ(ip[2] << 8 | ip[3], 20 + 8 + 12 + 8 + LEN + 4);
		REQUIRE_EQ(ip[8], 64);
		REQUIRE_EQ(ip[9], 17);
		for (int i = 0; i < 20; i += 2)
			sum += ip[i] << 8 | ip[i + 1];
		REQUIRE_EQ((sum & 0xffff) + (sum >> 16), 0xffff);
		REQUIRE(!memcmp(ip + 12, s.d.gid.raw + 12, 4));
		REQUIRE(!memcmp(ip + 16, s.d.gid.raw + 12, 4));
	}
	back = ibv_create_ah_from_wc(s.d.pd, &wc,
				     (struct ibv_grh *)s.to.data, 1);
	REQUIRE(back);
	recv_region(&s.a, 3, &s.to, 4096, GRH + LEN);
	send_datagram(&s.b, 4, &s.from,
		      (struct datagram){ back, wc.src_qp, QKEY, LEN });
	EXPECT_OK(s.a.rcq, 3);
	EXPECT_OK(s.b.scq, 4);
	VERIFY(s.to.data + 4096 + GRH, LEN, 1);
	REQUIRE_ERRNO(ibv_destroy_ah(back), 0);
	scene_free(&s);
}

/* IBA volume 1, 10.2.5. */
static void qkeys(void)
{
	struct ibv_qp_attr attr = { .qkey = 0x1234 };
	struct scene s;

	scene_make(&s);
	recv_region(&s.b, 1, &s.to, 0, GRH + LEN);
	send_datagram(&s.a, 2, &s.from,
		      (struct datagram){ s.ah, s.b.qp->qp_num, QKEY + 1,
					 LEN });
	EXPECT_OK(s.a.scq, 2);
	EXPECT_NO_WC(s.b.rcq);
	/* With the highest bit: that of the sender's queue pair. */
	REQUIRE_ERRNO(ibv_modify_qp(s.a.qp, &attr, IBV_QP_QKEY), 0);
	REQUIRE_ERRNO(ibv_modify_qp(s.b.qp, &attr, IBV_QP_QKEY), 0);
	send_datagram(&s.a, 3, &s.from,
		      (struct datagram){ s.ah, s.b.qp->qp_num, 0x80000000,
					 LEN });
	EXPECT_OK(s.a.scq, 3);
	expect_datagram(&s, 1, LEN);
	scene_free(&s);
}

/* Each of these is lost, and the next arrives all the same. */
static void losses(void)
{
	struct end idle;
	struct scene s;

	scene_make(&s);
	end_make(&idle, &s.d, &s.b.config);
	send_plain(&s, 1, LEN);		/* no receive request */
	send_datagram(&s.a, 2, &s.from,
		      (struct datagram){ s.ah, idle.qp->qp_num, QKEY, LEN });
	EXPECT_OK(s.a.scq, 2);
	send_datagram(&s.a, 3, &s.from,
		      (struct datagram){ s.ah, 0xabcdef, QKEY, LEN });
	EXPECT_OK(s.a.scq, 3);
	/*
	 * A buffer without space for the header, too, stays for a datagram that
	 * fits.
	 */
	recv_region(&s.b, 4, &s.to, 0, GRH + LEN - 1);
	send_plain(&s, 5, LEN);
	EXPECT_NO_WC(s.b.rcq);
	VERIFY_BYTE(s.to.data, GRH + LEN, 0);
	send_plain(&s, 6, LEN - 1);
	expect_datagram(&s, 4, LEN - 1);
	end_free(&idle);
	expect_no_async(s.d.ctx);
	scene_free(&s);
}

static void send_queue_error(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	struct ibv_sge bad = { .length = LEN, .lkey = 77 };
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.opcode = IBV_WR_SEND,
		.sg_list = &bad,
		.num_sge = 1,
	}, *bad_wr;
	struct scene s;

	scene_make(&s);
	wr.wr.ud.ah = s.ah;
	wr.wr.ud.remote_qpn = s.b.qp->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	REQUIRE_ERRNO(ibv_post_send(s.a.qp, &wr, &bad_wr), 0);
	EXPECT_WC(s.a.scq, 1, IBV_WC_LOC_PROT_ERR);
	end_await_state(&s.a, IBV_QPS_SQE);
	send_datagram(&s.a, 2, &s.from,
		      (struct datagram){ s.ah, s.b.qp->qp_num, QKEY, LEN });
	EXPECT_WC(s.a.scq, 2, IBV_WC_WR_FLUSH_ERR);
	REQUIRE_ERRNO(ibv_modify_qp(s.a.qp, &attr, IBV_QP_STATE), 0);
	recv_region(&s.b, 3, &s.to, 0, GRH + LEN);
	send_plain(&s, 4, LEN);
	expect_datagram(&s, 3, LEN);
	scene_free(&s);
}

static void address_handles(void)
{
	struct ibv_ah *handles[200], *theirs;
	struct device other;
	struct ibv_ah_attr attr = { .port_num = 1 };
	struct scene s;

	scene_make(&s);
	/* RoCE has no addresses but global ones. */
	REQUIRE_NULL_ERRNO(ibv_create_ah(s.d.pd, &attr), EINVAL);
	for (size_t i = 0; i < ARRAY_SIZE(handles); i++)
		handles[i] = make_ah(&s.d, &s.d.gid);
	recv_region(&s.b, 1, &s.to, 0, GRH + LEN);
	send_datagram(&s.a, 2, &s.from,
		      (struct datagram){ handles[150], s.b.qp->qp_num, QKEY,
					 LEN });
	EXPECT_OK(s.a.scq, 2);
	expect_datagram(&s, 1, LEN);
	for (size_t i = 0; i < ARRAY_SIZE(handles); i++)
		REQUIRE_ERRNO(ibv_destroy_ah(handles[i]), 0);

	/* A handle of another protection domain is none of ours. */
	other = device_other_pd(&s.d);
	theirs = make_ah(&other, &s.d.gid);
	send_datagram(&s.a, 3, &s.from,
		      (struct datagram){ theirs, s.b.qp->qp_num, QKEY, LEN });
	EXPECT_WC(s.a.scq, 3, IBV_WC_LOC_QP_OP_ERR);
	REQUIRE_ERRNO(ibv_destroy_ah(theirs), 0);
	device_free_pd(&other);
	scene_free(&s);
}

/* Of datagrams there are SENDs alone (table 95). */
static void refused_operations(void)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
		IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND_WITH_INV,
	};
	struct scene s;

	scene_make(&s);
	for (size_t i = 0; i < ARRAY_SIZE(opcodes); i++) {
		struct ibv_sge sge = sge_of(&s.from, 0, 8);
		struct ibv_send_wr wr = {
			.opcode = opcodes[i],
			.sg_list = &sge,
			.num_sge = 1,
			.wr.ud = { s.ah, s.b.qp->qp_num, QKEY },
		}, *bad = NULL;

		REQUIRE_ERRNO(ibv_post_send(s.a.qp, &wr, &bad), EINVAL);
		REQUIRE(bad == &wr);
	}
	EXPECT_NO_WC(s.a.scq);
	recv_region(&s.b, 1, &s.to, 0, GRH + LEN);
	send_plain(&s, 2, LEN);
	expect_datagram(&s, 1, LEN);
	scene_free(&s);
}

static void groups(void)
{
	union ibv_gid group, second;
	struct end others[3];
	struct ibv_ah *ah;
	struct scene s;

	scene_make(&s);
	REQUIRE(s.d.attr.max_mcast_grp > 0);
	REQUIRE(s.d.attr.max_mcast_qp_attach > 0);
	memset(&group, 0, sizeof(group));
	memcpy(group.raw + 10, "\xff\xff\xef\x01\x02\x03", 6);
	second = group;
	second.raw[15]++;
	ah = make_ah(&s.d, &group);

	for (int i = 0; i < 3; i++)
		ud_make(&others[i], &s.d);
	REQUIRE_ERRNO(ibv_attach_mcast(others[0].qp, &group, 0), 0);
	REQUIRE_ERRNO(ibv_attach_mcast(others[1].qp, &group, 0), 0);
	REQUIRE_ERRNO(ibv_attach_mcast(others[2].qp, &second, 0), 0);
	/* The address of a group it has to be, and a datagram queue pair. */
	REQUIRE_ERRNO(ibv_attach_mcast(s.b.qp, &s.d.gid, 0), EINVAL);
	{
		struct end rc;

		end_make(&rc, &s.d, NULL);
		REQUIRE_ERRNO(ibv_attach_mcast(rc.qp, &group, 0), EINVAL);
		end_free(&rc);
	}

	for (int i = 0; i < 3; i++)
		recv_region(&others[i], i, &s.to, i * 1024, GRH + LEN);
	send_datagram(&s.a, 1, &s.from,
		      (struct datagram){ ah, MULTICAST_QPN, QKEY, LEN });
	EXPECT_OK(s.a.scq, 1);
	for (int i = 0; i < 2; i++) {
		EXPECT_OK(others[i].rcq, i);
		VERIFY(s.to.data + i * 1024 + GRH, LEN, 1);
	}
	EXPECT_NO_WC(others[2].rcq);

	REQUIRE_ERRNO(ibv_destroy_qp(others[0].qp), EBUSY);
	REQUIRE_ERRNO(ibv_detach_mcast(others[0].qp, &second, 0), EINVAL);
	REQUIRE_ERRNO(ibv_detach_mcast(others[0].qp, &group, 0), 0);
	recv_region(&others[0], 5, &s.to, 0, GRH + LEN);
	recv_region(&others[1], 6, &s.to, 1024, GRH + LEN);
	send_datagram(&s.a, 2, &s.from,
		      (struct datagram){ ah, MULTICAST_QPN, QKEY, LEN });
	EXPECT_OK(s.a.scq, 2);
	EXPECT_OK(others[1].rcq, 6);
	EXPECT_NO_WC(others[0].rcq);
	REQUIRE_ERRNO(ibv_detach_mcast(others[1].qp, &group, 0), 0);
	REQUIRE_ERRNO(ibv_detach_mcast(others[2].qp, &second, 0), 0);
	for (int i = 0; i < 3; i++)
		end_free(&others[i]);
	REQUIRE_ERRNO(ibv_destroy_ah(ah), 0);
	scene_free(&s);
}

/* A process that dies while it is attached leaves nothing behind. */
static void attach_and_die(void *arg)
{
	union ibv_gid group = { };
	struct device d;
	struct end e;

	(void)arg;
	device_open(&d);
	ud_make(&e, &d);
	group.raw[0] = 0xff;
	for (int i = 0; i < 20; i++) {
		group.raw[15] = i;
		REQUIRE_ERRNO(ibv_attach_mcast(e.qp, &group, 0), 0);
	}
	make_ah(&d, &d.gid);
}

static void death(void)
{
	for (int i = 0; i < 5; i++)
		join_process(fork_process(attach_and_die, NULL));
	attach_and_die(NULL);
}

/* The longest datagram is that of the port as it is now. */
static void mtu_changes(void)
{
	struct own_device own;
	struct scene s;
	struct end again;

	own_device_make(&own, 7, 4200);
	opt.device = own.device;
	scene_make(&s);
	REQUIRE_EQ(port_mtu(&s.d), 4096);
	recv_region(&s.b, 1, &s.to, 0, GRH + 4096);
	send_plain(&s, 2, 4096);
	expect_datagram(&s, 1, 4096);
	REQUIRE_EQ(run_command("ip link set %s mtu 1500", own.netdev), 0);
	recv_region(&s.b, 3, &s.to, 0, GRH + 1024);
	send_plain(&s, 4, 1024);
	expect_datagram(&s, 3, 1024);
	ud_make(&again, &s.d);
	send_datagram(&again, 5, &s.from,
		      (struct datagram){ s.ah, s.b.qp->qp_num, QKEY, 1025 });
	EXPECT_WC(again.scq, 5, IBV_WC_LOC_LEN_ERR);
	end_free(&again);
	scene_free(&s);
	own_device_remove(&own);
}

/* Many datagrams each way; none is lost while there are receive requests. */
static void traffic(void)
{
	unsigned long rounds = opt.rounds ?: 3000;
	struct scene s;

	scene_make(&s);
	for (unsigned long i = 0; i < rounds; i += 16) {
		for (int j = 0; j < 16; j++)
			recv_region(&s.b, i + j, &s.to, j * 256, GRH + LEN);
		for (int j = 0; j < 16; j++)
			send_datagram(&s.a, i + j, &s.from,
				      (struct datagram){ s.ah, s.b.qp->qp_num,
							 QKEY, LEN });
		for (int j = 0; j < 16; j++) {
			EXPECT_OK(s.a.scq, i + j);
			EXPECT_OK(s.b.rcq, i + j);
			VERIFY(s.to.data + j * 256 + GRH, LEN, 1);
		}
		memset(s.to.data, 0, s.to.len);
	}
	scene_free(&s);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "sizes", sizes },
		{ "immediate_and_inline", immediate_and_inline },
		{ "answer", answer },
		{ "qkeys", qkeys },
		{ "losses", losses },
		{ "send_queue_error", send_queue_error },
		{ "address_handles", address_handles },
		{ "refused_operations", refused_operations },
		{ "groups", groups },
		{ "death", death },
		{ "mtu_changes", mtu_changes },
		{ "traffic", traffic, 120 },
		{ }
	};

	return test_main(argc, argv, cases);
}
