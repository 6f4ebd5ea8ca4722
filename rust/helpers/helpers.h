/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C inlines and macros as functions, for Rust. Rust knows each by the name of
 * what it stands for, without the prefix.
 */
#ifndef FERRULE_HELPERS_H
#define FERRULE_HELPERS_H

#include <linux/device.h>
#include <linux/hrtimer.h>
#include <linux/irq_poll.h>
#include <linux/scatterlist.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>

void ferrule_helper_init_waitqueue_head(struct wait_queue_head *wq, const char *name,
					struct lock_class_key *key);
bool ferrule_helper_wq_has_sleeper(struct wait_queue_head *wq);
void ferrule_helper_spin_lock_init_irq(spinlock_t *lock, const char *name,
				       struct lock_class_key *key);
unsigned long ferrule_helper_spin_lock_irqsave(spinlock_t *lock);
void ferrule_helper_spin_unlock_irqrestore(spinlock_t *lock, unsigned long flags);
bool ferrule_helper_spin_trylock_irqsave(spinlock_t *lock, unsigned long *flags);
void ferrule_helper_virt_mb(void);
void *ferrule_helper_vmalloc_account(unsigned long size);
void ferrule_helper_copy_racing(void *to, const void *from, size_t len);
bool ferrule_helper_dma_map_shared_page(struct device *dev, struct page *page, u64 *address);
void ferrule_helper_dma_unmap_shared_page(struct device *dev, u64 address);
void *ferrule_helper_sg_virt(struct scatterlist *sg, unsigned int *len);
int ferrule_helper_request_own_irq(unsigned int irq, const char *name, void *cookie);
bool ferrule_helper_single_task_running(void);
bool ferrule_helper_real_time_is_interrupted(void);
bool ferrule_helper_preemptible_is_interrupted(void);
bool ferrule_helper_need_resched(void);
bool ferrule_helper_fatal_signal_pending(void);
void ferrule_helper_preempt_disable(void);
void ferrule_helper_preempt_enable(void);
void ferrule_helper_cond_resched(void);
void ferrule_helper_copy_current_cpus(struct cpumask *to);
unsigned long ferrule_helper_jiffies_now(void);
bool ferrule_helper_irq_poll_now(struct irq_poll *iop);
struct task_struct *ferrule_helper_kthread_create(int (*fn)(void *data), void *data,
						  const char *name);

#endif /* FERRULE_HELPERS_H */
