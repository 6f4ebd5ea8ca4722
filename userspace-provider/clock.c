// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The clock of completions. It is the raw one of the machine with the engine,
 * so where the device is a PCI function, another than this machine has.
 */

#include <config.h>

#include <errno.h>
#include <time.h>

#include "ferrule.h"

/* The two clocks are compared again when this is over: crystals differ. */
#define COMPARE_NS 100000000

static uint64_t now_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

static int query_clock(struct ibv_context *context, uint64_t *ns)
{
	DECLARE_COMMAND_BUFFER(cmd, UVERBS_OBJECT_DEVICE,
			       FERRULE_METHOD_QUERY_CLOCK, 1);

	fill_attr_out_ptr(cmd, FERRULE_ATTR_CLOCK, ns);
	return execute_ioctl(context, cmd);
}

/*
 * All nanoseconds stand in tv_nsec, as other providers have it and programs
 * read it: the field is the counter, not a time of day.
 */
int ferrule_query_rt_values(struct ibv_context *context,
			    struct ibv_values_ex *values)
{
	uint64_t ns;
	int err;

	if (!check_comp_mask(values->comp_mask, IBV_VALUES_MASK_RAW_CLOCK))
		return EINVAL;

	if (values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) {
		err = query_clock(context, &ns);
		if (err)
			return err;
		values->raw_clock.tv_sec = 0;
		values->raw_clock.tv_nsec = ns;
	}

	return 0;
}

/*
 * How far the device's clock is ahead of this machine's. Of three answers the
 * one that came soonest is the nearest; one between two looks at the own clock
 * is by that clock.
 */
static uint64_t clock_ahead(struct ferrule_context *ctx, uint64_t now)
{
	uint64_t ahead = atomic_load_explicit(&ctx->clock_ahead,
					      memory_order_relaxed);
	uint64_t compared = atomic_load_explicit(&ctx->clock_compared,
						 memory_order_relaxed);
	uint64_t shortest = UINT64_MAX;
	int i;

	if (compared && now - compared < COMPARE_NS)
		return ahead;

	for (i = 0; i < 3; i++) {
		uint64_t before = now_ns(CLOCK_MONOTONIC_RAW);
		uint64_t theirs, after;

		/* Of a device that is gone, what was known must do. */
		if (query_clock(&ctx->verbs.context, &theirs))
			return ahead;
		after = now_ns(CLOCK_MONOTONIC_RAW);
		if (before <= theirs && theirs <= after) {
			ahead = 0;
			break;
		}
		if (after - before < shortest) {
			shortest = after - before;
			ahead = theirs - before - shortest / 2;
		}
	}
	atomic_store_explicit(&ctx->clock_ahead, ahead, memory_order_relaxed);
	atomic_store_explicit(&ctx->clock_compared, now, memory_order_relaxed);

	return ahead;
}

/* How long ago it was, taken off the time of day. */
uint64_t ferrule_wall_ns(struct ferrule_context *ctx, uint64_t timestamp)
{
	uint64_t ahead = clock_ahead(ctx, now_ns(CLOCK_MONOTONIC_RAW));
	uint64_t age = now_ns(CLOCK_MONOTONIC_RAW) + ahead - timestamp;

	return now_ns(CLOCK_REALTIME) - age;
}
