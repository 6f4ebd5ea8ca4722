// SPDX-License-Identifier: GPL-2.0
/*
 * A kernel user of an RDMA device, for requests that no other kernel user of
 * the lab makes: READ with invalidate, as users of iWARP have it for the memory
 * of their READs. Several kernel users at a time, queues that are full, reset or
 * freed, and the events of one that has fallen behind.
 *
 * It runs its cases when it is loaded, writes a line of TAP for each to the
 * log, and is not loaded if one has failed. With the parameter streams it tells
 * how many messages these have written.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/module.h>
#include <linux/pci.h>

#include "scene.h"

#define BYTES (4 * PAGE_SIZE)

static char *device;
module_param(device, charp, 0444);
MODULE_PARM_DESC(device, "name of the RDMA device to test");

static int streams;
module_param(streams, int, 0444);
MODULE_PARM_DESC(streams, "threads that write, each for itself, in place of the tests");

static int scenes = 1;
module_param(scenes, int, 0444);
MODULE_PARM_DESC(scenes, "how often each makes its queue pairs and its memory anew");

static int bytes = 65536;
module_param(bytes, int, 0444);
MODULE_PARM_DESC(bytes, "length of their messages");

static int ms = 2000;
module_param(ms, int, 0444);
MODULE_PARM_DESC(ms, "how long they write each time, in milliseconds");

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

/* Posts so many requests without a look at what becomes of them. */
static bool post_many(struct scene *s, int count)
{
	struct ib_send_wr wr = {
		.opcode = IB_WR_RDMA_WRITE, .send_flags = IB_SEND_SIGNALED,
	};

	for (int i = 0; i < count; i++)
		if (!EXPECT(!ib_post_send(s->qp[0], &wr, NULL)))
			return false;
	return true;
}

/* One request, and its event. Then all completions that there are. */
static bool told_of_one(struct scene *s)
{
	struct ib_wc wc[4];

	reinit_completion(&s->event);
	return EXPECT(ib_req_notify_cq(s->cq, IB_CQ_NEXT_COMP) == 0) &&
	       post_many(s, 1) &&
	       EXPECT(wait_for_completion_timeout(&s->event, 20 * HZ)) &&
	       EXPECT(ib_poll_cq(s->cq, 4, wc) == 1);
}

/*
 * A user that finds several completions at once is told by a work item from
 * then on, on whatever processor is free, until it has kept up for a while.
 */
static bool behind_is_told_by_work(struct scene *s)
{
	int by_work = 0;
	struct ib_wc wc[4];

	if (!told_of_one(s) || !EXPECT(!s->told_by_work) || !post_many(s, 4))
		return false;
	/* On PREEMPT_RT they are carried out after they were posted. */
	msleep(100);
	if (!EXPECT(ib_poll_cq(s->cq, 4, wc) == 4))
		return false;
	for (int i = 0; i < 40; i++) {
		if (!told_of_one(s))
			return false;
		by_work += s->told_by_work;
	}
	/* A PCI function has interrupts, each on a processor of its own. */
	return EXPECT(!s->told_by_work) &&
	       EXPECT(by_work > 0 || dev_is_pci(s->dev->dev.parent));
}

/* Their objects come and go beside the work of the others. */
static bool users_side_by_side(struct scene *s)
{
	return EXPECT(run_streams(s->dev, 4, 25, BYTES, 5) > 0);
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
	{ "behind_is_told_by_work", behind_is_told_by_work },
	{ "users_side_by_side", users_side_by_side },
	{ "full_queues", full_queues },
	{ "before_reset", before_reset },
	{ "stale_slots", stale_slots },
	{ "freed_beside_event", freed_beside_event },
};

static bool run(struct ib_device *dev, bool (*test)(struct scene *s))
{
	struct scene s = { .dev = dev, .bytes = BYTES };
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
	if (streams) {
		s64 messages = run_streams(dev, streams, scenes, bytes, ms);

		pr_info("%lld messages\n", messages);
		result = messages < 0 ? messages : 0;
		return -EOPNOTSUPP;
	}
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
