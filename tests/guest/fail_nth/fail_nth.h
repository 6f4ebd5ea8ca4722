/* SPDX-License-Identifier: GPL-2.0 */
/* Failures on demand, and the verbs that have to bear them. */
#ifndef TESTS_FAIL_NTH_H
#define TESTS_FAIL_NTH_H

#include "../common.h"

/* injection.c */

/* Skips the case on a kernel without fault injection. */
void injection_begin(void);
/* The n-th allocation or copy of this thread from here on fails. */
void arm(unsigned int n);
/* Whether the failure that was armed has happened; disarms it. */
bool disarm(void);
/* An errno value that a failed allocation or copy may come out as. */
bool expected_error(int error);

/*
 * A verb makes something, or changes something. Before each try, prepare makes
 * what it starts from; do_it answers 0 or an errno value; and if that was 0,
 * undo takes away what was made. prepare and undo have to succeed at once,
 * without an injection, and may be NULL.
 */
struct verb {
	const char *name;
	int (*do_it)(void);
	void (*undo)(void);
	void (*prepare)(void);
};

/* Each table is that of a file; the last verb has no name. */
extern const struct verb object_verbs[];
extern const struct verb change_verbs[];
extern const struct verb query_verbs[];
extern const struct verb traffic_verbs[];
extern const struct verb sharing_verbs[];
extern const struct verb thread_verbs[];
/* Only where the device has on-demand paging. */
extern const struct verb paging_verbs[];
/* Only where the device has raw packet queue pairs. */
extern const struct verb raw_packet_verbs[];

/* Something that is made, and destroyed by a verb that can fail. */
struct destroyed {
	const char *name;
	int (*make)(void);
	int (*destroy)(void *object);
};

/* The last has no name. */
extern const struct destroyed destroyed[];
extern const struct destroyed sharing_destroyed[];
extern const struct destroyed paging_destroyed[];
extern const struct destroyed raw_packet_destroyed[];

/* stage.c: the objects that the verbs work on; there is one stage. */
void stage_make(void);
/* Whether the device has raw packet queue pairs; says so where it has none. */
bool stage_has_raw_packets(void);
/* Whether it has on-demand paging; says so where it has none. */
bool stage_has_paging(void);
void stage_free(void);
/* The object that a make function made last. */
void *stage_made(void);

#endif /* TESTS_FAIL_NTH_H */
