/* SPDX-License-Identifier: GPL-2.0 */
/* The tools of a hostile process's attacks. */
#ifndef TESTS_HOSTILE_H
#define TESTS_HOSTILE_H

#include "../neighbour.h"
#include "../raw.h"

enum {
	PAGE = 4096,
	DEPTH = 64,
	SGES = 4,
	MEMORY = 256 << 10,
	STORMERS = 3,		/* threads of a storm */
};

/* How long an attack lasts that has no end of its own. */
#define ATTACK_US (15000ull * opt.slow)

/* A queue pair with its buffer as the kernel laid it out. */
struct prey {
	struct end e;
	uint8_t *sq, *rq;
	uint32_t sq_stride, rq_stride;	/* bytes */
	struct ferrule_qp_ctrl *ctrl;
	size_t len;			/* of the mapping, which begins with sq */
};

struct hostile {
	const struct neighbour *n;
	struct device d;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct prey a, b;		/* connected with each other */
	struct region r;
	struct raw_context raw;
	struct ferrule_cq_ctrl *cq_ctrl;
	struct mapping map[16];
	unsigned int maps;
	uint64_t random;
	uint64_t until;			/* us */
	volatile uint32_t passing_key;	/* of a region that comes and goes */
};

/* With connected queue pairs and memory, and a time until which to attack. */
void hostile_make(struct hostile *h);
/* Both queue pairs through RESET, connected anew. */
void connect_prey(struct hostile *h);
bool on(struct hostile *h);
/* Threads that attack until the time is over. */
void in_threads(struct hostile *h, void *(*storm)(void *));

uint64_t rnd(struct hostile *h);
uint32_t below(struct hostile *h, uint32_t limit);
/* Numbers at which something begins or ends, and others. */
uint64_t number(struct hostile *h);
/* Keys and addresses of its own, of the neighbour, and of nobody. */
uint32_t a_key(struct hostile *h);
uint64_t an_address(struct hostile *h);
/* A request that is right in most fields, so that it gets far. */
void send_with_nonsense(struct hostile *h, uint8_t *slot);
void receive_with_nonsense(struct hostile *h, uint8_t *slot);

/* rings.c */
void attack_requests(struct hostile *h);
void attack_garbage(struct hostile *h);
void attack_jumps(struct hostile *h);
void attack_changes(struct hostile *h);
void attack_doorbells(struct hostile *h);
void attack_arming(struct hostile *h);
/* objects.c */
void attack_keys(struct hostile *h);
void attack_stranger(struct hostile *h);
void attack_handles(struct hostile *h);
void attack_commands(struct hostile *h);
void attack_ring_regions(struct hostile *h);
void attack_regions(struct hostile *h);
void attack_paging(struct hostile *h);
void attack_bulk(struct hostile *h);
void attack_privileges(struct hostile *h);
void attack_memlock(struct hostile *h);
/* xrc.c */
void attack_xrc(struct hostile *h);
/* memory.c */
void attack_device_memory(struct hostile *h);
void attack_buffers(struct hostile *h);
/* queues.c */
void attack_resize(struct hostile *h);
void attack_frames(struct hostile *h);
/* process.c */
void attack_mappings(struct hostile *h);
void attack_fork(struct hostile *h);
void attack_poke(struct hostile *h);

#endif /* TESTS_HOSTILE_H */
