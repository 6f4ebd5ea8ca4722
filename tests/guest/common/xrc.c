// SPDX-License-Identifier: GPL-2.0
/* Extended reliable connections (IBA volume 1, annex A14). */
#include "../common.h"

struct ibv_xrcd *xrcd_open(struct device *d, int fd, int oflags)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = fd,
		.oflags = oflags,
	};

	return ibv_open_xrcd(d->ctx, &attr);
}

struct ibv_srq *xrc_create_srq(struct device *d, struct ibv_xrcd *xrcd,
			       struct ibv_cq *cq, struct ibv_srq_attr *attr)
{
	struct ibv_srq_init_attr_ex init = {
		.attr = *attr,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.xrcd = xrcd,
		.pd = d->pd,
		.cq = cq,
	};
	struct ibv_srq *srq = ibv_create_srq_ex(d->ctx, &init);

	*attr = init.attr;
	return srq;
}

struct ibv_qp *xrc_create_target(struct device *d, struct ibv_xrcd *xrcd)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = xrcd,
	};

	return ibv_create_qp_ex(d->ctx, &init);
}

/* The attributes that one side has, and with that the verbs' table of them. */
void xrc_connect(struct device *d, struct ibv_qp *qp,
		 const struct ibv_qp *peer, int access)
{
	bool sends = qp->qp_type == IBV_QPT_XRC_SEND;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = access,
	};

	REQUIRE_ERRNO(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT |
				    IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS), 0);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = d->port.active_mtu,
		.dest_qp_num = peer->qp_num,
		.rq_psn = 0xfffff0,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = {
				.dgid = d->gid,
				.sgid_index = d->gid_index,
				.hop_limit = 64,
			},
		},
	};
	REQUIRE_ERRNO(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV |
				    IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN |
				    (sends ? 0 : IBV_QP_MAX_DEST_RD_ATOMIC |
						 IBV_QP_MIN_RNR_TIMER)), 0);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.sq_psn = 0xfffff0,
		.timeout = opt.slow > 1 ? 18 : 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 4,
	};
	REQUIRE_ERRNO(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN |
				    IBV_QP_TIMEOUT |
				    (sends ? IBV_QP_RETRY_CNT |
					     IBV_QP_RNR_RETRY |
					     IBV_QP_MAX_QP_RD_ATOMIC : 0)), 0);
}
