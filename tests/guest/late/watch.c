// SPDX-License-Identifier: GPL-2.0
/* The thread that has to be in time. */
#define _GNU_SOURCE
#include "late.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

enum {
	/* How long it is measured, with and without. */
	MEASURE_US = 1000000,
	/* Between two looks at the clock, and as much again by chance. */
	PERIOD_NS = 400000,
	MAX_SAMPLES = 1 << 13,
};

struct watch {
	pthread_t thread;
	volatile bool stop;
	unsigned int count;
	uint64_t late[MAX_SAMPLES];
};

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

void be_real_time(int priority)
{
	struct sched_param param = { .sched_priority = priority };

	REQUIRE_EQ(sched_setscheduler(0, SCHED_FIFO, &param), 0);
}

static void *watch_main(void *arg)
{
	struct watch *w = arg;
	unsigned int seed = 1;
	uint64_t now;

	be_real_time(50);
	now = now_ns();
	while (!w->stop && w->count < MAX_SAMPLES) {
		uint64_t at = now + PERIOD_NS + rand_r(&seed) % PERIOD_NS;
		struct timespec t = { at / 1000000000, at % 1000000000 };

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
		now = now_ns();
		w->late[w->count++] = now - at;
	}
	return NULL;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* By how much it is late in 99 of 100 times beside 'step', again and again. */
static uint64_t lateness(const char *what, void (*step)(void *), void *arg)
{
	static struct watch w;
	uint64_t end;

	memset(&w, 0, sizeof(w));
	REQUIRE_EQ(pthread_create(&w.thread, NULL, watch_main, &w), 0);
	for (end = now_us() + MEASURE_US; now_us() < end;)
		step(arg);
	w.stop = true;
	REQUIRE_EQ(pthread_join(w.thread, NULL), 0);
	REQUIRE(w.count > 1000);
	qsort(w.late, w.count, sizeof(w.late[0]), compare);
	test_note("%s: late by %.1f us in half of %u times, %.1f in 99 of 100, %.1f at most",
		  what, w.late[w.count / 2] / 1e3, w.count,
		  w.late[w.count * 99 / 100] / 1e3, w.late[w.count - 1] / 1e3);
	return w.late[w.count * 99 / 100];
}

void judge(void (*calm)(void *), void (*step)(void *), void *arg, uint64_t most_ns)
{
	uint64_t before, beside;

	before = lateness("without the device", calm, arg);
	beside = lateness("beside the device", step, arg);
	test_note("later by %.1f us", ((double)beside - before) / 1e3);
	if (beside > before + most_ns)
		FAIL("later by more than %d us", (int)(most_ns / 1000));
}
