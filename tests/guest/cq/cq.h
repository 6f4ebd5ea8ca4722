/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TESTS_CQ_H
#define TESTS_CQ_H

#include "../common.h"

/* Each table is that of a file; the last case has no name. */
extern const struct test_case overrun_cases[];
extern const struct test_case timestamp_cases[];

#endif /* TESTS_CQ_H */
