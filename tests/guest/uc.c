// SPDX-License-Identifier: GPL-2.0
/*
 * Unreliable connections: what arrives does so whole and in order, what the
 * receiver cannot take is lost, and the sender is never told.
 */
#define _GNU_SOURCE
#include "common.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum {
	LEN = 64,
	/* A thread posts so many at once, of several packets each. */
	LIST = 16,
	LONG = 16384,
	LISTS = 200,
};

static void make(struct pair *p, size_t len)
{
	const struct end_config config = { .type = IBV_QPT_UC };

	pair_open(p, &config);
	region_make(&p->mine, &p->d, len, 3, ACCESS_ALL);
	region_make(&p->theirs, &p->d, len, 5, ACCESS_ALL);
	p->to = end_address(&p->b, &p->theirs);
	fill(p->mine.data, len, 1);
}

/* A message goes from a to b, by requests of these numbers. */
static void expect_message(struct pair *p, uint64_t recv_id, uint64_t send_id)
{
	recv_region(&p->b, recv_id, &p->theirs, 0, LEN);
	send_region(&p->a, send_id, &p->mine, 0, LEN);
	EXPECT_OK(p->a.scq, send_id);
	EXPECT_OK(p->b.rcq, recv_id);
}

static void sizes(void)
{
	static const size_t lengths[] = { 0, 1, 255, 1024, 1025, 65536,
					  1 << 20 };
	struct pair p;

	make(&p, 1 << 20);
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		size_t len = lengths[i];
		struct ibv_sge sge = sge_of(&p.mine, 0, len);
		struct ibv_wc wc;

		recv_region(&p.b, i, &p.theirs, 0, 1 << 20);
		send_region(&p.a, i, &p.mine, 0, len);
		EXPECT_OK(p.a.scq, i);
		wc = EXPECT_OK(p.b.rcq, i);
		REQUIRE_EQ(wc.byte_len, len);
		VERIFY(p.theirs.data, len, 1);

		memset(p.theirs.data, 0, 1 << 20);
		send_sges(&p.a, i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
			  1, &p.to, 0, 0);
		EXPECT_OK(p.a.scq, i);
		/* By the wire, the sender does not know when it arrives. The next message comes after it. */
		recv_region(&p.b, i, &p.theirs, 0, 0);
		send_region(&p.a, i, &p.mine, 0, 0);
		EXPECT_OK(p.a.scq, i);
		EXPECT_OK(p.b.rcq, i);
		VERIFY(p.theirs.data, len, 1);
		VERIFY_BYTE(p.theirs.data + len, (1 << 20) - len, 0);
	}
	EXPECT_NO_WC(p.b.rcq);
	pair_close(&p);
}

static void immediate(void)
{
	struct ibv_sge sge;
	struct ibv_wc wc;
	struct pair p;

	make(&p, LEN);
	sge = sge_of(&p.mine, 0, LEN);
	recv_region(&p.b, 1, &p.theirs, 0, LEN);
	recv_region(&p.b, 2, &p.theirs, 0, 0);
	send_sges(&p.a, 3, IBV_WR_SEND_WITH_IMM, IBV_SEND_SIGNALED, &sge, 1,
		  NULL, 0, htonl(0x01020304));
	wc = EXPECT_OK(p.b.rcq, 1);
	REQUIRE_EQ(wc.opcode, IBV_WC_RECV);
	REQUIRE_EQ(wc.wc_flags, IBV_WC_WITH_IMM);
	REQUIRE_EQ(ntohl(wc.imm_data), 0x01020304);
	send_sges(&p.a, 4, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED, &sge,
		  1, &p.to, 0, htonl(5));
	wc = EXPECT_OK(p.b.rcq, 2);
	REQUIRE_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	REQUIRE_EQ(wc.byte_len, LEN);
	REQUIRE_EQ(ntohl(wc.imm_data), 5);
	VERIFY(p.theirs.data, LEN, 1);
	EXPECT_OK(p.a.scq, 3);
	EXPECT_OK(p.a.scq, 4);
	pair_close(&p);
}

/* Each of these is lost, and the next message arrives all the same. */
static void losses(void)
{
	struct peer wrong;
	struct ibv_sge sge;
	struct pair p;

	make(&p, LEN);
	sge = sge_of(&p.mine, 0, LEN);
	/* No receive request: there is no waiting either. */
	send_region(&p.a, 1, &p.mine, 0, LEN);
	EXPECT_OK(p.a.scq, 1);
	/* A key that opens nothing, a range that is not all in the region. */
	wrong = p.to;
	wrong.rkey ^= 0x55;
	send_sges(&p.a, 2, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 1,
		  &wrong, 0, 0);
	EXPECT_OK(p.a.scq, 2);
	send_sges(&p.a, 3, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 1,
		  &p.to, 1, 0);
	EXPECT_OK(p.a.scq, 3);
	VERIFY_BYTE(p.theirs.data, LEN, 0);
	/* A buffer that is too small stays for a message that fits. */
	recv_region(&p.b, 4, &p.theirs, 0, LEN / 2);
	send_region(&p.a, 5, &p.mine, 0, LEN);
	EXPECT_OK(p.a.scq, 5);
	EXPECT_NO_WC(p.b.rcq);
	VERIFY_BYTE(p.theirs.data, LEN, 0);
	send_region(&p.a, 6, &p.mine, 0, LEN / 2);
	EXPECT_OK(p.a.scq, 6);
	EXPECT_OK(p.b.rcq, 4);
	VERIFY(p.theirs.data, LEN / 2, 1);
	REQUIRE_EQ(end_state(&p.a), IBV_QPS_RTS);
	REQUIRE_EQ(end_state(&p.b), IBV_QPS_RTS);
	expect_no_async(p.d.ctx);
	pair_close(&p);
}

