/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The spin lock of a queue, which does nothing for a queue that its owner has
 * promised to use from one thread: by a flag, or by a thread domain.
 *
 * Order of the locks, outermost first:
 *
 *   ferrule_cq.resizing	two of them: likewise
 *   ferrule_cq.lock		two of them: in the order of their addresses
 *   ferrule_qp_table.mutex	alone, or within that one
 *   ferrule_queue.lock		send before receive
 *   ferrule_doorbell.lock
 *
 * Posting takes no lock of a completion queue and polling none of a work queue:
 * a completion gives slots back through ferrule_queue.consumer.
 */
#ifndef FERRULE_LOCK_H
#define FERRULE_LOCK_H

#include <pthread.h>
#include <stdbool.h>

struct ferrule_lock {
	pthread_spinlock_t spin;
	bool single_threaded;
};

static inline void ferrule_lock_init(struct ferrule_lock *lock,
				     bool single_threaded)
{
	pthread_spin_init(&lock->spin, PTHREAD_PROCESS_PRIVATE);
	lock->single_threaded = single_threaded;
}

static inline void ferrule_lock(struct ferrule_lock *lock)
{
	if (!lock->single_threaded)
		pthread_spin_lock(&lock->spin);
}

static inline void ferrule_unlock(struct ferrule_lock *lock)
{
	if (!lock->single_threaded)
		pthread_spin_unlock(&lock->spin);
}

static inline void ferrule_lock_destroy(struct ferrule_lock *lock)
{
	pthread_spin_destroy(&lock->spin);
}

#endif
