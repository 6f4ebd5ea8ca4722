// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Completion queues: creating, resizing, polling in both ways, arming. */

#include <config.h>

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "abi.h"
#include "ferrule.h"

/* So that a completion's status, opcode and flags need no translation. */
static_assert((int)FERRULE_WC_SUCCESS == IBV_WC_SUCCESS, "status");
static_assert((int)FERRULE_WC_LOC_LEN_ERR == IBV_WC_LOC_LEN_ERR, "status");
static_assert((int)FERRULE_WC_LOC_QP_OP_ERR == IBV_WC_LOC_QP_OP_ERR, "status");
static_assert((int)FERRULE_WC_LOC_PROT_ERR == IBV_WC_LOC_PROT_ERR, "status");
static_assert((int)FERRULE_WC_WR_FLUSH_ERR == IBV_WC_WR_FLUSH_ERR, "status");
static_assert((int)FERRULE_WC_MW_BIND_ERR == IBV_WC_MW_BIND_ERR, "status");
static_assert((int)FERRULE_WC_BAD_RESP_ERR == IBV_WC_BAD_RESP_ERR, "status");
static_assert((int)FERRULE_WC_LOC_ACCESS_ERR == IBV_WC_LOC_ACCESS_ERR,
	      "status");
static_assert((int)FERRULE_WC_REM_INV_REQ_ERR == IBV_WC_REM_INV_REQ_ERR,
	      "status");
static_assert((int)FERRULE_WC_REM_ACCESS_ERR == IBV_WC_REM_ACCESS_ERR,
	      "status");
static_assert((int)FERRULE_WC_REM_OP_ERR == IBV_WC_REM_OP_ERR, "status");
static_assert((int)FERRULE_WC_RETRY_EXC_ERR == IBV_WC_RETRY_EXC_ERR, "status");
static_assert((int)FERRULE_WC_RNR_RETRY_EXC_ERR == IBV_WC_RNR_RETRY_EXC_ERR,
	      "status");
static_assert((int)FERRULE_WC_REM_ABORT_ERR == IBV_WC_REM_ABORT_ERR, "status");
static_assert((int)FERRULE_WC_FATAL_ERR == IBV_WC_FATAL_ERR, "status");
static_assert((int)FERRULE_WC_GENERAL_ERR == IBV_WC_GENERAL_ERR, "status");
static_assert((int)FERRULE_WC_SEND == IBV_WC_SEND, "opcode");
static_assert((int)FERRULE_WC_RDMA_WRITE == IBV_WC_RDMA_WRITE, "opcode");
static_assert((int)FERRULE_WC_RDMA_READ == IBV_WC_RDMA_READ, "opcode");
static_assert((int)FERRULE_WC_COMP_SWAP == IBV_WC_COMP_SWAP, "opcode");
static_assert((int)FERRULE_WC_FETCH_ADD == IBV_WC_FETCH_ADD, "opcode");
static_assert((int)FERRULE_WC_BIND_MW == IBV_WC_BIND_MW, "opcode");
static_assert((int)FERRULE_WC_LOCAL_INV == IBV_WC_LOCAL_INV, "opcode");
static_assert((int)FERRULE_WC_RECV == IBV_WC_RECV, "opcode");
static_assert((int)FERRULE_WC_RECV_RDMA_WITH_IMM == IBV_WC_RECV_RDMA_WITH_IMM,
	      "opcode");
static_assert((int)FERRULE_WC_GRH == IBV_WC_GRH, "flag");
static_assert((int)FERRULE_WC_WITH_IMM == IBV_WC_WITH_IMM, "flag");
static_assert((int)FERRULE_WC_WITH_INV == IBV_WC_WITH_INV, "flag");

/*
 * Taking a completion
 */

static const struct ferrule_cqe *slot(const struct ferrule_cq_ring *ring,
				      uint64_t index)
{
	return &ring->slots[(index - ring->base) & (ring->depth - 1)];
}

/*
 * Says whether the engine has written the completion with this index. Acquire:
 * the phase is written last, so the rest of the slot stands when it does, and
 * so does the data in memory that the completion speaks of.
 */
