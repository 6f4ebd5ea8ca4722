/* SPDX-License-Identifier: GPL-2.0 */
/* The cases of isolation. */
#ifndef TESTS_ISOLATION_H
#define TESTS_ISOLATION_H

#include "../common.h"

/* Each table is that of a file; the last case has no name. */
extern const struct test_case mapping_cases[];
extern const struct test_case pinned_cases[];
extern const struct test_case group_cases[];

#endif /* TESTS_ISOLATION_H */
