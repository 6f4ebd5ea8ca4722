/* SPDX-License-Identifier: GPL-2.0 */
/* A transfer with its checks, and the cases. */
#ifndef TESTS_RC_DATA_H
#define TESTS_RC_DATA_H

#include "../common.h"

#define MIB (1u << 20)

/*
 * One transfer with every check that a transfer can have. The destination
 * region is larger than the transfer; the bytes around must stay.
 */
void transfer(struct end *a, struct end *b, const struct region *src,
		     struct region *dst, enum ibv_wr_opcode opcode,
		     uint32_t size, size_t at, uint64_t seed);

/* Each table is that of a file; the last case has no name. */
extern const struct test_case list_cases[];
extern const struct test_case queue_cases[];
extern const struct test_case memory_cases[];
extern const struct test_case process_cases[];

#endif /* TESTS_RC_DATA_H */