static bool is_valid(const struct ferrule_cq_ring *ring, uint64_t index)
{
	uint64_t nth = index - ring->base;
	uint32_t phase = nth & ring->depth ? 0 : FERRULE_CQE_PHASE;

	return (shared_load32(&slot(ring, index)->phase, memory_order_acquire) &
		FERRULE_CQE_PHASE) == phase;
}

/* The ring is empty, and the engine will not come back to it. */
static void leave_ring(struct ferrule_cq *cq)
{
	struct ferrule_cq_ring *next = cq->ring.next;

	munmap((void *)cq->ring.slots, cq->ring.size);
	cq->ring = *next;
	free(next);
}

/*
 * Gives back to its queue pair the slots that a completion retires, and says
 * whether the program shall see it: not if its queue pair has been destroyed,
 * or reset, since. (With a shared receive queue the index says nothing here, and
 * nobody reads what is stored: posting to such a queue pair is refused.)
 */
static bool retire(struct ferrule_cq *cq, const struct ferrule_cqe *cqe,
		   uint64_t index)
{
	struct ferrule_context *ctx = to_fctx(cq->verbs.cq.context);
	struct ferrule_queue *queue;
	struct ferrule_qp *qp;

	qp = ferrule_qp_table_find(&ctx->qps, le32toh(cqe->qp_num),
				   le32toh(cqe->qp_gen));
	if (unlikely(!qp))
		return false;

	queue = cqe->opcode & FERRULE_WC_RECV ? &qp->rq : &qp->sq;
	if (unlikely(index < queue->first_cqe))
		return false;

	atomic_store_explicit(&queue->consumer, le32toh(cqe->queue_index),
			      memory_order_release);
	return true;
}

/*
 * Takes the next completion that concerns a living queue pair into cq->cqe.
 * The caller holds the lock.
 *
 * The slot goes back to the engine before the slots of the work queue go back
 * to who posts: else a thread could post into those, and the engine find no
 * room for a completion in a queue as deep as the work queue.
 */
static bool take(struct ferrule_cq *cq)
{
	uint64_t index;

	do {
		index = cq->consumer;
		while (unlikely(cq->ring.next) && index == cq->ring.next->base)
			leave_ring(cq);
		if (!is_valid(&cq->ring, index))
			return false;

		cq->cqe = *slot(&cq->ring, index);
		cq->consumer = index + 1;
		/* Release: the slot has been read when it is given back. */
		shared_store32(&cq->ctrl->consumer, index + 1,
			       memory_order_release);
	} while (!retire(cq, &cq->cqe, index));

	return true;
}

/* The index behind the last completion written. The caller holds the lock. */
uint64_t ferrule_cq_end(const struct ferrule_cq *cq)
{
	const struct ferrule_cq_ring *ring = &cq->ring;
	uint64_t end = cq->consumer;

	/* All that stands before the last ring has been written. */
	for (; ring->next; ring = ring->next)
		end = ring->next->base;
	/* One lap on, the phase of the same slot is the wrong one. */
	while (is_valid(ring, end))
		end++;

	return end;
}

/* Immediate data as it came, or the key that was invalidated in host order. */
static __be32 imm_or_inv(const struct ferrule_cqe *cqe)
{
	union {
		__u8 bytes[4];
		__be32 imm;
		__le32 key;
		uint32_t host;
	} u;

	memcpy(u.bytes, cqe->imm_or_inv, sizeof(u.bytes));
	if (cqe->flags & FERRULE_WC_WITH_INV)
		u.host = le32toh(u.key);

	return u.imm;
}

int ferrule_poll_cq(struct ibv_cq *ibcq, int num_entries, struct ibv_wc *wc)
{
	struct ferrule_cq *cq = to_fcq(ibcq);
	const struct ferrule_cqe *cqe = &cq->cqe;
	int n;

	ferrule_lock(&cq->lock);
	for (n = 0; n < num_entries && take(cq); n++, wc++) {
		wc->wr_id = le64toh(cqe->wr_id);
		wc->status = cqe->status;
		wc->opcode = cqe->opcode;
		wc->vendor_err = le16toh(cqe->vendor_err);
		wc->byte_len = le32toh(cqe->byte_len);
		wc->imm_data = imm_or_inv(cqe);
		wc->qp_num = le32toh(cqe->qp_num);
		wc->src_qp = le32toh(cqe->src_qp);
		wc->wc_flags = cqe->flags;
		wc->pkey_index = le16toh(cqe->pkey_index);
		/* Ethernet has no local identifiers. */
		wc->slid = 0;
		wc->sl = cqe->sl;
		wc->dlid_path_bits = 0;
	}
	ferrule_unlock(&cq->lock);

	return n;
}

