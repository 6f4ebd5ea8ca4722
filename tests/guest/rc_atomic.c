// SPDX-License-Identifier: GPL-2.0
/*
 * Atomic operations over reliable connections: the word is changed whole, also
 * against processors that change it at the same time, and the old value comes
 * back.
 */
#include "common.h"

#include <pthread.h>
#include <stdlib.h>

#define QP_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | \
		   IBV_ACCESS_REMOTE_ATOMIC)

static const struct end_config atomic_end = { .access = QP_ACCESS };

/* Words of the peer, and memory for their old values. */
static void make(struct pair *p, const struct end_config *config, int access)
{
	pair_open(p, config);
	REQUIRE_EQ(p->d.attr.atomic_cap, IBV_ATOMIC_GLOB);
	pair_memory(p, 4096, 64, access);
}

static uint64_t *word(struct pair *p)
{
	return (uint64_t *)p->theirs.data;
}

static void post(struct pair *p, uint64_t wr_id, enum ibv_wr_opcode opcode,
		 unsigned int flags, struct ibv_sge sge, uint64_t offset,
		 uint64_t compare_add, uint64_t swap)
{
	send_atomic(&p->a, wr_id, opcode, flags, sge, &p->to, offset,
		    compare_add, swap);
}

static uint64_t answer(struct pair *p, size_t offset)
{
	uint64_t value;

	memcpy(&value, p->mine.data + offset, sizeof(value));
	return value;
}

static void compare_and_swap(void)
{
	struct pair p;
	struct ibv_wc wc;

	make(&p, &atomic_end, QP_ACCESS);
	word(&p)[1] = 7;
	word(&p)[0] = word(&p)[2] = ~0ull;
	post(&p, 1, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_SEND_SIGNALED,
	     sge_of(&p.mine, 3, 8), 8, 7, 1ull << 63);
	wc = EXPECT_OK(p.a.scq, 1);
	REQUIRE_EQ(wc.opcode, IBV_WC_COMP_SWAP);
	REQUIRE_EQ(wc.byte_len, 8);
	REQUIRE_EQ(answer(&p, 3), 7);
	REQUIRE(word(&p)[1] == 1ull << 63);
	post(&p, 2, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_SEND_SIGNALED,
	     sge_of(&p.mine, 16, 8), 8, 7, 9);
	EXPECT_OK(p.a.scq, 2);
	REQUIRE(answer(&p, 16) == 1ull << 63);
	REQUIRE(word(&p)[1] == 1ull << 63);
	REQUIRE(word(&p)[0] == ~0ull && word(&p)[2] == ~0ull);
	EXPECT_NO_WC(p.b.rcq);
	pair_close(&p);
}

static void fetch_and_add(void)
{
	struct pair p;
	struct ibv_wc wc;

	make(&p, &atomic_end, QP_ACCESS);
	word(&p)[7] = ~0ull - 1;
	for (unsigned int i = 0; i < 10; i++) {
		post(&p, i, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_SEND_SIGNALED,
		     sge_of(&p.mine, 0, 8), 56, i, 0);
		wc = EXPECT_OK(p.a.scq, i);
		REQUIRE_EQ(wc.opcode, IBV_WC_FETCH_ADD);
		REQUIRE(answer(&p, 0) == ~0ull - 1 + i * (i - 1) / 2);
	}
	REQUIRE_EQ(word(&p)[7], 43);
	pair_close(&p);
}

enum { BATCH = 32 };

/* Of either side, in whole batches. */
static unsigned int adds(void)
{
	return test_rounds(20000) / BATCH * BATCH;
}

static void *add_by_cpu(void *word)
{
	const unsigned int total = adds();

	for (unsigned int i = 0; i < total; i++)
		__atomic_fetch_add((uint64_t *)word, 1, __ATOMIC_RELAXED);
	return NULL;
}

/* Adds by two connections and by a thread; none may be lost. */
static void against_processors(void)
{
	const unsigned int total = adds();
	struct pair p;
	pthread_t thread;

	make(&p, &atomic_end, QP_ACCESS);
	REQUIRE(!pthread_create(&thread, NULL, add_by_cpu, word(&p)));
	for (unsigned int done = 0; done < total; done += BATCH) {
		uint64_t last = 0;

		for (unsigned int i = 0; i < BATCH; i++)
			post(&p, i, IBV_WR_ATOMIC_FETCH_AND_ADD,
			     i == BATCH - 1 ? IBV_SEND_SIGNALED : 0,
			     sge_of(&p.mine, 8 * i, 8), 0, 1ull << 32, 0);
		EXPECT_OK(p.a.scq, BATCH - 1);
		/* Each saw the one before it. */
		for (unsigned int i = 0; i < BATCH; i++) {
			uint64_t now = answer(&p, 8 * i);

			REQUIRE_EQ(now >> 32, done + i);
			REQUIRE(i == 0 || now > last);
			last = now;
		}
	}
	REQUIRE(!pthread_join(thread, NULL));
	REQUIRE(word(&p)[0] == ((uint64_t)total << 32 | total));
	pair_close(&p);
}

