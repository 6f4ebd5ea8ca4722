// SPDX-License-Identifier: GPL-2.0
/*
 * ATOMIC WRITE and FLUSH over reliable connections (IBA volume 1, annex A19): the
 * word is there all at once and after what was written before, and a flush ends
 * when all see it.
 */
#include "common.h"

#include <pthread.h>
#include <stdlib.h>

#define ACCESS (ACCESS_ALL | IBV_ACCESS_FLUSH_GLOBAL)
#define OPS (IBV_QP_EX_WITH_FLUSH | IBV_QP_EX_WITH_ATOMIC_WRITE | \
	     IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | \
	     IBV_QP_EX_WITH_BIND_MW)

static const struct end_config placing = { .access = ACCESS, .send_ops = OPS };

enum { SIZE = 1 << 16 };

static void make(struct pair *p)
{
	pair_open(p, &placing);
	pair_memory(p, SIZE, SIZE, ACCESS);
}

static uint64_t *word(struct pair *p)
{
	return (uint64_t *)p->theirs.data;
}

/* The device says what it can do, and it cannot make memory persist. */
static void capabilities(void)
{
	struct ibv_device_attr_ex attr;
	struct region r;
	struct device d;

	device_open(&d);
	REQUIRE_ERRNO(ibv_query_device_ex(d.ctx, NULL, &attr), 0);
	REQUIRE(attr.device_cap_flags_ex & IB_UVERBS_DEVICE_ATOMIC_WRITE);
	REQUIRE(attr.device_cap_flags_ex & IB_UVERBS_DEVICE_FLUSH_GLOBAL);
	REQUIRE(!(attr.device_cap_flags_ex & IB_UVERBS_DEVICE_FLUSH_PERSISTENT));
	region_make(&r, &d, 4096, 0, ACCESS);
	errno = 0;
	REQUIRE(!ibv_reg_mr(d.pd, r.data, 4096,
			    ACCESS | IBV_ACCESS_FLUSH_PERSISTENT));
	REQUIRE_EQ(errno, EOPNOTSUPP);
	region_free(&r);
	device_close(&d);
}

static void atomic_write(void)
{
	const uint64_t value = 0x0102030405060708;
	struct ibv_wc wc;
	struct pair p;

	make(&p);
	memset(p.theirs.data, 0xee, SIZE);
	send_atomic_write(&p.a, 1, IBV_SEND_SIGNALED, &p.to, 8, value);
	wc = EXPECT_OK(p.a.scq, 1);
	REQUIRE_EQ(wc.opcode, IBV_WC_ATOMIC_WRITE);
	REQUIRE_EQ(word(&p)[1], value);
	VERIFY_BYTE(p.theirs.data, 8, 0xee);
	VERIFY_BYTE(p.theirs.data + 16, SIZE - 16, 0xee);
	EXPECT_NO_WC(p.b.rcq);
	pair_close(&p);
}

/* ibv_post_send() takes the bytes at once, like inline data. */
static void posted_classically(void)
{
	struct ibv_sge sge[2];
	uint64_t value = 7;
	struct pair p;

	make(&p);
	sge[0] = (struct ibv_sge){ (uintptr_t)&value, 8, 77 };
	send_sges(&p.a, 1, IBV_WR_ATOMIC_WRITE, IBV_SEND_SIGNALED, sge, 1,
		  &p.to, 8, 0);
	send_sges(&p.a, 2, IBV_WR_ATOMIC_WRITE,
		  IBV_SEND_SIGNALED | IBV_SEND_INLINE, sge, 1, &p.to, 16, 0);
	value = 9;
	EXPECT_OK(p.a.scq, 1);
	EXPECT_OK(p.a.scq, 2);
	REQUIRE_EQ(word(&p)[1], 7);
	REQUIRE_EQ(word(&p)[2], 7);
	for (uint32_t len = 0; len < 17; len++) {
		sge[0].length = len;
		if (len != 8)
			REQUIRE_ERRNO(try_send(&p.a, 3, IBV_WR_ATOMIC_WRITE, 0,
					       sge, 1, &p.to, 8, 0), EINVAL);
	}
	sge[0].length = sge[1].length = 4;
	REQUIRE_ERRNO(try_send(&p.a, 3, IBV_WR_ATOMIC_WRITE, 0, sge, 2, &p.to,
			       8, 0), EINVAL);
	/* struct ibv_send_wr has no fields for what to flush. */
	REQUIRE_ERRNO(try_send(&p.a, 3, IBV_WR_FLUSH, 0, NULL, 0, &p.to, 8, 0),
		      EINVAL);
	EXPECT_NO_WC(p.a.scq);
	pair_close(&p);
}

/* A processor that looks all the time sees one value or the other. */
enum { WRITES = 20000 };

static void *look(void *memory)
{
	const uint64_t *word = memory;
	uint64_t *seen = calloc(1, sizeof(*seen)), last = 0, now;

	do {
		now = __atomic_load_n(word, __ATOMIC_ACQUIRE);
		REQUIRE(now >> 32 == (now & 0xffffffff) && now >= last);
		*seen += now != last;
		last = now;
	} while (now >> 32 != WRITES);
	return seen;
}

