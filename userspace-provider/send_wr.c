// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Posting send requests with the ibv_wr_*() family.
 *
 * The first error is kept for ibv_wr_complete(), and nothing is posted then:
 * the producer index has not moved.
 */

#include <config.h>

#include <errno.h>

#include "send.h"

static void wr_start(struct ibv_qp_ex *ibqp)
{
	struct ferrule_qp *qp = to_fqp_ex(ibqp);

	ferrule_lock(&qp->sq.lock);
	qp->wr.err = check_post(qp);
	qp->wr.next = qp->sq.producer;
	qp->wr.wqe = NULL;
}

static int wr_complete(struct ibv_qp_ex *ibqp)
{
	struct ferrule_qp *qp = to_fqp_ex(ibqp);
	int ret = qp->wr.err;

	publish_and_unlock(qp, ret ? qp->sq.producer : qp->wr.next);

	return ret;
}

static void wr_abort(struct ibv_qp_ex *ibqp)
{
	ferrule_unlock(&to_fqp_ex(ibqp)->sq.lock);
}

/* Begins the next request; answers NULL if there has been an error. */
static struct ferrule_send_wqe *wr_begin(struct ibv_qp_ex *ibqp,
					 enum ibv_wr_opcode opcode)
{
	const struct send_op *op = &send_ops[opcode];
	struct ferrule_qp *qp = to_fqp_ex(ibqp);

	if (unlikely(qp->wr.err))
		return NULL;
	if (unlikely(queue_is_full(&qp->sq, qp->wr.next))) {
		qp->wr.err = ENOMEM;
		return NULL;
	}
	if (unlikely(ibqp->wr_flags & ~SUPPORTED_FLAGS)) {
		qp->wr.err = EINVAL;
		return NULL;
	}

	/* Whether the data are inline is for the setter to say. */
	qp->wr.wqe = begin_wqe(qp, qp->wr.next, op, ibqp->wr_id,
			       ibqp->wr_flags & ~IBV_SEND_INLINE);
	qp->wr.may_inline = op->may_inline;
	qp->wr.next++;

	return qp->wr.wqe;
}