/*
 * The extended interface: start_poll takes the lock, end_poll lets it go.
 */

static int next_poll(struct ibv_cq_ex *ibcq)
{
	struct ferrule_cq *cq = to_fcq_ex(ibcq);

	if (!take(cq))
		return ENOENT;

	ibcq->wr_id = le64toh(cq->cqe.wr_id);
	ibcq->status = cq->cqe.status;
	return 0;
}

static int start_poll(struct ibv_cq_ex *ibcq, struct ibv_poll_cq_attr *attr)
{
	struct ferrule_cq *cq = to_fcq_ex(ibcq);
	int ret;

	if (unlikely(attr->comp_mask))
		return EINVAL;

	ferrule_lock(&cq->lock);
	ret = next_poll(ibcq);
	if (ret)
		ferrule_unlock(&cq->lock);

	return ret;
}

static void end_poll(struct ibv_cq_ex *ibcq)
{
	ferrule_unlock(&to_fcq_ex(ibcq)->lock);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ibcq)
{
	return to_fcq_ex(ibcq)->cqe.opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *ibcq)
{
	return le16toh(to_fcq_ex(ibcq)->cqe.vendor_err);
}

static unsigned int read_wc_flags(struct ibv_cq_ex *ibcq)
{
	return to_fcq_ex(ibcq)->cqe.flags;
}

static uint32_t read_byte_len(struct ibv_cq_ex *ibcq)
{
	return le32toh(to_fcq_ex(ibcq)->cqe.byte_len);
}

static __be32 read_imm_data(struct ibv_cq_ex *ibcq)
{
	return imm_or_inv(&to_fcq_ex(ibcq)->cqe);
}

static uint32_t read_qp_num(struct ibv_cq_ex *ibcq)
{
	return le32toh(to_fcq_ex(ibcq)->cqe.qp_num);
}

static uint32_t read_src_qp(struct ibv_cq_ex *ibcq)
{
	return le32toh(to_fcq_ex(ibcq)->cqe.src_qp);
}

static uint32_t read_slid(struct ibv_cq_ex *ibcq)
{
	return 0;
}

static uint8_t read_sl(struct ibv_cq_ex *ibcq)
{
	return to_fcq_ex(ibcq)->cqe.sl;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *ibcq)
{
	return 0;
}

static uint64_t read_completion_ts(struct ibv_cq_ex *ibcq)
{
	return le64toh(to_fcq_ex(ibcq)->cqe.timestamp);
}

static uint64_t now_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

/* How long ago it was by the raw clock, taken off the time of day. */
static uint64_t read_completion_wallclock_ns(struct ibv_cq_ex *ibcq)
{
	uint64_t age = now_ns(CLOCK_MONOTONIC_RAW) - read_completion_ts(ibcq);

	return now_ns(CLOCK_REALTIME) - age;
}

#define SUPPORTED_WC_FLAGS                                                     \
	(IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |         \
	 IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)

static void set_poll_ops(struct ibv_cq_ex *cq, uint64_t wc_flags)
{
	cq->start_poll = start_poll;
	cq->next_poll = next_poll;
	cq->end_poll = end_poll;
	cq->read_opcode = read_opcode;
	cq->read_vendor_err = read_vendor_err;
	cq->read_wc_flags = read_wc_flags;

	if (wc_flags & IBV_WC_EX_WITH_BYTE_LEN)
		cq->read_byte_len = read_byte_len;
	if (wc_flags & IBV_WC_EX_WITH_IMM)
		cq->read_imm_data = read_imm_data;
	if (wc_flags & IBV_WC_EX_WITH_QP_NUM)
		cq->read_qp_num = read_qp_num;
	if (wc_flags & IBV_WC_EX_WITH_SRC_QP)
		cq->read_src_qp = read_src_qp;
	if (wc_flags & IBV_WC_EX_WITH_SLID)
		cq->read_slid = read_slid;
	if (wc_flags & IBV_WC_EX_WITH_SL)
		cq->read_sl = read_sl;
	if (wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS)
		cq->read_dlid_path_bits = read_dlid_path_bits;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
		cq->read_completion_ts = read_completion_ts;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
		cq->read_completion_wallclock_ns = read_completion_wallclock_ns;
}