/* Each thread swaps its own number in, and passes on what it takes out. */
static void *swap_by_cpu(void *word)
{
	uint64_t *count = calloc(1, sizeof(*count));
	const unsigned int total = adds();

	for (unsigned int i = 0; i < total; i++) {
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
	const unsigned int total = test_rounds(2000);
	uint64_t *by_cpu, by_peer = 0;
	struct pair p;
	pthread_t thread;

	make(&p, &atomic_end, QP_ACCESS);
	REQUIRE(!pthread_create(&thread, NULL, swap_by_cpu, word(&p)));
	for (unsigned int i = 0; i < total; i++) {
		post(&p, i, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_SEND_SIGNALED,
		     sge_of(&p.mine, 0, 8), 0, 0, 2);
		EXPECT_OK(p.a.scq, i);
		REQUIRE(answer(&p, 0) <= 1);
		if (answer(&p, 0))
			continue;
		by_peer++;
		REQUIRE(__atomic_load_n(word(&p), __ATOMIC_ACQUIRE) == 2);
		post(&p, i, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_SEND_SIGNALED,
		     sge_of(&p.mine, 0, 8), 0, 2, 0);
		EXPECT_OK(p.a.scq, i);
		REQUIRE_EQ(answer(&p, 0), 2);
	}
	REQUIRE(!pthread_join(thread, (void **)&by_cpu));
	test_note("taken %llu times by the processor, %llu times by the peer",
		  (unsigned long long)*by_cpu, (unsigned long long)by_peer);
	REQUIRE(by_peer > 0);
	free(by_cpu);
	pair_close(&p);
}

/* An atomic of this kind that fails: the status here, and the event there. */
static void refused_one(enum ibv_wr_opcode opcode,
			const struct end_config *config, int access,
			uint64_t offset, uint32_t key, size_t length,
			enum ibv_wc_status status, int event)
{
	struct pair p;

	make(&p, config, access);
	fill(p.theirs.data, 64, 3);
	p.to.rkey ^= key;
	post(&p, 1, opcode, 0, sge_of(&p.mine, 0, length), offset, 1, 0);
	EXPECT_WC(p.a.scq, 1, status);
	REQUIRE_EQ(end_state(&p.a), IBV_QPS_ERR);
	if (event >= 0) {
		expect_async(p.d.ctx, event, p.b.qp);
		end_await_state(&p.b, IBV_QPS_ERR);
	} else {
		REQUIRE_EQ(end_state(&p.b), IBV_QPS_RTS);
	}
	expect_no_async(p.d.ctx);
	VERIFY(p.theirs.data, 64, 3);
	pair_close(&p);
}

/* Of either kind. */
static void refused(const struct end_config *config, int access,
		    uint64_t offset, uint32_t key, size_t length,
		    enum ibv_wc_status status, int event)
{
	refused_one(IBV_WR_ATOMIC_FETCH_AND_ADD, config, access, offset, key,
		    length, status, event);
	refused_one(IBV_WR_ATOMIC_CMP_AND_SWP, config, access, offset, key,
		    length, status, event);
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
	/* With a key that is none, that is what is told. */
	refused(&atomic_end, QP_ACCESS, 4, 1, 8, IBV_WC_REM_ACCESS_ERR,
		IBV_EVENT_QP_ACCESS_ERR);
}

/* Of a list that has more space, 8 bytes are written. */
static void long_list(void)
{
	struct pair p;

	make(&p, &atomic_end, QP_ACCESS);
	word(&p)[1] = 5;
	memset(p.mine.data, 0xee, 64);
	post(&p, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_SEND_SIGNALED,
	     sge_of(&p.mine, 0, 9), 8, 1, 0);
	REQUIRE_EQ(EXPECT_OK(p.a.scq, 1).byte_len, 8);
	REQUIRE_EQ(answer(&p, 0), 5);
	VERIFY_BYTE(p.mine.data + 8, 56, 0xee);
	pair_close(&p);
}

/* The old value is told in the order of the list, wherever its entries divide it. */
static void split_list(void)
{
	struct end_config config = atomic_end;
	uint64_t old = 0x1122334455667788;
	struct pair p;

	config.send_sge = 2;
	make(&p, &config, QP_ACCESS);
	for (unsigned int first = 1; first < 8; first++) {
		struct ibv_sge sge[2];
		struct ibv_send_wr wr = {
			.wr_id = first,
			.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
			.send_flags = IBV_SEND_SIGNALED,
			.sg_list = sge,
			.num_sge = 2,
			.wr.atomic = { p.to.addr, 15, 0, p.to.rkey },
		}, *bad;

		word(&p)[0] = old;
		memset(p.mine.data, 0xee, 64);
		sge[0] = sge_of(&p.mine, 8, first);
		sge[1] = sge_of(&p.mine, 32, 8 - first);
		REQUIRE_ERRNO(ibv_post_send(p.a.qp, &wr, &bad), 0);
		EXPECT_OK(p.a.scq, first);
		REQUIRE_EQ(word(&p)[0], old + 15);
		REQUIRE(!memcmp(p.mine.data + 8, &old, first));
		REQUIRE(!memcmp(p.mine.data + 32, (uint8_t *)&old + first,
				8 - first));
		VERIFY_BYTE(p.mine.data, 8, 0xee);
		VERIFY_BYTE(p.mine.data + 8 + first, 24 - first, 0xee);
		VERIFY_BYTE(p.mine.data + 40 - first, 24, 0xee);
	}
	pair_close(&p);
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
		{ "long_list", long_list },
		{ "split_list", split_list },
		{ }
	};

	return test_main(argc, argv, cases);
}
