// SPDX-License-Identifier: GPL-2.0
/*
 * A kernel user of an RDMA device, for requests that no other kernel user of
 * the lab makes: READ with invalidate, as users of iWARP have it for the memory
 * of their READs.
 *
 * It runs its cases when it is loaded, writes a line of TAP for each to the
 * log, and is not loaded if one has failed.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/etherdevice.h>
#include <linux/module.h>
#include <linux/scatterlist.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>

#define BYTES (4 * PAGE_SIZE)

static char *device;
module_param(device, charp, 0444);
MODULE_PARM_DESC(device, "name of the RDMA device to test");

struct memory {
	u8 *data;
	struct scatterlist sg;
	struct ib_mr *mr;
};

/* Two queue pairs that are connected to each other. */
struct scene {
	struct ib_device *dev;
	const struct ib_gid_attr *gid;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp[2];
	struct memory mine, theirs;
	u64 wr_id;
};

#define EXPECT(cond)                                                         \
	({                                                                   \
		bool holds_ = (cond);                                        \
		if (!holds_)                                                 \
			pr_err("# line %d: not true: %s\n", __LINE__, #cond); \
		holds_;                                                      \
	})

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

/* From whatever state they are in. */
static int reconnect(struct scene *s)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_RESET };
	int ret = ib_modify_qp(s->qp[0], &attr, IB_QP_STATE);

	ret = ret ?: ib_modify_qp(s->qp[1], &attr, IB_QP_STATE);
	return ret ?: connect_both(s);
}

/* The status of the request, or -1 if its completion does not come. */
static int post(struct scene *s, struct ib_send_wr *wr)
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

static int read(struct scene *s, u32 lkey, u64 addr, u32 invalidated)
{
	struct ib_sge sge = { .addr = addr, .length = BYTES, .lkey = lkey };
	struct ib_rdma_wr wr = {
		.wr = {
			.opcode = invalidated ? IB_WR_RDMA_READ_WITH_INV :
						IB_WR_RDMA_READ,
			.sg_list = &sge,
			.num_sge = 1,
			.ex.invalidate_rkey = invalidated,
		},
		.remote_addr = s->theirs.mr->iova,
		.rkey = s->theirs.mr->rkey,
	};

	return post(s, &wr.wr);
}

static int read_into(struct scene *s, const struct memory *m, u32 invalidated)
{
	return read(s, m->mr->lkey, m->mr->iova, invalidated);
}

static int open_memory(struct scene *s, struct memory *m, int access)
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

static bool arrived(struct scene *s)
{
	ib_dma_sync_single_for_cpu(s->dev, sg_dma_address(&s->mine.sg), BYTES,
				   DMA_BIDIRECTIONAL);
	return !memcmp(s->mine.data, s->theirs.data, BYTES);
}

static void clear(struct scene *s)
{
	memset(s->mine.data, 0, BYTES);
	ib_dma_sync_single_for_device(s->dev, sg_dma_address(&s->mine.sg),
				      BYTES, DMA_BIDIRECTIONAL);
}

/* The data come, and the key of the memory that they came to is gone. */
static bool read_invalidates(struct scene *s)
{
	for (int round = 0; round < 100; round++) {
		clear(s);
		if (!EXPECT(!open_memory(s, &s->mine, IB_ACCESS_LOCAL_WRITE)) ||
		    !EXPECT(!read_into(s, &s->mine, s->mine.mr->rkey)) ||
		    !EXPECT(arrived(s)))
			return false;
	}
	return EXPECT(read_into(s, &s->mine, 0) == IB_WC_LOC_PROT_ERR);
}

/* Without it, the key stays. */
static bool plain_read_does_not(struct scene *s)
{
	clear(s);
	return EXPECT(!open_memory(s, &s->mine, IB_ACCESS_LOCAL_WRITE)) &&
	       EXPECT(!read_into(s, &s->mine, 0)) && EXPECT(arrived(s)) &&
	       EXPECT(!read_into(s, &s->mine, 0));
}

/* The key need not be that of the memory that the data come to. */
static bool read_invalidates_another(struct scene *s)
{
	u64 addr = sg_dma_address(&s->mine.sg);
	u32 lkey = s->pd->local_dma_lkey;

	clear(s);
	return EXPECT(!open_memory(s, &s->mine, IB_ACCESS_LOCAL_WRITE)) &&
	       EXPECT(!read(s, lkey, addr, s->mine.mr->rkey)) &&
	       EXPECT(arrived(s)) && EXPECT(!read(s, lkey, addr, 0)) &&
	       EXPECT(read_into(s, &s->mine, 0) == IB_WC_LOC_PROT_ERR);
}

