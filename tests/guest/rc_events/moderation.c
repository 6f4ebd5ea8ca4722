// SPDX-License-Identifier: GPL-2.0
/*
 * Events that wait for more completions (ibv_modify_cq(3)), queues without a
 * channel, and completion vectors.
 */
#include <pthread.h>

#include "rc_events.h"

/* Longer than any case that does not wait for it. */
enum { LONG_US = 60000 };

static int moderate(struct ibv_cq *cq, uint16_t count, uint16_t period_us)
{
	struct ibv_modify_cq_attr attr = {
		.attr_mask = IBV_CQ_ATTR_MODERATE,
		.moderate = { .cq_count = count, .cq_period = period_us },
	};

	return ibv_modify_cq(cq, &attr);
}

static void moderation_attributes(void)
{
	struct ibv_modify_cq_attr attr = { };
	struct ibv_device_attr_ex device;
	struct scene s;

	scene_make(&s);
	REQUIRE_ERRNO(ibv_query_device_ex(s.d.ctx, NULL, &device), 0);
	REQUIRE_EQ(device.cq_mod_caps.max_cq_count, UINT16_MAX);
	REQUIRE_EQ(device.cq_mod_caps.max_cq_period, UINT16_MAX);
	REQUIRE_ERRNO(moderate(s.b.rcq, UINT16_MAX, UINT16_MAX), 0);
	REQUIRE_ERRNO(moderate(s.b.rcq, 0, 0), 0);
	/* Nothing, and nothing that there is. */
	REQUIRE_ERRNO(ibv_modify_cq(s.b.rcq, &attr), EINVAL);
	attr.attr_mask = IBV_CQ_ATTR_RESERVED;
	REQUIRE_ERRNO(ibv_modify_cq(s.b.rcq, &attr), EINVAL);
	scene_free(&s);
}

/* So many completions that were not taken raise the event before its time. */
static void moderation_count(void)
{
	struct scene s;

	scene_make(&s);
	REQUIRE_ERRNO(moderate(s.b.rcq, 4, LONG_US), 0);
	for (int round = 0; round < 3; round++) {
		uint64_t begin;

		REQUIRE_ERRNO(ibv_req_notify_cq(s.b.rcq, 0), 0);
		begin = now_us();
		for (int i = 0; i < 3; i++)
			message(&s, i, 0);
		for (int i = 0; i < 3; i++)
			EXPECT_OK(s.a.scq, i);
		if (event_waits(s.channel, 0) && now_us() - begin < LONG_US)
			FAIL("an event for three of four completions");
		message(&s, 3, 0);
		expect_event(s.channel, s.b.rcq);
		EXPECT_OK(s.a.scq, 3);
		for (int i = 0; i < 4; i++)
			EXPECT_OK(s.b.rcq, i);
		expect_no_event(s.channel);
	}
	scene_free(&s);
}

/* Fewer raise it when the first of them has waited for so long. */
static void moderation_period(void)
{
	struct scene s;

	scene_make(&s);
	REQUIRE_ERRNO(moderate(s.b.rcq, 100, LONG_US), 0);
	for (int round = 0; round < 3; round++) {
		uint64_t begin;

		REQUIRE_ERRNO(ibv_req_notify_cq(s.b.rcq, 0), 0);
		begin = now_us();
		message(&s, 1, 0);
		message(&s, 2, 0);
		expect_event(s.channel, s.b.rcq);
		/* The two clocks may differ a little. */
		REQUIRE(now_us() - begin >= LONG_US - LONG_US / 100);
		message_done(&s, 1);
		message_done(&s, 2);
		expect_no_event(s.channel);
	}
	scene_free(&s);
}

/* Moderation that ends, or was none, lets an event go at once. */
static void moderation_off(void)
{
	static const uint16_t off[][2] = {
		{ 0, 0 }, { 1, LONG_US }, { 100, 0 }
	};
	struct scene s;

	scene_make(&s);
	for (size_t i = 0; i < ARRAY_SIZE(off); i++) {
		REQUIRE_ERRNO(moderate(s.b.rcq, 100, UINT16_MAX), 0);
		REQUIRE_ERRNO(ibv_req_notify_cq(s.b.rcq, 0), 0);
		message(&s, i, 0);
		message_done(&s, i);
		REQUIRE_ERRNO(moderate(s.b.rcq, off[i][0], off[i][1]), 0);
		expect_event(s.channel, s.b.rcq);
		REQUIRE_ERRNO(ibv_req_notify_cq(s.b.rcq, 0), 0);
		message(&s, i, 0);
		expect_event(s.channel, s.b.rcq);
		message_done(&s, i);
	}
	expect_no_event(s.channel);
	scene_free(&s);
}

