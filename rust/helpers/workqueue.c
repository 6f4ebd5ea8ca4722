// SPDX-License-Identifier: GPL-2.0
/*
 * The work queues of a module, for the crate rdma.
 */

#include <linux/atomic.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/wait_bit.h>
#include <linux/workqueue.h>

#include "rdma.h"

/* The page faults of a program that may wait at a time. */
#define FAULTS 16

/*
 * The regions of an address space. Before a page of all of them goes, the engine
 * is entered for each, by whoever takes the page, such as a thread of the kernel
 * that reclaims memory.
 */
#define REGIONS 8192

/*
 * How long a queue without users stays. To make and to destroy one takes a lock
 * of all work queues of the kernel, which a program that registers and
 * deregisters one page all the time would hold most of the time.
 */
#define LINGER HZ

/*
 * The page faults of one address space. Each may wait for as long as a disk or a
 * server likes, so those of other programs have a queue of their own.
 */
struct fault_queue {
	struct list_head list;
	struct mm_struct *mm;
	unsigned int users;
	struct workqueue_struct *queue;
	struct delayed_work end;
};

/* NULL in a module that has not started them. */
static struct workqueue_struct *queues[WORKQUEUES];

/* Those that have users or linger, and the users of each. */
static LIST_HEAD(fault_queues);
static DEFINE_MUTEX(fault_queues_lock);

/* How many have not ended yet. */
static atomic_t fault_queues_left;

bool ferrule_helper_workqueues_start(void)
{
	/* The end of a queue waits for its page faults, and nobody waits for the end. */
	queues[WORKQUEUE_ENDS] = alloc_workqueue("ferrule_ends", WQ_UNBOUND, 0);
	/*
	 * The flags are those of the RDMA core's own queue, which modules cannot
	 * reach. Memory that runs out may be written to a disk by way of it.
	 */
	queues[WORKQUEUE_CQ] = alloc_workqueue("ferrule_cq",
					       WQ_UNBOUND | WQ_HIGHPRI | WQ_MEM_RECLAIM, 0);
	if (queues[WORKQUEUE_ENDS] && queues[WORKQUEUE_CQ])
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
	wait_var_event(&fault_queues_left, !atomic_read(&fault_queues_left));
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

static void fault_queue_free(struct fault_queue *faults)
{
	destroy_workqueue(faults->queue);
	kfree(faults);
}

static void fault_queue_end(struct work_struct *work)
{
	struct fault_queue *faults = container_of(work, struct fault_queue, end.work);
	bool used;

	mutex_lock(&fault_queues_lock);
	used = faults->users;
	if (!used) {
		list_del(&faults->list);
		/* Users may have come and gone since this began. */
		cancel_delayed_work(&faults->end);
	}
	mutex_unlock(&fault_queues_lock);
	if (used)
		return;
	fault_queue_free(faults);
	/* The rest of this work is waited for with its queue. */
	if (atomic_dec_and_test(&fault_queues_left))
		wake_up_var(&fault_queues_left);
}

static struct fault_queue *fault_queue_new(struct mm_struct *mm)
{
	struct fault_queue *faults = kzalloc(sizeof(*faults), GFP_KERNEL_ACCOUNT);

	if (!faults)
		return NULL;
	faults->queue = alloc_workqueue("ferrule_paging", WQ_UNBOUND, FAULTS);
	if (!faults->queue) {
		kfree(faults);
		return NULL;
	}
	faults->mm = mm;
	INIT_DELAYED_WORK(&faults->end, fault_queue_end);
	return faults;
}

/* That of an address space; NULL without one. The lock is held. */
static struct fault_queue *fault_queue_find(struct mm_struct *mm)
{
	struct fault_queue *faults;

	list_for_each_entry(faults, &fault_queues, list)
		if (faults->mm == mm)
			return faults;
	return NULL;
}

/*
 * That of an address space, for one more user, which is a region; NULL without
 * memory, or if there are too many. The queues of the module have been started,
 * and are not stopped before it is put. One that lingers may be of an address
 * space that was at the same place before.
 */
struct fault_queue *ferrule_helper_fault_queue_get(struct mm_struct *mm)
{
	struct fault_queue *faults, *new = NULL;

	mutex_lock(&fault_queues_lock);
	faults = fault_queue_find(mm);
	if (!faults) {
		/* Others do not wait for memory that this program may lack. */
		mutex_unlock(&fault_queues_lock);
		new = fault_queue_new(mm);
		if (!new)
			return NULL;
		mutex_lock(&fault_queues_lock);
		faults = fault_queue_find(mm);
	}
	if (!faults) {
		faults = new;
		new = NULL;
		list_add(&faults->list, &fault_queues);
		atomic_inc(&fault_queues_left);
	}
	if (faults->users < REGIONS)
		faults->users++;
	else
		faults = NULL;
	mutex_unlock(&fault_queues_lock);
	/* Another thread of the program was quicker. */
	if (new)
		fault_queue_free(new);
	return faults;
}

/* Takes a user away, which may be a work of the queue. Process context. */
void ferrule_helper_fault_queue_put(struct fault_queue *faults)
{
	mutex_lock(&fault_queues_lock);
	if (!--faults->users)
		queue_delayed_work(queues[WORKQUEUE_ENDS], &faults->end, LINGER);
	mutex_unlock(&fault_queues_lock);
}

struct workqueue_struct *ferrule_helper_fault_queue_workqueue(struct fault_queue *faults)
{
	return faults->queue;
}
