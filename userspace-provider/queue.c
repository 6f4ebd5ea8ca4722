// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Rings of requests, as queue pairs and shared receive queues have them. */

#include <config.h>

#include <ccan/minmax.h>

#include "ferrule.h"

void ferrule_queue_init(struct ferrule_queue *queue, bool single_threaded,
			void *slots, uint32_t depth, uint32_t stride,
			__le32 *producer_word, uint32_t max_wr,
			uint32_t max_sge)
{
	ferrule_lock_init(&queue->lock, single_threaded);
	atomic_init(&queue->consumer, 0);
	queue->slots = slots;
	queue->mask = depth - 1;
	queue->stride = stride;
	queue->producer_word = producer_word;
	/*
	 * A program may rely on what it was told at creation, even if the ring
	 * has more slots than that.
	 */
	queue->max_wr = min(max_wr, depth);
	queue->max_sge = max_sge;
}