/* A queue that goes while its event waits. */
static void moderation_destroyed(void)
{
	struct scene s;

	scene_make(&s);
	REQUIRE_ERRNO(moderate(s.b.rcq, 100, 1000), 0);
	REQUIRE_ERRNO(ibv_req_notify_cq(s.b.rcq, 0), 0);
	message(&s, 1, 0);
	EXPECT_OK(s.a.scq, 1);
	scene_free(&s);
}

/* Nobody would hear of the event. */
static void no_channel(void)
{
	struct pair p;

	pair_open(&p, NULL);
	REQUIRE_ERRNO(ibv_req_notify_cq(p.a.scq, 0), 0);
	REQUIRE_ERRNO(ibv_req_notify_cq(p.a.scq, 1), 0);
	pair_close(&p);
}

/* Threads, each with a vector, a channel and a queue of its own. */

enum { MESSAGES = 50 };

struct listener {
	struct device *d;
	int vector;
	pthread_t thread;
};

static void *listen_on_vector(void *arg)
{
	struct listener *l = arg;
	struct ibv_comp_channel *channel = ibv_create_comp_channel(l->d->ctx);
	struct end_config config = { };
	struct region r;
	struct end e;

	REQUIRE(channel);
	config.cq = ibv_create_cq(l->d->ctx, 16, l, channel, l->vector);
	if (!config.cq)
		FAIL("vector %d: %s", l->vector, strerror(errno));
	end_make(&e, l->d, &config);
	region_make(&r, l->d, 2 * LEN, 0, ACCESS_ALL);
	end_connect(&e, &(struct peer){ .qpn = e.qp->qp_num, .psn = e.psn,
					.gid = l->d->gid });
	for (int i = 0; i < MESSAGES; i++) {
		REQUIRE_ERRNO(ibv_req_notify_cq(e.rcq, 0), 0);
		recv_region(&e, 2 * i, &r, LEN, LEN);
		send_region(&e, 2 * i + 1, &r, 0, LEN);
		expect_event(channel, e.rcq);
		for (int n = 0; n < 2; n++) {
			struct ibv_wc wc;

			next_wc(e.rcq, &wc);
			REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
			REQUIRE_EQ(wc.wr_id / 2, i);
		}
	}
	end_free(&e);
	REQUIRE_ERRNO(ibv_destroy_cq(config.cq), 0);
	REQUIRE_ERRNO(ibv_destroy_comp_channel(channel), 0);
	region_free(&r);
	return NULL;
}

static void vectors(void)
{
	struct listener listeners[8];
	struct device d;
	int count;

	device_open(&d);
	count = d.ctx->num_comp_vectors;
	REQUIRE(count >= 1);
	REQUIRE_NULL_ERRNO(ibv_create_cq(d.ctx, 1, NULL, NULL, count), EINVAL);
	REQUIRE_NULL_ERRNO(ibv_create_cq(d.ctx, 1, NULL, NULL, -1), EINVAL);
	for (size_t i = 0; i < ARRAY_SIZE(listeners); i++) {
		listeners[i].d = &d;
		listeners[i].vector = i % count;
		REQUIRE_EQ(pthread_create(&listeners[i].thread, NULL,
					  listen_on_vector, &listeners[i]), 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(listeners); i++)
		REQUIRE_EQ(pthread_join(listeners[i].thread, NULL), 0);
	device_close(&d);
}

const struct test_case moderation_cases[] = {
	{ "moderation_attributes", moderation_attributes },
	{ "moderation_count", moderation_count },
	{ "moderation_period", moderation_period },
	{ "moderation_off", moderation_off },
	{ "moderation_destroyed", moderation_destroyed },
	{ "no_channel", no_channel },
	{ "vectors", vectors, 60 },
	{ }
};
