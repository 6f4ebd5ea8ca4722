// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that devices reach, for the crates kernel_ext and rdma.
 */

#include <linux/dma-mapping.h>
#include <linux/scatterlist.h>

#include "helpers.h"

/*
 * A page that a device shares with the processor at any time must be one memory
 * for both: the DMA API refuses it if the device would see a copy of it, or if
 * the processor's caches would have to be told.
 */
bool ferrule_helper_dma_map_shared_page(struct device *dev, struct page *page, u64 *address)
{
	dma_addr_t addr = dma_map_page_attrs(dev, page, 0, PAGE_SIZE, DMA_BIDIRECTIONAL,
					     DMA_ATTR_REQUIRE_COHERENT);

	if (dma_mapping_error(dev, addr))
		return false;
	*address = addr;
	return true;
}

void ferrule_helper_dma_unmap_shared_page(struct device *dev, u64 address)
{
	dma_unmap_page_attrs(dev, address, PAGE_SIZE, DMA_BIDIRECTIONAL,
			     DMA_ATTR_REQUIRE_COHERENT);
}

/* Where the processor sees an entry, and its length there: a mapping may have merged several. */
void *ferrule_helper_sg_virt(struct scatterlist *sg, unsigned int *len)
{
	*len = sg->length;
	return sg_virt(sg);
}
