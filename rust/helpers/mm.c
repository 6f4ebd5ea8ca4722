// SPDX-License-Identifier: GPL-2.0
/*
 * Memory, for the crate kernel_ext.
 */

#include "helpers.h"

/*
 * Zeroed pages with one kernel address, charged to the caller's memory cgroup.
 * Programs choose the size: where there is no space for it, the call fails
 * without a word in the log, and nobody is killed to make space.
 */
void *ferrule_helper_vmalloc_account(unsigned long size)
{
	return __vmalloc(size, GFP_KERNEL_ACCOUNT | __GFP_ZERO |
			       __GFP_RETRY_MAYFAIL | __GFP_NOWARN);
}

/*
 * Copies bytes that others may write meanwhile. Rust's own copies must not race
 * with a write, and its compiler may assume that a loaded value stays the same.
 */
void ferrule_helper_copy_racing(void *to, const void *from, size_t len)
{
	/* A program may have two requests write to one place: it gets a mixture. */
	data_race(memmove(to, from, len));
}
