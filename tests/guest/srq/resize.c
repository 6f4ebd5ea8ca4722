// SPDX-License-Identifier: GPL-2.0
/*
 * Another size for a queue that is in use (ibv_modify_srq(3), IBV_SRQ_MAX_WR),
 * and the extended verb that makes one (ibv_create_srq_ex(3)).
 */
#include <pthread.h>
#include <stdlib.h>

#include "srq.h"

#include <rdma/ferrule-abi.h>
#include <rdma/ib_user_verbs.h>

static int resize(struct ibv_srq *srq, uint32_t max_wr)
{
	struct ibv_srq_attr attr = { .max_wr = max_wr };

	return ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR);
}

static struct ibv_srq_attr query(struct ibv_srq *srq)
{
	struct ibv_srq_attr attr = { };

	REQUIRE_ERRNO(ibv_query_srq(srq, &attr), 0);
	return attr;
}

/* One message for each number: its receive request is the next. */
static void take(struct scene *s, uint64_t first, uint64_t end)
{
	for (uint64_t i = first; i < end; i++) {
		int which = i % PAIRS;

		send_region(&s->from[which], i, &s->r, 0, LEN);
		EXPECT_OK(s->from[which].scq, i);
		EXPECT_OK(s->to[which].rcq, i);
	}
}

static void post_all(struct scene *s, uint64_t first, uint64_t end)
{
	for (uint64_t i = first; i < end; i++)
		post(s->srq, i, &s->r, LEN, LEN);
}

/* The requests that wait stay, in their order, through each size. */
static void resize_keeps(void)
{
	uint32_t max, old;
	struct ibv_sge sge;
	struct scene s;

	scene_make(&s, NULL);
	REQUIRE(s.d.attr.device_cap_flags & IBV_DEVICE_SRQ_RESIZE);
	sge = sge_of(&s.r, LEN, LEN);
	old = query(s.srq).max_wr;

	/* Not at the start of the ring, and over its end. */
	post_all(&s, 0, 50);
	take(&s, 0, 50);
	post_all(&s, 50, 50 + old);
	REQUIRE_ERRNO(try_post(s.srq, 9, &sge, 1), ENOMEM);
	REQUIRE_ERRNO(resize(s.srq, 4 * old), 0);
	max = query(s.srq).max_wr;
	REQUIRE(max >= 4 * old);

	take(&s, 50, 60);
	post_all(&s, 50 + old, 60 + max);
	REQUIRE_ERRNO(try_post(s.srq, 9, &sge, 1), ENOMEM);
	take(&s, 60, 60 + max - 10);

	/* Ten wait: fewer places are refused, and change nothing. */
	REQUIRE_ERRNO(resize(s.srq, 8), EINVAL);
	REQUIRE_EQ(query(s.srq).max_wr, max);
	REQUIRE_ERRNO(resize(s.srq, 16), 0);
	REQUIRE_EQ(query(s.srq).max_wr, 16);
	post_all(&s, 60 + max, 60 + max + 6);
	REQUIRE_ERRNO(try_post(s.srq, 9, &sge, 1), ENOMEM);
	take(&s, 60 + max - 10, 60 + max + 6);
	REQUIRE_ERRNO(resize(s.srq, 1), 0);
	post_all(&s, 7, 8);
	REQUIRE_ERRNO(try_post(s.srq, 9, &sge, 1), ENOMEM);
	take(&s, 7, 8);
	scene_free(&s);
}

/* An attribute that is refused leaves all others as they are. */
static void resize_attributes(void)
{
	struct ibv_srq_attr attr = { .max_wr = 128, .srq_limit = 129 };
	const int both = IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT;
	struct scene s;

	scene_make(&s, NULL);
	REQUIRE_ERRNO(resize(s.srq, 0), EINVAL);
	REQUIRE_ERRNO(resize(s.srq, s.d.attr.max_srq_wr + 1), EINVAL);
	REQUIRE_ERRNO(ibv_modify_srq(s.srq, &attr, both), EINVAL);
	REQUIRE_EQ(query(s.srq).max_wr, 64);
	REQUIRE_EQ(query(s.srq).srq_limit, 0);

	/* The limit has a place in the new size, and had none in the old. */
	post_all(&s, 0, 64);
	attr.srq_limit = 64;
	REQUIRE_ERRNO(ibv_modify_srq(s.srq, &attr, both), 0);
	REQUIRE_EQ(query(s.srq).max_wr, 128);
	REQUIRE_EQ(query(s.srq).srq_limit, 64);
	expect_no_async(s.d.ctx);
	REQUIRE_ERRNO(resize(s.srq, 32), EINVAL);
	take(&s, 0, 1);
	expect_async(s.d.ctx, IBV_EVENT_SRQ_LIMIT_REACHED, s.srq);

	/* A limit that is undercut already is told at once. */
	attr.max_wr = 256;
	attr.srq_limit = 200;
	REQUIRE_ERRNO(ibv_modify_srq(s.srq, &attr, both), 0);
	expect_async(s.d.ctx, IBV_EVENT_SRQ_LIMIT_REACHED, s.srq);
	REQUIRE_EQ(query(s.srq).srq_limit, 0);

	/* More than the size, where only the size changes. */
	attr.srq_limit = 60;
	REQUIRE_ERRNO(ibv_modify_srq(s.srq, &attr, IBV_SRQ_LIMIT), 0);
	take(&s, 1, 3);
	expect_no_async(s.d.ctx);
	REQUIRE_ERRNO(resize(s.srq, 64), 0);
	take(&s, 3, 4);
	expect_no_async(s.d.ctx);
	take(&s, 4, 5);
	expect_async(s.d.ctx, IBV_EVENT_SRQ_LIMIT_REACHED, s.srq);

	/* All that the device says it has. */
	REQUIRE_ERRNO(resize(s.srq, s.d.attr.max_srq_wr), 0);
	REQUIRE_EQ(query(s.srq).max_wr, s.d.attr.max_srq_wr);
	take(&s, 5, 64);
	scene_free(&s);
}

