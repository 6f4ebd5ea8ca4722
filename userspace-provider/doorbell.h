/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Doorbells: how user space tells the engine that a queue pair has work.
 *
 * <rdma/ferrule-abi.h> describes the protocol. It is Dekker's, three times:
 * one side writes its word, fences, and reads the other's; so of two that meet
 * at least one sees the other.
 *
 *   here: producer index | leaf bit          | top bit, seq
 *         fence          | fence             | fence
 *         leaf's ack     | top's ack         | sleeping
 *   engine: leaf's ack   | top's ack         | sleeping
 *         fence          | fence             | fence
 *         producer index | leaves            | seq
 *
 * One thread at a time may compare a bit with its acknowledgement and toggle
 * it: two threads that both find it at rest and both toggle it would leave it
 * at rest. So all that this process writes is written under one lock.
 */
#ifndef FERRULE_DOORBELL_H
#define FERRULE_DOORBELL_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/ioctl.h>

#include <rdma/ferrule-abi.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "lock.h"
#include "shared.h"

struct ferrule_doorbell {
	struct ferrule_db *db;
	__le64 *leaf;
	const struct ferrule_status *status;
	const __le64 *leaf_ack;
	uint32_t import;	/* not 0: the file is another program's */
	atomic_bool unkicked;	/* rung, and the kick was deferred */
	struct ferrule_lock lock;	/* of the words of *db and *leaf */
};

static inline bool ferrule_device_is_dead(const struct ferrule_doorbell *db)
{
	return shared_load32(&db->status->dead, memory_order_relaxed);
}

/*
 * Says whether the device went without ending the work that it had. Acquire:
 * the caller then sees all completions that it has written.
 */
static inline bool ferrule_work_is_unflushed(const struct ferrule_doorbell *db)
{
	return shared_load32(&db->status->dead, memory_order_acquire) ==
	       FERRULE_DEAD_UNFLUSHED;
}

/* Says whether the engine has answered to all toggles of a bit. */
static inline bool ferrule_db_at_rest(const __le64 *word, const __le64 *ack,
				      uint64_t bit)
{
	return !((shared_load64(word, memory_order_relaxed) ^
		  shared_load64(ack, memory_order_relaxed)) &
		 bit);
}

static inline void ferrule_db_toggle(__le64 *word, uint64_t bit)
{
	shared_store64(word, shared_load64(word, memory_order_relaxed) ^ bit,
		       memory_order_relaxed);
}

/*
 * Rings the doorbell of a queue pair whose producer index has been stored.
 * Returns true if the engine sleeps and wants a kick, best given when no lock
 * is held any more.
 *
 * The first comparison is made without the lock, so its two words are not of
 * one time. A bit that looks at rest is looked at again. One that looks rung is
 * left: either it is rung, and the thread that did that rings the top as well;
 * or the engine has acknowledged it since, which is after our fence, and goes
 * on to read the producer index.
 */
static inline bool ferrule_db_ring(struct ferrule_doorbell *db,
				   uint32_t qp_num)
{
	unsigned int d = qp_num & FERRULE_DB_INDEX_MASK;
	unsigned int t = d / 64;
	uint64_t leaf_bit = 1ULL << d % 64;
	uint64_t top_bit = 1ULL << t % 64;
	__le64 *leaf = &db->leaf[t];
	const __le64 *leaf_ack = &db->leaf_ack[t];
	__le64 *top = &db->db->top[t / 64];
	const __le64 *top_ack = &db->status->top[t / 64];
	uint32_t seq;

	atomic_thread_fence(memory_order_seq_cst);
	if (!ferrule_db_at_rest(leaf, leaf_ack, leaf_bit))
		goto out;

	ferrule_lock(&db->lock);
	if (ferrule_db_at_rest(leaf, leaf_ack, leaf_bit)) {
		ferrule_db_toggle(leaf, leaf_bit);
		atomic_thread_fence(memory_order_seq_cst);
		if (ferrule_db_at_rest(top, top_ack, top_bit))
			ferrule_db_toggle(top, top_bit);

		/*
		 * Release: the engine that sees the new number sees the top
		 * bit.
		 */
		seq = shared_load32(&db->db->seq, memory_order_relaxed) + 1;
		shared_store32(&db->db->seq, seq, memory_order_release);
	}
	ferrule_unlock(&db->lock);
	atomic_thread_fence(memory_order_seq_cst);
out:
	if (shared_load32(&db->status->sleeping, memory_order_relaxed))
		return true;

	/* Release: the thread that takes the mark kicks for what was rung. */
	if (shared_load32(&db->status->deferred, memory_order_relaxed))
		atomic_store_explicit(&db->unkicked, true,
				      memory_order_release);

	return false;
}

/*
 * Tells the engine whether small requests are posted far ahead of the program's
 * polls. To be called before the doorbell is rung.
 */
static inline void ferrule_db_tell_backlog(struct ferrule_doorbell *db,
					   bool backlog)
{
	if (!!shared_load32(&db->db->backlog, memory_order_relaxed) != backlog)
		shared_store32(&db->db->backlog, backlog, memory_order_relaxed);
}

/*
 * Kicks the engine: one system call.
 *
 * Its answer is of no use to the poster. The request is in the ring by then,
 * and nobody can take it back: posting has succeeded. Should the device be gone
 * (EIO), then status.dead tells it to the next post, and the flushes that the
 * engine wrote before are in the completion queue.
 *
 * A kick that fails for want of memory is given again, a few times: it may be
 * that nobody else rings for long, and the request would lie there.
 */
static inline void ferrule_db_kick(const struct ferrule_doorbell *db,
				   int cmd_fd)
{
	const struct {
		struct ib_uverbs_ioctl_hdr hdr;
		struct ib_uverbs_attr import;
	} cmd = {
		.hdr.length = db->import ? sizeof(cmd) : sizeof(cmd.hdr),
		.hdr.object_id = UVERBS_OBJECT_DEVICE,
		.hdr.method_id = db->import ? FERRULE_METHOD_KICK_IMPORTED :
					      FERRULE_METHOD_KICK,
		.hdr.num_attrs = !!db->import,
		.hdr.driver_id = FERRULE_DRIVER_ID,
		.import.attr_id = FERRULE_ATTR_IMPORT,
		.import.len = sizeof(db->import),
		.import.flags = UVERBS_ATTR_F_MANDATORY,
		.import.data = db->import,
	};

	for (int tries = 0; tries < 8; tries++)
		if (!ioctl(cmd_fd, RDMA_VERBS_IOCTL, &cmd) ||
		    (errno != EFAULT && errno != ENOMEM))
			break;
}

/*
 * Gives the kick that was deferred, if there is one: the program waits for the
 * engine from here on.
 */
static inline void ferrule_db_kick_deferred(struct ferrule_doorbell *db,
					    int cmd_fd)
{
	if (atomic_load_explicit(&db->unkicked, memory_order_relaxed) &&
	    atomic_exchange_explicit(&db->unkicked, false,
				     memory_order_acq_rel))
		ferrule_db_kick(db, cmd_fd);
}

#endif
