// SPDX-License-Identifier: GPL-2.0
/* Unreliable connections, and datagrams. */
#include "interop.h"

#include <arpa/inet.h>

enum { GRH = 40 };

static const struct end_config uc = { .type = IBV_QPT_UC };
static const struct end_config ud = { .type = IBV_QPT_UD };

void uc_sizes(bool from_peer)
{
	static const size_t lengths[] = { 0, 1, 4096, 4097, 70000 };
	struct scene s;

	scene_make(&s, from_peer, &uc, 70000);
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		message(&s, IBV_WR_SEND, lengths[i], 0);
		message_with_imm(&s, IBV_WR_SEND_WITH_IMM, lengths[i]);
		message_with_imm(&s, IBV_WR_RDMA_WRITE_WITH_IMM, lengths[i]);
	}
	scene_free(&s);
}

/* A message that cannot be received is lost, whole, and the next one is not. */
void uc_losses(bool from_peer)
{
	struct scene s;

	scene_make(&s, from_peer, &uc, 70000);
	for (int i = 0; i < 3; i++) {
		send_region(&s.a.e, 77, &s.a.r, 0, i == 1 ? 70000 : 100);
		EXPECT_OK(s.a.e.scq, 77);
		EXPECT_NO_WC(s.b.e.rcq);
		message_with_imm(&s, IBV_WR_SEND_WITH_IMM, i == 2 ? 70000 : 1);
	}
	/* Nor can what has a wrong key be received. */
	s.to.rkey ^= 1;
	{
		struct ibv_sge sge = sge_of(&s.a.r, 0, 5000);

		send_sges(&s.a.e, 78, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED,
			  &sge, 1, &s.to, 0, 0);
		EXPECT_OK(s.a.e.scq, 78);
	}
	s.to.rkey ^= 1;
	message_with_imm(&s, IBV_WR_RDMA_WRITE_WITH_IMM, 5000);
	REQUIRE_EQ(end_state(&s.b.e), IBV_QPS_RTS);
	scene_free(&s);
}

static void datagram(struct side *from, struct ibv_ah *ah, uint64_t wr_id,
		     uint32_t qpn, enum ibv_wr_opcode opcode, size_t len,
		     uint32_t imm)
{
	send_datagram(&from->e, wr_id, &from->r,
		      (struct datagram){ ah, qpn, QKEY, len, opcode, 0, imm });
	EXPECT_OK(from->e.scq, wr_id);
}

static struct ibv_wc expect_datagram(struct side *to, struct side *from,
				     uint64_t wr_id, size_t len, uint64_t seed)
{
	struct ibv_wc wc = EXPECT_OK(to->e.rcq, wr_id);

	REQUIRE_EQ(wc.opcode, IBV_WC_RECV);
	REQUIRE_EQ(wc.byte_len, GRH + len);
	REQUIRE_EQ(wc.src_qp, from->e.qp->qp_num);
	REQUIRE(wc.wc_flags & IBV_WC_GRH);
	VERIFY(to->r.data + GRH, len, seed);
	return wc;
}

/* There, with immediate data and without, and back by what b has learnt. */
void datagrams(bool from_peer)
{
	static const size_t lengths[] = { 0, 1, 1000, 4096 };
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = { .hop_limit = 64 },
	};
	struct ibv_ah *there, *back;
	struct scene s;

	scene_make(&s, from_peer, &ud, GRH + 4096);
	attr.grh.dgid = s.b.d.gid;
	attr.grh.sgid_index = s.a.d.gid_index;
	there = ibv_create_ah(s.a.d.pd, &attr);
	REQUIRE(there);
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		uint32_t qpn = s.b.e.qp->qp_num;
		size_t len = lengths[i];
		struct ibv_wc wc;

		fill(s.a.r.data, len, i);
		recv_region(&s.b.e, 1, &s.b.r, 0, GRH + 4096);
		datagram(&s.a, there, 2, qpn, IBV_WR_SEND, len, 0);
		wc = expect_datagram(&s.b, &s.a, 1, len, i);
		REQUIRE(!(wc.wc_flags & IBV_WC_WITH_IMM));

		fill(s.a.r.data, len, i + 10);
		recv_region(&s.b.e, 3, &s.b.r, 0, GRH + 4096);
		datagram(&s.a, there, 4, qpn, IBV_WR_SEND_WITH_IMM, len,
			 0xdead0000 + i);
		wc = expect_datagram(&s.b, &s.a, 3, len, i + 10);
		REQUIRE(wc.wc_flags & IBV_WC_WITH_IMM);
		REQUIRE_EQ(ntohl(wc.imm_data), 0xdead0000 + i);

		back = ibv_create_ah_from_wc(s.b.d.pd, &wc,
					     (struct ibv_grh *)s.b.r.data, 1);
		REQUIRE(back);
		fill(s.b.r.data, len, i + 20);
		recv_region(&s.a.e, 5, &s.a.r, 0, GRH + 4096);
		datagram(&s.b, back, 6, wc.src_qp, IBV_WR_SEND, len, 0);
		expect_datagram(&s.a, &s.b, 5, len, i + 20);
		REQUIRE_ERRNO(ibv_destroy_ah(back), 0);
	}
	REQUIRE_ERRNO(ibv_destroy_ah(there), 0);
	scene_free(&s);
}
