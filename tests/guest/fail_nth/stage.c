// SPDX-License-Identifier: GPL-2.0
/* The objects that the verbs work on. */
#define _GNU_SOURCE
#include "stage.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define QP_ACCESS (ACCESS_ALL | IBV_ACCESS_REMOTE_READ | \
		   IBV_ACCESS_REMOTE_ATOMIC)

struct stage st;

void *stage_made(void)
{
	return st.made;
}

int made(void *object)
{
	st.made = object;
	return object ? 0 : errno;
}

char *memory(void)
{
	static char *map;

	if (!map) {
		map = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE |
			   MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		REQUIRE(map != MAP_FAILED);
	}
	return map;
}

struct ibv_ah *ah_to(const union ibv_gid *gid)
{
	struct ibv_ah_attr attr = {
		.is_global = 1, .port_num = 1,
		.grh = { .dgid = *gid, .sgid_index = st.d.gid_index,
			 .hop_limit = 1 },
	};

	return ibv_create_ah(st.d.pd, &attr);
}

struct ibv_qp *raw_qp(void)
{
	struct ibv_qp_init_attr init = {
		.send_cq = st.u.scq, .recv_cq = st.u.rcq,
		.qp_type = IBV_QPT_RAW_PACKET,
		.cap = { 4, 4, 1, 1, 0 },
	};

	return ibv_create_qp(st.d.pd, &init);
}

void stage_make(void)
{
	struct ibv_device_attr_ex abilities = {};
	struct end_config config = { .access = QP_ACCESS };
	struct end_config datagrams = { .type = IBV_QPT_UD };
	struct ibv_srq_init_attr srq = {
		.attr = { .max_wr = 4, .max_sge = 1 },
	};
	struct ibv_alloc_dm_attr dm = { .length = 10000 };
	struct ibv_device_attr limits;
	struct peer self;

	device_open(&st.d);
	st.channel = ibv_create_comp_channel(st.d.ctx);
	REQUIRE(st.channel);
	config.channel = st.channel;
	end_make(&st.a, &st.d, &config);
	end_to_state(&st.a, IBV_QPS_RTS);
	end_make(&st.b, &st.d, &config);
	end_make(&st.u, &st.d, &datagrams);
	REQUIRE_ERRNO(ibv_query_device(st.d.ctx, &limits), 0);
	if (limits.max_raw_ethy_qp) {
		st.raw = raw_qp();
		REQUIRE(st.raw);
	}
	self = end_address(&st.u, NULL);
	end_connect(&st.u, &self);
	region_make(&st.r, &st.d, 2000, 0, QP_ACCESS | IBV_ACCESS_MW_BIND);
	st.mr = ibv_reg_mr(st.d.pd, memory(), 1 << 20, ACCESS_ALL);
	st.cq = ibv_create_cq(st.d.ctx, 4, NULL, NULL, 0);
	st.dm = ibv_alloc_dm(st.d.ctx, &dm);
	REQUIRE(st.mr && st.cq && st.dm);
	REQUIRE_ERRNO(ibv_query_device_ex(st.d.ctx, NULL, &abilities), 0);
	if (abilities.odp_caps.general_caps & IBV_ODP_SUPPORT) {
		st.on_demand = ibv_reg_mr(st.d.pd, memory(), 4 << 20,
					  ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
		REQUIRE(st.on_demand);
	}
	st.xrcd = xrcd_open(&st.d, -1, O_CREAT);
	REQUIRE(st.xrcd);
	st.buffer = udmabuf_make(4096, NULL);
	REQUIRE(st.buffer >= 0);
	st.srq = ibv_create_srq(st.d.pd, &srq);
	st.mw1 = ibv_alloc_mw(st.d.pd, IBV_MW_TYPE_1);
	st.mw2 = ibv_alloc_mw(st.d.pd, IBV_MW_TYPE_2);
	REQUIRE(st.srq && st.mw1 && st.mw2);
	st.key = st.mw2->rkey;
	memcpy(st.group.raw + 10, "\xff\xff\xef\x01\x02\x03", 6);
	st.ah = ah_to(&st.d.gid);
	st.group_ah = ah_to(&st.group);
	REQUIRE(st.ah && st.group_ah);
}

bool stage_has_raw_packets(void)
{
	if (!st.raw)
		test_note("the device has no raw packet queue pairs");
	return st.raw;
}

bool stage_has_paging(void)
{
	if (!st.on_demand)
		test_note("the device has no on-demand paging");
	return st.on_demand;
}

void stage_free(void)
{
	close(st.buffer);
	REQUIRE_ERRNO(ibv_close_xrcd(st.xrcd), 0);
	if (st.on_demand)
		REQUIRE_ERRNO(ibv_dereg_mr(st.on_demand), 0);
	REQUIRE_ERRNO(ibv_destroy_ah(st.ah), 0);
	REQUIRE_ERRNO(ibv_destroy_ah(st.group_ah), 0);
	REQUIRE_ERRNO(ibv_dealloc_mw(st.mw1), 0);
	REQUIRE_ERRNO(ibv_dealloc_mw(st.mw2), 0);
	REQUIRE_ERRNO(ibv_free_dm(st.dm), 0);
	REQUIRE_ERRNO(ibv_dereg_mr(st.mr), 0);
	REQUIRE_ERRNO(ibv_destroy_cq(st.cq), 0);
	REQUIRE_ERRNO(ibv_destroy_srq(st.srq), 0);
	region_free(&st.r);
	if (st.raw)
		REQUIRE_ERRNO(ibv_destroy_qp(st.raw), 0);
	end_free(&st.a);
	end_free(&st.b);
	end_free(&st.u);
	REQUIRE_ERRNO(ibv_destroy_comp_channel(st.channel), 0);
	device_close(&st.d);
}
