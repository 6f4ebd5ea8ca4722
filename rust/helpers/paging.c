// SPDX-License-Identifier: GPL-2.0
/*
 * Memory of programs that is paged on demand, for the crate rdma.
 */

#include <linux/hmm.h>
#include <linux/jiffies.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mmap_lock.h>
#include <linux/mmu_notifier.h>
#include <linux/sched/mm.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#include "rdma.h"

/*
 * From now on the current thread's memory is charged to the control group of an
 * address space. A thread of the kernel has no group of its own, and that of a
 * program may have imported the region of another one.
 */
void ferrule_helper_charge_begin(struct mm_struct *mm)
{
	set_active_memcg(get_mem_cgroup_from_mm(mm));
}

/* Ends that. No other one is under way: neither works nor commands have one. */
void ferrule_helper_charge_end(void)
{
	mem_cgroup_put(set_active_memcg(NULL));
}

/* Tells the pages of a range, and brings in those that its flags ask for. */
static int paging_walk(struct hmm_range *range)
{
	struct mm_struct *mm = range->notifier->mm;
	int ret;

	ret = mmap_read_lock_killable(mm);
	if (ret)
		return ret;
	ret = hmm_range_fault(range);
	mmap_read_unlock(mm);
	return ret;
}

/*
 * Brings in the pages of a range. A page may take as long as a file server likes.
 * From Linux 7.3 on the lock of the address space is not held meanwhile, so that
 * the program can still map and unmap, and others can read its maps.
 */
static int paging_bring_in(struct hmm_range *range)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 3, 0)
	return hmm_range_fault_unlocked_timeout(range,
						msecs_to_jiffies(HMM_RANGE_DEFAULT_TIMEOUT));
#else
	return paging_walk(range);
#endif
}

/*
 * Brings in the pages from @from to before @to, for reading (PAGING_READ) or
 * writing (PAGING_WRITE), or none (PAGING_NONE). Then it looks up those from
 * @start to before @end, which are around them, and all in the range of the
 * notifier. The caller has a user reference to the notifier's address space.
 * @pages gets the kernel address of each page, with PAGING_WRITABLE if it may be
 * written to, or 0 if it is not there. That holds as long as the notifier's
 * sequence number is @seq.
 *
 * -EBUSY says that an invalidation came in between, and -EINTR that the caller
 * has been killed.
 */
int ferrule_helper_paging_fault(struct mmu_interval_notifier *notifier, unsigned long start,
				unsigned long end, unsigned long from, unsigned long to,
				unsigned int purpose, unsigned long *pages, unsigned long *seq)
{
	struct hmm_range range = {
		.notifier = notifier,
		.notifier_seq = mmu_interval_read_begin(notifier),
		.start = from,
		.end = to,
		.hmm_pfns = pages,
		.default_flags = HMM_PFN_REQ_FAULT,
	};
	unsigned long count = (end - start) >> PAGE_SHIFT, i;
	int ret = 0;

	memset(pages, 0, count * sizeof(*pages));
	if (purpose == PAGING_WRITE)
		range.default_flags |= HMM_PFN_REQ_WRITE;
	/*
	 * Where a page table is missing, hmm_range_fault() brings in all of the
	 * range that it is told, if a page of it is wanted.
	 */
	if (purpose != PAGING_NONE)
		ret = paging_bring_in(&range);
	if (ret)
		return ret;

	range.start = start;
	range.end = end;
	range.default_flags = 0;
	ret = paging_walk(&range);
	if (ret)
		return ret;
	*seq = range.notifier_seq;

	for (i = 0; i < count; i++) {
		unsigned long pfn = pages[i];
		void *addr;
		u8 byte;

		pages[i] = 0;
		if (!(pfn & HMM_PFN_VALID) || pfn & HMM_PFN_ERROR)
			continue;
		addr = page_address(hmm_pfn_to_page(pfn));
		/*
		 * Some memory is not for the kernel to read (memfd_secret): it has
		 * no place in the direct map.
		 */
		if (!addr || get_kernel_nofault(byte, (u8 *)addr))
			continue;
		pages[i] = (unsigned long)addr | (pfn & HMM_PFN_WRITE ? PAGING_WRITABLE : 0);
	}
	return 0;
}

bool ferrule_helper_mmu_interval_read_retry(struct mmu_interval_notifier *notifier,
					    unsigned long seq)
{
	return mmu_interval_read_retry(notifier, seq);
}

void ferrule_helper_mmu_interval_set_seq(struct mmu_interval_notifier *notifier, unsigned long seq)
{
	mmu_interval_set_seq(notifier, seq);
}

/* The page at a kernel address has been written to. */
void ferrule_helper_set_page_dirty(void *addr)
{
	set_page_dirty(virt_to_page(addr));
}
