// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

#include <errno.h>
#include <stdlib.h>

#include "qp_table.h"

void ferrule_qp_table_init(struct ferrule_qp_table *table)
{
	unsigned int i;

	pthread_mutex_init(&table->mutex, NULL);
	for (i = 0; i < FERRULE_MAX_QP / FERRULE_QP_CHUNK; i++)
		atomic_init(&table->chunks[i], NULL);
}

void ferrule_qp_table_free(struct ferrule_qp_table *table)
{
	unsigned int i;

	for (i = 0; i < FERRULE_MAX_QP / FERRULE_QP_CHUNK; i++)
		free(atomic_load_explicit(&table->chunks[i],
					  memory_order_relaxed));
	pthread_mutex_destroy(&table->mutex);
}

int ferrule_qp_table_insert(struct ferrule_qp_table *table, uint32_t qp_num,
			    uint32_t gen, struct ferrule_qp *qp)
{
	uint32_t index = qp_num & FERRULE_DB_INDEX_MASK;
	uint32_t chunk = index / FERRULE_QP_CHUNK;
	struct ferrule_qp_entry *entry;

	pthread_mutex_lock(&table->mutex);
	entry = atomic_load_explicit(&table->chunks[chunk],
				     memory_order_relaxed);
	if (!entry) {
		/* All zero is an empty entry on whatever runs Linux. */
		entry = calloc(FERRULE_QP_CHUNK, sizeof(*entry));
		if (!entry) {
			pthread_mutex_unlock(&table->mutex);
			return ENOMEM;
		}
		/* Chunks stay until the context goes: readers hold none. */
		atomic_store_explicit(&table->chunks[chunk], entry,
				      memory_order_release);
	}

	/* The order that ferrule_qp_table_find() relies on. */
	entry += index % FERRULE_QP_CHUNK;
	atomic_store_explicit(&entry->key, 0, memory_order_relaxed);
	atomic_store_explicit(&entry->qp, qp, memory_order_release);
	atomic_store_explicit(&entry->key, ferrule_qp_key(qp_num, gen),
			      memory_order_release);
	pthread_mutex_unlock(&table->mutex);

	return 0;
}

/* The caller holds the locks of both completion queues. */
void ferrule_qp_table_remove(struct ferrule_qp_table *table, uint32_t qp_num,
			     uint32_t gen)
{
	uint32_t index = qp_num & FERRULE_DB_INDEX_MASK;
	uint64_t key = ferrule_qp_key(qp_num, gen);
	struct ferrule_qp_entry *entry;

	/* ferrule_qp_table_any() does not hold the locks of these queues. */
	pthread_mutex_lock(&table->mutex);
	entry = atomic_load_explicit(&table->chunks[index / FERRULE_QP_CHUNK],
				     memory_order_acquire);
	entry += index % FERRULE_QP_CHUNK;

	/* Unless the next owner of the number has replaced it. */
	atomic_compare_exchange_strong_explicit(&entry->key, &key, 0,
						memory_order_relaxed,
						memory_order_relaxed);
	pthread_mutex_unlock(&table->mutex);
}

bool ferrule_qp_table_any(struct ferrule_qp_table *table,
			  bool (*call)(struct ferrule_qp *qp, void *arg),
			  void *arg)
{
	struct ferrule_qp_entry *entry;
	bool found = false;
	unsigned int i, j;

	pthread_mutex_lock(&table->mutex);
	for (i = 0; i < FERRULE_MAX_QP / FERRULE_QP_CHUNK && !found; i++) {
		entry = atomic_load_explicit(&table->chunks[i],
					     memory_order_relaxed);
		for (j = 0; entry && j < FERRULE_QP_CHUNK && !found; j++)
			if (atomic_load_explicit(&entry[j].key,
						 memory_order_relaxed))
				found = call(atomic_load_explicit(
						     &entry[j].qp,
						     memory_order_relaxed),
					     arg);
	}
	pthread_mutex_unlock(&table->mutex);

	return found;
}