static void whole_to_processors(void)
{
	enum { BATCH = 32 };
	pthread_t thread;
	uint64_t *seen;
	struct pair p;

	make(&p);
	word(&p)[0] = 0;
	REQUIRE(!pthread_create(&thread, NULL, look, word(&p)));
	for (uint64_t i = 1; i <= WRITES; i++) {
		bool last = i % BATCH == 0 || i == WRITES;

		send_atomic_write(&p.a, i, last ? IBV_SEND_SIGNALED : 0, &p.to,
				  0, i << 32 | i);
		if (last)
			EXPECT_OK(p.a.scq, i);
	}
	REQUIRE(!pthread_join(thread, (void **)&seen));
	test_note("a processor saw %llu of %d values",
		  (unsigned long long)*seen, WRITES);
	free(seen);
	pair_close(&p);
}

/* A program that sees the word sees the bytes before it, without a completion. */
static void after_what_was_written(void)
{
	enum { ROUNDS = 50, LEN = SIZE - 8 };
	struct ibv_sge sge;
	struct pair p;

	make(&p);
	sge = sge_of(&p.mine, 0, LEN);
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		fill(p.mine.data, LEN, i);
		send_sges(&p.a, i, IBV_WR_RDMA_WRITE, 0, &sge, 1, &p.to, 8, 0);
		send_atomic_write(&p.a, i, IBV_SEND_SIGNALED, &p.to, 0, i);
		while (__atomic_load_n(word(&p), __ATOMIC_ACQUIRE) != i)
			;
		VERIFY(p.theirs.data + 8, LEN, i);
		EXPECT_OK(p.a.scq, i);
	}
	pair_close(&p);
}

static void flush(void)
{
	static const struct {
		uint64_t offset;
		size_t length;
		uint8_t level;
	} kinds[] = {
		{ 0, SIZE, IBV_FLUSH_RANGE }, { 100, 1, IBV_FLUSH_RANGE },
		{ SIZE, 0, IBV_FLUSH_RANGE }, { 0, 0, IBV_FLUSH_MR },
		{ 5 << 20, 7 << 20, IBV_FLUSH_MR },
	};
	struct ibv_sge sge;
	struct pair p;

	make(&p);
	sge = sge_of(&p.mine, 0, SIZE);
	for (uint64_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		fill(p.mine.data, SIZE, i);
		send_sges(&p.a, 1, IBV_WR_RDMA_WRITE, 0, &sge, 1, &p.to, 0, 0);
		send_flush(&p.a, 2, IBV_SEND_SIGNALED, &p.to, kinds[i].offset,
			   kinds[i].length, IBV_FLUSH_GLOBAL, kinds[i].level);
		REQUIRE_EQ(EXPECT_OK(p.a.scq, 2).opcode, IBV_WC_FLUSH);
		VERIFY(p.theirs.data, SIZE, i);
	}
	EXPECT_NO_WC(p.b.rcq);
	pair_close(&p);
}

/* More than there are resources for, also behind a fence: all end, in order. */
static void many_at_once(void)
{
	enum { N = 60 };
	struct pair p;

	make(&p);
	for (uint64_t i = 0; i < N; i++) {
		unsigned int flags = IBV_SEND_SIGNALED;

		if (i % 7 == 0)
			flags |= IBV_SEND_FENCE;
		if (i % 2)
			send_flush(&p.a, i, flags, &p.to, 0, SIZE,
				   IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
		else
			send_atomic_write(&p.a, i, flags, &p.to, 8 * i, i + 1);
	}
	for (uint64_t i = 0; i < N; i++) {
		EXPECT_OK(p.a.scq, i);
		REQUIRE_EQ(word(&p)[i], i % 2 ? 0 : i + 1);
	}
	pair_close(&p);
}

/* A FLUSH that cannot be is an error of the call, and nothing is posted. */
static void malformed(void)
{
	static const struct {
		size_t length;
		uint8_t type, level;
	} bad[] = {
		{ 8, 0, IBV_FLUSH_RANGE }, { 8, 4, IBV_FLUSH_RANGE },
		{ 8, IBV_FLUSH_GLOBAL | 8, IBV_FLUSH_MR },
		{ 8, IBV_FLUSH_GLOBAL, 2 },
		{ 1ull << 32, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE },
	};
	struct ibv_qp_init_attr_ex init = {
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1 },
	};
	static const enum ibv_qp_type others[] = { IBV_QPT_UC, IBV_QPT_UD };
	struct ibv_qp_ex *qp;
	struct pair p;

	make(&p);
	qp = ibv_qp_to_qp_ex(p.a.qp);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		ibv_wr_start(qp);
		qp->wr_id = 1;
		qp->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_flush(qp, p.to.rkey, p.to.addr, bad[i].length,
			     bad[i].type, bad[i].level);
		REQUIRE_ERRNO(ibv_wr_complete(qp), EINVAL);
	}
	EXPECT_NO_WC(p.a.scq);
	/* The transport has neither on other services. */
	for (size_t i = 0; i < 4; i++) {
		init.qp_type = others[i / 2];
		init.send_cq = init.recv_cq = p.a.scq;
		init.pd = p.d.pd;
		init.send_ops_flags = i % 2 ? IBV_QP_EX_WITH_FLUSH :
					      IBV_QP_EX_WITH_ATOMIC_WRITE;
		errno = 0;
		REQUIRE(!ibv_create_qp_ex(p.d.ctx, &init));
		REQUIRE_EQ(errno, EOPNOTSUPP);
	}
	pair_close(&p);
}