/* The key that the region had before: an error, with the data in their place. */
static bool key_of_before(struct scene *s)
{
	u32 before = s->mine.mr->rkey;

	if (!EXPECT(!open_memory(s, &s->mine, IB_ACCESS_LOCAL_WRITE)) ||
	    !EXPECT(s->mine.mr->rkey != before))
		return false;
	clear(s);
	return EXPECT(read_into(s, &s->mine, before) == IB_WC_MW_BIND_ERR) &&
	       EXPECT(arrived(s)) && EXPECT(!reconnect(s)) &&
	       EXPECT(!read_into(s, &s->mine, 0));
}

/* A READ that the peer refuses takes no key away. */
static bool refused_read_does_not(struct scene *s)
{
	struct ib_send_wr close = {
		.opcode = IB_WR_LOCAL_INV,
		.ex.invalidate_rkey = s->theirs.mr->rkey,
	};

	clear(s);
	return EXPECT(!open_memory(s, &s->mine, IB_ACCESS_LOCAL_WRITE)) &&
	       EXPECT(!post(s, &close)) &&
	       EXPECT(read_into(s, &s->mine, s->mine.mr->rkey) ==
		      IB_WC_REM_ACCESS_ERR) &&
	       EXPECT(!reconnect(s)) &&
	       EXPECT(!open_memory(s, &s->theirs, IB_ACCESS_REMOTE_READ)) &&
	       EXPECT(!read_into(s, &s->mine, 0)) && EXPECT(arrived(s));
}

static const struct {
	const char *name;
	bool (*run)(struct scene *s);
} cases[] = {
	{ "read_invalidates", read_invalidates },
	{ "plain_read_does_not", plain_read_does_not },
	{ "read_invalidates_another", read_invalidates_another },
	{ "key_of_before", key_of_before },
	{ "refused_read_does_not", refused_read_does_not },
};

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
	m->data = kmalloc(BYTES, GFP_KERNEL);
	if (!m->data)
		return -ENOMEM;
	for (size_t i = 0; i < BYTES; i++)
		m->data[i] = i * 7 + i / 251 + seed;
	sg_init_one(&m->sg, m->data, BYTES);
	if (ib_dma_map_sg(s->dev, &m->sg, 1, DMA_BIDIRECTIONAL) != 1)
		return -EIO;
	m->mr = ib_alloc_mr(s->pd, IB_MR_TYPE_MEM_REG, BYTES / PAGE_SIZE + 1);
	return PTR_ERR_OR_ZERO(m->mr);
}

static void scene_free(struct scene *s)
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

static int scene_make(struct scene *s)
{
	struct ib_cq_init_attr cq = { .cqe = 64 };
	struct ib_qp_init_attr init = {
		.cap = { 16, 16, 1, 1, 0 },
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
	s->cq = ib_create_cq(s->dev, NULL, NULL, NULL, &cq);
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

static bool run(struct ib_device *dev, bool (*test)(struct scene *s))
{
	struct scene s = { .dev = dev };
	int ret = scene_make(&s);
	bool passed = false;

	if (ret)
		pr_err("# the scene is not made: %d\n", ret);
	else if (EXPECT(!open_memory(&s, &s.theirs, IB_ACCESS_REMOTE_READ)))
		passed = test(&s);
	scene_free(&s);
	return passed;
}

static int result = -ENODEV;

static int add(struct ib_device *dev)
{
	if (!device || strcmp(dev_name(&dev->dev), device))
		return -EOPNOTSUPP;
	result = 0;
	pr_info("1..%zu\n", ARRAY_SIZE(cases));
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		bool passed = run(dev, cases[i].run);

		pr_info("%sok %zu - %s\n", passed ? "" : "not ", i + 1,
			cases[i].name);
		if (!passed)
			result = -EIO;
	}
	/* The device may go as soon as the cases are over. */
	return -EOPNOTSUPP;
}

static struct ib_client client = { .name = KBUILD_MODNAME, .add = add };

static int __init kernel_user_init(void)
{
	int ret = ib_register_client(&client);

	if (ret)
		return ret;
	if (result)
		ib_unregister_client(&client);
	return result;
}

static void __exit kernel_user_exit(void)
{
	ib_unregister_client(&client);
}

module_init(kernel_user_init);
module_exit(kernel_user_exit);
MODULE_DESCRIPTION("Tests of an RDMA device by a kernel user");
MODULE_LICENSE("GPL");
