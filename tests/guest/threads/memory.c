// SPDX-License-Identifier: GPL-2.0
/* Regions of a program that several of its threads use. */
#include "threads.h"

#include <stdlib.h>

enum {
	LEN = 128 << 10,
	DEPTH = 4,
	BEFORE = 0xaa,
	AFTER = 0x55,
};

static struct team team;

/* A region that goes beside its use, and the part that it plays. */
static struct going {
	struct region r;
	enum ibv_wr_opcode opcode;
	bool is_source;		/* of WRITEs; else the sink of the requests */
	enum ibv_wc_status status;	/* the end of the first one behind */
} going;

/* Requests without a pause, until one fails. Those behind are flushed. */
static void stream(struct worker *w, struct place mine, struct place theirs)
{
	struct peer peer = { .addr = (uintptr_t)theirs.data,
			     .rkey = theirs.mr->rkey };
	struct ibv_sge from = sge_at(mine, LEN);
	unsigned int posted = 0, ended = 0;
	bool failed = false;
	struct ibv_wc wc;

	while (!failed || ended < posted) {
		for (; !failed && posted - ended < DEPTH; posted++)
			send_sges(&w->a, posted, going.opcode,
				  IBV_SEND_SIGNALED, &from, 1, &peer, 0, 0);
		next_wc(w->a.scq, &wc);
		REQUIRE_EQ(wc.wr_id, ended);
		ended++;
		if (failed) {
			REQUIRE_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
		} else if (wc.status != IBV_WC_SUCCESS) {
			REQUIRE_EQ(wc.status, going.status);
			failed = true;
		}
		w->done++;
	}
}

static void stream_until_gone(struct worker *w)
{
	struct ibv_mr mr = *going.r.mr;
	struct place shared = { going.r.data + w->number * LEN, &mr };
	struct region far;

	region_make(&far, &w->d, LEN, 0, ACCESS);
	memset(far.data, BEFORE, LEN);
	if (!going.is_source && going.opcode == IBV_WR_RDMA_WRITE)
		stream(w, place_of(&far, 0), shared);
	else
		stream(w, shared, place_of(&far, 0));
	team_meet(w->team);
	VERIFY_BYTE(far.data, LEN, BEFORE);
	end_reset(&w->a);
	end_reset(&w->b);
	ends_connect(&w->a, &w->b);
	round_of(w);
	region_free(&far);
}

/* When it has gone, its memory is the program's: no thread's requests move a byte. */
static void deregister_beside(struct going g)
{
	unsigned long rounds = opt.rounds ? opt.rounds : 20;

	for (unsigned long i = 0; i < rounds; i++) {
		going = g;
		team_open(&team, THREADS);
		region_make(&going.r, &team.d, THREADS * LEN, 0, ACCESS);
		memset(going.r.data, BEFORE, THREADS * LEN);
		team_start(&team, stream_until_gone);
		team_await(&team, 4);
		sleep_us(i * 37 % 500);
		REQUIRE_ERRNO(ibv_dereg_mr(going.r.mr), 0);
		going.r.mr = NULL;
		memset(going.r.data, AFTER, THREADS * LEN);
		for (int j = 0; j < 5; j++) {
			sleep_us(200);
			VERIFY_BYTE(going.r.data, THREADS * LEN, AFTER);
		}
		team_meet(&team);
		team_join(&team);
		VERIFY_BYTE(going.r.data, THREADS * LEN, AFTER);
		region_free(&going.r);
		team_close(&team);
	}
}

void deregistered(void)
{
	deregister_beside((struct going){
		.opcode = IBV_WR_RDMA_WRITE,
		.status = IBV_WC_REM_ACCESS_ERR,
	});
}

void deregistered_source(void)
{
	deregister_beside((struct going){
		.opcode = IBV_WR_RDMA_WRITE,
		.is_source = true,
		.status = IBV_WC_LOC_PROT_ERR,
	});
}

void deregistered_sink(void)
{
	deregister_beside((struct going){
		.opcode = IBV_WR_RDMA_READ,
		.status = IBV_WC_LOC_PROT_ERR,
	});
}

/* The region that all threads use at the moment, and the one that none may use any more. */
static struct region now;
static struct region gone;
static struct ibv_mr gone_mr;
static unsigned int key_rounds;

/* Keys of regions that come and go in each round. */
enum { SHORT_LIVED = 200, KEYS = SHORT_LIVED + 2 };

static void follow_keys(struct worker *w)
{
	struct place old = { gone.data, &gone_mr };

	for (unsigned int i = 0; i < key_rounds; i++) {
		team_meet(w->team);
		w->seed += 3;
		transfer(&w->a, &w->b, side(w, &now, 0), side(w, &now, 1), 64,
			 w->seed);
		team_meet(w->team);
		/* The first region has gone, and another one has come. */
		team_meet(w->team);
		old.data = gone.data;
		if (i % 8 == w->number) {
			refused(&w->a, &w->b, sge_at(place_of(&w->own, 0), 8), old,
				IBV_WC_REM_ACCESS_ERR);
			refused(&w->a, &w->b, sge_at(old, 8), place_of(&w->own, 0),
				IBV_WC_LOC_PROT_ERR);
		}
		w->seed += 3;
		transfer(&w->a, &w->b, side(w, &now, 0), side(w, &now, 1), 64,
			 w->seed);
		team_meet(w->team);
	}
}

static int by_value(const void *one, const void *other)
{
	uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;

	return (a > b) - (a < b);
}

