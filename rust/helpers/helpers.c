// SPDX-License-Identifier: GPL-2.0
/*
 * Helpers for the crate kernel_ext. Those for the RDMA core are in rdma.c.
 */

#include <linux/cpumask.h>
#include <linux/kthread.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/stat.h>

#include "helpers.h"

void ferrule_helper_init_waitqueue_head(struct wait_queue_head *wq, const char *name,
					struct lock_class_key *key)
{
	__init_waitqueue_head(wq, name, key);
}

bool ferrule_helper_wq_has_sleeper(struct wait_queue_head *wq)
{
	return wq_has_sleeper(wq);
}

void ferrule_helper_spin_lock_init_irq(spinlock_t *lock, const char *name,
				       struct lock_class_key *key)
{
#ifdef CONFIG_DEBUG_SPINLOCK
	__raw_spin_lock_init(spinlock_check(lock), name, key, LD_WAIT_CONFIG);
#else
	spin_lock_init(lock);
#endif
}

unsigned long ferrule_helper_spin_lock_irqsave(spinlock_t *lock)
{
	unsigned long flags;

	spin_lock_irqsave(lock, flags);
	return flags;
}

void ferrule_helper_spin_unlock_irqrestore(spinlock_t *lock, unsigned long flags)
{
	spin_unlock_irqrestore(lock, flags);
}

bool ferrule_helper_spin_trylock_irqsave(spinlock_t *lock, unsigned long *flags)
{
	unsigned long saved;

	if (!spin_trylock_irqsave(lock, saved))
		return false;
	*flags = saved;
	return true;
}

/*
 * Zeroed pages with one kernel address, charged to the caller's memory cgroup.
 * Programs choose the size: where there is no room for it, the call fails
 * without a word in the log, and nobody is killed to make room.
 */
void *ferrule_helper_vmalloc_account(unsigned long size)
{
	return __vmalloc(size, GFP_KERNEL_ACCOUNT | __GFP_ZERO |
			       __GFP_RETRY_MAYFAIL | __GFP_NOWARN);
}

/*
 * Copies bytes that others may write meanwhile. Rust's own copies must not race
 * with a write, and its compiler may take what they load for what stays.
 */
void ferrule_helper_copy_racing(void *to, const void *from, size_t len)
{
	memmove(to, from, len);
}

bool ferrule_helper_single_task_running(void)
{
	return single_task_running();
}

void ferrule_helper_preempt_disable(void)
{
	preempt_disable();
}

void ferrule_helper_preempt_enable(void)
{
	preempt_enable();
}

void ferrule_helper_cond_resched(void)
{
	cond_resched();
}

/*
 * The processors that the current task may run on. They may change meanwhile:
 * then the copy has some of both sets.
 */
void ferrule_helper_copy_current_cpus(struct cpumask *to)
{
	cpumask_copy(to, current->cpus_ptr);
}

unsigned long ferrule_helper_jiffies_now(void)
{
	return jiffies;
}

/* The name is taken as it is, not as a format. */
struct task_struct *ferrule_helper_kthread_create(int (*fn)(void *data), void *data,
						  const char *name)
{
	return kthread_create(fn, data, "%s", name);
}
