// SPDX-License-Identifier: GPL-2.0
/*
 * The slots of queues: a thread that posts beside one that polls.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "scene.h"

static int post_empty_write(struct scene *s)
{
	struct ib_send_wr wr = {
		.wr_id = s->wr_id + 1,
		.opcode = IB_WR_RDMA_WRITE,
		.send_flags = IB_SEND_SIGNALED,
	};
	int ret = ib_post_send(s->qp[0], &wr, NULL);

	if (!ret)
		s->wr_id++;
	return ret;
}

struct poller {
	struct scene *s;
	struct ib_wc wc[SCENE_DEPTH];
	u64 completions;
	bool failed;
};

static int poll(void *data)
{
	struct poller *p = data;
	u64 completions = p->completions;
	int n;

	while (!kthread_should_stop()) {
		/* Until both queues are full. */
		usleep_range(50, 100);
		n = ib_poll_cq(p->s->cq, SCENE_DEPTH, p->wc);
		for (int i = 0; i < n; i++)
			p->failed |= p->wc[i].status != IB_WC_SUCCESS ||
				     p->wc[i].wr_id != ++completions;
		WRITE_ONCE(p->completions, completions);
	}
	return 0;
}

/*
 * The completion queue is as deep as the send queue, which one thread fills
 * while another polls. It never overruns, since a request has its slot in the
 * send queue only when there is one for its completion.
 */
bool full_queues(struct scene *s)
{
	struct poller *p = kzalloc(sizeof(*p), GFP_KERNEL);
	ktime_t end = ktime_add_ms(ktime_get(), 2000);
	struct task_struct *task;
	bool passed;

	if (!EXPECT(p))
		return false;
	p->s = s;
	p->completions = s->wr_id;
	task = kthread_run(poll, p, KBUILD_MODNAME "/poll");
	if (!EXPECT(!IS_ERR(task))) {
		kfree(p);
		return false;
	}
	while (ktime_before(ktime_get(), end) && !READ_ONCE(s->overrun)) {
		post_empty_write(s);
		cond_resched();
	}
	for (int i = 0; i < 100 && READ_ONCE(p->completions) != s->wr_id; i++)
		msleep(10);
	kthread_stop(task);
	passed = EXPECT(!s->overrun) && EXPECT(!p->failed) &&
		 EXPECT(p->completions == s->wr_id);
	kfree(p);
	return passed;
}