/*
 * Events
 */

/* libibverbs has read an event of this queue from its channel. */
void ferrule_cq_event(struct ibv_cq *ibcq)
{
	atomic_fetch_add_explicit(&to_fcq(ibcq)->arm_sn, 1,
				  memory_order_relaxed);
}

/* Says whether there may be an event in the queue's channel. */
static bool event_waits(const struct ibv_cq *ibcq)
{
	struct pollfd channel = { .events = POLLIN };

	if (!ibcq->channel)
		return true;
	channel.fd = ibcq->channel->fd;

	return poll(&channel, 1, 0) != 0;
}

/*
 * Takes no lock, for it may be called between start_poll and end_poll. Of two
 * that arm at a time, the later number wins, and for one number "any" wins over
 * "solicited": the word is loaded first (acquire), so the number loaded after
 * it is none that is older than the word's.
 *
 * A number that was used already stands for an event to come, or one that
 * nobody has taken yet. Where no event waits, the kernel may have dropped it,
 * as it does when it has no memory for it, and that number would never raise
 * another. So there arming takes a new number. If the queue was only armed, it
 * stays so, as it was.
 */
int ferrule_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	struct ferrule_cq *cq = to_fcq(ibcq);
	uint32_t flag = solicited_only ? FERRULE_CQ_ARM_SOLICITED : 0;
	bool anew = false;
	uint32_t word, sn;

	word = shared_load32(&cq->ctrl->arm, memory_order_acquire);
	sn = atomic_load_explicit(&cq->arm_sn, memory_order_relaxed);
	if ((word & ~FERRULE_CQ_ARM_SOLICITED) ==
		    sn << FERRULE_CQ_ARM_SN_SHIFT && !event_waits(ibcq)) {
		anew = true;
		atomic_compare_exchange_strong_explicit(
			&cq->arm_sn, &sn, sn + 1, memory_order_relaxed,
			memory_order_relaxed);
	}
	do {
		sn = atomic_load_explicit(&cq->arm_sn, memory_order_relaxed)
		     << FERRULE_CQ_ARM_SN_SHIFT;
		if (anew)
			flag &= word;
		if (word == sn)
			break;
	} while (!shared_replace32(&cq->ctrl->arm, &word, sn | flag));

	/*
	 * The program polls once more before it sleeps. Either that finds a
	 * completion that the engine writes about now, or the engine, which
	 * fences in between likewise, finds the queue armed.
	 */
	atomic_thread_fence(memory_order_seq_cst);

	return 0;
}

/*
 * Creating and destroying
 */

static int map_ring(struct ferrule_cq_ring *ring, int cmd_fd, uint64_t offset,
		    size_t size, uint32_t depth)
{
	void *slots;

	slots = mmap(NULL, size, PROT_READ, MAP_SHARED, cmd_fd, offset);
	if (slots == MAP_FAILED)
		return errno;

	ring->slots = slots;
	ring->size = size;
	ring->depth = depth;

	return 0;
}

static int map_cq(struct ferrule_cq *cq, int cmd_fd,
		  const struct ferrule_create_cq_resp *resp)
{
	void *ctrl;
	int err;

	err = map_ring(&cq->ring, cmd_fd, resp->ring_offset, resp->ring_size,
		       resp->depth);
	if (err)
		return err;

	ctrl = mmap(NULL, resp->ctrl_size, PROT_READ | PROT_WRITE, MAP_SHARED,
		    cmd_fd, resp->ctrl_offset);
	if (ctrl == MAP_FAILED) {
		err = errno;
		munmap((void *)cq->ring.slots, cq->ring.size);
		return err;
	}

	cq->ctrl = ctrl;
	cq->ctrl_size = resp->ctrl_size;

	return 0;
}

