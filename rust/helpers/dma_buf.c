// SPDX-License-Identifier: GPL-2.0
/*
 * Buffers that drivers share with each other, for the crate rdma.
 */

#include <linux/dma-buf.h>
#include <linux/fs.h>
#include <linux/module.h>

#include "rdma.h"

MODULE_IMPORT_NS("DMA_BUF");

/* Whether its file was opened for writing: a right that the exporter gave. */
bool ferrule_helper_dma_buf_may_write(const struct dma_buf *buf)
{
	return buf->file->f_mode & FMODE_WRITE;
}
