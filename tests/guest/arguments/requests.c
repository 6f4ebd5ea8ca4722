// SPDX-License-Identifier: GPL-2.0
/* Posting and polling: wrong requests, and queues that are full. */
#include "arguments.h"

#include <stdlib.h>

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

const struct test_case request_cases[] = {
	{ "post_send_arguments", post_send_arguments },
	{ "post_recv_arguments", post_recv_arguments },
	{ "queue_full_and_free", queue_full_and_free },
	{ "poll_arguments", poll_arguments },
	{ }
};
