/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The objects of libferrule and the functions that libibverbs calls. */
#ifndef FERRULE_H
#define FERRULE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <ccan/array_size.h>
#include <ccan/container_of.h>
#include <infiniband/driver.h>
#include <rdma/ferrule-abi.h>

#include "doorbell.h"
#include "lock.h"
#include "qp_table.h"

struct ferrule_context {
	struct verbs_context verbs;
	struct ferrule_doorbell *db;	/* the first; others are behind */
	struct ferrule_qp_table qps;
	struct {
		pthread_mutex_t lock;
		bool may_add;	/* the device may have more doorbells */
		/* Queue pairs have completion queues of two threads. */
		atomic_bool share;
	} threads;
	bool yields;	/* threads that poll in vain call sched_yield() */
	/* Of the device's clock, against CLOCK_MONOTONIC_RAW; nanoseconds. */
	atomic_ullong clock_ahead;
	atomic_ullong clock_compared;	/* when; 0: never */
};

/*
 * The resources that a program's allocator is asked for, in the lower half of
 * its type.
 */
enum ferrule_resource {
	FERRULE_RESOURCE_CQ = 1,
	FERRULE_RESOURCE_QP,
	FERRULE_RESOURCE_SRQ,
};

/* The parent domain that an object was made with, if it was. */
struct ferrule_origin {
	struct ferrule_pd *parent;
	bool theirs;	/* the object lies in memory of the program's allocator */
};

/* A completion queue has one, and after resizing more until those are empty. */
struct ferrule_cq_ring {
	const struct ferrule_cqe *slots;
	size_t size;		/* bytes */
	uint32_t depth;		/* slots; a power of two */
	uint64_t base;		/* index of the completion that begins it */
	struct ferrule_cq_ring *next;
};

struct ferrule_cq {
	struct verbs_cq verbs;
	struct ferrule_origin origin;
	struct ferrule_doorbell *db;	/* of those who send */
	struct ferrule_lock lock;
	/* Where completions are taken, up to those of ring.next. */
	struct ferrule_cq_ring ring;
	struct ferrule_cq_ctrl *ctrl;
	size_t ctrl_size;	/* bytes */
	/* One resizes at a time; taken before lock. */
	pthread_mutex_t resizing;
	/*
	 * Completions taken since creation: the index of the next one, of which
	 * the engine knows the lower half.
	 */
	uint64_t consumer;
	/* Polls in a row that have found nothing; under lock. */
	unsigned int empty_polls;
	/* The number that the next arming carries. */
	atomic_uint arm_sn;
	/* The device is gone, and polling ends the work that it has left. */
	bool flushing;
	/* The XRC shared receive queues that complete here; under lock. */
	struct ferrule_srq *xrc_srqs;
	/* The completion taken last, for the read functions. */
	struct ferrule_cqe cqe;
};

/* A send, a receive or a shared receive queue. */
struct ferrule_queue {
	struct ferrule_lock lock;
	uint8_t *slots;
	__le32 *producer_word;	/* in struct ferrule_qp_ctrl */
	uint32_t mask;		/* slots less one */
	uint32_t stride;	/* bytes a slot */
	uint32_t max_wr;	/* 0: none, or a shared receive queue */
	uint32_t max_sge;
	uint32_t producer;
	/*
	 * All slots before this index are free. Polling stores it, under the
	 * lock of the completion queue, and posting reads it, under the lock
	 * of this one. A reset stores it when no completion does any more. Of a
	 * shared receive queue the engine tells it, and posting stores it, too.
	 */
	atomic_uint consumer;
	/*
	 * Completions before this one of the completion queue are of the life
	 * before the last reset. Under the lock of the completion queue.
	 */
	uint64_t first_cqe;
};

struct ferrule_qp {
	struct verbs_qp verbs;
	struct ferrule_origin origin;
	struct ferrule_doorbell *db;
	struct ferrule_queue sq;
	struct ferrule_queue rq;
	uint32_t gen;
	uint32_t max_inline;	/* bytes */
	bool sq_sig_all;
	const struct ferrule_qp_ctrl *ctrl;
	void *buf;
	size_t buf_size;	/* bytes */
	/* Between ibv_wr_start() and its end, under sq.lock. */
	struct {
		struct ferrule_send_wqe *wqe;	/* that setters add to */
		bool may_inline;
		uint32_t next;
		int err;
	} wr;
};

struct ferrule_srq {
	struct verbs_srq verbs;
	struct ferrule_origin origin;
	struct ferrule_doorbell *db;	/* whose engine has it; none of XRC */
	struct ferrule_queue rq;
	const struct ferrule_srq_ctrl *ctrl;
	void *buf;
	size_t buf_size;	/* bytes */
	struct ferrule_srq *next;	/* of ferrule_cq.xrc_srqs */
};

struct ferrule_ah {
	struct ibv_ah ibv_ah;
	uint32_t number;
};

static inline struct ferrule_context *to_fctx(struct ibv_context *context)
{
	return container_of(context, struct ferrule_context, verbs.context);
}

