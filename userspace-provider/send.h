/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Filling the slots of a send queue: what ibv_post_send() and the ibv_wr_*()
 * family share.
 */
#ifndef FERRULE_SEND_H
#define FERRULE_SEND_H

#include <errno.h>
#include <string.h>

#include "ferrule.h"

#define RC (1 << IBV_QPT_RC)
#define UC (1 << IBV_QPT_UC)
#define UD (1 << IBV_QPT_UD)
#define XRC (1 << IBV_QPT_XRC_SEND)
#define RAW (1 << IBV_QPT_RAW_PACKET)

/*
 * The operations of ibv_post_send(3), as the engine carries them out. But a
 * SEND with invalidate is of RC alone: the transport has no opcode for it on UC
 * (IBA volume 1, 9.2, table 35).
 */
struct send_op {
	uint8_t opcode;		/* enum ferrule_wr_opcode */
	uint16_t qp_types;	/* that may post it; none: we do not have it */
	bool may_inline;
};

static const struct send_op send_ops[] = {
	[IBV_WR_RDMA_WRITE] = { FERRULE_WR_RDMA_WRITE, RC | UC | XRC, true },
	[IBV_WR_RDMA_WRITE_WITH_IMM] = { FERRULE_WR_RDMA_WRITE_WITH_IMM,
					 RC | UC | XRC, true },
	[IBV_WR_SEND] = { FERRULE_WR_SEND, RC | UC | UD | XRC | RAW, true },
	[IBV_WR_SEND_WITH_IMM] = { FERRULE_WR_SEND_WITH_IMM,
				   RC | UC | UD | XRC, true },
	[IBV_WR_RDMA_READ] = { FERRULE_WR_RDMA_READ, RC | XRC, false },
	[IBV_WR_ATOMIC_CMP_AND_SWP] = { FERRULE_WR_ATOMIC_CMP_AND_SWP,
					RC | XRC, false },
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = { FERRULE_WR_ATOMIC_FETCH_AND_ADD,
					  RC | XRC, false },
	[IBV_WR_LOCAL_INV] = { FERRULE_WR_LOCAL_INV, RC | UC | XRC, false },
	[IBV_WR_SEND_WITH_INV] = { FERRULE_WR_SEND_WITH_INV, RC | XRC, true },
	[IBV_WR_BIND_MW] = { FERRULE_WR_BIND_MW, RC | UC | XRC, false },
	[IBV_WR_FLUSH] = { FERRULE_WR_FLUSH, RC, false },
	[IBV_WR_ATOMIC_WRITE] = { FERRULE_WR_ATOMIC_WRITE, RC, false },
};

#define SUPPORTED_FLAGS                                                        \
	(IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED |             \
	 IBV_SEND_INLINE)

static inline uint8_t wqe_flags(const struct ferrule_qp *qp,
				unsigned int send_flags)
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
static inline struct ferrule_send_wqe *
begin_wqe(struct ferrule_qp *qp, uint32_t index, const struct send_op *op,
	  uint64_t wr_id, unsigned int send_flags)
{
	struct ferrule_send_wqe *wqe = queue_slot(&qp->sq, index);

	memset(wqe, 0, sizeof(*wqe));
	wqe->wr_id = htole64(wr_id);
	wqe->opcode = op->opcode;
	wqe->flags = wqe_flags(qp, send_flags);

	return wqe;
}

static inline void set_remote(struct ferrule_send_wqe *wqe, uint64_t addr,
			      uint32_t rkey)
{
	wqe->remote_addr = htole64(addr);
	wqe->rkey = htole32(rkey);
}

static inline void set_imm(struct ferrule_send_wqe *wqe, __be32 imm)
{
	memcpy(wqe->imm_or_inv, &imm, sizeof(wqe->imm_or_inv));
}

static inline void set_inv(struct ferrule_send_wqe *wqe, uint32_t key)
{
	__le32 inv = htole32(key);

	memcpy(wqe->imm_or_inv, &inv, sizeof(wqe->imm_or_inv));
}

static inline void set_atomic(struct ferrule_send_wqe *wqe,
			      uint64_t compare_add, uint64_t swap)
{
	wqe->atomic.compare_add = htole64(compare_add);
	wqe->atomic.swap = htole64(swap);
}

/* The bytes are taken now, and need no key. */
static inline void set_atomic_write(struct ferrule_send_wqe *wqe,
				    const void *value)
{
	memcpy(wqe->atomic_write.value, value, sizeof(wqe->atomic_write.value));
}

/*
 * Returns EINVAL for what no FLUSH can ask for: the packet has 32 bits for the
 * length.
 */
static inline int set_flush(struct ferrule_send_wqe *wqe, size_t length,
			    uint8_t placement, uint8_t level)
{
	if (unlikely(length > UINT32_MAX || !placement ||
		     (placement & ~(IBV_FLUSH_GLOBAL | IBV_FLUSH_PERSISTENT)) ||
		     (level != IBV_FLUSH_RANGE && level != IBV_FLUSH_MR)))
		return EINVAL;

	wqe->flush.length = htole32(length);
	wqe->flush.placement = placement;
	wqe->flush.level = level;

	return 0;
}

