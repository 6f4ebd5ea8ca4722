// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Posting send requests: the contents of slots, and errors. */
#include <errno.h>
#include <string.h>

#include "provider_test.h"

/* Slots hold what was asked for, and zero where nothing was. */
void test_send_wqe(void)
{
	struct ibv_sge sges[5] = {
		{ .addr = 0x1122334455667788, .length = 3, .lkey = 0x99 },
		{ .addr = 8, .length = 4, .lkey = 5 },
	};
	struct ibv_qp *qp = new_qp(IBV_QPT_RC, new_cq(16), 16);
	struct fake_qp *fqp = fake_qp(qp);
	struct ferrule_send_wqe want = {};
	struct ferrule_send_wqe *wqe;
	struct ferrule_sge *sge;
	struct ibv_send_wr wr = {
		.wr_id = 0x123456789abcdef0,
		.sg_list = sges,
		.num_sge = 2,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED,
		.imm_data = htobe32(0x01020304),
		.wr.rdma = { .remote_addr = 0x42, .rkey = 0x43 },
	};

	CHECK(!post(qp, &wr));
	wqe = fake_send_slot(fqp, 0);
	sge = (struct ferrule_sge *)(wqe + 1);
	want.wr_id = htole64(wr.wr_id);
	want.opcode = FERRULE_WR_RDMA_WRITE_WITH_IMM;
	want.flags = FERRULE_WR_SIGNALED | FERRULE_WR_SOLICITED;
	want.num_sge = htole16(2);
	want.remote_addr = htole64(0x42);
	want.rkey = htole32(0x43);
	memcpy(want.imm_or_inv, "\1\2\3\4", 4);
	CHECK(!memcmp(wqe, &want, sizeof(want)));
	CHECK(le64toh(sge[0].addr) == 0x1122334455667788);
	CHECK(le32toh(sge[0].length) == 3 && le32toh(sge[0].lkey) == 0x99);
	CHECK(le64toh(sge[1].addr) == 8);

	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr.num_sge = 1;
	wr.send_flags = IBV_SEND_FENCE;
	wr.wr.atomic.remote_addr = 0x50;
	wr.wr.atomic.compare_add = 0x51;
	wr.wr.atomic.swap = 0x52;
	wr.wr.atomic.rkey = 0x53;
	CHECK(!post(qp, &wr));
	wqe = fake_send_slot(fqp, 1);
	CHECK(wqe->opcode == FERRULE_WR_ATOMIC_FETCH_AND_ADD);
	CHECK(wqe->flags == FERRULE_WR_FENCE);
	CHECK(le64toh(wqe->remote_addr) == 0x50);
	CHECK(le64toh(wqe->atomic.compare_add) == 0x51 && !wqe->atomic.swap);
	CHECK(le32toh(wqe->rkey) == 0x53);

	wr.opcode = IBV_WR_SEND_WITH_INV;
	wr.invalidate_rkey = 0x0a0b0c0d;
	wr.send_flags = IBV_SEND_INLINE;
	sges[0].addr = (uintptr_t)"abc";
	sges[0].length = 3;
	sges[1].addr = (uintptr_t)"defgh";
	sges[1].length = 5;
	wr.num_sge = 2;
	CHECK(!post(qp, &wr));
	wqe = fake_send_slot(fqp, 2);
	CHECK(wqe->flags == FERRULE_WR_INLINE && !wqe->num_sge);
	CHECK(le32toh(wqe->inline_len) == 8);
	CHECK(!memcmp(wqe + 1, "abcdefgh", 8));
	CHECK(!memcmp(wqe->imm_or_inv, "\x0d\x0c\x0b\x0a", 4));
	CHECK(!wqe->remote_addr && !wqe->rkey);

	wr.opcode = IBV_WR_LOCAL_INV;
	wr.send_flags = 0;
	CHECK(!post(qp, &wr));
	wqe = fake_send_slot(fqp, 3);
	CHECK(wqe->opcode == FERRULE_WR_LOCAL_INV && !wqe->num_sge);
	CHECK(!memcmp(wqe->imm_or_inv, "\x0d\x0c\x0b\x0a", 4));

	CHECK(le32toh(fqp->ctrl->sq_producer) == 4);
}