static inline struct ferrule_cq *to_fcq(struct ibv_cq *cq)
{
	return container_of(cq, struct ferrule_cq, verbs.cq);
}

static inline struct ferrule_cq *to_fcq_ex(struct ibv_cq_ex *cq)
{
	return container_of(cq, struct ferrule_cq, verbs.cq_ex);
}

static inline struct ferrule_qp *to_fqp(struct ibv_qp *qp)
{
	return container_of(qp, struct ferrule_qp, verbs.qp);
}

static inline struct ferrule_qp *to_fqp_ex(struct ibv_qp_ex *qp)
{
	return container_of(qp, struct ferrule_qp, verbs.qp_ex);
}

static inline struct ferrule_srq *to_fsrq(struct ibv_srq *srq)
{
	return container_of(srq, struct ferrule_srq, verbs.srq);
}

static inline struct ferrule_ah *to_fah(struct ibv_ah *ah)
{
	return container_of(ah, struct ferrule_ah, ibv_ah);
}

/* Neither side of XRC has a receive queue, and the target has no queue at all. */
static inline bool ferrule_is_xrc(const struct ibv_qp *qp)
{
	return qp->qp_type == IBV_QPT_XRC_SEND ||
	       qp->qp_type == IBV_QPT_XRC_RECV;
}

static inline void *queue_slot(const struct ferrule_queue *queue,
			       uint32_t index)
{
	return queue->slots + (size_t)(index & queue->mask) * queue->stride;
}

/*
 * The requests before this index that are not retired. Acquire: the engine has
 * read a slot before it wrote the completion, which was read before the index
 * that is loaded here was stored.
 */
static inline uint32_t queue_outstanding(struct ferrule_queue *queue,
					 uint32_t index)
{
	return index - atomic_load_explicit(&queue->consumer,
					    memory_order_acquire);
}

/* Says whether a request at this index would overwrite one that is not retired. */
static inline bool queue_is_full(struct ferrule_queue *queue, uint32_t index)
{
	return queue_outstanding(queue, index) >= queue->max_wr;
}

/*
 * The program waits for completions of this queue from here on. They may be of
 * queue pairs whose sends complete elsewhere.
 */
static inline void kick_deferred(struct ferrule_cq *cq)
{
	struct ibv_context *context = cq->verbs.cq.context;
	struct ferrule_context *ctx = to_fctx(context);
	struct ferrule_doorbell *db;

	if (likely(!atomic_load_explicit(&ctx->threads.share,
					 memory_order_relaxed))) {
		ferrule_db_kick_deferred(cq->db, context->cmd_fd);
		return;
	}

	for (db = ctx->db; db;
	     db = atomic_load_explicit(&db->next, memory_order_acquire))
		ferrule_db_kick_deferred(db, context->cmd_fd);
}

/* Doorbells: threads.c */
struct ferrule_doorbell *
ferrule_map_doorbells(int cmd_fd,
		      const struct ferrule_alloc_ucontext_resp *resp);
void ferrule_unmap_doorbells(struct ferrule_doorbell *db);
void ferrule_threads_init(struct ferrule_context *ctx);
void ferrule_threads_free(struct ferrule_context *ctx);
/* Those for a completion or shared receive queue that the thread makes. */
struct ferrule_doorbell *ferrule_take_doorbells(struct ferrule_context *ctx);
void ferrule_leave_doorbells(struct ferrule_context *ctx,
			     struct ferrule_doorbell *db);

/* Device and port, memory regions and windows: verbs.c */
int ferrule_query_device(struct ibv_context *context,
			 const struct ibv_query_device_ex_input *input,
			 struct ibv_device_attr_ex *attr, size_t attr_size);
int ferrule_query_port(struct ibv_context *context, uint8_t port,
		       struct ibv_port_attr *attr);
struct ibv_mr *ferrule_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			      uint64_t hca_va, int access);
struct ibv_mr *ferrule_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
				     size_t length, uint64_t iova, int fd,
				     int access);
int ferrule_rereg_mr(struct verbs_mr *mr, int flags, struct ibv_pd *pd,
		     void *addr, size_t length, int access);
int ferrule_dereg_mr(struct verbs_mr *mr);
struct ibv_mr *ferrule_import_mr(struct ibv_pd *pd, uint32_t mr_handle);
void ferrule_unimport_mr(struct ibv_mr *mr);
struct ibv_mw *ferrule_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int ferrule_dealloc_mw(struct ibv_mw *mw);

/* The clock of completions, and the time of day of one: clock.c */
int ferrule_query_rt_values(struct ibv_context *context,
			    struct ibv_values_ex *values);
uint64_t ferrule_wall_ns(struct ferrule_context *ctx, uint64_t timestamp);

/* Domains, and the memory of objects: pd.c */
struct ibv_pd *ferrule_alloc_pd(struct ibv_context *context);
int ferrule_dealloc_pd(struct ibv_pd *pd);
struct ibv_pd *ferrule_import_pd(struct ibv_context *context,
				 uint32_t pd_handle);
void ferrule_unimport_pd(struct ibv_pd *pd);
struct ibv_td *ferrule_alloc_td(struct ibv_context *context,
				struct ibv_td_init_attr *attr);
