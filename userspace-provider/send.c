// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Posting send requests, with ibv_post_send() and with the ibv_wr_*() family.
 *
 * What can be seen to be wrong from here is answered at once; what needs keys,
 * addresses or the peer is judged by the engine and comes back as a completion.
 */

#include <config.h>

#include <errno.h>
#include <string.h>

#include "ferrule.h"

#define RC (1 << IBV_QPT_RC)
#define UC (1 << IBV_QPT_UC)
#define UD (1 << IBV_QPT_UD)

/*
 * What ibv_post_send(3) says of each operation, and the engine does. But a SEND
 * with invalidate is of RC alone: the transport has no opcode for it on UC (IBA
 * volume 1, 9.2, table 35).
 */
struct send_op {
	uint8_t opcode;		/* enum ferrule_wr_opcode */
	uint8_t qp_types;	/* that may post it; none: we do not have it */
	bool may_inline;
};

static const struct send_op send_ops[] = {
	[IBV_WR_RDMA_WRITE] = { FERRULE_WR_RDMA_WRITE, RC | UC, true },
	[IBV_WR_RDMA_WRITE_WITH_IMM] = { FERRULE_WR_RDMA_WRITE_WITH_IMM,
					 RC | UC, true },
	[IBV_WR_SEND] = { FERRULE_WR_SEND, RC | UC | UD, true },
	[IBV_WR_SEND_WITH_IMM] = { FERRULE_WR_SEND_WITH_IMM, RC | UC | UD,
				   true },
	[IBV_WR_RDMA_READ] = { FERRULE_WR_RDMA_READ, RC, false },
	[IBV_WR_ATOMIC_CMP_AND_SWP] = { FERRULE_WR_ATOMIC_CMP_AND_SWP, RC,
					false },
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = { FERRULE_WR_ATOMIC_FETCH_AND_ADD, RC,
					  false },
	[IBV_WR_LOCAL_INV] = { FERRULE_WR_LOCAL_INV, RC | UC, false },
	[IBV_WR_SEND_WITH_INV] = { FERRULE_WR_SEND_WITH_INV, RC, true },
	[IBV_WR_BIND_MW] = { FERRULE_WR_BIND_MW, RC | UC, false },
};

#define SUPPORTED_FLAGS                                                        \
	(IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED |             \
	 IBV_SEND_INLINE)

static uint8_t wqe_flags(const struct ferrule_qp *qp, unsigned int send_flags)
{
	uint8_t flags = qp->sq_sig_all ? FERRULE_WR_SIGNALED : 0;

	if (send_flags & IBV_SEND_SIGNALED)
		flags |= FERRULE_WR_SIGNALED;
	if (send_flags & IBV_SEND_SOLICITED)
		flags |= FERRULE_WR_SOLICITED;
	if (send_flags & IBV_SEND_FENCE)
		flags |= FERRULE_WR_FENCE;
	if (send_flags & IBV_SEND_INLINE)
		flags |= FERRULE_WR_INLINE;

	return flags;
}

/* Begins the request with this index: everything that is not set later is 0. */
static struct ferrule_send_wqe *begin_wqe(struct ferrule_qp *qp, uint32_t index,
					  const struct send_op *op,
					  uint64_t wr_id,
					  unsigned int send_flags)
{
	struct ferrule_send_wqe *wqe = queue_slot(&qp->sq, index);

	memset(wqe, 0, sizeof(*wqe));
	wqe->wr_id = htole64(wr_id);
	wqe->opcode = op->opcode;
	wqe->flags = wqe_flags(qp, send_flags);

	return wqe;
}

static void set_remote(struct ferrule_send_wqe *wqe, uint64_t addr,
		       uint32_t rkey)
{
	wqe->remote_addr = htole64(addr);
	wqe->rkey = htole32(rkey);
}

static void set_imm(struct ferrule_send_wqe *wqe, __be32 imm)
{
	memcpy(wqe->imm_or_inv, &imm, sizeof(wqe->imm_or_inv));
}

static void set_inv(struct ferrule_send_wqe *wqe, uint32_t key)
{
	__le32 inv = htole32(key);

	memcpy(wqe->imm_or_inv, &inv, sizeof(wqe->imm_or_inv));
}

static void set_atomic(struct ferrule_send_wqe *wqe, uint64_t compare_add,
		       uint64_t swap)
{
	wqe->atomic.compare_add = htole64(compare_add);
	wqe->atomic.swap = htole64(swap);
}

static void set_ud(struct ferrule_send_wqe *wqe, struct ibv_ah *ah,
		   uint32_t qp_num, uint32_t qkey)
{
	wqe->ud.ah = htole32(to_fah(ah)->number);
	wqe->ud.remote_qpn = htole32(qp_num);
	wqe->ud.remote_qkey = htole32(qkey);
}