static void check_bind(const struct ferrule_send_wqe *wqe, uint32_t mw_rkey,
		       uint32_t key, uint32_t lkey)
{
	CHECK(wqe->opcode == FERRULE_WR_BIND_MW && !wqe->num_sge);
	CHECK(wqe->flags == FERRULE_WR_SIGNALED && !wqe->inline_len);
	CHECK(le64toh(wqe->remote_addr) == 0x123456789a);
	CHECK(le32toh(wqe->rkey) == key);
	CHECK(wqe->imm_or_inv[0] == lkey && !wqe->imm_or_inv[1]);
	CHECK(le32toh(wqe->bind.mw_rkey) == mw_rkey);
	CHECK(le32toh(wqe->bind.access) == IBV_ACCESS_REMOTE_READ);
	CHECK(le64toh(wqe->bind.length) == 0x1000000001);
}

void test_bind(void)
{
	struct ibv_qp *qp = new_qp(IBV_QPT_RC, new_cq(8), 2);
	struct ibv_mr mr = { .lkey = 0x77 };
	struct ibv_mw mw = { .context = fake.context, .rkey = 0x800001ff };
	struct ibv_mw_bind bind = {
		.wr_id = 5,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = {
			.mr = &mr,
			.addr = 0x123456789a,
			.length = 0x1000000001,
			.mw_access_flags = IBV_ACCESS_REMOTE_READ,
		},
	};
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = {
			.mw = &mw,
			.rkey = 0x80000142,
			.bind_info = bind.bind_info,
		},
	};

	/* The verb is for windows of type 1, and makes the next key itself. */
	mw.type = IBV_MW_TYPE_1;
	CHECK(!fake.ops->bind_mw(qp, &mw, &bind));
	CHECK(mw.rkey == 0x80000100);
	check_bind(fake_send_slot(fake_qp(qp), 0), 0x800001ff, 0x80000100,
		   0x77);
	CHECK(post(qp, &wr) == EINVAL);
	/* The request is for windows of type 2, whose keys the program makes. */
	mw.type = IBV_MW_TYPE_2;
	CHECK(!post(qp, &wr));
	CHECK(mw.rkey == 0x80000100);
	check_bind(fake_send_slot(fake_qp(qp), 1), 0x80000100, 0x80000142,
		   0x77);
	/* The queue is full; the key stays. */
	CHECK(fake.ops->bind_mw(qp, &mw, &bind) == ENOMEM);
	CHECK(mw.rkey == 0x80000100);
	bind.bind_info.mw_access_flags = IBV_ACCESS_ZERO_BASED;
	CHECK(fake.ops->bind_mw(qp, &mw, &bind) == EINVAL);
}

void test_send_errors(void)
{
	uint8_t data[65];
	struct ibv_sge sges[5] = {
		{ .addr = (uintptr_t)data, .length = sizeof(data) },
	};
	struct ibv_qp *qp = new_qp(IBV_QPT_RC, new_cq(8), 3);
	struct ibv_qp *uc = new_qp(IBV_QPT_UC, new_cq(8), 3);
	struct ibv_qp *ud = new_qp(IBV_QPT_UD, new_cq(8), 3);
	struct fake_qp *fqp = fake_qp(qp);
	struct ibv_send_wr wr = { .sg_list = sges, .opcode = IBV_WR_SEND };
	struct ibv_send_wr chain[4] = {};
	struct ibv_send_wr *bad;
	unsigned int i;

	for (i = IBV_QPS_RESET; i < IBV_QPS_RTS; i++) {
		qp->state = i;
		CHECK(post(qp, &wr) == EINVAL);
	}
	qp->state = IBV_QPS_RTS;

	wr.num_sge = 5;
	CHECK(post(qp, &wr) == EINVAL);
	wr.num_sge = -1;
	CHECK(post(qp, &wr) == EINVAL);
	wr.num_sge = 1;
	wr.send_flags = IBV_SEND_INLINE;
	CHECK(post(qp, &wr) == EINVAL);
	sges[0].length = 8;
	wr.opcode = IBV_WR_RDMA_READ;
	CHECK(post(qp, &wr) == EINVAL);
	wr.send_flags = IBV_SEND_IP_CSUM;
	CHECK(post(qp, &wr) == EINVAL);
	wr.send_flags = 0;
	wr.opcode = IBV_WR_BIND_MW;
	CHECK(post(qp, &wr) == EINVAL);
	wr.opcode = IBV_WR_TSO;
	CHECK(post(qp, &wr) == EINVAL);
	/* struct ibv_send_wr has no fields for it. */
	wr.opcode = IBV_WR_FLUSH;
	CHECK(post(qp, &wr) == EINVAL);
	wr.opcode = IBV_WR_ATOMIC_WRITE;
	sges[0].length = 9;
	CHECK(post(qp, &wr) == EINVAL);
	sges[0].length = 8;
	CHECK(post(uc, &wr) == EINVAL);
	wr.opcode = -1;
	CHECK(post(qp, &wr) == EINVAL);

	wr.opcode = IBV_WR_RDMA_WRITE;
	CHECK(post(ud, &wr) == EINVAL);
	wr.opcode = IBV_WR_SEND;
	CHECK(post(ud, &wr) == EINVAL); /* without an address handle */
	wr.opcode = IBV_WR_SEND_WITH_INV;
	CHECK(post(ud, &wr) == EINVAL);
	CHECK(post(uc, &wr) == EINVAL);
	wr.opcode = IBV_WR_LOCAL_INV;
	CHECK(post(ud, &wr) == EINVAL);
	CHECK(!post(uc, &wr));

	CHECK(!fqp->ctrl->sq_producer);

	/* The good ones before the bad one are posted. Three fit, in 4 slots. */
	for (i = 0; i < 4; i++) {
		chain[i].wr_id = i;
		chain[i].opcode = IBV_WR_SEND;
		chain[i].next = i < 3 ? &chain[i + 1] : NULL;
	}
	CHECK(fake.ops->post_send(qp, chain, &bad) == ENOMEM);
	CHECK(bad == &chain[3]);
	CHECK(le32toh(fqp->ctrl->sq_producer) == 3);

	fake.status->dead = htole32(1);
	CHECK(post(qp, &wr) == EIO);
	fake.status->dead = 0;
}

