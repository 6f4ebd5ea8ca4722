// SPDX-License-Identifier: GPL-2.0
/*
 * Atomic operations over reliable connections: the word is changed whole, also
 * against processors that change it at the same time, and what was there comes
 * back.
 */
#include "common.h"

#include <pthread.h>
#include <stdlib.h>

#define QP_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | \
		   IBV_ACCESS_REMOTE_ATOMIC)

static const struct end_config atomic_end = { .access = QP_ACCESS };

/* Two ends, a word on either side. */
struct setup {
	struct device d;
	struct end a, b;
	struct region mine, theirs;
	struct peer to;
	uint64_t *word;		/* the peer's */
};

static void setup_make(struct setup *s, const struct end_config *config,
		       int access)
{
	device_open(&s->d);
	REQUIRE_EQ(s->d.attr.atomic_cap, IBV_ATOMIC_GLOB);
	pair_make(&s->a, &s->b, &s->d, config);
	region_make(&s->mine, &s->d, 4096, 0, IBV_ACCESS_LOCAL_WRITE);
	region_make(&s->theirs, &s->d, 64, 0, access);
	s->to = end_address(&s->b, &s->theirs);
	s->word = (uint64_t *)s->theirs.data;
}

static void setup_free(struct setup *s)
{
	REGION_CHECK(&s->mine);
	REGION_CHECK(&s->theirs);
	region_free(&s->mine);
	region_free(&s->theirs);
	end_free(&s->a);
	end_free(&s->b);
	device_close(&s->d);
}

static void post(struct setup *s, uint64_t wr_id, enum ibv_wr_opcode opcode,
		 unsigned int flags, struct ibv_sge sge, uint64_t offset,
		 uint64_t compare_add, uint64_t swap)
{
	send_atomic(&s->a, wr_id, opcode, flags, sge, &s->to, offset,
		    compare_add, swap);
}

static uint64_t answer(struct setup *s, size_t offset)
{
	uint64_t value;

	memcpy(&value, s->mine.data + offset, sizeof(value));
	return value;
}

static void compare_and_swap(void)
{
	struct setup s;
	struct ibv_wc wc;

	setup_make(&s, &atomic_end, QP_ACCESS);
	s.word[1] = 7;
	s.word[0] = s.word[2] = ~0ull;
	post(&s, 1, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_SEND_SIGNALED,
	     sge_of(&s.mine, 3, 8), 8, 7, 1ull << 63);
	wc = EXPECT_OK(s.a.scq, 1);
	REQUIRE_EQ(wc.opcode, IBV_WC_COMP_SWAP);
	REQUIRE_EQ(wc.byte_len, 8);
	REQUIRE_EQ(answer(&s, 3), 7);
	REQUIRE(s.word[1] == 1ull << 63);
	post(&s, 2, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_SEND_SIGNALED,
	     sge_of(&s.mine, 16, 8), 8, 7, 9);
	EXPECT_OK(s.a.scq, 2);
	REQUIRE(answer(&s, 16) == 1ull << 63);
	REQUIRE(s.word[1] == 1ull << 63);
	REQUIRE(s.word[0] == ~0ull && s.word[2] == ~0ull);
	EXPECT_NO_WC(s.b.rcq);
	setup_free(&s);
}

static void fetch_and_add(void)
{
	struct setup s;
	struct ibv_wc wc;

	setup_make(&s, &atomic_end, QP_ACCESS);
	s.word[7] = ~0ull - 1;
	for (unsigned int i = 0; i < 10; i++) {
		post(&s, i, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_SEND_SIGNALED,
		     sge_of(&s.mine, 0, 8), 56, i, 0);
		wc = EXPECT_OK(s.a.scq, i);
		REQUIRE_EQ(wc.opcode, IBV_WC_FETCH_ADD);
		REQUIRE(answer(&s, 0) == ~0ull - 1 + i * (i - 1) / 2);
	}
	REQUIRE_EQ(s.word[7], 43);
	setup_free(&s);
}

/* Adds by two connections and by a thread; none may be lost. */
enum { ADDS = 20000 };

static void *add_by_cpu(void *word)
{
	for (unsigned int i = 0; i < ADDS; i++)
		__atomic_fetch_add((uint64_t *)word, 1, __ATOMIC_RELAXED);
	return NULL;
}

static void against_processors(void)
{
	enum { BATCH = 32 };
	struct setup s;
	pthread_t thread;

	setup_make(&s, &atomic_end, QP_ACCESS);
	REQUIRE(!pthread_create(&thread, NULL, add_by_cpu, s.word));
	for (unsigned int done = 0; done < ADDS; done += BATCH) {
		uint64_t last = 0;

		for (unsigned int i = 0; i < BATCH; i++)
			post(&s, i, IBV_WR_ATOMIC_FETCH_AND_ADD,
			     i == BATCH - 1 ? IBV_SEND_SIGNALED : 0,
			     sge_of(&s.mine, 8 * i, 8), 0, 1ull << 32, 0);
		EXPECT_OK(s.a.scq, BATCH - 1);
		/* Each saw the one before it. */
		for (unsigned int i = 0; i < BATCH; i++) {
			uint64_t now = answer(&s, 8 * i);

			REQUIRE_EQ(now >> 32, done + i);
			REQUIRE(i == 0 || now > last);
			last = now;
		}
	}
	REQUIRE(!pthread_join(thread, NULL));
	REQUIRE(s.word[0] == ((uint64_t)ADDS << 32 | ADDS));
	setup_free(&s);
}

