/* SPDX-License-Identifier: GPL-2.0 */
/* States and attributes of an RC queue pair, and the cases. */
#ifndef TESTS_RC_STATES_H
#define TESTS_RC_STATES_H

#include "../common.h"

#define REQ_INIT (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define REQ_RTR (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | \
		 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | \
		 IBV_QP_MIN_RNR_TIMER)
#define REQ_RTS (IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | \
		 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC)

/* The states that an RC queue pair can be in; it has no SQE. */
enum { STATES = 6 };
extern const enum ibv_qp_state states[STATES];

const char *state_name(enum ibv_qp_state state);
/* Attributes that are all acceptable, where their bit is. */
struct ibv_qp_attr good_attr(struct end *e, enum ibv_qp_state to);
void query(struct end *e, struct ibv_qp_attr *attr);

/* Each table is that of a file; the last case has no name. */
extern const struct test_case transition_cases[];
extern const struct test_case attribute_cases[];
extern const struct test_case work_cases[];

#endif /* TESTS_RC_STATES_H */