void test_wr_api(void)
{
	struct ibv_cq *cq = new_cq(8);
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4 },
		.qp_type = IBV_QPT_UD,
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = new_pd(),
		.send_ops_flags = IBV_QP_EX_WITH_SEND |
				  IBV_QP_EX_WITH_RDMA_WRITE,
	};
	struct ibv_data_buf bufs[2] = { { (void *)"ab", 2 },
					{ (void *)"cde", 3 } };
	struct ibv_ah_attr ah_attr = {};
	struct ferrule_send_wqe *wqe;
	struct ibv_sge sges[5] = {};
	struct fake_qp *fqp;
	struct ibv_qp_ex *x;
	struct ibv_qp *qp;
	struct ibv_ah *ah;
	unsigned int i;

	CHECK(!fake.ops->create_qp_ex(fake.context, &attr));
	CHECK(errno == EOPNOTSUPP);
	attr.qp_type = IBV_QPT_UC;
	attr.send_ops_flags = IBV_QP_EX_WITH_SEND_WITH_INV;
	CHECK(!fake.ops->create_qp_ex(fake.context, &attr));
	CHECK(errno == EOPNOTSUPP);
	attr.send_ops_flags = IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
	CHECK(fake.ops->create_qp_ex(fake.context, &attr));
	attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE;
	attr.qp_type = IBV_QPT_RC;
	qp = fake.ops->create_qp_ex(fake.context, &attr);
	CHECK(qp);
	fqp = fake_qp(qp);
	x = &container_of(qp, struct verbs_qp, qp)->qp_ex;

	ibv_wr_start(x);
	ibv_wr_send(x);
	CHECK(ibv_wr_complete(x) == EINVAL); /* in RESET */
	qp->state = IBV_QPS_RTS;

	ibv_wr_start(x);
	x->wr_id = 1;
	x->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(x, 0x11, 0x22);
	ibv_wr_set_inline_data_list(x, 2, bufs);
	x->wr_id = 2;
	x->wr_flags = 0;
	ibv_wr_send(x);
	ibv_wr_set_sge(x, 3, 4, 5);
	CHECK(!fqp->ctrl->sq_producer);
	CHECK(!ibv_wr_complete(x));
	CHECK(le32toh(fqp->ctrl->sq_producer) == 2);
	wqe = fake_send_slot(fqp, 0);
	CHECK(wqe->flags == (FERRULE_WR_SIGNALED | FERRULE_WR_INLINE));
	CHECK(le32toh(wqe->inline_len) == 5 && !memcmp(wqe + 1, "abcde", 5));
	CHECK(le32toh(wqe->rkey) == 0x11 && le64toh(wqe->remote_addr) == 0x22);
	wqe = fake_send_slot(fqp, 1);
	CHECK(le64toh(wqe->wr_id) == 2 && !wqe->flags);
	CHECK(le16toh(wqe->num_sge) == 1 && !wqe->remote_addr && !wqe->rkey);

	/* Whatever fails, nothing is posted, and the next batch is clean. */
	ibv_wr_start(x);
	ibv_wr_set_sge(x, 1, 2, 3);
	CHECK(ibv_wr_complete(x) == EINVAL);
	ibv_wr_start(x);
	ibv_wr_send(x);
	ibv_wr_set_sge_list(x, 5, sges);
	ibv_wr_send(x);
	CHECK(ibv_wr_complete(x) == EINVAL);
	ibv_wr_start(x);
	for (i = 0; i < 3; i++)
		ibv_wr_send(x);
	CHECK(ibv_wr_complete(x) == ENOMEM);
	ibv_wr_start(x);
	ibv_wr_send(x);
	ibv_wr_abort(x);
	CHECK(le32toh(fqp->ctrl->sq_producer) == 2);
	ibv_wr_start(x);
	ibv_wr_send(x);
	CHECK(!ibv_wr_complete(x));
	CHECK(le32toh(fqp->ctrl->sq_producer) == 3);

	/* Datagrams name an address handle. */
	ah = fake.ops->create_ah(attr.pd, &ah_attr);
	CHECK(ah);
	attr.qp_type = IBV_QPT_UD;
	attr.send_ops_flags = IBV_QP_EX_WITH_SEND_WITH_IMM;
	qp = fake.ops->create_qp_ex(fake.context, &attr);
	CHECK(qp);
	qp->state = IBV_QPS_RTS;
	x = &container_of(qp, struct verbs_qp, qp)->qp_ex;
	ibv_wr_start(x);
	ibv_wr_send_imm(x, htobe32(0x05060708));
	ibv_wr_set_ud_addr(x, ah, 0x77, 0x88);
	ibv_wr_set_inline_data(x, (void *)"x", 1);
	CHECK(!ibv_wr_complete(x));
	wqe = fake_send_slot(fake_qp(qp), 0);
	CHECK(le32toh(wqe->ud.ah) == 0xa4 && !wqe->ud.reserved);
	CHECK(le32toh(wqe->ud.remote_qpn) == 0x77);
	CHECK(le32toh(wqe->ud.remote_qkey) == 0x88);
	CHECK(!memcmp(wqe->imm_or_inv, "\5\6\7\10", 4));
	CHECK(!fake.ops->destroy_ah(ah));
}

