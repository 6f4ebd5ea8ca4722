// SPDX-License-Identifier: GPL-2.0
/*
 * Tasks and threads, for the crate kernel_ext.
 */

#include <linux/bottom_half.h>
#include <linux/cpumask.h>
#include <linux/irqflags.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/rt.h>
#include <linux/sched/signal.h>
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

bool ferrule_helper_fatal_signal_pending(void)
{
	return fatal_signal_pending(current);
}

/* On PREEMPT_RT softirqs are threads, which those of real-time priority preempt. */
bool ferrule_helper_real_time_is_interrupted(void)
{
	return !IS_ENABLED(CONFIG_PREEMPT_RT) && rt_or_dl_task(current);
}

/*
 * A softirq that a thread has raised itself runs where the thread enables softirqs
 * again, and finds preemption disabled (__local_bh_enable_ip()). A softirq at the
 * end of an interrupt finds it as it was.
 */
bool ferrule_helper_preemptible_is_interrupted(void)
{
	return IS_ENABLED(CONFIG_PREEMPT_COUNT) && !(preempt_count() & PREEMPT_MASK);
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

/*
 * A softirq that is raised in process context waits for the next interrupt,
 * unless softirqs are disabled: then it runs as soon as they are enabled again.
 * They must not be enabled while interrupts are off.
 *
 * On PREEMPT_RT softirqs of one processor preempt each other, and the list of
 * lib/irq_poll.c is not made for that (as of Linux 7.3): two of them take the
 * same entry.
 */
bool ferrule_helper_irq_poll_now(struct irq_poll *iop)
{
	if (IS_ENABLED(CONFIG_PREEMPT_RT) || irqs_disabled())
		return false;
	local_bh_disable();
	irq_poll_sched(iop);
	local_bh_enable();
	return true;
}

/* The name is taken as it is, not as a format. */
struct task_struct *ferrule_helper_kthread_create(int (*fn)(void *data), void *data,
						  const char *name)
{
	return kthread_create(fn, data, "%s", name);
}
