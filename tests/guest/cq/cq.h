/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TESTS_CQ_H
#define TESTS_CQ_H

#include "../common.h"

/*
 * An end in RTS that completes to a queue of its own for both directions, and
 * may have so many send requests more than that has slots. Returns how many
 * slots there are.
 */
int one_cq_open(struct device *d, struct end *e, int more);
void one_cq_close(struct device *d, struct end *e);
void write_signalled(struct end *e, int count);
/* Of `fit` completions that were written before an overrun, those that are there yet are true. */
void expect_earlier(struct ibv_cq *cq, int fit);

/* Each table is that of a file; the last case has no name. */
extern const struct test_case overrun_cases[];
extern const struct test_case timestamp_cases[];

#endif /* TESTS_CQ_H */