/* An error of the sender's own stops its send queue, until it is told to go on. */
static void send_queue_error(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	struct ibv_sge bad = { .length = LEN, .lkey = 77 };
	struct pair p;

	make(&p, LEN);
	send_sges(&p.a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, &bad, 1, NULL, 0,
		  0);
	send_region(&p.a, 2, &p.mine, 0, LEN);
	EXPECT_WC(p.a.scq, 1, IBV_WC_LOC_PROT_ERR);
	EXPECT_WC(p.a.scq, 2, IBV_WC_WR_FLUSH_ERR);
	end_await_state(&p.a, IBV_QPS_SQE);
	send_region(&p.a, 3, &p.mine, 0, LEN);
	EXPECT_WC(p.a.scq, 3, IBV_WC_WR_FLUSH_ERR);
	/* It receives meanwhile. */
	recv_region(&p.a, 4, &p.theirs, 0, LEN);
	send_region(&p.b, 5, &p.mine, 0, LEN);
	EXPECT_OK(p.a.rcq, 4);
	EXPECT_OK(p.b.scq, 5);
	REQUIRE_ERRNO(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), 0);
	expect_message(&p, 6, 7);
	pair_close(&p);
}

/* Once it has drained, its path may change: Linux adds the port to that. */
static void path_in_sqd(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD };
	struct ibv_qp_init_attr init;
	struct pair p;

	make(&p, LEN);
	REQUIRE_ERRNO(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), 0);
	attr.ah_attr = (struct ibv_ah_attr){
		.is_global = 1,
		.port_num = 1,
		.grh = {
			.dgid = p.to.gid,
			.sgid_index = p.d.gid_index,
			.hop_limit = 64,
			.traffic_class = 32,
		},
	};
	REQUIRE_ERRNO(ibv_modify_qp(p.a.qp, &attr, IBV_QP_AV), 0);
	REQUIRE_ERRNO(ibv_query_qp(p.a.qp, &attr, IBV_QP_AV, &init), 0);
	REQUIRE_EQ(attr.ah_attr.grh.traffic_class, 32);
	attr.qp_state = IBV_QPS_RTS;
	REQUIRE_ERRNO(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), 0);
	expect_message(&p, 1, 2);
	pair_close(&p);
}

/* A receive buffer of which the key is wrong is the receiver's own error. */
static void bad_buffer(void)
{
	struct ibv_sge bad = { .length = LEN, .lkey = 77 };
	struct pair p;

	make(&p, LEN);
	REQUIRE_ERRNO(try_recv(&p.b, 1, &bad, 1), 0);
	recv_region(&p.b, 2, &p.theirs, 0, LEN);
	send_region(&p.a, 3, &p.mine, 0, LEN);
	EXPECT_OK(p.a.scq, 3);
	EXPECT_WC(p.b.rcq, 1, IBV_WC_LOC_PROT_ERR);
	EXPECT_WC(p.b.rcq, 2, IBV_WC_WR_FLUSH_ERR);
	end_await_state(&p.b, IBV_QPS_ERR);
	REQUIRE_EQ(end_state(&p.a), IBV_QPS_RTS);
	pair_close(&p);
}

/* A message that has come is a sign that the write before it has, if it was taken. */
static void write_and_send(struct pair *p, uint64_t wr_id, struct peer *to)
{
	struct ibv_sge sge = sge_of(&p->mine, 0, LEN);

	recv_region(&p->b, wr_id, &p->theirs, 0, LEN);
	send_sges(&p->a, wr_id, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 1,
		  to, 0, 0);
	EXPECT_OK(p->a.scq, wr_id);
	send_region(&p->a, wr_id, &p->mine, 0, LEN);
	EXPECT_OK(p->a.scq, wr_id);
	EXPECT_OK(p->b.rcq, wr_id);
}

