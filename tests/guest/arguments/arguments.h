/* SPDX-License-Identifier: GPL-2.0 */
/* The cases of wrong arguments. */
#ifndef TESTS_ARGUMENTS_H
#define TESTS_ARGUMENTS_H

#include "../common.h"

/* Good parameters of a queue pair. */
struct ibv_qp_init_attr small_qp(struct ibv_cq *cq);

/* Each table is that of a file; the last case has no name. */
extern const struct test_case device_cases[];
extern const struct test_case domain_cases[];
extern const struct test_case object_cases[];
extern const struct test_case request_cases[];
extern const struct test_case command_cases[];
extern const struct test_case thread_cases[];

#endif /* TESTS_ARGUMENTS_H */