static void wr_send(struct ibv_qp_ex *ibqp)
{
	wr_begin(ibqp, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ibqp, __be32 imm)
{
	struct ferrule_send_wqe *wqe = wr_begin(ibqp, IBV_WR_SEND_WITH_IMM);

	if (wqe)
		set_imm(wqe, imm);
}

static void wr_send_inv(struct ibv_qp_ex *ibqp, uint32_t key)
{
	struct ferrule_send_wqe *wqe = wr_begin(ibqp, IBV_WR_SEND_WITH_INV);

	if (wqe)
		set_inv(wqe, key);
}

static void wr_rdma_write(struct ibv_qp_ex *ibqp, uint32_t rkey, uint64_t addr)
{
	struct ferrule_send_wqe *wqe = wr_begin(ibqp, IBV_WR_RDMA_WRITE);

	if (wqe)
		set_remote(wqe, addr, rkey);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ibqp, uint32_t rkey,
			      uint64_t addr, __be32 imm)
{
	struct ferrule_send_wqe *wqe;

	wqe = wr_begin(ibqp, IBV_WR_RDMA_WRITE_WITH_IMM);
	if (!wqe)
		return;
	set_remote(wqe, addr, rkey);
	set_imm(wqe, imm);
}

static void wr_rdma_read(struct ibv_qp_ex *ibqp, uint32_t rkey, uint64_t addr)
{
	struct ferrule_send_wqe *wqe = wr_begin(ibqp, IBV_WR_RDMA_READ);

	if (wqe)
		set_remote(wqe, addr, rkey);
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ibqp, uint32_t rkey,
			      uint64_t addr, uint64_t compare, uint64_t swap)
{
	struct ferrule_send_wqe *wqe;

	wqe = wr_begin(ibqp, IBV_WR_ATOMIC_CMP_AND_SWP);
	if (!wqe)
		return;
	set_remote(wqe, addr, rkey);
	set_atomic(wqe, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ibqp, uint32_t rkey,
				uint64_t addr, uint64_t add)
{
	struct ferrule_send_wqe *wqe;

	wqe = wr_begin(ibqp, IBV_WR_ATOMIC_FETCH_AND_ADD);
	if (!wqe)
		return;
	set_remote(wqe, addr, rkey);
	set_atomic(wqe, add, 0);
}

static void wr_local_inv(struct ibv_qp_ex *ibqp, uint32_t key)
{
	struct ferrule_send_wqe *wqe = wr_begin(ibqp, IBV_WR_LOCAL_INV);

	if (wqe)
		set_inv(wqe, key);
}

static void wr_bind_mw(struct ibv_qp_ex *ibqp, struct ibv_mw *mw, uint32_t key,
		       const struct ibv_mw_bind_info *info)
{
	struct ferrule_qp *qp = to_fqp_ex(ibqp);
	struct ferrule_send_wqe *wqe;

	wqe = wr_begin(ibqp, IBV_WR_BIND_MW);
	if (!wqe)
		return;
	if (unlikely(mw->type != IBV_MW_TYPE_2)) {
		qp->wr.err = EINVAL;
		return;
	}
	set_bind(wqe, mw, key, info);
}

static void wr_atomic_write(struct ibv_qp_ex *ibqp, uint32_t rkey,
			    uint64_t addr, const void *value)
{
	struct ferrule_send_wqe *wqe;

	wqe = wr_begin(ibqp, IBV_WR_ATOMIC_WRITE);
	if (!wqe)
		return;
	set_remote(wqe, addr, rkey);
	set_atomic_write(wqe, value);
}

static void wr_flush(struct ibv_qp_ex *ibqp, uint32_t rkey, uint64_t addr,
		     size_t length, uint8_t placement, uint8_t level)
{
	struct ferrule_qp *qp = to_fqp_ex(ibqp);
	struct ferrule_send_wqe *wqe;

	wqe = wr_begin(ibqp, IBV_WR_FLUSH);
	if (!wqe)
		return;
	set_remote(wqe, addr, rkey);
	qp->wr.err = set_flush(wqe, length, placement, level);
}

/*
 * The request that a setter adds to; answers NULL after an error, which a
 * setter without a request is.
 */
static struct ferrule_send_wqe *wr_current(struct ferrule_qp *qp)
{
	if (unlikely(qp->wr.err))
		return NULL;
	if (unlikely(!qp->wr.wqe))
		qp->wr.err = EINVAL;

	return qp->wr.wqe;
}

static void wr_set_ud_addr(struct ibv_qp_ex *ibqp, struct ibv_ah *ah,
			   uint32_t qp_num, uint32_t qkey)
{
	struct ferrule_send_wqe *wqe = wr_current(to_fqp_ex(ibqp));

	if (wqe)
		set_ud(wqe, ah, qp_num, qkey);
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *ibqp, uint32_t srqn)
{
	struct ferrule_qp *qp = to_fqp_ex(ibqp);
	struct ferrule_send_wqe *wqe = wr_current(qp);

	if (wqe)
		qp->wr.err = set_remote_srq(wqe, srqn);
}

static void wr_set_sge_list(struct ibv_qp_ex *ibqp, size_t num,
			    const struct ibv_sge *list)
{
	struct ferrule_qp *qp = to_fqp_ex(ibqp);
	struct ferrule_send_wqe *wqe = wr_current(qp);

	if (wqe)
		qp->wr.err = set_sges(qp, wqe, list, num);
}

static void wr_set_sge(struct ibv_qp_ex *ibqp, uint32_t lkey, uint64_t addr,
		       uint32_t length)
{
	struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };

	wr_set_sge_list(ibqp, 1, &sge);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ibqp, size_t num,
				    const struct ibv_data_buf *list)
{
	struct ferrule_qp *qp = to_fqp_ex(ibqp);
	struct ferrule_send_wqe *wqe = wr_current(qp);
	uint32_t total = 0;
	size_t i;

	if (!wqe)
		return;
	if (unlikely(!qp->wr.may_inline)) {
		qp->wr.err = EINVAL;
		return;
	}

	for (i = 0; i < num && !qp->wr.err; i++)
		qp->wr.err = add_inline(qp, wqe, &total, list[i].addr,
					list[i].length);
	wqe->flags |= FERRULE_WR_INLINE;
	wqe->inline_len = htole32(total);
}

static void wr_set_inline_data(struct ibv_qp_ex *ibqp, void *addr,
			       size_t length)
{
	struct ibv_data_buf buf = { .addr = addr, .length = length };

	wr_set_inline_data_list(ibqp, 1, &buf);
}

/* So that an operation's flag is the bit of its number, but for two. */
#define ASSERT_FLAG(op)                                                        \
	static_assert(IBV_QP_EX_WITH_##op == 1 << IBV_WR_##op, #op)

ASSERT_FLAG(RDMA_WRITE);
ASSERT_FLAG(RDMA_WRITE_WITH_IMM);
ASSERT_FLAG(SEND);
ASSERT_FLAG(SEND_WITH_IMM);
ASSERT_FLAG(RDMA_READ);
ASSERT_FLAG(ATOMIC_CMP_AND_SWP);
ASSERT_FLAG(ATOMIC_FETCH_AND_ADD);
ASSERT_FLAG(LOCAL_INV);
ASSERT_FLAG(SEND_WITH_INV);
ASSERT_FLAG(BIND_MW);

static uint64_t send_op_flag(unsigned int opcode)
{
	switch (opcode) {
	case IBV_WR_FLUSH:
		return IBV_QP_EX_WITH_FLUSH;
	case IBV_WR_ATOMIC_WRITE:
		return IBV_QP_EX_WITH_ATOMIC_WRITE;
	default:
		return 1 << opcode;
	}
}

/* Returns EOPNOTSUPP if a queue pair of this type lacks one of the operations. */
int ferrule_set_send_ops(struct ferrule_qp *qp, enum ibv_qp_type type,
			 uint64_t ops)
{
	struct ibv_qp_ex *ibqp = &qp->verbs.qp_ex;
	uint64_t supported = 0;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(send_ops) && type < 16; i++)
		if (send_ops[i].qp_types & 1 << type)
			supported |= send_op_flag(i);
	if (!check_comp_mask(ops, supported))
		return EOPNOTSUPP;

	if (ops & IBV_QP_EX_WITH_SEND)
		ibqp->wr_send = wr_send;
	if (ops & IBV_QP_EX_WITH_SEND_WITH_IMM)
		ibqp->wr_send_imm = wr_send_imm;
	if (ops & IBV_QP_EX_WITH_SEND_WITH_INV)
		ibqp->wr_send_inv = wr_send_inv;
	if (ops & IBV_QP_EX_WITH_RDMA_WRITE)
		ibqp->wr_rdma_write = wr_rdma_write;
	if (ops & IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM)
		ibqp->wr_rdma_write_imm = wr_rdma_write_imm;
	if (ops & IBV_QP_EX_WITH_RDMA_READ)
		ibqp->wr_rdma_read = wr_rdma_read;
	if (ops & IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP)
		ibqp->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	if (ops & IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)
		ibqp->wr_atomic_fetch_add = wr_atomic_fetch_add;
	if (ops & IBV_QP_EX_WITH_LOCAL_INV)
		ibqp->wr_local_inv = wr_local_inv;
	if (ops & IBV_QP_EX_WITH_BIND_MW)
		ibqp->wr_bind_mw = wr_bind_mw;
	if (ops & IBV_QP_EX_WITH_FLUSH)
		ibqp->wr_flush = wr_flush;
	if (ops & IBV_QP_EX_WITH_ATOMIC_WRITE)
		ibqp->wr_atomic_write = wr_atomic_write;

	ibqp->wr_set_ud_addr = wr_set_ud_addr;
	ibqp->wr_set_xrc_srqn = wr_set_xrc_srqn;
	ibqp->wr_set_sge = wr_set_sge;
	ibqp->wr_set_sge_list = wr_set_sge_list;
	ibqp->wr_set_inline_data = wr_set_inline_data;
	ibqp->wr_set_inline_data_list = wr_set_inline_data_list;

	ibqp->wr_start = wr_start;
	ibqp->wr_complete = wr_complete;
	ibqp->wr_abort = wr_abort;

	return 0;
}
