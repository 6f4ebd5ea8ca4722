/* SPDX-License-Identifier: GPL-2.0 */
/* Two ends, of which one opens memory to the other, and the cases. */
#ifndef TESTS_RC_WINDOW_H
#define TESTS_RC_WINDOW_H

#include "../common.h"

#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
		IBV_ACCESS_REMOTE_ATOMIC)

extern const struct end_config window_end;

/* The region of b may be bound; to peers it gives nothing itself. */
void make(struct pair *p);
/* The same, with a window of type 2, and the key that its first bind may give it. */
struct ibv_mw *make_with_mw(struct pair *p, uint32_t *key);
/* After a refusal both ends are in error; they are connected anew. */
void reconnect(struct pair *p);
struct ibv_mw_bind_info part(struct pair *p, size_t offset, size_t len,
			     unsigned int access);
/* Bind, and expect this status. */
void bind_1(struct pair *p, struct ibv_mw *mw, struct ibv_mw_bind_info info,
	    enum ibv_wc_status status);
void bind_2(struct pair *p, struct ibv_mw *mw, uint32_t key,
	    struct ibv_mw_bind_info info, enum ibv_wc_status status);
/* A WRITE of 8 bytes by a, which has to end so. */
void try_write(struct pair *p, uint32_t rkey, size_t offset, bool good);

/* The cases of owners.c; the last has no name. */
extern const struct test_case owner_cases[];

#endif /* TESTS_RC_WINDOW_H */