enum what { WRITE_WORD, FLUSH_RANGE, FLUSH_REGION };

struct refusal {
	enum what what;
	int qp_access, mr_access;
	uint64_t offset;
	uint32_t flip;		/* of the key */
	uint8_t type;
	enum ibv_wc_status status;
};

/* The status here, and the event there. */
static void refused(const struct refusal *r)
{
	struct end_config config = placing;
	struct pair p;

	config.access = r->qp_access;
	pair_open(&p, &config);
	pair_memory(&p, 64, 64, r->mr_access);
	fill(p.theirs.data, 64, 3);
	p.to.rkey ^= r->flip;
	if (r->what == WRITE_WORD)
		send_atomic_write(&p.a, 1, 0, &p.to, r->offset, 1);
	else
		send_flush(&p.a, 1, 0, &p.to, r->offset, 8, r->type,
			   r->what == FLUSH_REGION);
	EXPECT_WC(p.a.scq, 1, r->status);
	REQUIRE_EQ(end_state(&p.a), IBV_QPS_ERR);
	expect_async(p.d.ctx, r->status == IBV_WC_REM_ACCESS_ERR ?
			      IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR,
		     p.b.qp);
	end_await_state(&p.b, IBV_QPS_ERR);
	expect_no_async(p.d.ctx);
	VERIFY(p.theirs.data, 64, 3);
	pair_close(&p);
}

static void refusals(void)
{
	const int local = IBV_ACCESS_LOCAL_WRITE;
	const int flush = local | IBV_ACCESS_FLUSH_GLOBAL;
	const uint8_t type = IBV_FLUSH_GLOBAL, persistent = IBV_FLUSH_PERSISTENT;
	const enum ibv_wc_status no_access = IBV_WC_REM_ACCESS_ERR;
	const enum ibv_wc_status invalid = IBV_WC_REM_INV_REQ_ERR;
	const struct refusal all[] = {
		{ WRITE_WORD, ACCESS, ACCESS, 64, 0, 0, no_access },
		{ WRITE_WORD, ACCESS, ACCESS, -8, 0, 0, no_access },
		{ WRITE_WORD, ACCESS, ACCESS, 0, 1, 0, no_access },
		{ WRITE_WORD, ACCESS, flush, 0, 0, 0, no_access },
		{ WRITE_WORD, flush, ACCESS, 0, 0, 0, invalid },
		{ WRITE_WORD, ACCESS, ACCESS, 4, 0, 0, invalid },
		{ WRITE_WORD, ACCESS, ACCESS, 7, 0, 0, invalid },
		{ FLUSH_RANGE, ACCESS, ACCESS, 57, 0, type, no_access },
		{ FLUSH_RANGE, ACCESS, ACCESS, -1, 0, type, no_access },
		{ FLUSH_RANGE, ACCESS, ACCESS, 0, 1, type, no_access },
		{ FLUSH_RANGE, ACCESS, ACCESS_ALL, 0, 0, type, no_access },
		{ FLUSH_RANGE, ACCESS_ALL, ACCESS, 0, 0, type, invalid },
		{ FLUSH_RANGE, ACCESS, ACCESS, 0, 0, persistent, invalid },
		{ FLUSH_RANGE, ACCESS | IBV_ACCESS_FLUSH_PERSISTENT, ACCESS, 0,
		  0, persistent, no_access },
		{ FLUSH_RANGE, ACCESS | IBV_ACCESS_FLUSH_PERSISTENT, ACCESS, 0,
		  0, type | persistent, no_access },
		{ FLUSH_REGION, ACCESS, ACCESS, 0, 1, type, no_access },
		{ FLUSH_REGION, ACCESS, ACCESS_ALL, 0, 0, type, no_access },
		{ FLUSH_REGION, ACCESS_ALL, ACCESS, 0, 0, type, invalid },
	};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		refused(&all[i]);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "capabilities", capabilities },
		{ "atomic_write", atomic_write },
		{ "posted_classically", posted_classically },
		{ "whole_to_processors", whole_to_processors, 60 },
		{ "after_what_was_written", after_what_was_written, 60 },
		{ "flush", flush },
		{ "many_at_once", many_at_once },
		{ "malformed", malformed },
		{ "refusals", refusals, 60 },
		{ }
	};

	return test_main(argc, argv, cases);
}
