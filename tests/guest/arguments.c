// SPDX-License-Identifier: GPL-2.0
/*
 * Wrong arguments of the verbs, the errno values that the manual pages name
 * for them, and the limits that the device states: each is usable, one more is
 * not.
 */
#define _GNU_SOURCE
#include "common.h"

#include <rdma/ib_user_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- What the device says of itself ---- */

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
	REQUIRE(d.port.max_msg_sz >= 1u << 30);
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

/* ---- Completion queues ---- */

static void cq_arguments(void)
{
	struct ibv_cq *cq;
	struct device d;

	device_open(&d);
	REQUIRE_NULL_ERRNO(ibv_create_cq(d.ctx, 0, NULL, NULL, 0), EINVAL);
	REQUIRE_NULL_ERRNO(ibv_create_cq(d.ctx, -1, NULL, NULL, 0), EINVAL);
	REQUIRE_NULL_ERRNO(ibv_create_cq(d.ctx, d.attr.max_cqe + 1, NULL, NULL,
					 0), EINVAL);
	REQUIRE_NULL_ERRNO(ibv_create_cq(d.ctx, 16, NULL, NULL,
					 d.ctx->num_comp_vectors), EINVAL);
	REQUIRE_NULL_ERRNO(ibv_create_cq(d.ctx, 16, NULL, NULL, -1), EINVAL);
	REQUIRE(d.ctx->num_comp_vectors >= 1);
	for (int cqe = 1; cqe <= d.attr.max_cqe; cqe *= 4) {
		cq = ibv_create_cq(d.ctx, cqe, &d, NULL, 0);
		if (!cq)
			FAIL("ibv_create_cq of %d: %s", cqe, strerror(errno));
		REQUIRE(cq->cqe >= cqe);
		REQUIRE(cq->cq_context == &d);
		REQUIRE_ERRNO(ibv_destroy_cq(cq), 0);
	}
	cq = ibv_create_cq(d.ctx, d.attr.max_cqe, NULL, NULL, 0);
	if (!cq)
		FAIL("ibv_create_cq of max_cqe: %s", strerror(errno));
	REQUIRE_ERRNO(ibv_destroy_cq(cq), 0);
	device_close(&d);
}

/* ---- Queue pairs ---- */

static struct ibv_qp_init_attr small_qp(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = 4,
			.max_recv_wr = 4,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
	};

	return init;
}

static void qp_arguments(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct device d;

	device_open(&d);
	cq = ibv_create_cq(d.ctx, 16, NULL, NULL, 0);
	REQUIRE(cq);
#define REFUSED(field, value, error) \
	do { \
		init = small_qp(cq); \
		init.field = value; \
		REQUIRE_NULL_ERRNO(ibv_create_qp(d.pd, &init), error); \
	} while (0)
	REFUSED(cap.max_send_wr, d.attr.max_qp_wr + 1, EINVAL);
	REFUSED(cap.max_recv_wr, d.attr.max_qp_wr + 1, EINVAL);
	REFUSED(cap.max_send_wr, UINT32_MAX, EINVAL);
	REFUSED(cap.max_recv_wr, 0x80000000, EINVAL);
	REFUSED(cap.max_send_sge, d.attr.max_sge + 1, EINVAL);
	REFUSED(cap.max_recv_sge, d.attr.max_sge + 1, EINVAL);
	REFUSED(cap.max_send_sge, UINT32_MAX, EINVAL);
	REFUSED(cap.max_inline_data, UINT32_MAX, EINVAL);
	REFUSED(cap.max_inline_data, 1 << 16, EINVAL);
	REFUSED(qp_type, 0, EINVAL);
	REFUSED(qp_type, 77, EINVAL);
	/* A type that the device has not. */
	REFUSED(qp_type, IBV_QPT_RAW_PACKET, EOPNOTSUPP);
#undef REFUSED

	/* No receive queue, no send queue: both have their uses. */
	init = small_qp(cq);
	init.cap.max_recv_wr = init.cap.max_recv_sge = 0;
	qp = ibv_create_qp(d.pd, &init);
	REQUIRE(qp);
	REQUIRE_ERRNO(ibv_destroy_qp(qp), 0);
	init = small_qp(cq);
	init.cap.max_send_wr = init.cap.max_send_sge = 0;
	qp = ibv_create_qp(d.pd, &init);
	REQUIRE(qp);
	REQUIRE_ERRNO(ibv_destroy_qp(qp), 0);

	/* The largest there is, with every slot in its longest form. */
	init = small_qp(cq);
	init.cap.max_send_wr = init.cap.max_recv_wr = d.attr.max_qp_wr;
	init.cap.max_send_sge = init.cap.max_recv_sge = d.attr.max_sge;
	qp = ibv_create_qp(d.pd, &init);
	if (!qp)
		FAIL("a QP of max_qp_wr %d and max_sge %d: %s",
		     d.attr.max_qp_wr, d.attr.max_sge, strerror(errno));
	REQUIRE(init.cap.max_send_wr >= (uint32_t)d.attr.max_qp_wr);
	REQUIRE(init.cap.max_recv_sge >= (uint32_t)d.attr.max_sge);
	REQUIRE_ERRNO(ibv_destroy_qp(qp), 0);
	REQUIRE_ERRNO(ibv_destroy_cq(cq), 0);
	device_close(&d);
}

