// SPDX-License-Identifier: GPL-2.0
/* Verbs that change an object. */
#include "stage.h"

/* Other memory, and back: a region that changes in place pins pages, too. */
static int rereg_mr(void)
{
	bool low = st.mr->addr == memory();

	errno = 0;
	return ibv_rereg_mr(st.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
			    memory() + (low ? 1 << 20 : 0), 1 << 20, 0) ?
		       errno :
		       0;
}

static int resize_cq(void)
{
	return ibv_resize_cq(st.cq, 1024);
}

static void resized_back(void)
{
	REQUIRE_ERRNO(ibv_resize_cq(st.cq, 4), 0);
}

static int modify_cq(void)
{
	struct ibv_modify_cq_attr attr = {
		.attr_mask = IBV_CQ_ATTR_MODERATE,
		.moderate = { .cq_count = 8, .cq_period = 100 },
	};

	return ibv_modify_cq(st.cq, &attr);
}

/* ibv_modify_srq answers -1 for some errors of commands. */
int set_srq_limit(uint32_t limit)
{
	struct ibv_srq_attr attr = { .srq_limit = limit };

	errno = 0;
	return ibv_modify_srq(st.srq, &attr, IBV_SRQ_LIMIT) ? errno : 0;
}

static int modify_srq(void)
{
	return set_srq_limit(0);
}

static int resize_srq(void)
{
	struct ibv_srq_attr attr = { .max_wr = 1024 };

	errno = 0;
	return ibv_modify_srq(st.srq, &attr, IBV_SRQ_MAX_WR) ? errno : 0;
}

static void srq_resized_back(void)
{
	struct ibv_srq_attr attr = { .max_wr = 4 };

	REQUIRE_ERRNO(ibv_modify_srq(st.srq, &attr, IBV_SRQ_MAX_WR), 0);
}

static int attach_mcast(void)
{
	return ibv_attach_mcast(st.u.qp, &st.group, 0);
}

static int detach_mcast(void)
{
	return ibv_detach_mcast(st.u.qp, &st.group, 0);
}

void detached(void)
{
	REQUIRE_ERRNO(detach_mcast(), 0);
}

/* Attached already, if detaching has just failed. */
void attached(void)
{
	int error = attach_mcast();

	REQUIRE(!error || error == EINVAL);
}

static int modify_to_init(void)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = ACCESS_ALL,
	};

	return ibv_modify_qp(st.b.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
			     IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int modify_to_rtr(void)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = st.d.port.active_mtu,
		.dest_qp_num = st.b.qp->qp_num,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1, .port_num = 1,
			.grh = { .dgid = st.d.gid,
				 .sgid_index = st.d.gid_index,
				 .hop_limit = 64 },
		},
	};

	return ibv_modify_qp(st.b.qp, &attr, IBV_QP_STATE | IBV_QP_AV |
			     IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			     IBV_QP_MIN_RNR_TIMER);
}

static int modify_to_rts(void)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7,
		.rnr_retry = 7,
	};

	return ibv_modify_qp(st.b.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN |
			     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

static int modify_to_err(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	return ibv_modify_qp(st.b.qp, &attr, IBV_QP_STATE);
}

static int modify_to_reset(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	return ibv_modify_qp(st.b.qp, &attr, IBV_QP_STATE);
}

static void in_reset(void)
{
	REQUIRE_ERRNO(modify_to_reset(), 0);
}

static void in_init(void)
{
	in_reset();
	REQUIRE_ERRNO(modify_to_init(), 0);
}

static void in_rtr(void)
{
	in_init();
	REQUIRE_ERRNO(modify_to_rtr(), 0);
}

static void in_rts(void)
{
	in_rtr();
	REQUIRE_ERRNO(modify_to_rts(), 0);
}

const struct verb change_verbs[] = {
	{ "ibv_rereg_mr", rereg_mr },
	{ "ibv_resize_cq", resize_cq, resized_back, resized_back },
	{ "ibv_modify_cq", modify_cq },
	{ "ibv_modify_srq", modify_srq },
	{ "ibv_modify_srq to another size", resize_srq, srq_resized_back,
	  srq_resized_back },
	{ "ibv_modify_qp to INIT", modify_to_init, NULL, in_reset },
	{ "ibv_modify_qp to RTR", modify_to_rtr, NULL, in_init },
	{ "ibv_modify_qp to RTS", modify_to_rts, NULL, in_rtr },
	{ "ibv_modify_qp to ERR", modify_to_err, NULL, in_rts },
	{ "ibv_modify_qp to RESET", modify_to_reset, NULL, in_rts },
	{ "ibv_attach_mcast", attach_mcast, detached },
	{ "ibv_detach_mcast", detach_mcast, NULL, attached },
	{ }
};
