// SPDX-License-Identifier: GPL-2.0
/*
 * Wait queues and spinlocks, for the crate kernel_ext.
 */

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
#if defined(CONFIG_DEBUG_SPINLOCK) && defined(CONFIG_PREEMPT_RT)
	__spin_lock_init(lock, name, key, false);
#elif defined(CONFIG_DEBUG_SPINLOCK)
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

void ferrule_helper_virt_mb(void)
{
	/* The caller says what it pairs with. */
	virt_mb();
}
