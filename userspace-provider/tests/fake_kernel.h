/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A kernel module and an engine small enough to test the provider against.
 *
 * fake_kernel.c and fake_calls.c take the place of libibverbs and of the kernel
 * behind it: the command file is a memfd, and rings and doorbells are pages of
 * it. The tests do the engine's part by the functions below, which follow
 * <rdma/ferrule-abi.h> and share no code with the provider.
 */
#ifndef FERRULE_FAKE_KERNEL_H
#define FERRULE_FAKE_KERNEL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <infiniband/driver.h>
#include <rdma/ferrule-abi.h>

/* Not assert(), which a build may leave out. */
#define CHECK(_what)                                                           \
	do {                                                                   \
		if (!(_what)) {                                                \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__,     \
				#_what);                                       \
			exit(1);                                               \
		}                                                              \
	} while (0)

#define FAKE_MAX_CQ 8
#define FAKE_MAX_QP 16
#define FAKE_MAX_SRQ 4
#define FAKE_MAX_THREADS 3
/* The doorbells of a thread have this number, and those behind. */
#define FAKE_FIRST_THREAD 17
/* Those of a context that is imported. */
#define FAKE_IMPORT 3

/* The words that user space and the engine write about doorbells. */
struct fake_areas {
	struct ferrule_db *db;
	uint64_t *leaf;
	struct ferrule_status *status;
	uint64_t *leaf_ack;
};

struct fake_cq {
	struct ferrule_cqe *ring;
	struct ferrule_cq_ctrl *ctrl;
	uint32_t depth;
	uint32_t base;
	uint32_t producer;
	uint32_t last_event;
	unsigned int events;
	uint32_t doorbells;	/* the number that the command had */
};

struct fake_qp {
	struct ibv_qp *ibqp;
	uint8_t *buf;
	struct ferrule_create_qp_resp layout;
	struct ferrule_qp_ctrl *ctrl;
	struct fake_cq *send_cq;
	struct fake_cq *recv_cq;
	uint32_t qp_num;
	uint32_t consumer;	/* of the send queue */
	uint64_t next_wr_id;	/* that the test expects */
	uint32_t doorbells;
};

struct fake_srq {
	uint32_t doorbells;
	uint8_t *buf;
	struct ferrule_create_srq_resp layout;
	struct ferrule_srq_ctrl *ctrl;
};

struct fake_kernel {
	const struct verbs_context_ops *ops;
	struct ibv_context *context;
	struct ferrule_db *db;
	uint64_t *leaf;
	struct ferrule_status *status;
	uint64_t *leaf_ack;
	struct fake_cq cqs[FAKE_MAX_CQ];
	struct fake_qp qps[FAKE_MAX_QP];
	struct fake_srq srqs[FAKE_MAX_SRQ];
	unsigned int num_pds;
	unsigned int num_cqs;
	unsigned int num_qps;
	unsigned int num_srqs;
	uint32_t next_qp_num;	/* that the next queue pair gets */
	uint32_t next_gen;
	struct fake_areas threads[FAKE_MAX_THREADS];
	unsigned int num_threads;
	unsigned int max_threads;	/* more are refused */
	unsigned int thread_requests;
	int thread_refusal;	/* errno value; 0: EOPNOTSUPP */
	int cq_refusal;		/* errno value of create_cq; 0: none */
	uint32_t unimported;	/* number of the doorbells given back */
	unsigned int kicks;
	uint32_t last_kick;	/* number of its doorbells */
	unsigned int yields;
	void (*on_kick)(void);
	uint64_t clock_ahead;	/* of this machine's raw clock */
	unsigned int clock_queries;
};

extern struct fake_kernel fake;

void fake_open(void);
/* The context that another program has opened. */
void fake_import(void);
void fake_close(void);
/* Doorbells, and where user space maps them. */
struct fake_areas fake_new_areas(struct ferrule_alloc_ucontext_resp *resp);
/* The same for the first ones of the context. */
void fake_new_first(struct ferrule_alloc_ucontext_resp *resp);

/* Handles are indices. */
static inline struct fake_cq *fake_cq(struct ibv_cq *cq)
{
	return &fake.cqs[cq->handle];
}

static inline struct fake_qp *fake_qp(struct ibv_qp *qp)
{
	return &fake.qps[qp->handle];
}

static inline struct ferrule_send_wqe *fake_send_slot(struct fake_qp *qp,
						      uint32_t index)
{
	return (void *)(qp->buf + qp->layout.sq_offset +
			index % qp->layout.sq_depth * qp->layout.sq_stride);
}

static inline struct ferrule_recv_wqe *fake_recv_slot(struct fake_qp *qp,
						      uint32_t index)
{
	return (void *)(qp->buf + qp->layout.rq_offset +
			index % qp->layout.rq_depth * qp->layout.rq_stride);
}

static inline struct fake_srq *fake_srq(struct ibv_srq *srq)
{
	return &fake.srqs[srq->handle];
}

static inline struct ferrule_recv_wqe *fake_srq_slot(struct fake_srq *srq,
						     uint32_t index)
{
	return (void *)(srq->buf + srq->layout.ring_offset +
			index % srq->layout.depth * srq->layout.stride);
}

/* Writes a completion; the phase is this function's to set. */
void fake_complete(struct fake_cq *cq, struct ferrule_cqe cqe);
/* A plain success of the send queue that retires what is before this index. */
void fake_complete_send(struct fake_qp *qp, uint64_t wr_id, uint32_t index);
/* Looks at the arm word as the engine does after a completion. */
void fake_event(struct fake_cq *cq, bool solicited);
/* Calls back for each queue pair that is rung, having acknowledged it. */
unsigned int fake_scan(void (*visit)(struct fake_qp *qp));
/* Visits the queue pairs that were rung since a count, and sets it. */
unsigned int fake_look(uint32_t *count, void (*visit)(struct fake_qp *qp));

#endif
