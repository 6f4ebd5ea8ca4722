/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Doorbells: how user space tells the engine that a queue pair has work.
 *
 * <rdma/ferrule-abi.h> describes the protocol. The word rung comes first, with
 * no fence before it: it tells an awake engine what it has to know, unless the
 * engine has missed rings of several queue pairs. For that there are the bits,
 * and a bit that is rung stays so until the engine looks for bits. The bits and
 * sleep are Dekker's protocol, three times: one side writes its word, fences,
 * and reads the other's; so of two that meet at least one sees the other. taken
 * is the same once more, in the place of the leaf's ack.
 *
 *   here: producer index | leaf bit          | rung
 *         fence          | fence             | fence
 *         leaf's ack     | top's ack         | sleeping
 *   engine: leaf's ack   | top's ack         | sleeping
 *         fence          | fence             | fence
 *         producer index | leaves            | rung
 *
 * One thread at a time may compare a bit with its acknowledgement and toggle
 * it: two threads that both find it at rest and both toggle it would leave it
 * at rest. So that is done under a lock.
 */
#ifndef FERRULE_DOORBELL_H
#define FERRULE_DOORBELL_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/ioctl.h>

#include <rdma/ferrule-abi.h>
#include <rdma/ferrule_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "lock.h"
#include "shared.h"

struct ferrule_doorbell {
	struct ferrule_db *db;
	__le64 *leaf;
	const struct ferrule_status *status;
	const __le64 *leaf_ack;
	uint32_t number;	/* among the context's; 0: the first ones */
	atomic_uint unkicked;	/* bytes, or 1: rung, and the kick deferred */
	struct ferrule_lock lock;	/* of the words of *db and *leaf */
	struct ferrule_doorbell *_Atomic next;	/* of the context's */
	/* Under ferrule_context.threads.lock. */
	unsigned int queues;	/* completion and shared receive queues */
	pthread_t thread;	/* that has made the first of these */
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

/*
 * Toggles the bits of a doorbell if it is at rest, and says whether it was.
 */
bool ferrule_db_toggle_bits(struct ferrule_doorbell *db, unsigned int d);

/*
 * Says whether the last ring was of doorbell d and the engine has yet to look at
 * it. When the engine looks, it will see all that was stored before our fence.
 */
static inline bool ferrule_db_is_rung(const struct ferrule_doorbell *db,
				      unsigned int d)
{
	uint64_t rung;
	uint32_t count, taken;

	atomic_thread_fence(memory_order_seq_cst);
	rung = shared_load64(&db->db->rung, memory_order_relaxed);
	if ((uint16_t)(rung >> FERRULE_RUNG_DB_SHIFT) != d)
		return false;

	count = rung >> FERRULE_RUNG_COUNT_SHIFT;
	taken = shared_load32(&db->status->taken, memory_order_relaxed);
	if ((int32_t)(taken - count) >= 0)
		return false;

	return !ferrule_db_at_rest(&db->leaf[d / 64], &db->leaf_ack[d / 64],
				   1ULL << d % 64);
}

/* The word rung after one more ring, of doorbell d. */
static inline uint64_t ferrule_db_next_rung(uint64_t rung, uint64_t d)
{
	uint64_t next = rung + (1ULL << FERRULE_RUNG_COUNT_SHIFT);

	if ((uint16_t)(rung >> FERRULE_RUNG_DB_SHIFT) != d)
		return (next & ~(uint64_t)UINT32_MAX) |
		       d << FERRULE_RUNG_DB_SHIFT | 1;

	return next + ((uint16_t)rung != UINT16_MAX);
}

/*
 * Counts a ring, and fences. Release: the engine that sees the word sees the
 * producer index and the bits.
 */
static inline void ferrule_db_count(struct ferrule_doorbell *db, unsigned int d)
{
	uint64_t rung = shared_load64(&db->db->rung, memory_order_relaxed);

	while (!shared_replace64(&db->db->rung, &rung,
				 ferrule_db_next_rung(rung, d)))
		;
	shared_fence_after_replace();
}

/*
 * Defers the kick for requests of so many bytes. Returns true if it is to be
 * given now: beside the copies of all that wait for a kick, the call does not
 * matter any more.
 *
 * Release: the thread that takes the mark kicks for what was rung. Two threads
 * that defer at once may lose the bytes of one, and not the mark.
 */
static inline bool ferrule_db_defer(struct ferrule_doorbell *db, uint64_t bytes)
{
	const uint64_t most = 512 * 1024;

	bytes += atomic_load_explicit(&db->unkicked, memory_order_relaxed);
	if (bytes >= most) {
		/* Acquire: this kick is also for what others have rung. */
		atomic_exchange_explicit(&db->unkicked, 0,
					 memory_order_acq_rel);
		return true;
	}

	atomic_store_explicit(&db->unkicked, bytes ? (unsigned int)bytes : 1,
			      memory_order_release);

	return false;
}

/*
 * Rings the doorbell of a queue pair whose producer index has been stored.
 * Returns true if the engine sleeps and wants a kick, best given when no lock
 * is held any more. The requests have about so many bytes.
 *
 * With a backlog, the engine may have yet to look at an earlier ring, which
 * then does for this request, too. Without, that look would cost the cache line
 * of its answer, before the engine is told.
 *
 * Bits that were rung when there was no fence yet may have been acknowledged
 * before the producer index was stored. So they are looked at again. If they
 * are still rung, an engine that acknowledges them from now on reads the index
 * after our fence.
 */
static inline bool ferrule_db_ring(struct ferrule_doorbell *db,
				   uint32_t qp_num, bool backlog,
				   uint64_t bytes)
{
	unsigned int d = qp_num & FERRULE_DB_INDEX_MASK;
	uint64_t bit = 1ULL << d % 64;
	const __le64 *leaf = &db->leaf[d / 64];
	const __le64 *ack = &db->leaf_ack[d / 64];
	bool toggled;

	if (backlog && ferrule_db_is_rung(db, d))
		goto out;

	toggled = ferrule_db_at_rest(leaf, ack, bit) &&
		  ferrule_db_toggle_bits(db, d);
	ferrule_db_count(db, d);
	if (!toggled && ferrule_db_at_rest(leaf, ack, bit) &&
	    ferrule_db_toggle_bits(db, d))
		ferrule_db_count(db, d);

out:
	/* Acquire: if it is 0 since kicks are deferred, deferred is seen. */
	if (shared_load32(&db->status->sleeping, memory_order_acquire))
		return true;

	if (!shared_load32(&db->status->deferred, memory_order_relaxed))
		return false;

	return ferrule_db_defer(db, bytes);
}

/*
 * Tells the engine whether requests are posted far ahead of the program's
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
		struct ib_uverbs_attr number;
	} cmd = {
		.hdr.length = db->number ? sizeof(cmd) : sizeof(cmd.hdr),
		.hdr.object_id = UVERBS_OBJECT_DEVICE,
		.hdr.method_id = db->number ? FERRULE_METHOD_KICK_DOORBELLS :
					      FERRULE_METHOD_KICK,
		.hdr.num_attrs = !!db->number,
		.hdr.driver_id = FERRULE_DRIVER_ID,
		.number.attr_id = FERRULE_ATTR_NUMBER,
		.number.len = sizeof(db->number),
		.number.flags = UVERBS_ATTR_F_MANDATORY,
		.number.data = db->number,
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
	    atomic_exchange_explicit(&db->unkicked, 0,
				     memory_order_acq_rel))
		ferrule_db_kick(db, cmd_fd);
}

#endif
