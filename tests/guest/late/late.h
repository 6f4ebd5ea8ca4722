/* SPDX-License-Identifier: GPL-2.0 */
/* How late a thread of real-time priority is. */
#ifndef TESTS_LATE_H
#define TESTS_LATE_H

#include "../common.h"

enum {
	/* The program rests between two kicks, so that others have a turn. */
	REST_US = 200,
	/* The requests of the longest list. */
	LIST = 1000,
};

/* watch.c */

uint64_t now_ns(void);
/*
 * Fails if a thread of real-time priority gets its processor later beside
 * 'step' than beside 'calm', each again and again, by more than so many
 * nanoseconds, in 99 of 100 times; or if others have its processor for much
 * longer then, while it works.
 */
void judge(void (*calm)(void *), void (*step)(void *), void *arg, uint64_t most_ns);

/* late.c */

/* As many system calls as the loads make, without the device. */
void system_calls(void *arg);

/* lists.c */

/* A list of WRITEs of an entry to a place in the same region. The last is signalled. */
void make_list(struct ibv_send_wr *wr, int count, struct ibv_sge *sge, const struct region *r);
/* Posts a list at once, and waits for its end. */
void post_and_wait(struct end *e, struct ibv_send_wr *wr);

/* packets.c */

/* Whether connections that are made from here on send packets, where ferrule could copy. */
void set_wire_only(bool value);

void packets_8(void);
void packets_4096(void);
void packets_65536(void);

/* kernel_users.c */

void kernel_users_8(void);
void kernel_users_4096(void);
void kernel_users_65536(void);

#endif /* TESTS_LATE_H */