/* The window is to have the key from then on; the one that it has names it. */
static void set_bind(struct ferrule_send_wqe *wqe, const struct ibv_mw *mw,
		     uint32_t key, const struct ibv_mw_bind_info *info)
{
	set_remote(wqe, info->addr, key);
	/* Without a region, a window of type 1 is bound to nothing. */
	set_inv(wqe, info->mr ? info->mr->lkey : 0);
	wqe->bind.mw_rkey = htole32(mw->rkey);
	wqe->bind.access = htole32(info->mw_access_flags);
	wqe->bind.length = htole64(info->length);
}

static int set_sges(const struct ferrule_qp *qp, struct ferrule_send_wqe *wqe,
		    const struct ibv_sge *list, size_t num)
{
	struct ferrule_sge *sge = (struct ferrule_sge *)(wqe + 1);
	size_t i;

	if (unlikely(num > qp->sq.max_sge))
		return EINVAL;

	for (i = 0; i < num; i++) {
		sge[i].addr = htole64(list[i].addr);
		sge[i].length = htole32(list[i].length);
		sge[i].lkey = htole32(list[i].lkey);
	}
	wqe->num_sge = htole16(num);

	return 0;
}

static int add_inline(const struct ferrule_qp *qp, struct ferrule_send_wqe *wqe,
		      uint32_t *total, const void *data, size_t length)
{
	if (unlikely(length > qp->max_inline - *total))
		return EINVAL;

	memcpy((uint8_t *)(wqe + 1) + *total, data, length);
	*total += length;

	return 0;
}

/*
 * Answers the errno with which posting to this queue pair fails, or 0. Posting
 * in ERR and SQE is right: such requests are flushed.
 */
static int check_post(const struct ferrule_qp *qp)
{
	const struct ibv_qp *ibqp = &qp->verbs.qp;

	if (unlikely(ferrule_device_is_dead(&to_fctx(ibqp->context)->db)))
		return EIO;
	if (unlikely(ibqp->state < IBV_QPS_RTS))
		return EINVAL;

	return 0;
}

/*
 * Hands the requests before this index to the engine, and lets go of the lock.
 */
static void publish_and_unlock(struct ferrule_qp *qp, uint32_t index)
{
	struct ibv_context *context = qp->verbs.qp.context;
	bool kick = false;

	if (index != qp->sq.producer) {
		qp->sq.producer = index;
		/* Release: who sees the index sees the slots before it. */
		shared_store32(qp->sq.producer_word, index,
			       memory_order_release);
		kick = ferrule_db_ring(&to_fctx(context)->db,
				       qp->verbs.qp.qp_num);
	}
	ferrule_unlock(&qp->sq.lock);

	/* Without the lock: the kick may run the engine for a while. */
	if (kick)
		ferrule_db_kick(context->cmd_fd);
}

/*
 * ibv_post_send()
 */

static int set_inline_sges(const struct ferrule_qp *qp,
			   struct ferrule_send_wqe *wqe,
			   const struct ibv_sge *list, size_t num)
{
	uint32_t total = 0;
	size_t i;
	int ret;

	if (unlikely(num > qp->sq.max_sge))
		return EINVAL;

	for (i = 0; i < num; i++) {
		ret = add_inline(qp, wqe, &total,
				 (void *)(uintptr_t)list[i].addr,
				 list[i].length);
		if (unlikely(ret))
			return ret;
	}
	wqe->inline_len = htole32(total);

	return 0;
}

