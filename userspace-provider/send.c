// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Posting send requests with ibv_post_send(), and ibv_bind_mw().
 *
 * A request that is wrong by itself is refused at once; the engine judges keys
 * and addresses, and its answer and the peer's come back as a completion.
 */

#include <config.h>

#include <errno.h>

#include "send.h"

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

/*
 * ibv_wr_atomic_write(3) gives the 8 bytes by an address alone. Here they are
 * those of one entry, which are taken now like inline data.
 */
static int post_atomic_write(struct ferrule_send_wqe *wqe,
			     const struct ibv_send_wr *wr)
{
	if (unlikely(wr->num_sge != 1 ||
		     wr->sg_list->length != sizeof(wqe->atomic_write.value)))
		return EINVAL;

	wqe->flags &= ~FERRULE_WR_INLINE;
	set_remote(wqe, wr->wr.rdma.remote_addr, wr->wr.rdma.rkey);
	set_atomic_write(wqe, (void *)(uintptr_t)wr->sg_list->addr);

	return 0;
}

static int post_one(struct ferrule_qp *qp, uint32_t index,
		    const struct ibv_send_wr *wr)
{
	enum ibv_qp_type type = qp->verbs.qp.qp_type;
	struct ferrule_send_wqe *wqe;
	const struct send_op *op;

	if (unlikely(wr->opcode >= ARRAY_SIZE(send_ops)))
		return EINVAL;

	op = &send_ops[wr->opcode];
	if (unlikely(!(op->qp_types & 1 << type) || wr->num_sge < 0 ||
		     (wr->send_flags & ~SUPPORTED_FLAGS)))
		return EINVAL;
	if (unlikely(queue_is_full(&qp->sq, index)))
		return ENOMEM;

	wqe = begin_wqe(qp, index, op, wr->wr_id, wr->send_flags);

	switch (wr->opcode) {
	case IBV_WR_ATOMIC_WRITE:
		return post_atomic_write(wqe, wr);
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
		/* Moves no data: sg_list does not matter. */
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

	if (type == IBV_QPT_XRC_SEND) {
		int ret = set_remote_srq(wqe, wr->qp_type.xrc.remote_srqn);

		if (unlikely(ret))
			return ret;
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
