// SPDX-License-Identifier: GPL-2.0
/* The numbers of objects, which the shards share among themselves. */
#include "shards.h"

#include <rdma/ferrule-abi.h>
#include <stdlib.h>

enum { PROGRAMS = 100 };

/*
 * One of each kind of object in many programs, each with a shard of its own.
 * So each table of each engine has grown once: hostile.py begins with that.
 */
void one_of_each_in_all(void)
{
	const struct end_config config = { .type = IBV_QPT_RC };
	struct ibv_srq_init_attr srq_attr = {
		.attr = { .max_wr = 1, .max_sge = 1 },
	};
	struct {
		struct device d;
		struct end e;
		struct region r;
		struct ibv_mw *mw;
		struct ibv_srq *srq;
		struct ibv_ah *ah;
	} p[32];

	for (unsigned int i = 0; i < ARRAY_SIZE(p); i++) {
		device_open(&p[i].d);
		end_make(&p[i].e, &p[i].d, &config);
		region_make(&p[i].r, &p[i].d, 4096, 0, ACCESS_ALL);
		p[i].mw = ibv_alloc_mw(p[i].d.pd, IBV_MW_TYPE_1);
		REQUIRE(p[i].mw);
		p[i].srq = ibv_create_srq(p[i].d.pd, &srq_attr);
		REQUIRE(p[i].srq);
		p[i].ah = to_itself(&p[i].d);
		REQUIRE(p[i].ah);
	}
	for (unsigned int i = 0; i < ARRAY_SIZE(p); i++) {
		REQUIRE_ERRNO(ibv_destroy_ah(p[i].ah), 0);
		REQUIRE_ERRNO(ibv_destroy_srq(p[i].srq), 0);
		REQUIRE_ERRNO(ibv_dealloc_mw(p[i].mw), 0);
		region_free(&p[i].r);
		end_free(&p[i].e);
		device_close(&p[i].d);
	}
}

/* One program may have all numbers, though others have had some. */
void numbers_are_for_everybody(void)
{
	struct program p[2];
	struct ibv_ah **ahs;
	int max, count = 0;

	test_skip_if_slow("65535 objects, which the stock kernel makes");
	for (int i = 0; i < 2; i++)
		program_open(&p[i], IBV_QPT_RC);
	max = p[0].d.attr.max_ah;
	ahs = calloc(max + 1, sizeof(*ahs));
	REQUIRE(ahs);
	/* The other one has a block of them. */
	ahs[count] = to_itself(&p[1].d);
	REQUIRE(ahs[count++]);
	while (count <= max && (ahs[count] = to_itself(&p[0].d)))
		count++;
	test_note("%d address handles of %d", count, max);
	REQUIRE_EQ(count, max);
	REQUIRE_EQ(errno, ENOMEM);
	/* To that end all have come together, and work as before. */
	REQUIRE_EQ(shard_of(p[0].a.qp), 0);
	REQUIRE_EQ(shard_of(p[1].a.qp), 0);
	ends_connect(&p[0].far, &p[1].far);
	exchange(&p[0], &p[1], 1);
	while (count)
		REQUIRE_ERRNO(ibv_destroy_ah(ahs[--count]), 0);
	free(ahs);
	for (int i = 0; i < 2; i++)
		program_close(&p[i]);
}

/* Marks the block of a number, and returns how many are marked. */
static unsigned int mark(bool *blocks, size_t n, uint32_t number)
{
	unsigned int count = 0;

	REQUIRE(number / 64 < n);
	blocks[number / 64] = true;
	for (size_t i = 0; i < n; i++)
		count += blocks[i];
	return count;
}

/*
 * Numbers of programs that have ended are for those that begin, wherever their
 * shards were by then. Each block is memory that the device keeps.
 */
void numbers_are_used_again(void)
{
	unsigned int qp_blocks[2], key_blocks[2];
	bool qps[FERRULE_MAX_QP / 64] = {}, keys[4096] = {};
	struct program stays, p;

	program_open(&stays, IBV_QPT_RC);
	for (int i = 0; i < 2 * PROGRAMS; i++) {
		int half = i / PROGRAMS;

		/* By turns they meet the one that stays, and everybody. */
		program_open(&p, i % 2 ? IBV_QPT_RC : IBV_QPT_UD);
		if (i % 2)
			ends_connect(&p.far, &stays.far);
		qp_blocks[half] = mark(qps, ARRAY_SIZE(qps),
				       p.far.qp->qp_num &
				       FERRULE_DB_INDEX_MASK);
		key_blocks[half] = mark(keys, ARRAY_SIZE(keys),
					p.mail.mr->rkey >> 8);
		program_close(&p);
		if (i % 2)
			end_reset(&stays.far);
	}
	program_close(&stays);
	test_note("%d programs had %u blocks of queue pairs and %u of keys",
		  PROGRAMS, qp_blocks[0], key_blocks[0]);
	/* All blocks that there were have had their turn by then. */
	REQUIRE_EQ(qp_blocks[1], qp_blocks[0]);
	REQUIRE_EQ(key_blocks[1], key_blocks[0]);
}