/* ---- Memory regions ---- */

static void mr_arguments(void)
{
	size_t len = 1 << 20;
	struct ibv_mr *mr;
	struct device d;
	char *map;

	device_open(&d);
	map = mmap(NULL, len, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(map != MAP_FAILED);
	/* Remote write and remote atomic want local write (ibv_reg_mr(3)). */
	REQUIRE_NULL_ERRNO(ibv_reg_mr(d.pd, map, len, IBV_ACCESS_REMOTE_WRITE),
			   EINVAL);
	REQUIRE_NULL_ERRNO(ibv_reg_mr(d.pd, map, len, IBV_ACCESS_REMOTE_ATOMIC),
			   EINVAL);
	/* Flags that do not exist. */
	REQUIRE_NULL_ERRNO(ibv_reg_mr(d.pd, map, len, 1 << 15), EINVAL);
	/* Memory that is not there, in whole and in its last page. */
	REQUIRE_EQ(munmap(map + len - 4096, 4096), 0);
	REQUIRE_NULL_ERRNO(ibv_reg_mr(d.pd, map, len, IBV_ACCESS_LOCAL_WRITE),
			   EFAULT);
	REQUIRE_NULL_ERRNO(ibv_reg_mr(d.pd, (void *)8192, 4096,
				      IBV_ACCESS_LOCAL_WRITE), EFAULT);
	/* An address and a length that wrap around. */
	REQUIRE_NULL_ERRNO(ibv_reg_mr(d.pd, map, -4096ul,
				      IBV_ACCESS_LOCAL_WRITE), EINVAL);
	/* An address whose place in the page is not the memory's. */
	REQUIRE_NULL_ERRNO(ibv_reg_mr_iova(d.pd, map, 4096, 0x1001,
					   IBV_ACCESS_LOCAL_WRITE), EINVAL);

	mr = ibv_reg_mr(d.pd, map + 1, 1, ACCESS_ALL);
	REQUIRE(mr);
	REQUIRE(mr->addr == map + 1 && mr->length == 1 && mr->pd == d.pd);
	REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);
	munmap(map, len - 4096);
	device_close(&d);
}

