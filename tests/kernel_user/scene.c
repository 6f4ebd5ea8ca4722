// SPDX-License-Identifier: GPL-2.0
/*
 * Two queue pairs that are connected to each other, and memory.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/etherdevice.h>
#include <linux/slab.h>
#include <rdma/ib_cache.h>

#include "scene.h"

static int connect(struct scene *s, struct ib_qp *qp, const struct ib_qp *peer)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE,
		.path_mtu = IB_MTU_1024,
		.dest_qp_num = peer->qp_num,
		.max_dest_rd_atomic = 1,
		.max_rd_atomic = 1,
		.min_rnr_timer = 12,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr.type = RDMA_AH_ATTR_TYPE_ROCE,
		.ah_attr.port_num = 1,
	};
	union ib_gid gid = s->gid->gid;
	int ret;

	rdma_ah_set_grh(&attr.ah_attr, &gid, 0, s->gid->index, 64, 0);
	ret = rdma_read_gid_l2_fields(s->gid, NULL, attr.ah_attr.roce.dmac);
	if (ret)
		return ret;
	ret = ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_PKEY_INDEX |
			   IB_QP_PORT | IB_QP_ACCESS_FLAGS);
	if (ret)
		return ret;
	attr.qp_state = IB_QPS_RTR;
	ret = ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU |
			   IB_QP_DEST_QPN | IB_QP_RQ_PSN |
			   IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER);
	if (ret)
		return ret;
	attr.qp_state = IB_QPS_RTS;
	return ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_TIMEOUT |
			    IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_SQ_PSN |
			    IB_QP_MAX_QP_RD_ATOMIC);
}

static int connect_both(struct scene *s)
{
	int ret = connect(s, s->qp[0], s->qp[1]);

	return ret ?: connect(s, s->qp[1], s->qp[0]);
}

int reconnect(struct scene *s)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_RESET };
	int ret = ib_modify_qp(s->qp[0], &attr, IB_QP_STATE);

	ret = ret ?: ib_modify_qp(s->qp[1], &attr, IB_QP_STATE);
	return ret ?: connect_both(s);
}

struct ib_rdma_wr whole(struct scene *s, enum ib_wr_opcode opcode, struct ib_sge *sge)
{
	*sge = (struct ib_sge){
		.addr = sg_dma_address(&s->mine.sg),
		.length = s->bytes,
		.lkey = s->pd->local_dma_lkey,
	};
	return (struct ib_rdma_wr){
		.wr = { .opcode = opcode, .sg_list = sge, .num_sge = 1 },
		.remote_addr = s->theirs.mr->iova,
		.rkey = s->theirs.mr->rkey,
	};
}

int post(struct scene *s, struct ib_send_wr *wr)
{
	unsigned long end = jiffies + 20 * HZ;
	struct ib_wc wc;
	int ret;

	wr->wr_id = ++s->wr_id;
	wr->send_flags |= IB_SEND_SIGNALED;
	ret = ib_post_send(s->qp[0], wr, NULL);
	if (ret) {
		pr_err("# ib_post_send answers %d\n", ret);
		return -1;
	}
	while (time_before(jiffies, end)) {
		if (!ib_poll_cq(s->cq, 1, &wc)) {
			usleep_range(50, 100);
			continue;
		}
		return EXPECT(wc.wr_id == s->wr_id) ? wc.status : -1;
	}
	pr_err("# no completion\n");
	return -1;
}

int open_memory(struct scene *s, struct memory *m, int access)
{
	struct ib_reg_wr wr = {
		.wr.opcode = IB_WR_REG_MR, .mr = m->mr, .access = access,
	};

	if (!EXPECT(ib_map_mr_sg(m->mr, &m->sg, 1, NULL, PAGE_SIZE) == 1))
		return -1;
	ib_update_fast_reg_key(m->mr, m->mr->lkey + 1);
	wr.key = m->mr->rkey;
	return post(s, &wr.wr);
}

static void memory_free(struct scene *s, struct memory *m)
{
	if (!IS_ERR_OR_NULL(m->mr))
		ib_dereg_mr(m->mr);
	if (sg_dma_len(&m->sg))
		ib_dma_unmap_sg(s->dev, &m->sg, 1, DMA_BIDIRECTIONAL);
	kfree(m->data);
}

static int memory_make(struct scene *s, struct memory *m, u8 seed)
{
	m->data = kmalloc(s->bytes, GFP_KERNEL);
	if (!m->data)
		return -ENOMEM;
	for (size_t i = 0; i < s->bytes; i++)
		m->data[i] = i * 7 + i / 251 + seed;
	sg_init_one(&m->sg, m->data, s->bytes);
	if (ib_dma_map_sg(s->dev, &m->sg, 1, DMA_BIDIRECTIONAL) != 1)
		return -EIO;
	m->mr = ib_alloc_mr(s->pd, IB_MR_TYPE_MEM_REG, DIV_ROUND_UP(s->bytes, PAGE_SIZE) + 1);
	return PTR_ERR_OR_ZERO(m->mr);
}

void scene_free(struct scene *s)
{
	memory_free(s, &s->mine);
	memory_free(s, &s->theirs);
	for (int i = 0; i < 2; i++)
		if (!IS_ERR_OR_NULL(s->qp[i]))
			ib_destroy_qp(s->qp[i]);
	if (!IS_ERR_OR_NULL(s->cq))
		ib_destroy_cq(s->cq);
	if (!IS_ERR_OR_NULL(s->pd))
		ib_dealloc_pd(s->pd);
	if (!IS_ERR_OR_NULL(s->gid))
		rdma_put_gid_attr(s->gid);
}

static void completed(struct ib_cq *cq, void *scene)
{
	struct scene *s = scene;

	s->told_by_work = in_task() && current->flags & PF_WQ_WORKER;
	complete(&s->event);
}

static void overrun(struct ib_event *event, void *scene)
{
	struct scene *s = scene;

	if (event->event == IB_EVENT_CQ_ERR)
		WRITE_ONCE(s->overrun, true);
}

int scene_make(struct scene *s)
{
	struct ib_cq_init_attr cq = { .cqe = SCENE_DEPTH };
	struct ib_qp_init_attr init = {
		.cap = { SCENE_DEPTH, SCENE_DEPTH, 1, 1, 0 },
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.qp_type = IB_QPT_RC,
	};
	int ret;

	s->gid = rdma_get_gid_attr(s->dev, 1, 0);
	if (IS_ERR(s->gid))
		return PTR_ERR(s->gid);
	s->pd = ib_alloc_pd(s->dev, 0);
	if (IS_ERR(s->pd))
		return PTR_ERR(s->pd);
	init_completion(&s->event);
	s->cq = ib_create_cq(s->dev, completed, overrun, s, &cq);
	if (IS_ERR(s->cq))
		return PTR_ERR(s->cq);
	init.send_cq = s->cq;
	init.recv_cq = s->cq;
	for (int i = 0; i < 2; i++) {
		s->qp[i] = ib_create_qp(s->pd, &init);
		if (IS_ERR(s->qp[i]))
			return PTR_ERR(s->qp[i]);
	}
	ret = connect_both(s);
	ret = ret ?: memory_make(s, &s->mine, 1);
	return ret ?: memory_make(s, &s->theirs, 2);
}
