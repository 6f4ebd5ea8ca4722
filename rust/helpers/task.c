// SPDX-License-Identifier: GPL-2.0
/*
 * Tasks and threads, for the crate kernel_ext.
 */

#include <linux/cpumask.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/stat.h>

#include "helpers.h"

bool ferrule_helper_single_task_running(void)
{
	return single_task_running();
}

bool ferrule_helper_need_resched(void)
{
	return need_resched();
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
