// SPDX-License-Identifier: GPL-2.0
/* Two faults at once, requests that nobody signals, and ends that are no pair. */
#include "rc_errors.h"

#include <pthread.h>

#define REMOTE (ACCESS_ALL | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static const struct end_config open_end = { .access = REMOTE };

static const enum ibv_wr_opcode one_sided[] = {
	IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
	IBV_WR_ATOMIC_FETCH_AND_ADD,
};

/* An access of 8 bytes whose completion nobody asks for. */
static void post_unsignalled(struct pair *p, enum ibv_wr_opcode opcode,
			     struct ibv_sge sge)
{
	if (opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_READ)
		send_sges(&p->a, 5, opcode, 0, &sge, 1, &p->to, 0, 0);
	else
		send_atomic(&p->a, 5, opcode, 0, sge, &p->to, 0, 1, 1);
}

/* Those that succeed are not told; one that fails is (10.7.3.1). */
static void unsignalled(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(one_sided); i++) {
		struct pair p;

		make(&p, &open_end, REMOTE);
		post_unsignalled(&p, one_sided[i], sge_of(&p.mine, 0, 8));
		EXPECT_NO_WC(p.a.scq);
		p.to.rkey ^= 0x100;
		post_unsignalled(&p, one_sided[i], sge_of(&p.mine, 0, 8));
		EXPECT_WC(p.a.scq, 5, IBV_WC_REM_ACCESS_ERR);
		EXPECT_NO_WC(p.a.scq);
		pair_close(&p);
	}
}

/*
 * Both keys are wrong: what a WRITE or an atomic operation names here is looked
 * at before anything is sent.
 */
static void both_keys(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(one_sided); i++) {
		struct ibv_sge sge;
		struct pair p;

		make(&p, &open_end, REMOTE);
		sge = sge_of(&p.mine, 0, 8);
		sge.lkey ^= 0x100;
		p.to.rkey ^= 0x100;
		post_unsignalled(&p, one_sided[i], sge);
		EXPECT_WC(p.a.scq, 5, IBV_WC_LOC_PROT_ERR);
		expect_peer_untouched(&p);
		pair_close(&p);
	}
}

/* Inline data is what a SEND or a WRITE sends (ibv_post_send(3)). */
static void inline_read(void)
{
	const struct end_config config = { .access = REMOTE, .inline_data = 64 };
	struct ibv_sge sge;
	struct pair p;

	make(&p, &config, REMOTE);
	sge = sge_of(&p.mine, 0, 8);
	REQUIRE_ERRNO(try_send(&p.a, 1, IBV_WR_RDMA_READ, IBV_SEND_INLINE, &sge,
			       1, &p.to, 0, 0), EINVAL);
	EXPECT_NO_WC(p.a.scq);
	expect_peer_untouched(&p);
	pair_close(&p);
}

/*
 * A queue pair takes nothing of another service than its own (9.6.1.1): a
 * connection to one of datagrams is answered by nobody, and a datagram to a
 * connected one is lost.
 */
static void other_service(void)
{
	const struct end_config short_lived = { .timeout = 8, .retry = 1 };
	const struct end_config datagrams = { .type = IBV_QPT_UD };
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh.hop_limit = 64,
	};
	struct peer to_ud;
	struct end rc, ud;
	struct ibv_ah *ah;
	struct pair p;

	make(&p, NULL, ACCESS_ALL);
	end_make(&rc, &p.d, &short_lived);
	end_make(&ud, &p.d, &datagrams);
	to_ud = end_address(&ud, NULL);
	end_connect(&ud, &to_ud);
	end_connect(&rc, &to_ud);
	recv_region(&ud, 1, &p.theirs, 0, LEN);
	send_region(&rc, 2, &p.mine, 0, 8);
	EXPECT_WC(rc.scq, 2, IBV_WC_RETRY_EXC_ERR);
	EXPECT_NO_WC(ud.rcq);

	attr.grh.dgid = p.d.gid;
	attr.grh.sgid_index = p.d.gid_index;
	ah = ibv_create_ah(p.d.pd, &attr);
	REQUIRE(ah);
	post_receives(&p);
	send_datagram(&ud, 3, &p.mine,
		      (struct datagram){ ah, p.b.qp->qp_num, QKEY, 8 });
	EXPECT_OK(ud.scq, 3);
	expect_peer_untouched(&p);
	/* Neither minds. */
	send_region(&p.a, 4, &p.mine, 0, LEN);
	EXPECT_OK(p.a.scq, 4);
	EXPECT_OK(p.b.rcq, 100);
	send_datagram(&ud, 5, &p.mine,
		      (struct datagram){ ah, ud.qp->qp_num, QKEY, 8 });
	EXPECT_OK(ud.scq, 5);
	EXPECT_OK(ud.rcq, 1);
	REQUIRE_ERRNO(ibv_destroy_ah(ah), 0);
	end_free(&rc);
	end_free(&ud);
	pair_close(&p);
}

/* A program posts and polls while another thread of it ends the queue pair. */
enum { DEPTH = 32, AFTER = 100 };

static void *end_it(void *arg)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct end *e = arg;

	sleep_us(3000);
	REQUIRE_ERRNO(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE), 0);
	return NULL;
}

static void ended_while_posting(void)
{
	const struct end_config config = { .send_wr = DEPTH };

	for (int round = 0; round < 10; round++) {
		uint64_t end = now_us() + PATIENCE_US;
		unsigned int posted = 0, done = 0, flushed = 0;
		pthread_t thread;
		struct pair p;

		make(&p, &config, ACCESS_ALL);
		REQUIRE(!pthread_create(&thread, NULL, end_it, &p.a));
		while (flushed < AFTER) {
			struct ibv_sge sge = whole(&p);
			struct ibv_wc wc;

			while (posted - done < DEPTH)
				send_sges(&p.a, posted++, IBV_WR_RDMA_WRITE,
					  IBV_SEND_SIGNALED, &sge, 1, &p.to, 0,
					  0);
			next_wc(p.a.scq, &wc);
			REQUIRE_EQ(wc.wr_id, done++);
			if (flushed || wc.status != IBV_WC_SUCCESS) {
				REQUIRE_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
				flushed++;
			}
			if (now_us() > end)
				FAIL("it was not ended");
		}
		while (done < posted)
			EXPECT_WC(p.a.scq, done++, IBV_WC_WR_FLUSH_ERR);
		EXPECT_NO_WC(p.a.scq);
		REQUIRE(!pthread_join(thread, NULL));
		pair_close(&p);
	}
}

const struct test_case corner_cases[] = {
	{ "unsignalled", unsignalled },
	{ "both_keys", both_keys },
	{ "inline_read", inline_read },
	{ "other_service", other_service },
	{ "ended_while_posting", ended_while_posting },
	{ }
};
