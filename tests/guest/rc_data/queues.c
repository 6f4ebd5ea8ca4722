// SPDX-License-Identifier: GPL-2.0
/* Signalled requests, queues that are full, and many queues. */
#include "rc_data.h"

#include <stdlib.h>

/*
 * Only every n-th request is signalled; the unsignalled ones before it are
 * done when it is, and their slots are free again.
 */
static void signalled_every_nth(void)
{
	const struct end_config config = {
		.send_wr = 32, .recv_wr = 32
	};
	struct region src, dst;
	struct device d;
	struct end a, b;

	device_open(&d);
	for (unsigned int every = 1; every <= 32; every = every * 2 + 1) {
		uint64_t sent = 0;

		ends_make(&a, &b, &d, &config);
		region_make(&src, &d, 32 * 64, 0, 0);
		region_make(&dst, &d, 32 * 64, 0, IBV_ACCESS_LOCAL_WRITE);
		for (int round = 0; round < 20; round++) {
			for (unsigned int i = 0; i < every; i++) {
				fill(src.data + i * 64, 64, sent + i);
				recv_region(&b, sent + i, &dst, i * 64, 64);
			}
			for (unsigned int i = 0; i < every; i++) {
				struct ibv_sge sge = sge_of(&src, i * 64, 64);

				send_sges(&a, sent + i, IBV_WR_SEND,
					  i == every - 1 ? IBV_SEND_SIGNALED :
					  0, &sge, 1, NULL, 0, 0);
			}
			EXPECT_OK(a.scq, sent + every - 1);
			for (unsigned int i = 0; i < every; i++) {
				EXPECT_OK(b.rcq, sent + i);
				VERIFY(dst.data + i * 64, 64, sent + i);
			}
			sent += every;
		}
		EXPECT_NO_WC(a.scq);
		region_free(&src);
		region_free(&dst);
		end_free(&a);
		end_free(&b);
	}
	device_close(&d);
}

/* sq_sig_all makes every request complete, whatever its flags. */
static void signal_all(void)
{
	const struct end_config config = { .signal_all = true };
	struct pair p;

	pair_open(&p, &config);
	region_make(&p.mine, &p.d, 64, 0, 0);
	region_make(&p.theirs, &p.d, 64, 0, ACCESS_ALL);
	for (uint64_t i = 0; i < 100; i++) {
		struct ibv_sge sge = sge_of(&p.mine, 0, 64);
		struct peer to = end_address(&p.b, &p.theirs);

		send_sges(&p.a, i, IBV_WR_RDMA_WRITE, 0, &sge, 1, &to, 0, 0);
		EXPECT_OK(p.a.scq, i);
	}
	pair_close(&p);
}

/*
 * A full queue of requests posted as one list, again and again: every slot,
 * every lap, and the order of completions at both ends.
 */
static void full_queues(void)
{
	const struct end_config config = {
		.send_wr = 128, .recv_wr = 128
	};
	struct ibv_send_wr *wr;
	struct ibv_sge *sge;
	struct pair p;
	uint32_t n;

	pair_open(&p, &config);
	/* The granted queues are usable, to the last slot. */
	n = p.a.cap.max_send_wr < p.b.cap.max_recv_wr ? p.a.cap.max_send_wr :
	    p.b.cap.max_recv_wr;
	if ((int)n > p.a.scq->cqe)
		n = p.a.scq->cqe;
	REQUIRE(n >= 128);
	wr = calloc(n, sizeof(*wr));
	sge = calloc(n, sizeof(*sge));
	region_make(&p.mine, &p.d, n * 16, 0, 0);
	region_make(&p.theirs, &p.d, n * 16, 0, IBV_ACCESS_LOCAL_WRITE);
	for (uint64_t lap = 0; lap < 9; lap++) {
		struct ibv_send_wr *bad = NULL;

		for (uint32_t i = 0; i < n; i++) {
			fill(p.mine.data + i * 16, 16, lap * n + i);
			sge[i] = sge_of(&p.mine, i * 16, 16);
			wr[i] = (struct ibv_send_wr){
				.wr_id = lap * n + i,
				.next = i == n - 1 ? NULL : &wr[i + 1],
				.sg_list = &sge[i],
				.num_sge = 1,
				.opcode = IBV_WR_SEND,
				.send_flags = IBV_SEND_SIGNALED,
			};
			recv_region(&p.b, lap * n + i, &p.theirs, i * 16, 16);
		}
		REQUIRE_ERRNO(ibv_post_send(p.a.qp, wr, &bad), 0);
		for (uint32_t i = 0; i < n; i++)
			EXPECT_OK(p.a.scq, lap * n + i);
		for (uint32_t i = 0; i < n; i++) {
			EXPECT_OK(p.b.rcq, lap * n + i);
			VERIFY(p.theirs.data + i * 16, 16, lap * n + i);
		}
	}
	pair_close(&p);
	free(wr);
	free(sge);
}