/* Keys differ, and a key that was given back does not come back at once. */
static void mr_keys(void)
{
	enum { N = 200 };
	uint32_t old[N], fresh;
	struct ibv_mr *mr[N];
	static char buf[4096];
	struct device d;

	device_open(&d);
	for (int i = 0; i < N; i++) {
		mr[i] = ibv_reg_mr(d.pd, buf, sizeof(buf), ACCESS_ALL);
		REQUIRE(mr[i]);
		old[i] = mr[i]->rkey;
		for (int j = 0; j < i; j++)
			REQUIRE(mr[i]->rkey != mr[j]->rkey &&
				mr[i]->lkey != mr[j]->lkey);
	}
	for (int i = 0; i < N; i++)
		REQUIRE_ERRNO(ibv_dereg_mr(mr[i]), 0);
	for (int i = 0; i < N; i++) {
		mr[i] = ibv_reg_mr(d.pd, buf, sizeof(buf), ACCESS_ALL);
		REQUIRE(mr[i]);
		fresh = mr[i]->rkey;
		for (int j = 0; j < N; j++)
			REQUIRE(fresh != old[j]);
	}
	for (int i = 0; i < N; i++)
		REQUIRE_ERRNO(ibv_dereg_mr(mr[i]), 0);
	device_close(&d);
}

/* ---- What is in use cannot be destroyed ---- */

static void busy_objects(void)
{
	struct ibv_comp_channel *channel;
	struct ibv_qp_init_attr init;
	static char buf[4096];
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct device d;

	device_open(&d);
	mr = ibv_reg_mr(d.pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE);
	REQUIRE(mr);
	REQUIRE_ERRNO(ibv_dealloc_pd(d.pd), EBUSY);
	REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);

	channel = ibv_create_comp_channel(d.ctx);
	REQUIRE(channel);
	cq = ibv_create_cq(d.ctx, 16, NULL, channel, 0);
	REQUIRE(cq);
	REQUIRE_ERRNO(ibv_destroy_comp_channel(channel), EBUSY);
	init = small_qp(cq);
	qp = ibv_create_qp(d.pd, &init);
	REQUIRE(qp);
	REQUIRE_ERRNO(ibv_destroy_cq(cq), EBUSY);
	REQUIRE_ERRNO(ibv_dealloc_pd(d.pd), EBUSY);
	REQUIRE_ERRNO(ibv_destroy_qp(qp), 0);
	REQUIRE_ERRNO(ibv_destroy_cq(cq), 0);
	REQUIRE_ERRNO(ibv_destroy_comp_channel(channel), 0);
	device_close(&d);
}

/* ---- Work requests ---- */

