// SPDX-License-Identifier: GPL-2.0
/*
 * Kernel users that have nothing to do with each other: each is a thread with
 * queue pairs of its own, which keeps RDMA WRITEs outstanding and sleeps until
 * one has ended.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/completion.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "scene.h"

/* Requests that a thread has outstanding. */
#define OUTSTANDING 16

struct stream {
	struct ib_device *dev;
	size_t bytes;
	int ms, scenes;
	/* The outcome. */
	u64 messages;
	int result;
	struct completion ended;
};

static int post_write(struct scene *s)
{
	struct ib_sge sge;
	struct ib_rdma_wr wr = whole(s, IB_WR_RDMA_WRITE, &sge);

	wr.wr.wr_id = ++s->wr_id;
	wr.wr.send_flags = IB_SEND_SIGNALED;
	return ib_post_send(s->qp[0], &wr.wr, NULL);
}

/* Ends when `ms` are over and all that was posted, one request at least, is complete. */
static int write_for(struct scene *s, int ms, u64 *messages)
{
	ktime_t end = ktime_add_ms(ktime_get(), ms);
	ktime_t last = ktime_add_ms(end, 20 * MSEC_PER_SEC);
	int outstanding = 0, found;
	bool begins = true;
	struct ib_wc wc;

	while (outstanding || begins || ktime_before(ktime_get(), end)) {
		while (outstanding < OUTSTANDING &&
		       (begins || ktime_before(ktime_get(), end))) {
			if (!EXPECT(!post_write(s)))
				return -EIO;
			begins = false;
			outstanding++;
		}
		for (found = 0; outstanding && ib_poll_cq(s->cq, 1, &wc) > 0; found++) {
			if (!EXPECT(wc.status == IB_WC_SUCCESS))
				return -EIO;
			outstanding--;
			++*messages;
		}
		if (!EXPECT(ktime_before(ktime_get(), last)))
			return -ETIMEDOUT;
		if (found || !outstanding)
			continue;
		if (ib_req_notify_cq(s->cq, IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS) <= 0)
			wait_for_completion_timeout(&s->event, HZ);
	}
	return 0;
}

static int write_in_scene(struct stream *stream)
{
	struct scene s = { .dev = stream->dev, .bytes = stream->bytes };
	int ret = scene_make(&s);

	if (!ret && open_memory(&s, &s.theirs, IB_ACCESS_REMOTE_WRITE | IB_ACCESS_LOCAL_WRITE))
		ret = -EIO;
	if (!ret)
		ret = write_for(&s, stream->ms, &stream->messages);
	if (!ret && !EXPECT(!memcmp(s.mine.data, s.theirs.data, s.bytes)))
		ret = -EIO;
	scene_free(&s);
	return ret;
}

static int stream(void *data)
{
	struct stream *stream = data;

	for (int i = 0; i < stream->scenes && !stream->result; i++)
		stream->result = write_in_scene(stream);
	complete(&stream->ended);
	return 0;
}

s64 run_streams(struct ib_device *dev, int threads, int scenes, size_t bytes, int ms)
{
	struct stream *streams = kcalloc(threads, sizeof(*streams), GFP_KERNEL);
	struct task_struct *task;
	s64 messages = 0;
	int started, ret = 0;

	if (!streams)
		return -ENOMEM;
	for (started = 0; started < threads; started++) {
		struct stream *one = &streams[started];

		*one = (struct stream){
			.dev = dev, .bytes = bytes, .ms = ms, .scenes = scenes,
		};
		init_completion(&one->ended);
		task = kthread_run(stream, one, KBUILD_MODNAME "/%d", started);
		if (IS_ERR(task)) {
			ret = PTR_ERR(task);
			break;
		}
	}
	for (int i = 0; i < started; i++) {
		wait_for_completion(&streams[i].ended);
		ret = ret ?: streams[i].result;
		messages += streams[i].messages;
	}
	kfree(streams);
	return ret ?: messages;
}
