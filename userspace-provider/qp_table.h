/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * From the queue pair that a completion names to the object in this process.
 *
 * A completion may outlive its queue pair, and the number may have gone to
 * another since. So an entry is found by number and generation together, and
 * the object is looked at only if both are right.
 *
 * Looking up takes no lock of the table. It is safe under the lock of the
 * completion queue that the completion stands in: a queue pair is removed under
 * the locks of both of its completion queues, so one that is found there stays
 * until that lock is let go.
 */
#ifndef FERRULE_QP_TABLE_H
#define FERRULE_QP_TABLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <rdma/ferrule-abi.h>

struct ferrule_qp;

#define FERRULE_QP_CHUNK 256

struct ferrule_qp_entry {
	_Atomic(uint64_t) key; /* 0: free; no queue pair has the number 0 */
	_Atomic(struct ferrule_qp *) qp;
};

struct ferrule_qp_table {
	pthread_mutex_t mutex; /* for changes, and for walks over all entries */
	_Atomic(struct ferrule_qp_entry *) chunks[FERRULE_MAX_QP /
						  FERRULE_QP_CHUNK];
};

void ferrule_qp_table_init(struct ferrule_qp_table *table);
void ferrule_qp_table_free(struct ferrule_qp_table *table);
int ferrule_qp_table_insert(struct ferrule_qp_table *table, uint32_t qp_num,
			    uint32_t gen, struct ferrule_qp *qp);
void ferrule_qp_table_remove(struct ferrule_qp_table *table, uint32_t qp_num,
			     uint32_t gen);
/* Calls for one queue pair after the other until a call returns true. */
bool ferrule_qp_table_any(struct ferrule_qp_table *table,
			  bool (*call)(struct ferrule_qp *qp, void *arg),
			  void *arg);

static inline uint64_t ferrule_qp_key(uint32_t qp_num, uint32_t gen)
{
	return (uint64_t)qp_num << 32 | gen;
}

static inline struct ferrule_qp *
ferrule_qp_table_find(struct ferrule_qp_table *table, uint32_t qp_num,
		      uint32_t gen)
{
	uint32_t index = qp_num & FERRULE_DB_INDEX_MASK;
	uint64_t key = ferrule_qp_key(qp_num, gen);
	struct ferrule_qp_entry *entry;
	struct ferrule_qp *qp;

	entry = atomic_load_explicit(&table->chunks[index / FERRULE_QP_CHUNK],
				     memory_order_acquire);
	if (!entry)
		return NULL;

	entry += index % FERRULE_QP_CHUNK;
	if (atomic_load_explicit(&entry->key, memory_order_acquire) != key)
		return NULL;

	/*
	 * The kernel may have given the number to the next queue pair before
	 * the thread that destroys its last owner has removed the entry. Then
	 * the object may be the next one's; the key was removed before it came.
	 */
	qp = atomic_load_explicit(&entry->qp, memory_order_acquire);
	if (atomic_load_explicit(&entry->key, memory_order_relaxed) != key)
		return NULL;

	return qp;
}

#endif