static void post_send_arguments(void)
{
	const struct end_config config = {
		.send_wr = 8, .recv_wr = 8, .send_sge = 2, .recv_sge = 2,
		.inline_data = 64,
	};
	struct ibv_send_wr wr[4], *bad;
	struct ibv_sge *sge;
	struct region r;
	struct peer to;
	struct pair p;
	uint32_t n;

	pair_open(&p, &config);
	region_make(&r, &p.d, 1 << 16, 0, ACCESS_ALL);
	to = end_address(&p.b, &r);
	sge = calloc(1000, sizeof(*sge));
	for (int i = 0; i < 1000; i++)
		sge[i] = sge_of(&r, i * 4, 4);

	/* More entries than were asked for and granted. */
	REQUIRE_ERRNO(try_send(&p.a, 1, IBV_WR_SEND, 0, sge,
			       p.a.cap.max_send_sge + 1, NULL, 0, 0), EINVAL);
	REQUIRE_ERRNO(try_send(&p.a, 1, IBV_WR_SEND, 0, sge, -1, NULL, 0, 0),
		      EINVAL);
	/* More inline data than granted, in one and in several entries. */
	sge[0] = sge_of(&r, 0, p.a.cap.max_inline_data + 1);
	REQUIRE_ERRNO(try_send(&p.a, 1, IBV_WR_SEND, IBV_SEND_INLINE, sge, 1,
			       NULL, 0, 0), EINVAL);
	sge[0] = sge_of(&r, 0, p.a.cap.max_inline_data);
	sge[1] = sge_of(&r, 0, 1);
	REQUIRE_ERRNO(try_send(&p.a, 1, IBV_WR_SEND, IBV_SEND_INLINE, sge, 2,
			       NULL, 0, 0), EINVAL);
	sge[1] = sge_of(&r, 0, UINT32_MAX);
	REQUIRE_ERRNO(try_send(&p.a, 1, IBV_WR_SEND, IBV_SEND_INLINE, sge, 2,
			       NULL, 0, 0), EINVAL);
	/* Operations that an RC queue pair has not. */
	sge[0] = sge_of(&r, 0, 4);
	REQUIRE_ERRNO(try_send(&p.a, 1, IBV_WR_TSO, 0, sge, 1, NULL, 0, 0),
		      EINVAL);
	REQUIRE_ERRNO(try_send(&p.a, 1, 1000, 0, sge, 1, NULL, 0, 0), EINVAL);

	/* The bad one of a list is named, those before it are posted. */
	for (int i = 0; i < 4; i++)
		wr[i] = (struct ibv_send_wr){
			.wr_id = 10 + i,
			.next = i < 3 ? &wr[i + 1] : NULL,
			.sg_list = sge,
			.num_sge = 1,
			.opcode = i == 2 ? 1000 : IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { to.addr, to.rkey },
		};
	bad = NULL;
	REQUIRE_ERRNO(ibv_post_send(p.a.qp, wr, &bad), EINVAL);
	REQUIRE(bad == &wr[2]);
	EXPECT_OK(p.a.scq, 10);
	EXPECT_OK(p.a.scq, 11);
	EXPECT_NO_WC(p.a.scq);

	/* Full: b has no receive, so nothing is retired. */
	for (n = 0; n < p.a.cap.max_send_wr; n++)
		REQUIRE_ERRNO(try_send(&p.a, n, IBV_WR_SEND, 0, sge, 1, NULL, 0,
				       0), 0);
	REQUIRE_ERRNO(try_send(&p.a, n, IBV_WR_SEND, 0, sge, 1, NULL, 0, 0),
		      ENOMEM);
	free(sge);
	region_free(&r);
	pair_close(&p);
}

static void post_recv_arguments(void)
{
	const struct end_config config = {
		.send_wr = 8, .recv_wr = 8, .recv_sge = 2
	};
	struct ibv_recv_wr wr[3], *bad;
	struct ibv_sge *sge;
	struct region r;
	struct device d;
	struct end e;
	uint32_t n;

	device_open(&d);
	end_make(&e, &d, &config);
	end_to_state(&e, IBV_QPS_RTS);
	region_make(&r, &d, 4096, 0, ACCESS_ALL);
	sge = calloc(1000, sizeof(*sge));
	for (int i = 0; i < 1000; i++)
		sge[i] = sge_of(&r, i * 4, 4);
	REQUIRE_ERRNO(try_recv(&e, 1, sge, e.cap.max_recv_sge + 1), EINVAL);
	REQUIRE_ERRNO(try_recv(&e, 1, sge, -1), EINVAL);

	for (int i = 0; i < 3; i++)
		wr[i] = (struct ibv_recv_wr){
			.wr_id = i,
			.next = i < 2 ? &wr[i + 1] : NULL,
			.sg_list = sge,
			.num_sge = i == 1 ? (int)e.cap.max_recv_sge + 1 : 1,
		};
	bad = NULL;
	REQUIRE_ERRNO(ibv_post_recv(e.qp, wr, &bad), EINVAL);
	REQUIRE(bad == &wr[1]);

	/* One is posted already. */
	for (n = 1; n < e.cap.max_recv_wr; n++)
		REQUIRE_ERRNO(try_recv(&e, n, sge, 1), 0);
	REQUIRE_ERRNO(try_recv(&e, n, sge, 1), ENOMEM);
	free(sge);
	end_free(&e);
	region_free(&r);
	device_close(&d);
}

