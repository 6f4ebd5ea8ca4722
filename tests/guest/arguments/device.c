// SPDX-License-Identifier: GPL-2.0
/* The device's attributes, and verbs that it may not have. */
#include "arguments.h"

static void device_attributes(void)
{
	struct ibv_device_attr *a;
	struct ibv_device_attr_ex ex;
	struct device d, again;
	uint16_t pkey;

	device_open(&d);
	a = &d.attr;
	REQUIRE(a->fw_ver[0]);
	REQUIRE(memchr(a->fw_ver, 0, sizeof(a->fw_ver)));
	test_note("fw_ver %s, max_qp %d, max_qp_wr %d, max_cqe %d, max_sge %d",
		  a->fw_ver, a->max_qp, a->max_qp_wr, a->max_cqe, a->max_sge);
	REQUIRE(a->node_guid);
	REQUIRE(a->sys_image_guid);
	REQUIRE_EQ(a->node_guid, ibv_get_device_guid(d.ctx->device));
	REQUIRE_EQ(a->phys_port_cnt, 1);
	REQUIRE(a->max_qp >= 1000);
	REQUIRE(a->max_qp_wr >= 16384);
	REQUIRE(a->max_sge >= 16);
	REQUIRE(a->max_cq >= 1000);
	REQUIRE(a->max_cqe >= 2 * 16384);
	REQUIRE(a->max_mr >= 1000);
	REQUIRE(a->max_pd >= 1000);
	REQUIRE(a->max_mr_size >= 1ull << 32);
	REQUIRE_EQ(a->page_size_cap & 4096, 4096);
	REQUIRE(a->max_pkeys >= 1);
	REQUIRE_EQ(d.port.state, IBV_PORT_ACTIVE);
	REQUIRE_EQ(d.port.link_layer, IBV_LINK_LAYER_ETHERNET);
	/* Programs allocate by it, and some keep it as an int. */
	REQUIRE_EQ(d.port.max_msg_sz, 1u << 30);
	/* IBA volume 1, 14.2.5.6: VL0 alone. */
	REQUIRE_EQ(d.port.max_vl_num, 1);
	REQUIRE(a->device_cap_flags & IBV_DEVICE_SYS_IMAGE_GUID);
	REQUIRE(a->device_cap_flags & IBV_DEVICE_PORT_ACTIVE_EVENT);
	REQUIRE(a->device_cap_flags & IBV_DEVICE_UD_AV_PORT_ENFORCE);
	REQUIRE(d.port.active_mtu <= d.port.max_mtu);
	REQUIRE(d.port.gid_tbl_len >= 16);
	REQUIRE_ERRNO(ibv_query_pkey(d.ctx, 1, 0, &pkey), 0);
	REQUIRE_EQ(be16toh(pkey), 0xffff);
	REQUIRE_ERRNO(ibv_query_device_ex(d.ctx, NULL, &ex), 0);
	REQUIRE_EQ(ex.orig_attr.node_guid, a->node_guid);
	REQUIRE_EQ(ex.orig_attr.max_qp_wr, a->max_qp_wr);

	/* A second context of the same device is another one. */
	device_open(&again);
	REQUIRE(again.ctx != d.ctx && again.ctx->cmd_fd != d.ctx->cmd_fd);
	device_close(&again);
	device_close(&d);
}

static void port_number(void)
{
	struct ibv_port_attr port;
	union ibv_gid gid;
	struct device d;
	uint16_t pkey;

	device_open(&d);
	REQUIRE_ERRNO(ibv_query_port(d.ctx, 0, &port), EINVAL);
	REQUIRE_ERRNO(ibv_query_port(d.ctx, 2, &port), EINVAL);
	REQUIRE(ibv_query_gid(d.ctx, 1, 100000, &gid) != 0);
	REQUIRE(ibv_query_gid(d.ctx, 2, 0, &gid) != 0);
	REQUIRE(ibv_query_pkey(d.ctx, 1, 100000, &pkey) != 0);
	device_close(&d);
}

/*
 * A verb that is not there says so with EOPNOTSUPP, so that a program can tell
 * it from its own mistake; or it works.
 */
