// SPDX-License-Identifier: GPL-2.0
/*
 * Completion queues that the RDMA core polls, freed while an event of theirs is
 * about to come. A debug kernel reports what the event does to freed memory.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/random.h>
#include <linux/sched.h>

#include "scene.h"

#define ROUNDS 200

static void flushed(struct ib_cq *cq, struct ib_wc *wc)
{
}

static struct ib_cqe cqe = { .done = flushed };

/* One completion, of a receive request that is flushed. */
static int complete_one(struct ib_qp *qp)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_INIT, .port_num = 1 };
	struct ib_recv_wr recv = { .wr_cqe = &cqe };
	int ret = ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_PKEY_INDEX |
			       IB_QP_PORT | IB_QP_ACCESS_FLAGS);

	ret = ret ?: ib_post_recv(qp, &recv, NULL);
	attr.qp_state = IB_QPS_ERR;
	return ret ?: ib_modify_qp(qp, &attr, IB_QP_STATE);
}

/* When the queue began to be freed, and when it was, in microseconds from its completion. */
struct span {
	s64 from, to;
};

/*
 * Frees a queue whose event comes about as long after its completion as the last
 * one took to be freed.
 */
static int free_one(struct scene *s, struct span *last)
{
	u32 us = last->from + get_random_u32_below(last->to - last->from + 1);
	struct ib_qp_init_attr init = {
		.cap = { 1, 1, 1, 1, 0 },
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.qp_type = IB_QPT_RC,
	};
	struct ib_cq *cq = ib_alloc_cq(s->dev, NULL, 4, 0, IB_POLL_WORKQUEUE);
	struct ib_qp *qp;
	ktime_t begin;
	int ret;

	if (IS_ERR(cq))
		return PTR_ERR(cq);
	init.send_cq = cq;
	init.recv_cq = cq;
	qp = ib_create_qp(s->pd, &init);
	if (IS_ERR(qp)) {
		ib_free_cq(cq);
		return PTR_ERR(qp);
	}
	ret = rdma_set_cq_moderation(cq, 4, min(us, U16_MAX));
	ret = ret ?: complete_one(qp);
	begin = ktime_get();
	ib_destroy_qp(qp);
	last->from = ktime_us_delta(ktime_get(), begin);
	ib_free_cq(cq);
	last->to = ktime_us_delta(ktime_get(), begin);
	return ret;
}

/* Has the device do one thing after the other, for which the others wait. */
static int keep_busy(void *scene)
{
	struct scene *s = scene;
	struct ib_sge sge;
	struct ib_rdma_wr wr = whole(s, IB_WR_RDMA_READ, &sge);
	int ret = 0;

	while (!kthread_should_stop()) {
		ret = ret ?: post(s, &wr.wr);
		cond_resched();
	}
	return ret;
}

/*
 * Once ib_free_cq() has cancelled the work that polls, no event may queue it:
 * the queue is freed without another look.
 */
bool freed_beside_event(struct scene *s)
{
	struct span last = {};
	struct task_struct *task;
	int ret = 0;

	task = kthread_run(keep_busy, s, KBUILD_MODNAME "/busy");
	if (!EXPECT(!IS_ERR(task)))
		return false;
	for (int i = 0; !ret && i < ROUNDS; i++)
		ret = free_one(s, &last);
	ret = kthread_stop(task) ?: ret;
	return EXPECT(!ret);
}