/* Each thread swaps its own number in, and passes on what it takes out. */
static void *swap_by_cpu(void *word)
{
	uint64_t *count = calloc(1, sizeof(*count));

	for (uint64_t i = 0; i < ADDS; i++) {
		uint64_t none = 0;

		if (__atomic_compare_exchange_n((uint64_t *)word, &none, 1,
						false, __ATOMIC_ACQ_REL,
						__ATOMIC_RELAXED)) {
			++*count;
			__atomic_store_n((uint64_t *)word, 0,
					 __ATOMIC_RELEASE);
		}
	}
	return count;
}

/* A lock that a processor and a peer take in turn is never held by both. */
static void lock_with_processor(void)
{
	uint64_t *by_cpu, by_peer = 0;
	struct setup s;
	pthread_t thread;

	setup_make(&s, &atomic_end, QP_ACCESS);
	REQUIRE(!pthread_create(&thread, NULL, swap_by_cpu, s.word));
	for (unsigned int i = 0; i < 2000; i++) {
		post(&s, i, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_SEND_SIGNALED,
		     sge_of(&s.mine, 0, 8), 0, 0, 2);
		EXPECT_OK(s.a.scq, i);
		REQUIRE(answer(&s, 0) <= 1);
		if (answer(&s, 0))
			continue;
		by_peer++;
		REQUIRE(__atomic_load_n(s.word, __ATOMIC_ACQUIRE) == 2);
		post(&s, i, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_SEND_SIGNALED,
		     sge_of(&s.mine, 0, 8), 0, 2, 0);
		EXPECT_OK(s.a.scq, i);
		REQUIRE_EQ(answer(&s, 0), 2);
	}
	REQUIRE(!pthread_join(thread, (void **)&by_cpu));
	test_note("taken %llu times by the processor, %llu times by the peer",
		  (unsigned long long)*by_cpu, (unsigned long long)by_peer);
	REQUIRE(by_peer > 0);
	free(by_cpu);
	setup_free(&s);
}

/* One atomic that fails: the status here, and the event there. */
static void refused(const struct end_config *config, int access,
		    uint64_t offset, uint32_t key, size_t room,
		    enum ibv_wc_status status, int event)
{
	struct setup s;

	setup_make(&s, config, access);
	fill(s.theirs.data, 64, 3);
	s.to.rkey ^= key;
	post(&s, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, sge_of(&s.mine, 0, room),
	     offset, 1, 0);
	EXPECT_WC(s.a.scq, 1, status);
	REQUIRE_EQ(end_state(&s.a), IBV_QPS_ERR);
	if (event >= 0) {
		expect_async(s.d.ctx, event, s.b.qp);
		end_await_state(&s.b, IBV_QPS_ERR);
	} else {
		REQUIRE_EQ(end_state(&s.b), IBV_QPS_RTS);
	}
	expect_no_async(s.d.ctx);
	VERIFY(s.theirs.data, 64, 3);
	setup_free(&s);
}

static void refused_accesses(void)
{
	const struct end_config no_right = { .access = ACCESS_ALL };
	const int event = IBV_EVENT_QP_ACCESS_ERR;
	const enum ibv_wc_status status = IBV_WC_REM_ACCESS_ERR;

	refused(&atomic_end, QP_ACCESS, 64, 0, 8, status, event);
	refused(&atomic_end, QP_ACCESS, -8, 0, 8, status, event);
	refused(&atomic_end, QP_ACCESS, 0, 1, 8, status, event);
	refused(&atomic_end, ACCESS_ALL, 0, 0, 8, status, event);
	refused(&no_right, QP_ACCESS, 0, 0, 8, IBV_WC_REM_INV_REQ_ERR,
		IBV_EVENT_QP_REQ_ERR);
	refused(&atomic_end, QP_ACCESS, 0, 0, 7, IBV_WC_LOC_LEN_ERR, -1);
}

/* An address that is not a multiple of 8 is an invalid request. */
static void misaligned(void)
{
	for (unsigned int offset = 1; offset < 8; offset += 3)
		refused(&atomic_end, QP_ACCESS, offset, 0, 8,
			IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "compare_and_swap", compare_and_swap },
		{ "fetch_and_add", fetch_and_add },
		{ "against_processors", against_processors, 60 },
		{ "lock_with_processor", lock_with_processor, 60 },
		{ "refused_accesses", refused_accesses },
		{ "misaligned", misaligned },
		{ }
	};

	return test_main(argc, argv, cases);
}
