// SPDX-License-Identifier: GPL-2.0
/*
 * Completion queues, for the crate rdma.
 */

#include <linux/workqueue.h>

#include "rdma.h"

/*
 * The queue of events. Its flags are those of the RDMA core's own, which modules
 * cannot reach: memory may be written to a disk by way of it.
 */
static struct workqueue_struct *cq_queue;

bool ferrule_helper_cq_queue_start(void)
{
	cq_queue = alloc_workqueue("ferrule_cq", WQ_UNBOUND | WQ_HIGHPRI | WQ_MEM_RECLAIM, 0);
	return cq_queue;
}

/* Waits for the events that are under way. */
void ferrule_helper_cq_queue_stop(void)
{
	destroy_workqueue(cq_queue);
	cq_queue = NULL;
}

/* NULL in a module that has not started it. */
struct workqueue_struct *ferrule_helper_cq_queue(void)
{
	return cq_queue;
}
