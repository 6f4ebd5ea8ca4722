/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The spin lock of a queue, which does nothing for a queue that its owner has
 * promised to use from one thread: by a flag, or by a thread domain.
 *
 * It is inline. pthread_spin_lock(3) would be a call into another library, with
 * two or three indirect jumps, and a message takes four such calls.
 *
 * Order of the locks, outermost first:
 *
 *   ferrule_cq.resizing	two of them: in the order of their addresses
 *   ferrule_cq.lock		two of them: likewise
 *   ferrule_qp_table.mutex	alone, or within that one
 *
 *   ferrule_queue.lock
 *   ferrule_doorbell.lock
 *
 * Nothing here takes one of the upper three within one of the lower two, or the
 * other way round, for programs do both: they poll between ibv_wr_start() and
 * ibv_wr_complete(), and post between ibv_start_poll() and ibv_end_poll().
 * Posting takes no lock of a completion queue and polling none of a work queue:
 * a completion gives slots back through ferrule_queue.consumer.
 */
#ifndef FERRULE_LOCK_H
#define FERRULE_LOCK_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

struct ferrule_lock {
	atomic_bool locked;
	bool single_threaded;
};

static inline void ferrule_lock_init(struct ferrule_lock *lock,
				     bool single_threaded)
{
	atomic_init(&lock->locked, false);
	lock->single_threaded = single_threaded;
}

static inline void ferrule_lock(struct ferrule_lock *lock)
{
	if (lock->single_threaded)
		return;

	/*
	 * While another thread has it, its cache line stays shared. The holder
	 * keeps it for some hundred instructions. If it takes longer, its
	 * processor may have been taken from it, perhaps by this thread.
	 */
	while (atomic_exchange_explicit(&lock->locked, true,
					memory_order_acquire))
		for (unsigned int looks = 1;
		     atomic_load_explicit(&lock->locked, memory_order_relaxed);
		     looks++)
			if (!(looks % 256))
				sched_yield();
}

static inline void ferrule_unlock(struct ferrule_lock *lock)
{
	if (!lock->single_threaded)
		atomic_store_explicit(&lock->locked, false,
				      memory_order_release);
}

#endif
