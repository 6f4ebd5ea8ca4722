/* SPDX-License-Identifier: GPL-2.0 */
/* Two connected ends with work around the culprit, and the cases. */
#ifndef TESTS_RC_ERRORS_H
#define TESTS_RC_ERRORS_H

#include "../common.h"

enum { RECEIVES = 3, LEN = 1000 };

/* Connected, with 2 * LEN bytes of a, and LEN of b that have this access. */
void make(struct pair *p, const struct end_config *config, int access);
struct ibv_sge whole(struct pair *p);
/* Receives of b that a SEND may use; wr_id 100 and up. */
void post_receives(struct pair *p);
/* Requests behind the culprit, signalled or not; wr_id 10 and up. */
void post_followers(struct pair *p);
/* Completions with an error are for unsignalled requests, too (10.7.3.1). */
void expect_followers_flushed(struct pair *p);
void expect_receives_flushed(struct pair *p, int first);
/* b has seen nothing of a's error: still there, its receives unused. */
void expect_peer_untouched(struct pair *p);

/* Each table is that of a file; the last case has no name. */
extern const struct test_case remote_access_cases[];
extern const struct test_case local_access_cases[];
extern const struct test_case receive_cases[];
extern const struct test_case flush_cases[];
extern const struct test_case corner_cases[];

#endif /* TESTS_RC_ERRORS_H */
