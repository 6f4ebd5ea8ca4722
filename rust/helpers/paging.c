// SPDX-License-Identifier: GPL-2.0
/*
 * Memory of programs that is paged on demand, for the crate rdma.
 */

#include <linux/hmm.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mmap_lock.h>
#include <linux/mmu_notifier.h>
#include <linux/sched/mm.h>
#include <linux/string.h>
#include <linux/uaccess.h>

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

/* Looks up the pages of a range that are in memory. */
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
 * Brings in those pages of a range that were not found, or not for writing. A page
 * may take as long as a file server likes. The lock of the address space is not
 * held meanwhile, so that the program can still map and unmap, and others can read
 * its maps.
 *
 * hmm_range_fault_unlocked_timeout() of Linux 7.3 does not hold it either. But it
 * does not tell that it has tried before (FAULT_FLAG_TRIED), so a page that cannot
 * be read is tried for ever (filemap_fault()).
 */
static noinline int paging_bring_in(struct mm_struct *mm, unsigned long addr, unsigned long end,
				    bool write, const unsigned long *pages)
{
	const unsigned long wanted = HMM_PFN_VALID | (write ? HMM_PFN_WRITE : 0);
	const unsigned int flags = FAULT_FLAG_REMOTE | (write ? FAULT_FLAG_WRITE : 0);
	bool unlocked = false;
	int ret;

	ret = mmap_read_lock_killable(mm);
	if (ret)
		return ret;
	for (; addr < end && !ret; addr += PAGE_SIZE, pages++)
		if ((*pages & wanted) != wanted)
			ret = fixup_user_fault(mm, addr, flags, &unlocked);
	mmap_read_unlock(mm);
	return ret;
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
		.start = start,
		.end = end,
		.hmm_pfns = pages,
	};
	unsigned long count = (end - start) >> PAGE_SHIFT, i;
	int ret;

	memset(pages, 0, count * sizeof(*pages));
	ret = paging_walk(&range);
	if (!ret && purpose != PAGING_NONE) {
		ret = paging_bring_in(notifier->mm, from, to, purpose == PAGING_WRITE,
				      pages + ((from - start) >> PAGE_SHIFT));
		if (!ret)
			ret = paging_walk(&range);
	}
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
