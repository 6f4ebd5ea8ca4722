/* SPDX-License-Identifier: GPL-2.0 */
/* Threads of one program, each with queues that it has made itself. */
#ifndef TESTS_THREADS_H
#define TESTS_THREADS_H

#include "../common.h"

#include <pthread.h>

#define ACCESS (ACCESS_ALL | IBV_ACCESS_REMOTE_READ)

enum {
	THREADS = 4,
	MOST = 64,
	PART = 8192,	/* of a region, for each of two sides of a thread */
};

/* Bytes of a region. */
struct place {
	uint8_t *data;
	struct ibv_mr *mr;
};

struct team;

/* A thread: a connection of its own, and memory that it has registered. */
struct worker {
	struct team *team;
	unsigned int number;
	pthread_t thread;
	struct device d;
	struct end a, b;
	struct region own;
	void (*run)(struct worker *w);
	uint64_t seed;
	_Atomic long done;
};

/* The threads, and a region that was registered before they began. */
struct team {
	struct device d;
	struct region given;
	unsigned int count;
	pthread_barrier_t barrier;	/* theirs and the first thread's */
	_Atomic bool stop;
	struct worker w[MOST];
};

extern const struct end_config thread_end;

void team_open(struct team *t, unsigned int count);
void team_open_on(struct team *t, const struct device *d, unsigned int count);
/*
 * Each thread makes its ends and its region. When all have done so, they run,
 * and free them.
 */
void team_start(struct team *t, void (*run)(struct worker *w));
/* A moment that all threads and the first one come to. */
void team_meet(struct team *t);
/* Waits until each thread that is busy has done so many transfers more. */
void team_await(struct team *t, long transfers);
void team_join(struct team *t);
void team_close(struct team *t);
/* A team that is at work until `team_stop`. */
void team_busy(struct team *t, unsigned int count);
void team_stop(struct team *t);
/*
 * Each has a shard of its own, as far as there are processors; or the engine
 * is elsewhere.
 */
bool team_is_apart(struct team *t);
/* All queue pairs of the program are in one shard. */
void team_require_together(struct team *t);

/* Two places of a thread in a region for all. */
struct place side(const struct worker *w, const struct region *r, int side);
struct ibv_sge sge_at(struct place p, size_t len);
struct place place_of(const struct region *r, size_t offset);
/* WRITE, SEND and READ from one place to the other, and looks at the bytes. */
void transfer(struct end *a, struct end *b, struct place from, struct place to,
	      size_t len, uint64_t seed);
/* Transfers of a thread in the given region, in its own, and between them. */
void round_of(struct worker *w);
/* These until the team has to stop. */
void work(struct worker *w);
/* A WRITE that ends with an error; connects the ends anew. */
void refused(struct end *a, struct end *b, struct ibv_sge from,
	     struct place to, enum ibv_wc_status status);

/* memory.c */
void deregistered(void);
void deregistered_source(void);
void deregistered_sink(void);
void keys_used_again(void);
void domains_apart(void);
void atomics(void);

/* together.c */
void window(void);
void paged(void);
void registered_anew(void);
void device_memory(void);
void extended(void);

/* queues.c */
void crossed_queues(void);
void sent_here_received_there(void);
void receives_of_their_own(void);
void shared_receives(void);
void datagrams(void);
void events(void);
void unreliable(void);

/* program.c */
void killed(void);
void removed(void);
void imported(void);
void hostile(void);
void unanswered(void);

#endif /* TESTS_THREADS_H */