/* ATOMIC WRITE and FLUSH have what they need in the head of the slot. */
void test_placement(void)
{
	struct ibv_cq *cq = new_cq(8);
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = new_pd(),
		.send_ops_flags = IBV_QP_EX_WITH_FLUSH |
				  IBV_QP_EX_WITH_ATOMIC_WRITE,
	};
	struct ibv_sge sge = { .addr = (uintptr_t)"ABCDEFGH", .length = 8 };
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_ATOMIC_WRITE,
		.send_flags = IBV_SEND_INLINE,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.rdma = { .remote_addr = 0x42, .rkey = 0x43 },
	};
	const struct ferrule_send_wqe *wqe;
	struct fake_qp *fqp;
	struct ibv_qp_ex *x;
	struct ibv_qp *qp;

	qp = fake.ops->create_qp_ex(fake.context, &attr);
	CHECK(qp);
	qp->state = IBV_QPS_RTS;
	fqp = fake_qp(qp);
	x = &container_of(qp, struct verbs_qp, qp)->qp_ex;

	ibv_wr_start(x);
	x->wr_id = 7;
	x->wr_flags = IBV_SEND_FENCE | IBV_SEND_INLINE;
	ibv_wr_atomic_write(x, 0x11, 0x22, "abcdefgh");
	ibv_wr_flush(x, 0x33, 0x44, 0xfedcba98, IBV_FLUSH_PERSISTENT,
		     IBV_FLUSH_MR);
	CHECK(!ibv_wr_complete(x));
	CHECK(!post(qp, &wr));

	wqe = fake_send_slot(fqp, 0);
	CHECK(wqe->opcode == FERRULE_WR_ATOMIC_WRITE);
	CHECK(wqe->flags == FERRULE_WR_FENCE && !wqe->num_sge);
	CHECK(le32toh(wqe->rkey) == 0x11 && le64toh(wqe->remote_addr) == 0x22);
	CHECK(!memcmp(wqe->zero, "abcdefgh\0\0\0\0\0\0\0\0", 16));
	wqe = fake_send_slot(fqp, 1);
	CHECK(wqe->opcode == FERRULE_WR_FLUSH && !wqe->num_sge);
	CHECK(le32toh(wqe->rkey) == 0x33 && le64toh(wqe->remote_addr) == 0x44);
	CHECK(!memcmp(wqe->zero,
		      "\x98\xba\xdc\xfe\2\1\0\0\0\0\0\0\0\0\0\0", 16));
	wqe = fake_send_slot(fqp, 2);
	CHECK(!wqe->flags && !wqe->num_sge && !wqe->inline_len);
	CHECK(le32toh(wqe->rkey) == 0x43 && le64toh(wqe->remote_addr) == 0x42);
	CHECK(!memcmp(wqe->zero, "ABCDEFGH\0\0\0\0\0\0\0\0", 16));

	/* Placement types and levels that do not exist; more than 32 bits. */
	for (int i = 0; i < 4; i++) {
		static const struct {
			size_t length;
			uint8_t type, level;
		} bad[] = {
			{ 1, 0, IBV_FLUSH_RANGE },
			{ 1, 4, IBV_FLUSH_RANGE },
			{ 1, IBV_FLUSH_GLOBAL, 2 },
			{ 1ull << 32, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE },
		};

		ibv_wr_start(x);
		ibv_wr_flush(x, 0, 0, bad[i].length, bad[i].type,
			     bad[i].level);
		CHECK(ibv_wr_complete(x) == EINVAL);
	}
	CHECK(le32toh(fqp->ctrl->sq_producer) == 3);
}