int ferrule_dealloc_td(struct ibv_td *td);
struct ibv_pd *
ferrule_alloc_parent_domain(struct ibv_context *context,
			    struct ibv_parent_domain_init_attr *attr);
bool ferrule_is_parent_domain(struct ibv_pd *pd);
/* Says whether objects of the domain are used from one thread; of none, no. */
bool ferrule_single_threaded(struct ibv_pd *pd);
/* Zeroed memory for an object of a domain, or of none; NULL with errno. */
void *ferrule_alloc_object(struct ibv_pd *pd, size_t size,
			   enum ferrule_resource resource,
			   struct ferrule_origin *origin);
void ferrule_free_object(void *object, enum ferrule_resource resource,
			 struct ferrule_origin origin);

/* Device memory: dm.c */
struct ibv_dm *ferrule_alloc_dm(struct ibv_context *context,
				struct ibv_alloc_dm_attr *attr);
int ferrule_free_dm(struct ibv_dm *dm);
struct ibv_dm *ferrule_import_dm(struct ibv_context *context, uint32_t handle);
void ferrule_unimport_dm(struct ibv_dm *dm);
struct ibv_mr *ferrule_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm,
				 uint64_t dm_offset, size_t length,
				 unsigned int access);

/* Flow steering: flow.c */
struct ibv_flow *ferrule_create_flow(struct ibv_qp *qp,
				     struct ibv_flow_attr *attr);
int ferrule_destroy_flow(struct ibv_flow *flow);

/* Address handles: ah.c */
struct ibv_ah *ferrule_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
int ferrule_destroy_ah(struct ibv_ah *ah);

/* Completion queues: cq.c */
struct ibv_cq *ferrule_create_cq(struct ibv_context *context, int cqe,
				 struct ibv_comp_channel *channel,
				 int comp_vector);
struct ibv_cq_ex *ferrule_create_cq_ex(struct ibv_context *context,
				       struct ibv_cq_init_attr_ex *attr);
int ferrule_resize_cq(struct ibv_cq *cq, int cqe);
int ferrule_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
int ferrule_destroy_cq(struct ibv_cq *cq);
int ferrule_req_notify_cq(struct ibv_cq *cq, int solicited_only);
void ferrule_cq_event(struct ibv_cq *cq);

/* Polling: poll.c */
int ferrule_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);
uint64_t ferrule_cq_end(const struct ferrule_cq *cq);
void ferrule_cq_leave_ring(struct ferrule_cq *cq);
void ferrule_cq_drop_stale(struct ferrule_cq *cq);
void ferrule_set_poll_ops(struct ibv_cq_ex *cq, uint64_t wc_flags);

/* Shared receive queues: srq.c */
struct ibv_srq *ferrule_create_srq(struct ibv_pd *pd,
				   struct ibv_srq_init_attr *attr);
struct ibv_srq *ferrule_create_srq_ex(struct ibv_context *context,
				      struct ibv_srq_init_attr_ex *attr);
int ferrule_get_srq_num(struct ibv_srq *srq, uint32_t *srq_num);
int ferrule_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr,
		       int attr_mask);
int ferrule_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int ferrule_destroy_srq(struct ibv_srq *srq);

/* Domains of XRC, and the targets, which lie in the kernel alone: xrc.c */
struct ibv_xrcd *ferrule_open_xrcd(struct ibv_context *context,
				   struct ibv_xrcd_init_attr *attr);
int ferrule_close_xrcd(struct ibv_xrcd *xrcd);
struct ibv_qp *ferrule_create_target(struct ibv_context *context,
				     struct ibv_qp_init_attr_ex *attr);
struct ibv_qp *ferrule_open_qp(struct ibv_context *context,
			       struct ibv_qp_open_attr *attr);
int ferrule_destroy_target(struct ibv_qp *qp);

/* Rings of requests: queue.c */
void ferrule_queue_init(struct ferrule_queue *queue, bool single_threaded,
			void *slots, uint32_t depth, uint32_t stride,
			__le32 *producer_word, uint32_t max_wr,
			uint32_t max_sge);

/* Queue pairs: qp.c */
struct ibv_qp *ferrule_create_qp(struct ibv_pd *pd,
				 struct ibv_qp_init_attr *attr);
struct ibv_qp *ferrule_create_qp_ex(struct ibv_context *context,
				    struct ibv_qp_init_attr_ex *attr);
int ferrule_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr,
		      int attr_mask);
int ferrule_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask,
		     struct ibv_qp_init_attr *init_attr);
int ferrule_destroy_qp(struct ibv_qp *qp);

/* Posting: send.c, send_wr.c, recv.c */
int ferrule_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		      struct ibv_send_wr **bad_wr);
int ferrule_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw,
		    struct ibv_mw_bind *bind);
int ferrule_set_send_ops(struct ferrule_qp *qp, enum ibv_qp_type type,
			 uint64_t ops);
int ferrule_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		      struct ibv_recv_wr **bad_wr);
int ferrule_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			  struct ibv_recv_wr **bad_wr);

#endif
