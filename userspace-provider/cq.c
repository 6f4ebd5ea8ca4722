// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Completion queues: creating, resizing, arming. */

#include <config.h>

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <util/util.h>

#include "abi.h"
#include "ferrule.h"

#define SUPPORTED_WC_FLAGS                                                     \
	(IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |         \
	 IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)

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

	channel.fd = ibcq->channel->fd;

	return poll(&channel, 1, 0) != 0;
}

/*
 * Takes no lock, for it may be called between start_poll and end_poll. Of two
 * that arm at a time, the later number wins, and for one number "any" wins over
 * "solicited": the word is loaded first (acquire), so the number loaded after
 * it is none that is older than the word's.
 *
 * Arming again keeps the number while the event of that number waits to be
 * taken. If no event waits, the kernel may have dropped it for lack of memory,
 * and a number raises one event at most, so arming takes a new number. A queue
 * that is armed and has raised no event stays as it is.
 */
int ferrule_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	struct ferrule_cq *cq = to_fcq(ibcq);
	uint32_t flag = solicited_only ? FERRULE_CQ_ARM_SOLICITED : 0;
	bool anew = false;
	uint32_t word, sn;

	/* Nobody would hear of the event. */
	if (!ibcq->channel)
		return 0;

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
	kick_deferred(cq);

	return 0;
}

/*
 * Creating and destroying
 */

/* At these addresses, in the place of what is there; NULL: wherever it fits. */
static int map_ring(struct ferrule_cq_ring *ring, void *at, int cmd_fd,
		    uint64_t offset, size_t size, uint32_t depth)
{
	int flags = MAP_SHARED | (at ? MAP_FIXED : 0);
	void *slots;

	slots = mmap(at, size, PROT_READ, flags, cmd_fd, offset);
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

	err = map_ring(&cq->ring, NULL, cmd_fd, resp->ring_offset,
		       resp->ring_size, resp->depth);
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
	struct create_cq_cmd cmd = {};
	struct create_cq_resp resp = {};
	struct ibv_pd *parent = NULL;
	struct ferrule_origin origin;
	uint32_t flags = 0;
	struct ferrule_cq *cq;
	int err;

	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS)
		flags = attr->flags;
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD)
		parent = attr->parent_domain;
	if (!check_comp_mask(attr->comp_mask, IBV_CQ_INIT_ATTR_MASK_FLAGS |
						      IBV_CQ_INIT_ATTR_MASK_PD) ||
	    !check_comp_mask(attr->wc_flags, SUPPORTED_WC_FLAGS) ||
	    !check_comp_mask(flags, IBV_CREATE_CQ_ATTR_SINGLE_THREADED)) {
		errno = EOPNOTSUPP;
		return NULL;
	}

	/* A plain protection domain has nothing to say of a completion queue. */
	if (parent && !ferrule_is_parent_domain(parent)) {
		errno = EINVAL;
		return NULL;
	}

	cq = ferrule_alloc_object(parent, sizeof(*cq), FERRULE_RESOURCE_CQ,
				  &origin);
	if (!cq)
		return NULL;
	cq->origin = origin;
	cq->db = ferrule_take_doorbells(to_fctx(context));
	/* An import's are beside the first ones, and older modules know no others. */
	if (cq->db != to_fctx(context)->db)
		cmd.drv.doorbells = cq->db->number;

	err = ibv_cmd_create_cq_ex(context, attr AND_59(NULL), &cq->verbs,
				   &cmd.core, sizeof(cmd), &resp.core,
				   sizeof(resp), 0);
	if (err)
		goto err_free;

	err = map_cq(cq, context->cmd_fd, &resp.drv);
	if (err)
		goto err_destroy;

	ferrule_lock_init(&cq->lock,
			  (flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) ||
				  ferrule_single_threaded(parent));
	pthread_mutex_init(&cq->resizing, NULL);
	/* 0 would be the number of an event that has been raised already. */
	atomic_init(&cq->arm_sn, 1);
	ferrule_set_poll_ops(&cq->verbs.cq_ex, attr->wc_flags);

	return &cq->verbs.cq_ex;

err_destroy:
	ibv_cmd_destroy_cq(&cq->verbs.cq);
err_free:
	ferrule_leave_doorbells(to_fctx(context), cq->db);
	ferrule_free_object(cq, FERRULE_RESOURCE_CQ, origin);
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
 * From the answer on, the engine writes to the new ring; a thread that polls
 * meanwhile finds the old one empty when it is through. So polling goes on
 * while the kernel works, and waits only for the new ring to be put behind the
 * old.
 */
int ferrule_resize_cq(struct ibv_cq *ibcq, int cqe)
{
	int cmd_fd = ibcq->context->cmd_fd;
	struct ferrule_cq *cq = to_fcq(ibcq);
	struct ferrule_cq_ring *ring, *last;
	struct resize_cq_resp resp = {};
	struct ibv_resize_cq cmd = {};
	size_t size;
	void *at;
	int ret;

	if (cqe < 1 || cqe > FERRULE_MAX_CQ_DEPTH)
		return EINVAL;

	ring = calloc(1, sizeof(*ring));
	if (!ring)
		return ENOMEM;

	/*
	 * The addresses of the new ring. After the command it would be too late
	 * to find that the program has none left.
	 */
	size = roundup_pow_of_two(cqe) * sizeof(struct ferrule_cqe);
	at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED) {
		ret = errno;
		goto err_free;
	}

	pthread_mutex_lock(&cq->resizing);
	ret = ibv_cmd_resize_cq(ibcq, cqe, &cmd, sizeof(cmd), &resp.core,
				sizeof(resp));
	if (ret)
		goto err_unmap;

	/*
	 * Should this fail, as for want of memory for page tables, the queue is
	 * lost: what the engine writes from now on is not seen, whatever the
	 * program does. The addresses may be another mapping's by then.
	 */
	ret = map_ring(ring, at, cmd_fd, resp.drv.ring_offset,
		       resp.drv.ring_size, resp.drv.depth);
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

err_unmap:
	munmap(at, size);
err_unlock:
	pthread_mutex_unlock(&cq->resizing);
err_free:
	free(ring);
	return ret;
}

int ferrule_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
	struct ibv_modify_cq cmd = {};

	return ibv_cmd_modify_cq(cq, attr, &cmd, sizeof(cmd));
}

int ferrule_destroy_cq(struct ibv_cq *ibcq)
{
	struct ferrule_cq *cq = to_fcq(ibcq);
	int ret;

	ret = ibv_cmd_destroy_cq(ibcq);
	if (ret)
		return ret;

	while (cq->ring.next)
		ferrule_cq_leave_ring(cq);
	munmap((void *)cq->ring.slots, cq->ring.size);
	munmap(cq->ctrl, cq->ctrl_size);
	pthread_mutex_destroy(&cq->resizing);
	ferrule_leave_doorbells(to_fctx(ibcq->context), cq->db);
	ferrule_free_object(cq, FERRULE_RESOURCE_CQ, cq->origin);

	return 0;
}
