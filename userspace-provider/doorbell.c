// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The bits of doorbells: mostly they are rung already, and doorbell.h does the
 * rest.
 */
#include "doorbell.h"

/*
 * Release: the engine that sees the leaf's bit sees the producer index. No
 * other thread toggles bits meanwhile.
 */
static void toggle(__le64 *word, uint64_t bit)
{
	shared_store64(word, shared_load64(word, memory_order_relaxed) ^ bit,
		       memory_order_release);
}

bool ferrule_db_toggle_bits(struct ferrule_doorbell *db, unsigned int d)
{
	unsigned int t = d / 64;
	uint64_t leaf_bit = 1ULL << d % 64;
	uint64_t top_bit = 1ULL << t % 64;
	__le64 *top = &db->db->top[t / 64];
	bool at_rest;

	ferrule_lock(&db->lock);
	at_rest = ferrule_db_at_rest(&db->leaf[t], &db->leaf_ack[t], leaf_bit);
	if (at_rest) {
		toggle(&db->leaf[t], leaf_bit);
		atomic_thread_fence(memory_order_seq_cst);
		if (ferrule_db_at_rest(top, &db->status->top[t / 64], top_bit))
			toggle(top, top_bit);
	}
	ferrule_unlock(&db->lock);

	return at_rest;
}