/* A completion that was polled frees its slot and those before it. */
static void queue_full_and_free(void)
{
	const struct end_config config = { .send_wr = 8, .recv_wr = 64 };
	struct region r;
	struct ibv_sge sge;
	struct ibv_wc wc;
	struct pair p;
	uint32_t n;

	pair_open(&p, &config);
	region_make(&r, &p.d, 64, 0, ACCESS_ALL);
	sge = sge_of(&r, 0, 8);
	for (int round = 0; round < 10; round++) {
		for (n = 0; n < p.a.cap.max_send_wr; n++) {
			recv_region(&p.b, n, &r, 8, 8);
			REQUIRE_ERRNO(try_send(&p.a, n, IBV_WR_SEND,
					       n % 2 ? IBV_SEND_SIGNALED : 0,
					       &sge, 1, NULL, 0, 0), 0);
		}
		for (n = 0; n < p.a.cap.max_send_wr; n++)
			EXPECT_OK(p.b.rcq, n);
		EXPECT_OK(p.a.scq, 1);
		/* The first two are free now. */
		recv_region(&p.b, 100, &r, 8, 8);
		recv_region(&p.b, 101, &r, 8, 8);
		REQUIRE_ERRNO(try_send(&p.a, 100, IBV_WR_SEND, 0, &sge, 1, NULL,
				       0, 0), 0);
		REQUIRE_ERRNO(try_send(&p.a, 101, IBV_WR_SEND, IBV_SEND_SIGNALED,
				       &sge, 1, NULL, 0, 0), 0);
		do
			next_wc(p.a.scq, &wc);
		while (wc.wr_id != 101);
		EXPECT_OK(p.b.rcq, 100);
		EXPECT_OK(p.b.rcq, 101);
	}
	region_free(&r);
	pair_close(&p);
}

/* A poll for no, a negative or very many completions. */
static void poll_arguments(void)
{
	enum { MANY = 1000 };
	struct ibv_wc *wc = calloc(MANY, sizeof(*wc));
	struct region r;
	struct device d;
	struct end e;
	int n = 0;

	device_open(&d);
	end_make(&e, &d, NULL);
	end_to_state(&e, IBV_QPS_RTS);
	region_make(&r, &d, 64, 0, ACCESS_ALL);
	REQUIRE_EQ(ibv_poll_cq(e.scq, MANY, wc), 0);
	for (int i = 0; i < 10; i++) {
		recv_region(&e, i, &r, 0, 8);
		send_region(&e, i, &r, 8, 8);
	}
	for (int i = 0; i < 10; i++)
		EXPECT_OK(e.rcq, i);
	REQUIRE_EQ(ibv_poll_cq(e.scq, 0, wc), 0);
	while (n < 10) {
		int got = ibv_poll_cq(e.scq, MANY, wc + n);

		REQUIRE(got >= 0 && n + got <= 10);
		n += got;
	}
	for (int i = 0; i < 10; i++)
		REQUIRE_EQ(wc[i].wr_id, i);
	end_free(&e);
	region_free(&r);
	device_close(&d);
	free(wc);
}

/*
 * Posting and polling by commands is for devices whose drivers do that in the
 * kernel. Here the kernel's own users have these verbs, whose addresses are
 * the kernel's.
 */
