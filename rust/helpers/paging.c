// SPDX-License-Identifier: GPL-2.0
/*
 * Memory of programs that is paged on demand, for the crate rdma.
 */

#include <linux/hmm.h>
#include <linux/mm.h>
#include <linux/mmap_lock.h>
#include <linux/mmu_notifier.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "rdma.h"

/* Has the pages of a range brought in, if there are @flags, and tells them. */
static int paging_walk(struct mmu_interval_notifier *notifier, unsigned long seq,
		       unsigned long start, unsigned long end, unsigned long flags,
		       unsigned long *pages)
{
	struct hmm_range range = {
		.notifier = notifier,
		.notifier_seq = seq,
		.start = start,
		.end = end,
		.hmm_pfns = pages,
		.default_flags = flags,
	};

	return hmm_range_fault(&range);
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
 * -EBUSY says that an invalidation came in between.
 */
int ferrule_helper_paging_fault(struct mmu_interval_notifier *notifier, unsigned long start,
				unsigned long end, unsigned long from, unsigned long to,
				unsigned int purpose, unsigned long *pages, unsigned long *seq)
{
	unsigned long count = (end - start) >> PAGE_SHIFT, i;
	int ret = 0;

	memset(pages, 0, count * sizeof(*pages));
	*seq = mmu_interval_read_begin(notifier);
	mmap_read_lock(notifier->mm);
	/*
	 * Where a page table is missing, hmm_range_fault() brings in all of the
	 * range that it is told, if a page of it is wanted.
	 */
	if (purpose != PAGING_NONE)
		ret = paging_walk(notifier, *seq, from, to,
				  purpose == PAGING_WRITE ?
					  HMM_PFN_REQ_FAULT | HMM_PFN_REQ_WRITE :
					  HMM_PFN_REQ_FAULT,
				  pages);
	if (!ret)
		ret = paging_walk(notifier, *seq, start, end, 0, pages);
	mmap_read_unlock(notifier->mm);
	if (ret)
		return ret;

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