static void optional_verbs(void)
{
	struct ibv_srq_init_attr srq_init = {
		.attr = { .max_wr = 4, .max_sge = 1 }
	};
	struct ibv_qp_init_attr init;
	struct ibv_ah_attr ah_attr;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mw *mw;
	struct ibv_ah *ah;
	struct device d;

	device_open(&d);
	errno = 0;
	srq = ibv_create_srq(d.pd, &srq_init);
	if (srq)
		REQUIRE_ERRNO(ibv_destroy_srq(srq), 0);
	else
		REQUIRE_EQ(errno, EOPNOTSUPP);
	errno = 0;
	mw = ibv_alloc_mw(d.pd, IBV_MW_TYPE_1);
	if (mw)
		REQUIRE_ERRNO(ibv_dealloc_mw(mw), 0);
	else
		REQUIRE_EQ(errno, EOPNOTSUPP);
	cq = ibv_create_cq(d.ctx, 16, NULL, NULL, 0);
	REQUIRE(cq);
	errno = 0;
	init = small_qp(cq);
	init.qp_type = IBV_QPT_UD;
	qp = ibv_create_qp(d.pd, &init);
	if (qp)
		REQUIRE_ERRNO(ibv_destroy_qp(qp), 0);
	else
		REQUIRE_EQ(errno, EOPNOTSUPP);
	REQUIRE_ERRNO(ibv_destroy_cq(cq), 0);

	memset(&ah_attr, 0, sizeof(ah_attr));
	ah_attr.is_global = 1;
	ah_attr.port_num = 1;
	ah_attr.grh.dgid = d.gid;
	ah_attr.grh.sgid_index = d.gid_index;
	ah_attr.grh.hop_limit = 1;
	ah = ibv_create_ah(d.pd, &ah_attr);
	if (!ah)
		FAIL("ibv_create_ah: %s", strerror(errno));
	REQUIRE_ERRNO(ibv_destroy_ah(ah), 0);
	ah_attr.port_num = 2;
	REQUIRE_NULL_ERRNO(ibv_create_ah(d.pd, &ah_attr), EINVAL);
	device_close(&d);
}

/*
 * The engine in the kernel has all; behind a PCI function there is no paging on
 * demand, and there are no frames. Nobody is told otherwise.
 */
static void what_a_backend_lacks(void)
{
	struct ibv_flow_attr rule = {
		.type = IBV_FLOW_ATTR_SNIFFER, .size = sizeof(rule), .port = 1,
	};
	bool has = !has_function();
	struct ibv_device_attr_ex ex;
	struct ibv_qp_init_attr init;
	static char buf[4096];
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct device d;

	device_open(&d);
	cq = ibv_create_cq(d.ctx, 16, NULL, NULL, 0);
	REQUIRE(cq);
	REQUIRE_ERRNO(ibv_query_device_ex(d.ctx, NULL, &ex), 0);
	REQUIRE_EQ(!!ex.odp_caps.general_caps, has);
	REQUIRE_EQ(!!ex.odp_caps.per_transport_caps.rc_odp_caps, has);
	REQUIRE_EQ(!!ex.odp_caps.per_transport_caps.uc_odp_caps, has);
	REQUIRE_EQ(!!ex.odp_caps.per_transport_caps.ud_odp_caps, has);
	errno = 0;
	mr = ibv_reg_mr(d.pd, buf, sizeof(buf),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	REQUIRE_EQ(!!mr, has);
	if (mr)
		REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);
	else
		REQUIRE_EQ(errno, EOPNOTSUPP);

	REQUIRE_EQ(!!d.attr.max_raw_ethy_qp, has);
	REQUIRE_EQ(!!(ex.device_cap_flags_ex & IBV_DEVICE_MANAGED_FLOW_STEERING),
		   has);
	init = small_qp(cq);
	init.qp_type = IBV_QPT_RAW_PACKET;
	errno = 0;
	qp = ibv_create_qp(d.pd, &init);
	REQUIRE_EQ(!!qp, has);
	if (qp) {
		REQUIRE_ERRNO(ibv_destroy_qp(qp), 0);
	} else {
		REQUIRE_EQ(errno, EOPNOTSUPP);
		init.qp_type = IBV_QPT_UD;
		qp = ibv_create_qp(d.pd, &init);
		REQUIRE(qp);
		REQUIRE_NULL_ERRNO(ibv_create_flow(qp, &rule), EOPNOTSUPP);
		REQUIRE_ERRNO(ibv_destroy_qp(qp), 0);
	}
	/* Nothing of checksums, tags or tunnels is left to either. */
	REQUIRE_EQ(ex.raw_packet_caps, 0);
	REQUIRE_EQ(ex.rss_caps.supported_qpts, 0);
	REQUIRE_EQ(ex.tm_caps.max_num_tags, 0);
	REQUIRE_ERRNO(ibv_destroy_cq(cq), 0);
	device_close(&d);
}

const struct test_case device_cases[] = {
	{ "device_attributes", device_attributes },
	{ "port_number", port_number },
	{ "optional_verbs", optional_verbs },
	{ "what_a_backend_lacks", what_a_backend_lacks },
	{ }
};