struct ibv_cq_ex *ferrule_create_cq_ex(struct ibv_context *context,
				       struct ibv_cq_init_attr_ex *attr)
{
	struct ibv_create_cq_ex cmd = {};
	struct create_cq_resp resp = {};
	uint32_t flags = 0;
	struct ferrule_cq *cq;
	int err;

	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS)
		flags = attr->flags;
	if (!check_comp_mask(attr->comp_mask, IBV_CQ_INIT_ATTR_MASK_FLAGS) ||
	    !check_comp_mask(attr->wc_flags, SUPPORTED_WC_FLAGS) ||
	    !check_comp_mask(flags, IBV_CREATE_CQ_ATTR_SINGLE_THREADED)) {
		errno = EOPNOTSUPP;
		return NULL;
	}

	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return NULL;

	err = ibv_cmd_create_cq_ex(context, attr, &cq->verbs, &cmd, sizeof(cmd),
				   &resp.core, sizeof(resp), 0);
	if (err)
		goto err_free;

	err = map_cq(cq, context->cmd_fd, &resp.drv);
	if (err)
		goto err_destroy;

	ferrule_lock_init(&cq->lock,
			  flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
	pthread_mutex_init(&cq->resizing, NULL);
	/* 0 would be the number of an event that has been raised already. */
	atomic_init(&cq->arm_sn, 1);
	set_poll_ops(&cq->verbs.cq_ex, attr->wc_flags);

	return &cq->verbs.cq_ex;

err_destroy:
	ibv_cmd_destroy_cq(&cq->verbs.cq);
err_free:
	free(cq);
	errno = err;
	return NULL;
}

struct ibv_cq *ferrule_create_cq(struct ibv_context *context, int cqe,
				 struct ibv_comp_channel *channel,
				 int comp_vector)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = cqe,
		.channel = channel,
		.comp_vector = comp_vector,
	};
	struct ibv_cq_ex *cq = ferrule_create_cq_ex(context, &attr);

	return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}

/*
 * From the answer on, the engine writes to the new ring; who polls meanwhile
 * finds the old one empty when it is through. So polling goes on while the
 * kernel works, and waits only for the new ring to be put behind the old.
 */
int ferrule_resize_cq(struct ibv_cq *ibcq, int cqe)
{
	int cmd_fd = ibcq->context->cmd_fd;
	struct ferrule_cq *cq = to_fcq(ibcq);
	struct ferrule_cq_ring *ring, *last;
	struct resize_cq_resp resp = {};
	struct ibv_resize_cq cmd = {};
	int ret;

	ring = calloc(1, sizeof(*ring));
	if (!ring)
		return ENOMEM;

	pthread_mutex_lock(&cq->resizing);
	ret = ibv_cmd_resize_cq(ibcq, cqe, &cmd, sizeof(cmd), &resp.core,
				sizeof(resp));
	if (ret)
		goto err_unlock;
	/*
	 * Should this fail, no completion is seen any more before the program
	 * has resized once more.
	 */
	ret = map_ring(ring, cmd_fd, resp.drv.ring_offset, resp.drv.ring_size,
		       resp.drv.depth);
	if (ret)
		goto err_unlock;

	ferrule_lock(&cq->lock);
	/* The index is ahead of the consumer's by what is not taken yet. */
	ring->base = cq->consumer +
		     (uint32_t)(resp.drv.base - (uint32_t)cq->consumer);
	for (last = &cq->ring; last->next; last = last->next)
		;
	last->next = ring;
	ferrule_unlock(&cq->lock);
	pthread_mutex_unlock(&cq->resizing);

	return 0;

err_unlock:
	pthread_mutex_unlock(&cq->resizing);
	free(ring);
	return ret;
}

int ferrule_destroy_cq(struct ibv_cq *ibcq)
{
	struct ferrule_cq *cq = to_fcq(ibcq);
	int ret;

	ret = ibv_cmd_destroy_cq(ibcq);
	if (ret)
		return ret;

	while (cq->ring.next)
		leave_ring(cq);
	munmap((void *)cq->ring.slots, cq->ring.size);
	munmap(cq->ctrl, cq->ctrl_size);
	pthread_mutex_destroy(&cq->resizing);
	ferrule_lock_destroy(&cq->lock);
	free(cq);

	return 0;
}