/* Posts, messages and other sizes at one time; each request is taken once. */
static void resize_threads(void)
{
	uint64_t total = opt.rounds ?: 5000, sent = 0, taken = 0;
	uint8_t *seen[2] = { calloc(1, total), calloc(1, total) };
	struct poster posters[2];
	uint32_t round = 0;
	struct scene s;

	REQUIRE(seen[0] && seen[1]);
	scene_make(&s, NULL);
	for (int i = 0; i < 2; i++) {
		posters[i] = (struct poster){ &s, (uint64_t)i << 32,
					      i ? total / 2 :
						  total - total / 2 };
		poster_start(&posters[i]);
	}
	while (taken < total) {
		struct ibv_wc wc;

		while (sent < total && sent < taken + 16) {
			send_region(&s.from[sent % PAIRS], sent, &s.r, 0, LEN);
			sent++;
		}
		next_wc(s.to[taken % PAIRS].rcq, &wc);
		REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
		REQUIRE(wc.wr_id >> 32 < 2 && (uint32_t)wc.wr_id < total);
		REQUIRE(!seen[wc.wr_id >> 32][(uint32_t)wc.wr_id]++);
		next_wc(s.from[taken % PAIRS].scq, &wc);
		REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
		if (++taken % 8 == 0) {
			int ret = resize(s.srq, 32u << round++ % 4);

			/* More may wait than the smaller ones have slots. */
			REQUIRE(ret == 0 || ret == EINVAL);
		}
	}
	for (int i = 0; i < 2; i++) {
		poster_join(&posters[i]);
		for (uint64_t n = 0; n < posters[i].count; n++)
			REQUIRE(seen[i][n]);
		free(seen[i]);
	}
	scene_free(&s);
}

/* The command as other providers may give it; nothing changes by a bad one. */
static void resize_command(void)
{
	struct {
		struct ib_uverbs_modify_srq core;
		struct ferrule_modify_srq_cmd drv;
	} cmd = {
		.core = { .attr_mask = IBV_SRQ_MAX_WR, .max_wr = 128 },
	};
	struct ferrule_resize_srq_resp resp = { };
	struct scene s;

	scene_make(&s, NULL);
	post_all(&s, 0, 5);
	cmd.core.srq_handle = s.srq->handle;

	/* Nowhere to answer: no request at all, and an address of nothing. */
	REQUIRE_ERRNO(uverbs_command(s.d.ctx->cmd_fd,
				     IB_USER_VERBS_CMD_MODIFY_SRQ, &cmd,
				     sizeof(cmd) - sizeof(cmd.drv), NULL, 0),
		      EINVAL);
	cmd.drv.resp = 4096;
	REQUIRE_ERRNO(uverbs_command(s.d.ctx->cmd_fd,
				     IB_USER_VERBS_CMD_MODIFY_SRQ, &cmd,
				     sizeof(cmd), NULL, 0), EFAULT);
	/* A request where nothing is to be answered. */
	cmd.core.attr_mask = IBV_SRQ_LIMIT;
	cmd.drv.resp = (uintptr_t)&resp;
	REQUIRE_ERRNO(uverbs_command(s.d.ctx->cmd_fd,
				     IB_USER_VERBS_CMD_MODIFY_SRQ, &cmd,
				     sizeof(cmd), NULL, 0), EOPNOTSUPP);
	REQUIRE_EQ(query(s.srq).max_wr, 64);
	take(&s, 0, 5);
	scene_free(&s);
}

/* The basic type by the extended verb; the others are not there. */
static void create_ex(void)
{
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = 16, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_BASIC,
	};
	struct ibv_srq *srq;
	struct device d;

	device_open(&d);
	init.pd = d.pd;
	srq = ibv_create_srq_ex(d.ctx, &init);
	if (!srq)
		FAIL("ibv_create_srq_ex: %s", strerror(errno));
	REQUIRE_EQ(query(srq).max_wr, init.attr.max_wr);
	REQUIRE_ERRNO(resize(srq, 64), 0);
	REQUIRE_EQ(query(srq).max_wr, 64);
	REQUIRE_ERRNO(ibv_destroy_srq(srq), 0);

	init.srq_type = IBV_SRQT_TM;
	REQUIRE_NULL_ERRNO(ibv_create_srq_ex(d.ctx, &init), EOPNOTSUPP);
	device_close(&d);
}

const struct test_case resize_cases[] = {
	{ "resize_keeps", resize_keeps },
	{ "resize_attributes", resize_attributes },
	{ "resize_threads", resize_threads, 120 },
	{ "resize_command", resize_command },
	{ "create_ex", create_ex },
	{ }
};