static int post_one(struct ferrule_qp *qp, uint32_t index,
		    const struct ibv_send_wr *wr)
{
	enum ibv_qp_type type = qp->verbs.qp.qp_type;
	struct ferrule_send_wqe *wqe;
	const struct send_op *op;

	if (unlikely(queue_is_full(&qp->sq, index)))
		return ENOMEM;
	if (unlikely(wr->opcode >= ARRAY_SIZE(send_ops)))
		return EINVAL;

	op = &send_ops[wr->opcode];
	if (unlikely(!(op->qp_types & 1 << type) || wr->num_sge < 0 ||
		     (wr->send_flags & ~SUPPORTED_FLAGS)))
		return EINVAL;

	wqe = begin_wqe(qp, index, op, wr->wr_id, wr->send_flags);

	switch (wr->opcode) {
	case IBV_WR_SEND_WITH_IMM:
		set_imm(wqe, wr->imm_data);
		SWITCH_FALLTHROUGH;
	case IBV_WR_SEND:
		if (type != IBV_QPT_UD)
			break;
		if (unlikely(!wr->wr.ud.ah))
			return EINVAL;
		set_ud(wqe, wr->wr.ud.ah, wr->wr.ud.remote_qpn,
		       wr->wr.ud.remote_qkey);
		break;
	case IBV_WR_SEND_WITH_INV:
		set_inv(wqe, wr->invalidate_rkey);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		set_imm(wqe, wr->imm_data);
		SWITCH_FALLTHROUGH;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_READ:
		set_remote(wqe, wr->wr.rdma.remote_addr, wr->wr.rdma.rkey);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		set_remote(wqe, wr->wr.atomic.remote_addr, wr->wr.atomic.rkey);
		set_atomic(wqe, wr->wr.atomic.compare_add,
			   wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ?
				   wr->wr.atomic.swap :
				   0);
		break;
	case IBV_WR_LOCAL_INV:
		/* Moves no data: what sg_list says is nothing to it. */
		set_inv(wqe, wr->invalidate_rkey);
		return wr->send_flags & IBV_SEND_INLINE ? EINVAL : 0;
	case IBV_WR_BIND_MW:
		/* Windows of type 1 have a verb of their own. */
		if (unlikely(!wr->bind_mw.mw ||
			     wr->bind_mw.mw->type != IBV_MW_TYPE_2))
			return EINVAL;
		set_bind(wqe, wr->bind_mw.mw, wr->bind_mw.rkey,
			 &wr->bind_mw.bind_info);
		return wr->send_flags & IBV_SEND_INLINE ? EINVAL : 0;
	default:
		return EINVAL;
	}

	if (!(wr->send_flags & IBV_SEND_INLINE))
		return set_sges(qp, wqe, wr->sg_list, wr->num_sge);
	if (unlikely(!op->may_inline))
		return EINVAL;

	return set_inline_sges(qp, wqe, wr->sg_list, wr->num_sge);
}

int ferrule_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr,
		      struct ibv_send_wr **bad_wr)
{
	struct ferrule_qp *qp = to_fqp(ibqp);
	uint32_t index;
	int ret;

	ferrule_lock(&qp->sq.lock);
	index = qp->sq.producer;

	ret = check_post(qp);
	while (wr && !ret) {
		ret = post_one(qp, index, wr);
		if (likely(!ret)) {
			index++;
			wr = wr->next;
		}
	}
	if (unlikely(ret))
		*bad_wr = wr;

	publish_and_unlock(qp, index);

	return ret;
}

/*
 * ibv_bind_mw(), for windows of type 1. The new key is the program's at once;
 * it opens nothing before the bind has completed.
 */
int ferrule_bind_mw(struct ibv_qp *ibqp, struct ibv_mw *mw,
		    struct ibv_mw_bind *bind)
{
	struct ferrule_qp *qp = to_fqp(ibqp);
	const struct send_op *op = &send_ops[IBV_WR_BIND_MW];
	uint32_t key = ibv_inc_rkey(mw->rkey);
	struct ferrule_send_wqe *wqe;
	uint32_t index;
	int ret;

	if (unlikely(!(op->qp_types & 1 << ibqp->qp_type) ||
		     (bind->send_flags & ~SUPPORTED_FLAGS) ||
		     (bind->send_flags & IBV_SEND_INLINE) ||
		     (bind->bind_info.mw_access_flags & IBV_ACCESS_ZERO_BASED)))
		return EINVAL;

	ferrule_lock(&qp->sq.lock);
	index = qp->sq.producer;

	ret = check_post(qp);
	if (!ret && unlikely(queue_is_full(&qp->sq, index)))
		ret = ENOMEM;
	if (!ret) {
		wqe = begin_wqe(qp, index, op, bind->wr_id, bind->send_flags);
		set_bind(wqe, mw, key, &bind->bind_info);
		mw->rkey = key;
		index++;
	}
	publish_and_unlock(qp, index);

	return ret;
}

/*
 * ibv_wr_*()
 *
 * The first error is kept for ibv_wr_complete(), and nothing is posted then:
 * the producer index has not moved.
 */

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

/* So that an operation's flag is the bit of its number. */
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

/* Answers EOPNOTSUPP if a queue pair of this type lacks one of the operations. */
int ferrule_set_send_ops(struct ferrule_qp *qp, enum ibv_qp_type type,
			 uint64_t ops)
{
	struct ibv_qp_ex *ibqp = &qp->verbs.qp_ex;
	uint64_t supported = 0;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(send_ops) && type <= IBV_QPT_UD; i++)
		if (send_ops[i].qp_types & 1 << type)
			supported |= 1 << i;
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

	ibqp->wr_set_ud_addr = wr_set_ud_addr;
	ibqp->wr_set_sge = wr_set_sge;
	ibqp->wr_set_sge_list = wr_set_sge_list;
	ibqp->wr_set_inline_data = wr_set_inline_data;
	ibqp->wr_set_inline_data_list = wr_set_inline_data_list;

	ibqp->wr_start = wr_start;
	ibqp->wr_complete = wr_complete;
	ibqp->wr_abort = wr_abort;

	return 0;
}
