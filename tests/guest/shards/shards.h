/* SPDX-License-Identifier: GPL-2.0 */
/* Programs, each a context of its own, and the cases about their numbers. */
#ifndef TESTS_SHARDS_H
#define TESTS_SHARDS_H

#include "../common.h"

#include <pthread.h>

/* A program: its device, and two ends of its own that are connected. */
struct program {
	struct device d;
	struct end a, b;
	struct region mine, theirs;
	struct peer to;
	/* An end for a peer in another program. */
	struct end far;
	struct region mail;
	pthread_t thread;
	_Atomic bool stop;
	_Atomic long done;
};

void program_open(struct program *p, enum ibv_qp_type far_type);
void program_close(struct program *p);
/* Sends from one program to the other one and back, and compares. */
void exchange(struct program *one, struct program *other, uint64_t seed);
/* An address handle for the device itself; NULL and errno if there is none. */
struct ibv_ah *to_itself(struct device *d);

void one_of_each_in_all(void);
void numbers_are_for_everybody(void);
void numbers_are_used_again(void);

#endif