/* Notes how many regions had the key of an earlier one. */
static void note_reuse(uint32_t *keys, unsigned int count)
{
	unsigned int again = 0;

	qsort(keys, count, sizeof(*keys), by_value);
	for (unsigned int i = 1; i < count; i++)
		again += keys[i] == keys[i - 1];
	test_note("of %u keys %u came back", count, again);
}

static void take_keys(struct device *d, uint8_t *page, uint32_t *keys)
{
	for (unsigned int i = 0; i < SHORT_LIVED; i++) {
		struct ibv_mr *mr = ibv_reg_mr(d->pd, page, 4096, ACCESS);

		REQUIRE(mr);
		keys[i] = mr->rkey;
		REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);
	}
}

/* So often that each key comes back, as they do after 256 regions of an index. */
void keys_used_again(void)
{
	uint32_t *all, *keys;
	uint8_t *page = shared_map(4096);

	key_rounds = 15 * (opt.rounds ? opt.rounds : 20);
	all = keys = calloc(key_rounds, KEYS * sizeof(*keys));
	REQUIRE(all);
	team_open(&team, THREADS);
	team_start(&team, follow_keys);
	for (unsigned int i = 0; i < key_rounds; i++) {
		region_make(&now, &team.d, 2 * THREADS * PART, 0, ACCESS);
		*keys++ = now.mr->rkey;
		team_meet(&team);
		take_keys(&team.d, page, keys);
		keys += SHORT_LIVED;
		team_meet(&team);
		gone = now;
		gone_mr = *now.mr;
		REQUIRE_ERRNO(ibv_dereg_mr(gone.mr), 0);
		gone.mr = NULL;
		memset(gone.data, AFTER, gone.len);
		region_make(&now, &team.d, 2 * THREADS * PART, 0, ACCESS);
		*keys++ = now.mr->rkey;
		team_meet(&team);
		team_meet(&team);
		VERIFY_BYTE(gone.data, gone.len, AFTER);
		region_free(&gone);
		region_free(&now);
	}
	team_join(&team);
	team_close(&team);
	note_reuse(all, KEYS * key_rounds);
	free(all);
	shared_unmap(page, 4096);
}

/* Each thread has a protection domain of its own. */
static void stay_in_domain(struct worker *w)
{
	struct worker *next = &w->team->w[(w->number + 1) % THREADS];
	struct place own = place_of(&w->own, 0);
	struct place others[] = { place_of(&next->own, 0),
				  side(w, &w->team->given, 0) };

	transfer(&w->a, &w->b, own, place_of(&w->own, PART), PART, w->seed);
	team_meet(w->team);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		refused(&w->a, &w->b, sge_at(own, 8), others[i],
			IBV_WC_REM_ACCESS_ERR);
		refused(&w->a, &w->b, sge_at(others[i], 8), own,
			IBV_WC_LOC_PROT_ERR);
	}
	team_meet(w->team);
	VERIFY(own.data, PART, w->seed + 2);
	VERIFY(own.data + PART, PART, w->seed + 2);
	transfer(&w->b, &w->a, own, place_of(&w->own, PART), PART, w->seed);
}

void domains_apart(void)
{
	team_open(&team, THREADS);
	for (unsigned int i = 0; i < THREADS; i++)
		team.w[i].d = device_other_pd(&team.d);
	team_start(&team, stay_in_domain);
	team_meet(&team);
	team_meet(&team);
	VERIFY_BYTE(team.given.data, team.given.len, 0);
	team_join(&team);
	for (unsigned int i = 0; i < THREADS; i++)
		device_free_pd(&team.w[i].d);
	team_close(&team);
}

enum { ADDS = 10000 };
static struct region words;

/* Adds to a word of all, and swaps in one of its own. */
static void add(struct worker *w)
{
	struct place own = place_of(&w->own, 0);
	struct peer to = end_address(&w->b, &words);
	uint64_t last = 0, value;

	for (unsigned int i = 0; i < test_rounds(ADDS); i++) {
		send_atomic(&w->a, i, IBV_WR_ATOMIC_FETCH_AND_ADD,
			    IBV_SEND_SIGNALED, sge_at(own, 8), &to, 0, 1, 0);
		EXPECT_OK(w->a.scq, i);
		memcpy(&value, own.data, 8);
		REQUIRE(!i || value > last);
		last = value;
		send_atomic(&w->a, i, IBV_WR_ATOMIC_CMP_AND_SWP,
			    IBV_SEND_SIGNALED, sge_at(own, 8), &to,
			    8 * (1 + w->number), i, i + 1);
		EXPECT_OK(w->a.scq, i);
		REQUIRE_EQ(*(uint64_t *)own.data, i);
	}
}

/* A word is changed whole, whichever threads change it at one time. */
void atomics(void)
{
	uint64_t *word;

	team_open(&team, THREADS);
	if (team.d.attr.atomic_cap == IBV_ATOMIC_NONE)
		test_skip("the device has no atomic operations");
	region_make(&words, &team.d, 8 * (1 + THREADS), 0,
		    ACCESS | IBV_ACCESS_REMOTE_ATOMIC);
	word = (uint64_t *)words.data;
	team_start(&team, add);
	team_join(&team);
	REQUIRE_EQ(word[0], THREADS * test_rounds(ADDS));
	for (unsigned int i = 0; i < THREADS; i++)
		REQUIRE_EQ(word[1 + i], test_rounds(ADDS));
	region_free(&words);
	team_close(&team);
}
