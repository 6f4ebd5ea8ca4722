// SPDX-License-Identifier: GPL-2.0
/*
 * The work queues of a module, for the crate rdma.
 */

#include <linux/workqueue.h>

#include "rdma.h"

/* NULL in a module that has not started them. */
static struct workqueue_struct *queues[WORKQUEUES];

bool ferrule_helper_workqueues_start(void)
{
	/*
	 * Each page fault may wait for a disk or a server, so they wait apart from
	 * each other, and from the rest of the kernel's work.
	 */
	queues[WORKQUEUE_PAGING] = alloc_workqueue("ferrule_paging", WQ_UNBOUND, 0);
	/*
	 * The flags are those of the RDMA core's own queue, which modules cannot
	 * reach. Memory that runs out may be written to a disk by way of it.
	 */
	queues[WORKQUEUE_CQ] = alloc_workqueue("ferrule_cq",
					       WQ_UNBOUND | WQ_HIGHPRI | WQ_MEM_RECLAIM, 0);
	if (queues[WORKQUEUE_PAGING] && queues[WORKQUEUE_CQ])
		return true;
	ferrule_helper_workqueues_stop();
	return false;
}

/*
 * Waits for what is under way. A page fault may keep the last reference to a
 * device, which has completion queues, so those come first.
 */
void ferrule_helper_workqueues_stop(void)
{
	for (int i = 0; i < WORKQUEUES; i++) {
		if (queues[i])
			destroy_workqueue(queues[i]);
		queues[i] = NULL;
	}
}

struct workqueue_struct *ferrule_helper_workqueue(unsigned int which)
{
	return queues[which];
}