/* Many connections on one completion queue, spoken on in turn. */
static void many_qps(void)
{
	enum { PAIRS = 32, EACH = 8, LEN = 100 };
	struct end_config config = { .send_wr = 16, .recv_wr = 16 };
	uint64_t sent[PAIRS] = { }, got[PAIRS] = { };
	static struct end a[PAIRS], b[PAIRS];
	struct region src, dst;
	struct device d;

	device_open(&d);
	config.cq = ibv_create_cq(d.ctx, 2 * PAIRS * EACH, NULL, NULL, 0);
	REQUIRE(config.cq);
	region_make(&src, &d, PAIRS * EACH * LEN, 0, 0);
	region_make(&dst, &d, PAIRS * EACH * LEN, 0, IBV_ACCESS_LOCAL_WRITE);
	fill(src.data, src.len, 77);
	for (int p = 0; p < PAIRS; p++) {
		ends_make(&a[p], &b[p], &d, &config);
		for (int q = 0; q < p; q++)
			REQUIRE(a[p].qp->qp_num != a[q].qp->qp_num &&
				a[p].qp->qp_num != b[q].qp->qp_num);
	}
	for (int i = 0; i < EACH; i++)
		for (int p = 0; p < PAIRS; p++)
			recv_region(&b[p], p << 8 | i, &dst,
				    (p * EACH + i) * LEN, LEN);
	for (int i = 0; i < EACH; i++)
		for (int p = 0; p < PAIRS; p++)
			send_region(&a[p], p << 8 | i, &src,
				    (p * EACH + i) * LEN, LEN);
	for (int i = 0; i < 2 * PAIRS * EACH; i++) {
		struct ibv_wc wc;
		int p;

		next_wc(config.cq, &wc);
		REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
		p = wc.wr_id >> 8;
		REQUIRE(p < PAIRS);
		if (wc.opcode & IBV_WC_RECV) {
			REQUIRE_EQ(wc.qp_num, b[p].qp->qp_num);
			REQUIRE_EQ(wc.wr_id & 0xff, got[p]++);
		} else {
			REQUIRE_EQ(wc.qp_num, a[p].qp->qp_num);
			REQUIRE_EQ(wc.wr_id & 0xff, sent[p]++);
		}
	}
	VERIFY(dst.data, dst.len, 77);
	for (int p = 0; p < PAIRS; p++) {
		end_free(&a[p]);
		end_free(&b[p]);
	}
	REQUIRE_ERRNO(ibv_destroy_cq(config.cq), 0);
	region_free(&src);
	region_free(&dst);
	device_close(&d);
}

/* A queue pair connected to itself, which the specification allows. */
static void self_connection(void)
{
	struct region src, dst;
	struct device d;
	struct end e;

	device_open(&d);
	end_make(&e, &d, NULL);
	end_to_state(&e, IBV_QPS_RTS);
	region_make(&src, &d, 9000, 0, 0);
	region_make(&dst, &d, 9000, 0, ACCESS_ALL);
	transfer(&e, &e, &src, &dst, IBV_WR_SEND, 8000, 500, 1);
	transfer(&e, &e, &src, &dst, IBV_WR_RDMA_WRITE_WITH_IMM, 8000, 500, 2);
	region_free(&src);
	region_free(&dst);
	end_free(&e);
	device_close(&d);
}

const struct test_case queue_cases[] = {
	{ "signalled_every_nth", signalled_every_nth },
	{ "signal_all", signal_all },
	{ "full_queues", full_queues },
	{ "many_qps", many_qps },
	{ "self_connection", self_connection },
	{ }
};