static void data_path_by_commands(void)
{
	struct {
		struct ib_uverbs_post_send head;
		struct ib_uverbs_send_wr wr;
		struct ib_uverbs_sge sge;
	} send = {
		.head = { .wr_count = 1, .sge_count = 1, .wqe_size = sizeof(send.wr) },
		.wr = { .num_sge = 1, .opcode = IB_UVERBS_WR_SEND },
	};
	struct {
		struct ib_uverbs_post_recv head;
		struct ib_uverbs_recv_wr wr;
		struct ib_uverbs_sge sge;
	} recv = {
		.head = { .wr_count = 1, .sge_count = 1, .wqe_size = sizeof(recv.wr) },
		.wr = { .num_sge = 1 },
	};
	struct ib_uverbs_poll_cq poll = { .ne = 1 };
	uint64_t answer[16];
	struct ibv_srq_init_attr srq_init = {
		.attr = { .max_wr = 4, .max_sge = 1 }
	};
	struct ibv_srq *srq;
	struct device d;
	struct end e;
	int fd;

	device_open(&d);
	fd = d.ctx->cmd_fd;
	end_make(&e, &d, NULL);
	srq = ibv_create_srq(d.pd, &srq_init);
	REQUIRE(srq);
	send.head.qp_handle = e.qp->handle;
	REQUIRE_EQ(UVERBS_COMMAND(fd, POST_SEND, &send, &answer), EOPNOTSUPP);
	recv.head.qp_handle = e.qp->handle;
	REQUIRE_EQ(UVERBS_COMMAND(fd, POST_RECV, &recv, &answer), EOPNOTSUPP);
	/* The same command, for another object. */
	recv.head.qp_handle = srq->handle;
	REQUIRE_EQ(UVERBS_COMMAND(fd, POST_SRQ_RECV, &recv, &answer), EOPNOTSUPP);
	poll.cq_handle = e.scq->handle;
	REQUIRE_EQ(UVERBS_COMMAND(fd, POLL_CQ, &poll, &answer), EOPNOTSUPP);
	REQUIRE_ERRNO(ibv_destroy_srq(srq), 0);
	end_free(&e);
	device_close(&d);
}

/*
 * Verbs that change an object judge what is sent along with the command before
 * they change anything: an answer of EOPNOTSUPP leaves the object as it was.
 */
static void unknown_requests(void)
{
	struct {
		struct ib_uverbs_resize_cq head;
		uint64_t unknown;
	} resize = { .head = { .cqe = 1000 }, .unknown = 1 };
	struct {
		struct ib_uverbs_rereg_mr head;
		uint64_t unknown;
	} rereg = {
		.head = { .flags = IBV_REREG_MR_CHANGE_ACCESS },
		.unknown = 1,
	};
	uint64_t answer[16];
	struct region r;
	struct device d;
	struct end e;

	device_open(&d);
	end_make(&e, &d, NULL);
	end_to_state(&e, IBV_QPS_RTS);
	region_make(&r, &d, 64, 0, ACCESS_ALL);
	resize.head.cq_handle = e.scq->handle;
	REQUIRE_EQ(UVERBS_COMMAND(d.ctx->cmd_fd, RESIZE_CQ, &resize, &answer),
		   EOPNOTSUPP);
	rereg.head.mr_handle = r.mr->handle;
	REQUIRE_EQ(UVERBS_COMMAND(d.ctx->cmd_fd, REREG_MR, &rereg, &answer),
		   EOPNOTSUPP);
	/* Completions come where the program looks; what is received is written. */
	recv_region(&e, 1, &r, 0, 8);
	send_region(&e, 2, &r, 8, 8);
	EXPECT_OK(e.scq, 2);
	EXPECT_OK(e.rcq, 1);
	end_free(&e);
	region_free(&r);
	device_close(&d);
}

/*
 * What is not there yet says so with EOPNOTSUPP, so that a program can tell
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

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "device_attributes", device_attributes },
		{ "port_number", port_number },
		{ "cq_arguments", cq_arguments },
		{ "qp_arguments", qp_arguments },
		{ "mr_arguments", mr_arguments },
		{ "mr_keys", mr_keys },
		{ "busy_objects", busy_objects },
		{ "post_send_arguments", post_send_arguments },
		{ "post_recv_arguments", post_recv_arguments },
		{ "queue_full_and_free", queue_full_and_free },
		{ "poll_arguments", poll_arguments },
		{ "data_path_by_commands", data_path_by_commands },
		{ "unknown_requests", unknown_requests },
		{ "optional_verbs", optional_verbs },
		{ }
	};

	return test_main(argc, argv, cases);
}
