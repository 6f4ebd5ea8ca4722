// SPDX-License-Identifier: GPL-2.0
/*
 * The slots of queues: a thread that posts beside one that polls, and
 * completions of before a RESET, or of a queue pair that has gone.
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

/* Some messages from the first queue pair to the second. */
static bool send_empty(struct scene *s, int count)
{
	struct ib_send_wr send = {
		.opcode = IB_WR_SEND, .send_flags = IB_SEND_SIGNALED,
	};
	struct ib_recv_wr recv = {};

	for (int i = 0; i < count; i++) {
		send.wr_id = ++s->wr_id;
		recv.wr_id = s->wr_id;
		if (!EXPECT(!ib_post_recv(s->qp[1], &recv, NULL)) ||
		    !EXPECT(!ib_post_send(s->qp[0], &send, NULL)))
			return false;
	}
	/* On PREEMPT_RT they are carried out after they were posted. */
	msleep(100);
	return true;
}

/* The completions of so many messages, both of each, and no others. */
static bool sent(struct scene *s, int count)
{
	u64 next[2] = { s->wr_id - count, s->wr_id - count };
	struct ib_wc wc;

	for (int i = 0; i < 2 * count; i++)
		if (!EXPECT(ib_poll_cq(s->cq, 1, &wc) == 1) ||
		    !EXPECT(wc.status == IB_WC_SUCCESS) ||
		    !EXPECT(wc.wr_id == ++next[wc.qp == s->qp[1]]))
			return false;
	return EXPECT(!ib_poll_cq(s->cq, 1, &wc));
}

/*
 * In RESET requests end without completions (IBA volume 1, 10.3.1). Those that
 * were not polled by then are not seen in the new life, and give back no slots
 * of it.
 */
bool before_reset(struct scene *s)
{
	const int before = 8, after = 10;

	if (!send_empty(s, before) || !EXPECT(!reconnect(s)) ||
	    !send_empty(s, after) || !sent(s, after))
		return false;
	for (int i = 0; i < SCENE_DEPTH; i++)
		if (!EXPECT(!post_empty_write(s)))
			return false;
	return EXPECT(post_empty_write(s) == -ENOMEM);
}

/* As many messages as the completion queue has slots, for nobody to poll. */
static bool fill(struct scene *s)
{
	for (int i = 0; i < SCENE_DEPTH; i++)
		if (!EXPECT(!post_empty_write(s)))
			return false;
	msleep(100);
	return EXPECT(!READ_ONCE(s->overrun));
}

/*
 * Nor do such completions keep slots of the completion queue, and so it is when
 * their queue pair is destroyed.
 */
bool stale_slots(struct scene *s)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };
	struct ib_recv_wr recv = {};

	if (!fill(s) || !EXPECT(!reconnect(s)) || !fill(s))
		return false;
	ib_destroy_qp(s->qp[0]);
	s->qp[0] = NULL;
	/* Each of them completes with a flush error. */
	for (int i = 0; i < SCENE_DEPTH; i++)
		if (!EXPECT(!ib_post_recv(s->qp[1], &recv, NULL)))
			return false;
	if (!EXPECT(!ib_modify_qp(s->qp[1], &attr, IB_QP_STATE)))
		return false;
	msleep(100);
	return EXPECT(!READ_ONCE(s->overrun));
}