static inline void set_ud(struct ferrule_send_wqe *wqe, struct ibv_ah *ah,
			  uint32_t qp_num, uint32_t qkey)
{
	wqe->ud.ah = htole32(to_fah(ah)->number);
	wqe->ud.remote_qpn = htole32(qp_num);
	wqe->ud.remote_qkey = htole32(qkey);
}

/*
 * The peer's shared receive queue, for a request over XRC that goes there.
 * Returns EINVAL for a number of more than 24 bits, which no packet can have.
 */
static inline int set_remote_srq(struct ferrule_send_wqe *wqe, uint32_t srqn)
{
	if (unlikely(srqn > 0xffffff))
		return EINVAL;

	switch (wqe->opcode) {
	case FERRULE_WR_LOCAL_INV:
	case FERRULE_WR_BIND_MW:
		break;
	case FERRULE_WR_ATOMIC_CMP_AND_SWP:
	case FERRULE_WR_ATOMIC_FETCH_AND_ADD:
		set_inv(wqe, srqn);
		break;
	default:
		wqe->xrc.remote_srq = htole32(srqn);
	}

	return 0;
}

/* The window is to have the key from then on; the one that it has names it. */
static inline void set_bind(struct ferrule_send_wqe *wqe,
			    const struct ibv_mw *mw, uint32_t key,
			    const struct ibv_mw_bind_info *info)
{
	set_remote(wqe, info->addr, key);
	/* Without a region, a window of type 1 is bound to nothing. */
	set_inv(wqe, info->mr ? info->mr->lkey : 0);
	wqe->bind.mw_rkey = htole32(mw->rkey);
	wqe->bind.access = htole32(info->mw_access_flags);
	wqe->bind.length = htole64(info->length);
}

static inline int set_sges(const struct ferrule_qp *qp,
			   struct ferrule_send_wqe *wqe,
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

static inline int add_inline(const struct ferrule_qp *qp,
			     struct ferrule_send_wqe *wqe, uint32_t *total,
			     const void *data, size_t length)
{
	if (unlikely(length > qp->max_inline - *total))
		return EINVAL;

	memcpy((uint8_t *)(wqe + 1) + *total, data, length);
	*total += length;

	return 0;
}

/*
 * Returns the errno with which posting to this queue pair fails, or 0. Posting
 * in ERR and SQE is right: such requests are flushed.
 */
static inline int check_post(const struct ferrule_qp *qp)
{
	const struct ibv_qp *ibqp = &qp->verbs.qp;

	if (unlikely(ferrule_device_is_dead(qp->db)))
		return EIO;
	if (unlikely(ibqp->state < IBV_QPS_RTS))
		return EINVAL;

	return 0;
}

/*
 * About how many bytes each of the requests before this index has: the last one
 * stands for all, and its first entry for its list.
 */
static inline uint32_t last_length(struct ferrule_qp *qp, uint32_t index)
{
	const struct ferrule_send_wqe *wqe = queue_slot(&qp->sq, index - 1);
	const struct ferrule_sge *sge = (const void *)(wqe + 1);

	return wqe->num_sge ? le32toh(sge->length) : 0;
}

/*
 * Says whether requests of this length are posted far ahead of the program's
 * polls: with so many of them, a system call for each gains nothing. Large ones
 * are copied for much longer than a system call takes.
 */
static inline bool has_backlog(struct ferrule_qp *qp, uint32_t index,
			       uint32_t length)
{
	enum { REQUESTS = 16, BYTES = 128 * 1024 };

	return queue_outstanding(&qp->sq, index) >= REQUESTS && length < BYTES;
}

/*
 * Hands the requests before this index to the engine, and lets go of the lock.
 */
static inline void publish_and_unlock(struct ferrule_qp *qp, uint32_t index)
{
	struct ibv_context *context = qp->verbs.qp.context;
	struct ferrule_doorbell *db = qp->db;
	uint32_t requests = index - qp->sq.producer;
	uint32_t length;
	bool kick = false;
	bool backlog;

	if (requests) {
		qp->sq.producer = index;
		/*
		 * Release: the engine that sees the index sees the slots before
		 * it.
		 */
		shared_store32(qp->sq.producer_word, index,
			       memory_order_release);
		length = last_length(qp, index);
		backlog = has_backlog(qp, index, length);
		ferrule_db_tell_backlog(db, backlog);
		kick = ferrule_db_ring(db, qp->verbs.qp.qp_num, backlog,
				       (uint64_t)length * requests);
	}
	ferrule_unlock(&qp->sq.lock);

	/* Without the lock: the kick may run the engine for a while. */
	if (kick)
		ferrule_db_kick(db, context->cmd_fd);
}

#endif /* FERRULE_SEND_H */