/* A window opens to the peer from the bind to the invalidation. */
static void windows(void)
{
	struct ibv_mw_bind_info info = { .length = LEN,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct region bindable;
	struct ibv_wc wc;
	struct pair p;
	struct peer to;
	struct ibv_mw *mw;
	uint32_t key;

	make(&p, LEN);
	region_make(&bindable, &p.d, LEN, 0,
		    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	info.mr = bindable.mr;
	info.addr = (uintptr_t)bindable.data;
	mw = ibv_alloc_mw(p.d.pd, IBV_MW_TYPE_2);
	REQUIRE(mw);
	key = ibv_inc_rkey(mw->rkey);
	to = (struct peer){ .addr = info.addr, .rkey = key };

	write_and_send(&p, 1, &to);
	VERIFY_BYTE(bindable.data, LEN, 0);
	send_bind(&p.b, 2, mw, key, info);
	wc = EXPECT_OK(p.b.scq, 2);
	REQUIRE_EQ(wc.opcode, IBV_WC_BIND_MW);
	write_and_send(&p, 3, &to);
	VERIFY(bindable.data, LEN, 1);
	memset(bindable.data, 0, LEN);
	send_local_inv(&p.b, 4, key);
	wc = EXPECT_OK(p.b.scq, 4);
	REQUIRE_EQ(wc.opcode, IBV_WC_LOCAL_INV);
	write_and_send(&p, 5, &to);
	VERIFY_BYTE(bindable.data, LEN, 0);

	/* One that cannot be bound stops the send queue and nothing else. */
	info.length = LEN + 1;
	send_bind(&p.b, 6, mw, key + 1, info);
	EXPECT_WC(p.b.scq, 6, IBV_WC_MW_BIND_ERR);
	end_await_state(&p.b, IBV_QPS_SQE);
	write_and_send(&p, 7, &p.to);

	REQUIRE_ERRNO(ibv_dealloc_mw(mw), 0);
	region_free(&bindable);
	pair_close(&p);
}

/* The transport has no opcode for it on UC (IBA volume 1, 9.2, table 35). */
static void no_send_with_invalidate(void)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_SEND_WITH_INV,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	struct pair p;

	make(&p, LEN);
	REQUIRE_ERRNO(ibv_post_send(p.a.qp, &wr, &bad), EINVAL);
	send_region(&p.a, 1, &p.mine, 0, LEN);
	EXPECT_OK(p.a.scq, 1);
	pair_close(&p);
}

struct sender {
	struct pair *pair;
	int cpu;
	atomic_int *begun;
};

/* Each list begins together with that of the other thread. */
static void *post_lists(void *arg)
{
	const int lists = test_rounds(LISTS);
	const struct sender *s = arg;
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(s->cpu, &cpus);
	/* Where there is but one processor, both have that. */
	sched_setaffinity(0, sizeof(cpus), &cpus);
	for (int i = 0; i < lists; i++) {
		for (int j = 0; j < LIST; j++)
			recv_region(&s->pair->b, 0, &s->pair->theirs, 0, LONG);
		atomic_fetch_add(s->begun, 1);
		while (atomic_load(s->begun) < 2 * (i + 1))
			sched_yield();
		for (int j = 0; j < LIST; j++)
			send_region(&s->pair->a, 0, &s->pair->mine, 0, LONG);
		for (int j = 0; j < LIST; j++) {
			EXPECT_OK(s->pair->a.scq, 0);
			EXPECT_OK(s->pair->b.rcq, 0);
		}
	}
	return NULL;
}

/*
 * Two processors send for one queue pair. Its packets must not overtake each
 * other on their way: messages would be lost by that.
 */
static void two_processors(void)
{
	const struct end_config config = {
		.type = IBV_QPT_UC,
		.send_wr = 4 * LIST,
		.recv_wr = 4 * LIST,
	};
	atomic_int begun = 0;
	struct sender senders[2];
	pthread_t threads[2];
	struct pair p;

	pair_open(&p, &config);
	pair_memory(&p, LONG, LONG, ACCESS_ALL);
	for (int i = 0; i < 2; i++) {
		senders[i] = (struct sender){ &p, i, &begun };
		REQUIRE_ERRNO(pthread_create(&threads[i], NULL, post_lists, &senders[i]), 0);
	}
	for (int i = 0; i < 2; i++)
		REQUIRE_ERRNO(pthread_join(threads[i], NULL), 0);
	VERIFY(p.theirs.data, LONG, 1);
	pair_close(&p);
}

/* Nobody answers, so nobody is waited for. */
static void no_peer(void)
{
	struct pair p;

	make(&p, LEN);
	end_free(&p.b);
	send_region(&p.a, 1, &p.mine, 0, LEN);
	EXPECT_OK(p.a.scq, 1);
	REQUIRE_EQ(end_state(&p.a), IBV_QPS_RTS);
	end_make(&p.b, &p.d, &p.a.config);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "sizes", sizes },
		{ "immediate", immediate },
		{ "losses", losses },
		{ "send_queue_error", send_queue_error },
		{ "path_in_sqd", path_in_sqd },
		{ "bad_buffer", bad_buffer },
		{ "windows", windows },
		{ "no_send_with_invalidate", no_send_with_invalidate },
		{ "no_peer", no_peer },
		{ "two_processors", two_processors, 60 },
		{ }
	};

	return test_main(argc, argv, cases);
}
