/* SPDX-License-Identifier: GPL-2.0 */
/* A shared receive queue, those who take from it, and the cases. */
#ifndef TESTS_SRQ_H
#define TESTS_SRQ_H

#include "../common.h"

enum { LEN = 64, PAIRS = 3 };

/* One of at least these sizes; granted, if there is one, gets what it has. */
struct ibv_srq *srq_make(struct device *d, uint32_t max_wr, uint32_t max_sge,
			 struct ibv_srq_attr *granted);
/* Returns 0 or an errno value. */
int try_post(struct ibv_srq *srq, uint64_t wr_id, struct ibv_sge *sge,
	     int num_sge);
void post(struct ibv_srq *srq, uint64_t wr_id, const struct region *r,
	  size_t offset, size_t len);

/* Senders, and receivers that share a queue. */
struct scene {
	struct device d;
	struct ibv_srq *srq;
	struct end from[PAIRS], to[PAIRS];
	struct region r;
};

void scene_make(struct scene *s, const struct end_config *receiver);
void scene_free(struct scene *s);

/*
 * Posts so many requests from this number on, as fast as there are slots; the
 * memory is the scene's.
 */
struct poster {
	struct scene *s;
	uint64_t first, count;
	pthread_t thread;
};

void poster_start(struct poster *p);
void poster_join(struct poster *p);

/* Each table is that of a file; the last case has no name. */
extern const struct test_case posting_cases[];
extern const struct test_case resize_cases[];

#endif /* TESTS_SRQ_H */
