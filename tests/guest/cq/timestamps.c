// SPDX-License-Identifier: GPL-2.0
/* The time of completions: by the device's clock, and by that of the day. */
#define _GNU_SOURCE
#include "cq.h"

#include <time.h>

enum { LEN = 64 };

/*
 * The time of day of a completion is the device's by the two clocks, which the
 * provider compares now and then: this far apart at most, in nanoseconds.
 */
static int64_t tolerance(void)
{
	static int64_t found;

	/* To look for the function takes longer than a message. */
	if (!found)
		found = has_function() ? 2000000ll * opt.slow : 20000;
	return found;
}

struct moment {
	uint64_t raw, wall;	/* nanoseconds */
};

static struct moment now(struct ibv_context *ctx)
{
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	struct timespec wall;

	REQUIRE_ERRNO(ibv_query_rt_values_ex(ctx, &values), 0);
	REQUIRE_EQ(values.comp_mask, IBV_VALUES_MASK_RAW_CLOCK);
	clock_gettime(CLOCK_REALTIME, &wall);
	return (struct moment){
		values.raw_clock.tv_sec * 1000000000ull +
			values.raw_clock.tv_nsec,
		wall.tv_sec * 1000000000ull + wall.tv_nsec,
	};
}

static struct moment poll_one(struct ibv_cq_ex *cq)
{
	uint64_t end = now_us() + PATIENCE_US;
	struct ibv_poll_cq_attr attr = { };
	struct moment at;
	int ret;

	while ((ret = ibv_start_poll(cq, &attr)) == ENOENT)
		if (now_us() > end)
			FAIL("no completion");
	REQUIRE_ERRNO(ret, 0);
	REQUIRE_EQ(cq->status, IBV_WC_SUCCESS);
	at.raw = ibv_wc_read_completion_ts(cq);
	at.wall = ibv_wc_read_completion_wallclock_ns(cq);
	ibv_end_poll(cq);
	return at;
}

static void require_between(struct moment from, struct moment at,
			    struct moment to)
{
	if (at.raw < from.raw || at.raw > to.raw)
		FAIL("by the device's clock %lld ns after the first look, and %lld ns before the second",
		     (long long)(at.raw - from.raw),
		     (long long)(to.raw - at.raw));
	if ((int64_t)(at.wall - from.wall) < -tolerance() ||
	    (int64_t)(to.wall - at.wall) < -tolerance())
		FAIL("by the time of day %lld ns after the first look, and %lld ns before the second",
		     (long long)(at.wall - from.wall),
		     (long long)(to.wall - at.wall));
}

/* One end that is connected to itself. */
struct scene {
	struct device d;
	struct ibv_cq_ex *cq;
	struct end e;
	struct region r;
};

static void scene_make(struct scene *s)
{
	struct ibv_cq_init_attr_ex init = {
		.cqe = 64,
		.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
	};
	struct end_config config = { };

	device_open(&s->d);
	s->cq = ibv_create_cq_ex(s->d.ctx, &init);
	if (!s->cq)
		FAIL("ibv_create_cq_ex: %s", strerror(errno));
	config.cq = ibv_cq_ex_to_cq(s->cq);
	end_make(&s->e, &s->d, &config);
	end_to_state(&s->e, IBV_QPS_RTS);
	region_make(&s->r, &s->d, 2 * LEN, 0, ACCESS_ALL);
	memset(s->r.data, 0, LEN);
	memset(s->r.data + LEN, 1, LEN);
}

static void scene_free(struct scene *s)
{
	end_free(&s->e);
	REQUIRE_ERRNO(ibv_destroy_cq(ibv_cq_ex_to_cq(s->cq)), 0);
	region_free(&s->r);
	device_close(&s->d);
}

/* Between a look before the request and one after it, and in order. */
static void in_order(void)
{
	struct moment begin, last = { };
	struct scene s;

	scene_make(&s);
	begin = now(s.d.ctx);
	for (int i = 0; i < 200; i++) {
		struct moment before = now(s.d.ctx), of_two[2];

		recv_region(&s.e, i, &s.r, 0, LEN);
		send_region(&s.e, i, &s.r, LEN, LEN);
		for (int k = 0; k < 2; k++) {
			of_two[k] = poll_one(s.cq);
			REQUIRE(of_two[k].raw >= last.raw);
			last = of_two[k];
		}
		for (int k = 0; k < 2; k++)
			require_between(before, of_two[k], now(s.d.ctx));
	}
	require_between(begin, last, now(s.d.ctx));
	scene_free(&s);
}

/* It is the time of the completion, however late a program polls. */
static void polled_late(void)
{
	const uint64_t ms = 1000000;
	struct moment before, after, at[2];
	struct scene s;

	scene_make(&s);
	before = now(s.d.ctx);
	recv_region(&s.e, 1, &s.r, 0, LEN);
	send_region(&s.e, 1, &s.r, LEN, LEN);
	while (!*(volatile uint8_t *)(s.r.data + LEN - 1))
		;
	sleep_us(200000 * opt.slow);
	after = now(s.d.ctx);
	sleep_us(300000 * opt.slow);
	for (int k = 0; k < 2; k++) {
		at[k] = poll_one(s.cq);
		require_between(before, at[k], after);
	}
	REQUIRE(now(s.d.ctx).raw - at[1].raw >= 300 * ms * opt.slow);
	scene_free(&s);
}

/* The clock's unit and width, and queues that tell no time. */
static void clock_of_the_device(void)
{
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK << 1 };
	struct ibv_cq_init_attr_ex init = { .cqe = 1 };
	struct ibv_device_attr_ex attr;
	struct timespec from, to;
	struct moment begin, end;
	struct ibv_cq_ex *cq;
	uint64_t took, told;
	struct device d;

	device_open(&d);
	REQUIRE_ERRNO(ibv_query_device_ex(d.ctx, NULL, &attr), 0);
	/* In kHz: a nanosecond each. */
	REQUIRE_EQ(attr.hca_core_clock, 1000000);
	REQUIRE_EQ(attr.completion_timestamp_mask, UINT64_MAX);
	REQUIRE_ERRNO(ibv_query_rt_values_ex(d.ctx, &values), EINVAL);

	clock_gettime(CLOCK_MONOTONIC, &from);
	begin = now(d.ctx);
	sleep_us(500000);
	end = now(d.ctx);
	clock_gettime(CLOCK_MONOTONIC, &to);
	took = (to.tv_sec - from.tv_sec) * 1000000000ull + to.tv_nsec -
	       from.tv_nsec;
	told = end.raw - begin.raw;
	/* Clocks of two machines are not set alike. */
	if (told < 450000000 || told > took + took / 100)
		FAIL("the device's clock took %llu ns for %llu ns",
		     (unsigned long long)told, (unsigned long long)took);

	/* A queue that was not asked for times has none. */
	cq = ibv_create_cq_ex(d.ctx, &init);
	REQUIRE(cq);
	REQUIRE(!cq->read_completion_ts && !cq->read_completion_wallclock_ns);
	REQUIRE_ERRNO(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	device_close(&d);
}

const struct test_case timestamp_cases[] = {
	{ "timestamps_in_order", in_order },
	{ "timestamps_polled_late", polled_late },
	{ "clock_of_the_device", clock_of_the_device },
	{ }
};
