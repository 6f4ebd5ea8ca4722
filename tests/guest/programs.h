/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Programs that use a device until it goes. Each ends by itself, and fails its
 * case if its work does not end with flush errors, or if it is not told.
 */
#ifndef TESTS_PROGRAMS_H
#define TESTS_PROGRAMS_H

#include "common.h"

/* A program under test: it says when it is at work, and ends by itself. */
struct program {
	void (*run)(struct program *);
	int ready[2];
	pid_t pid;
};

/* Returns when the program is at work. */
void program_start(struct program *p, void (*run)(struct program *));
/* Waits for its end, which has to be a good one. */
void program_join(struct program *p);

/* Sends to itself without pause and only ever polls. */
void polling_program(struct program *p);
/* Sleeps in ibv_get_cq_event for a message that never comes. */
void sleeping_program(struct program *p);
/* Holds objects of each kind and does nothing but wait for the bad news. */
void idle_program(struct program *p);
/* Makes and destroys objects all the time. */
void busy_program(struct program *p);

/* Some of each. */
enum { MANY_PROGRAMS = 6 };
void programs_start(struct program p[MANY_PROGRAMS]);
void programs_join(struct program p[MANY_PROGRAMS]);

/* A program's objects: an end that is connected to itself, and memory. */
struct loopback {
	struct device d;
	struct ibv_comp_channel *channel;
	struct end e;		/* connected to itself */
	struct region r;
	uint64_t sends, recvs;	/* posted */
};

void loopback_make(struct loopback *s);
/*
 * Takes completions until everything posted has been told of, all of it flushed
 * from the first error on, in order. 'recvs' and 'sends' say how many were told
 * of before.
 *
 * 'posting' says that the program posted until the end: the provider may have
 * found the device alive and been preempted, and rung when all was over. Of
 * that one request in each queue nobody tells.
 */
void expect_flush(struct loopback *s, uint64_t sends, uint64_t recvs,
		  bool posting);
/* Once the device is gone, posting says so. */
void expect_post_eio(struct loopback *s);
/*
 * All can be given back, though the device may answer EIO by then; the
 * descriptors close and the memory is usable.
 */
void close_all(struct loopback *s);

/* Whether there is a device of the name that the test was given. */
bool device_is_there(void);
/* Until there is one, or none. */
void wait_for_device(bool wanted);
/* Opens the device anew; a message from it to itself arrives. */
void expect_round_trip(void);

/* Runs a command that takes the device away, which may not take long. */
void timed_command(const char *command, const char *object);
/* Fails if it has taken too long since then. */
void in_time(const char *what, uint64_t begin);

#endif