/*
 * Requests over XRC name a shared receive queue, where the operation leaves
 * space for its number.
 */
void test_xrc(void)
{
	struct ibv_cq *cq = new_cq(8);
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 8 },
		.qp_type = IBV_QPT_XRC_SEND,
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = new_pd(),
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
				  IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
	};
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_SEND,
		.qp_type.xrc.remote_srqn = 0xabcdef,
	};
	struct ibv_recv_wr recv = {}, *bad;
	const struct ferrule_send_wqe *wqe;
	struct fake_qp *fqp;
	struct ibv_qp_ex *x;
	struct ibv_qp *qp;

	qp = fake.ops->create_qp_ex(fake.context, &attr);
	CHECK(qp);
	qp->state = IBV_QPS_RTS;
	fqp = fake_qp(qp);
	x = &container_of(qp, struct verbs_qp, qp)->qp_ex;

	CHECK(!post(qp, &wr));
	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr.wr.atomic.compare_add = 5;
	CHECK(!post(qp, &wr));
	wr.opcode = IBV_WR_LOCAL_INV;
	wr.invalidate_rkey = 6;
	CHECK(!post(qp, &wr));
	ibv_wr_start(x);
	ibv_wr_rdma_write_imm(x, 1, 2, htobe32(0x01020304));
	ibv_wr_set_xrc_srqn(x, 0x123456);
	ibv_wr_atomic_cmp_swp(x, 1, 2, 7, 8);
	ibv_wr_set_xrc_srqn(x, 0x123456);
	CHECK(!ibv_wr_complete(x));

	wqe = fake_send_slot(fqp, 0);
	CHECK(!memcmp(wqe->zero, "\xef\xcd\xab\0\0\0\0\0\0\0\0\0\0\0\0\0",
		      16));
	wqe = fake_send_slot(fqp, 1);
	CHECK(!memcmp(wqe->imm_or_inv, "\xef\xcd\xab\0", 4));
	CHECK(le64toh(wqe->atomic.compare_add) == 5 && !wqe->atomic.swap);
	wqe = fake_send_slot(fqp, 2);
	CHECK(!memcmp(wqe->imm_or_inv, "\6\0\0\0", 4));
	CHECK(!wqe->xrc.remote_srq);
	wqe = fake_send_slot(fqp, 3);
	CHECK(le32toh(wqe->xrc.remote_srq) == 0x123456);
	CHECK(!memcmp(wqe->imm_or_inv, "\1\2\3\4", 4));
	wqe = fake_send_slot(fqp, 4);
	CHECK(!memcmp(wqe->imm_or_inv, "\x56\x34\x12\0", 4));
	CHECK(le64toh(wqe->atomic.swap) == 8);

	/* 24 bits; operations of annex A19; and nothing to receive. */
	wr.opcode = IBV_WR_SEND;
	wr.qp_type.xrc.remote_srqn = 1 << 24;
	CHECK(post(qp, &wr) == EINVAL);
	ibv_wr_start(x);
	ibv_wr_rdma_write_imm(x, 1, 2, 0);
	ibv_wr_set_xrc_srqn(x, 1 << 24);
	CHECK(ibv_wr_complete(x) == EINVAL);
	wr.opcode = IBV_WR_ATOMIC_WRITE;
	CHECK(post(qp, &wr) == EINVAL);
	CHECK(fake.ops->post_recv(qp, &recv, &bad) == EINVAL);
	attr.send_ops_flags = IBV_QP_EX_WITH_FLUSH;
	CHECK(!fake.ops->create_qp_ex(fake.context, &attr) &&
	      errno == EOPNOTSUPP);
}
