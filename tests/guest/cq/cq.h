/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TESTS_CQ_H
#define TESTS_CQ_H

#include "../common.h"

/* The cases of timestamps.c; the last has no name. */
extern const struct test_case timestamp_cases[];

#endif /* TESTS_CQ_H */
