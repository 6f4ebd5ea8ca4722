/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The objects of a kernel user of an RDMA device: two queue pairs of one
 * protection domain that are connected to each other, and memory.
 */
#ifndef SCENE_H
#define SCENE_H

#include <linux/completion.h>
#include <linux/printk.h>
#include <linux/scatterlist.h>
#include <rdma/ib_verbs.h>

struct memory {
	u8 *data;
	struct scatterlist sg;
	struct ib_mr *mr;
};

/* Slots of each work queue, and of the completion queue. */
#define SCENE_DEPTH 128

/* Two queue pairs that are connected to each other. */
struct scene {
	struct ib_device *dev;
	const struct ib_gid_attr *gid;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp[2];
	/* Of so many bytes. */
	struct memory mine, theirs;
	size_t bytes;
	/* An event of the completion queue. */
	struct completion event;
	/* Whether a work item has told of it. */
	bool told_by_work;
	/* The completion queue had no slot for a completion. */
	bool overrun;
	u64 wr_id;
};

#define EXPECT(cond)                                                         \
	({                                                                   \
		bool holds_ = (cond);                                        \
		if (!holds_)                                                 \
			pr_err("# line %d: not true: %s\n", __LINE__, #cond); \
		holds_;                                                      \
	})

/* Makes the scene whose dev and bytes are set. Free it if this fails, too. */
int scene_make(struct scene *s);
void scene_free(struct scene *s);

/* Connects the queue pairs again, from whatever state they are in. */
int reconnect(struct scene *s);

/* A request between the whole of mine and theirs. Its list is `sge`, which it fills. */
struct ib_rdma_wr whole(struct scene *s, enum ib_wr_opcode opcode, struct ib_sge *sge);

/* The status of the request, or -1 if its completion does not come. */
int post(struct scene *s, struct ib_send_wr *wr);

/* The same of a request that gives the memory a new key. */
int open_memory(struct scene *s, struct memory *m, int access);

/*
 * Has threads write by scenes of their own, one after the other, each for so
 * many milliseconds. Returns how many messages have arrived, or an error.
 */
s64 run_streams(struct ib_device *dev, int threads, int scenes, size_t bytes, int ms);

/* A case of freed.c. */
bool freed_beside_event(struct scene *s);

/* Cases of queues.c. */
bool full_queues(struct scene *s);
bool before_reset(struct scene *s);
bool stale_slots(struct scene *s);

#endif
