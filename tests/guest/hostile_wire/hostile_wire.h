/* SPDX-License-Identifier: GPL-2.0 */
/* The knowledge and the aims of a hostile machine. */
#ifndef TESTS_HOSTILE_WIRE_H
#define TESTS_HOSTILE_WIRE_H

#include "../neighbour.h"

enum {
	TYPES = 3,		/* of queue pairs */
	BATCH = 32,
	MEMORY = 3000,
};

struct good {
	uint8_t bytes[512];	/* from the base transport header on */
	size_t len;
};

/* A queue pair whose peer is the hostile machine. */
struct target {
	struct end e;
	struct region inbox;	/* what it receives and reads into */
	struct region open;	/* what the peer may read and write */
	struct peer peer;
	unsigned long broken;	/* times that it was, by rights */
};

struct scene {
	uint64_t random;
	struct good good[128];
	unsigned int goods;
	/* By version of IP: 4, 6. Addresses as GIDs. */
	union ibv_gid hostile[2];
	struct device d[2];
	struct target targets[2][TYPES];
	int socket[2];
	struct neighbour *n;
	uint32_t sq_psn, rq_psn;	/* of the neighbour */
};

/* packets.c */

uint32_t below(struct scene *s, uint32_t bound);
bool one_in(struct scene *s, uint32_t n);
void read_good(struct scene *s);
/* The report of the engine tells where the neighbour is. */
void look_at_neighbour(struct scene *s);
void send_batch(struct scene *s, bool six);

/* targets.c */

void target_make(struct scene *s, bool six, struct target *t,
			enum ibv_qp_type type);
void tend(struct scene *s, struct target *t);
/* Registered is less than the memory around it. */
void check_memory(struct target *t);

#endif /* TESTS_HOSTILE_WIRE_H */
