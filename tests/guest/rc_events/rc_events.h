/* SPDX-License-Identifier: GPL-2.0 */
/* Connected ends whose completions raise events of one channel, and the cases. */
#ifndef TESTS_RC_EVENTS_H
#define TESTS_RC_EVENTS_H

#include "../common.h"

enum { LEN = 64 };

struct scene {
	struct device d;
	struct ibv_comp_channel *channel;
	struct end a, b;
	struct region r;
};

void scene_make(struct scene *s);
void scene_free(struct scene *s);

/* Whether there is an event, now or within so many milliseconds. */
bool event_waits(struct ibv_comp_channel *channel, int ms);
/* Takes the next event, which is this queue's. */
void expect_event(struct ibv_comp_channel *channel, struct ibv_cq *want);
/* Fails if there is one, or comes within a moment. */
void expect_no_event(struct ibv_comp_channel *channel);

/* A message from a to b, and its two completions. */
void message(struct scene *s, uint64_t wr_id, unsigned int flags);
void message_done(struct scene *s, uint64_t wr_id);

/* Each table is that of a file; the last case has no name. */
extern const struct test_case operation_cases[];
extern const struct test_case moderation_cases[];

#endif /* TESTS_RC_EVENTS_H */
