// SPDX-License-Identifier: GPL-2.0
/* Lists of RDMA WRITEs. */
#include "late.h"

void make_list(struct ibv_send_wr *wr, int count, struct ibv_sge *sge,
	       const struct region *r)
{
	for (int i = 0; i < count; i++)
		wr[i] = (struct ibv_send_wr) {
			.next = i + 1 < count ? &wr[i + 1] : NULL,
			.sg_list = sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = i + 1 < count ? 0 : IBV_SEND_SIGNALED,
			.wr.rdma.remote_addr = (uintptr_t)r->data + sge->length,
			.wr.rdma.rkey = r->mr->rkey,
		};
}

void post_and_wait(struct end *e, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	REQUIRE_ERRNO(ibv_post_send(e->qp, wr, &bad), 0);
	next_wc(e->scq, &wc);
	REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
}
