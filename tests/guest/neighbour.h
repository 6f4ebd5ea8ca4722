/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A well-behaved process beside a hostile one: it moves data between two queue
 * pairs of its own, and checks every byte of it, for as long as it is left
 * alone.
 */
#ifndef TESTS_NEIGHBOUR_H
#define TESTS_NEIGHBOUR_H

#include "common.h"

/* In memory that both processes have. */
struct neighbour {
	volatile bool stop;
	volatile uint64_t transfers;	/* done and found right */
	volatile uint64_t longest_us;	/* that one of them took */
	struct peer peer;	/* one of its QPs, and its memory */
	uint32_t lkey;
	int ready[2];
	pid_t pid;
};

struct neighbour *neighbour_start(void);
/* Fails unless so many transfers are done within the time one may wait. */
void neighbour_await(struct neighbour *n, uint64_t transfers);
/* Ends it; fails if it found anything wrong. */
void neighbour_stop(struct neighbour *n);

#endif /* TESTS_NEIGHBOUR_H */
