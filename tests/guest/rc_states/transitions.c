// SPDX-License-Identifier: GPL-2.0
/* Every transition with every attribute, legal and not. */
#include "rc_states.h"

#include <stdio.h>

#define OPT_RTS (IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER)
#define OPT_SQD (IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | \
		 IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | \
		 IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | \
		 IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER)

/*
 * Alternate paths (ALT_PATH, PATH_MIG_STATE) are optional in the table, but
 * Linux has none over Ethernet; they are tried separately.
 */
static const struct {
	enum ibv_qp_state from, to;
	int required, optional;
} legal[] = {
	{ IBV_QPS_RESET, IBV_QPS_INIT, REQ_INIT, 0 },
	{ IBV_QPS_INIT, IBV_QPS_INIT, 0, REQ_INIT },
	{ IBV_QPS_INIT, IBV_QPS_RTR, REQ_RTR,
	  IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX },
	{ IBV_QPS_RTR, IBV_QPS_RTS, REQ_RTS, OPT_RTS },
	{ IBV_QPS_RTS, IBV_QPS_RTS, 0, OPT_RTS },
	{ IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ IBV_QPS_SQD, IBV_QPS_SQD, 0, OPT_SQD },
	{ IBV_QPS_SQD, IBV_QPS_RTS, 0, OPT_RTS },
	/* From any state to these two, with nothing else. */
	{ IBV_QPS_RESET, IBV_QPS_RESET }, { IBV_QPS_INIT, IBV_QPS_RESET },
	{ IBV_QPS_RTR, IBV_QPS_RESET }, { IBV_QPS_RTS, IBV_QPS_RESET },
	{ IBV_QPS_SQD, IBV_QPS_RESET }, { IBV_QPS_ERR, IBV_QPS_RESET },
	{ IBV_QPS_INIT, IBV_QPS_ERR }, { IBV_QPS_RTR, IBV_QPS_ERR },
	{ IBV_QPS_RTS, IBV_QPS_ERR }, { IBV_QPS_SQD, IBV_QPS_ERR },
	{ IBV_QPS_ERR, IBV_QPS_ERR },
};

static const struct {
	int bit;
	const char *name;
} attributes[] = {
	{ IBV_QP_CUR_STATE, "CUR_STATE" },
	{ IBV_QP_EN_SQD_ASYNC_NOTIFY, "EN_SQD_ASYNC_NOTIFY" },
	{ IBV_QP_ACCESS_FLAGS, "ACCESS_FLAGS" },
	{ IBV_QP_PKEY_INDEX, "PKEY_INDEX" },
	{ IBV_QP_PORT, "PORT" },
	{ IBV_QP_QKEY, "QKEY" },
	{ IBV_QP_AV, "AV" },
	{ IBV_QP_PATH_MTU, "PATH_MTU" },
	{ IBV_QP_TIMEOUT, "TIMEOUT" },
	{ IBV_QP_RETRY_CNT, "RETRY_CNT" },
	{ IBV_QP_RNR_RETRY, "RNR_RETRY" },
	{ IBV_QP_RQ_PSN, "RQ_PSN" },
	{ IBV_QP_MAX_QP_RD_ATOMIC, "MAX_QP_RD_ATOMIC" },
	{ IBV_QP_ALT_PATH, "ALT_PATH" },
	{ IBV_QP_MIN_RNR_TIMER, "MIN_RNR_TIMER" },
	{ IBV_QP_SQ_PSN, "SQ_PSN" },
	{ IBV_QP_MAX_DEST_RD_ATOMIC, "MAX_DEST_RD_ATOMIC" },
	{ IBV_QP_CAP, "CAP" },
	{ IBV_QP_DEST_QPN, "DEST_QPN" },
};

/*
 * One attempt on a queue pair in the given state. A refusal is EINVAL, and
 * then nothing may have changed.
 */
static void attempt(struct device *d, enum ibv_qp_state from,
		    enum ibv_qp_state to, int mask, bool good,
		    const char *what)
{
	struct ibv_qp_attr attr, before, after;
	struct end e;
	int ret;

	end_make(&e, d, &(struct end_config){ .send_wr = 4, .recv_wr = 4 });
	end_to_state(&e, from);
	attr = good_attr(&e, to);
	query(&e, &before);
	ret = ibv_modify_qp(e.qp, &attr, mask | IBV_QP_STATE);
	query(&e, &after);
	if (ret != (good ? 0 : EINVAL))
		FAIL("%s to %s, %s: answered %d (%s), expected %s",
		     state_name(from), state_name(to), what, ret, strerror(ret),
		     good ? "success" : strerror(EINVAL));
	if (good && after.qp_state != to)
		FAIL("%s to %s, %s: the state is %s", state_name(from),
		     state_name(to), what, state_name(after.qp_state));
	if (!good && memcmp(&before, &after, sizeof(before)))
		FAIL("%s to %s, %s: refused, but an attribute has changed",
		     state_name(from), state_name(to), what);
	end_free(&e);
}

static void legal_transitions(void)
{
	struct device d;

	device_open(&d);
	for (unsigned int i = 0; i < ARRAY_SIZE(legal); i++) {
		char what[64];

		attempt(&d, legal[i].from, legal[i].to, legal[i].required,
			true, "required attributes");
		attempt(&d, legal[i].from, legal[i].to,
			legal[i].required | legal[i].optional, true,
			"required and optional attributes");
		for (unsigned int j = 0; j < ARRAY_SIZE(attributes); j++) {
			int bit = attributes[j].bit;

			if (legal[i].required & bit) {
				snprintf(what, sizeof(what), "without %s",
					 attributes[j].name);
				attempt(&d, legal[i].from, legal[i].to,
					legal[i].required & ~bit, false, what);
			} else {
				snprintf(what, sizeof(what), "with %s",
					 attributes[j].name);
				attempt(&d, legal[i].from, legal[i].to,
					legal[i].required | bit,
					legal[i].optional & bit, what);
			}
		}
	}
	device_close(&d);
}

static void illegal_transitions(void)
{
	static const int masks[] = { 0, REQ_INIT, REQ_RTR, REQ_RTS };
	struct device d;

	device_open(&d);
	for (unsigned int i = 0; i < ARRAY_SIZE(states); i++) {
		for (int to = IBV_QPS_RESET; to <= IBV_QPS_UNKNOWN; to++) {
			bool found = false;

			for (unsigned int j = 0; j < ARRAY_SIZE(legal); j++)
				if (legal[j].from == states[i] &&
				    (int)legal[j].to == to)
					found = true;
			for (unsigned int m = 0; !found && m < ARRAY_SIZE(masks);
			     m++)
				attempt(&d, states[i], to, masks[m], false,
					"illegal transition");
		}
	}
	device_close(&d);
}

const struct test_case transition_cases[] = {
	{ "legal_transitions", legal_transitions, 60 },
	{ "illegal_transitions", illegal_transitions, 60 },
	{ }
};
