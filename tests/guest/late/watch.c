// SPDX-License-Identifier: GPL-2.0
/* The thread that has to be in time. */
#define _GNU_SOURCE
#include "late.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum {
	/* How long it is measured, with and without. */
	MEASURE_US = 1000000,
	/* Between two looks at the clock, and as much again by chance. */
	PERIOD_NS = 400000,
	/* How long the thread works each time. */
	WORK_NS = 50000,
	/* Between two looks at the clock: about a microsecond. */
	STEPS = 200,
	/* So much longer than without the device may others interrupt it then, in 99 of 100 times. */
	INTERRUPTED_NS = 20000,
	MAX_SAMPLES = 1 << 13,
};

struct watch {
	pthread_t thread;
	volatile bool stop;
	unsigned int count;
	/* How late the thread gets its processor, and how long others have it while the thread works. */
	uint64_t late[MAX_SAMPLES], interrupted[MAX_SAMPLES];
};

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* The longest time between two looks at the clock, which take the emulator a while. */
static uint64_t work(uint64_t now)
{
	uint64_t end = now + WORK_NS, last, longest = 0;

	while (now < end) {
		last = now;
		for (volatile int i = 0; i < STEPS; i++)
			;
		now = now_ns();
		if (now - last > longest)
			longest = now - last;
	}
	return longest;
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
		w->late[w->count] = now - at;
		w->interrupted[w->count++] = work(now);
		now = now_ns();
	}
	return NULL;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* The thread's delays in 99 of 100 times, in nanoseconds. */
struct delays {
	uint64_t late, interrupted;
};

/* The thread's delays beside 'step', again and again. */
static struct delays measure(const char *what, void (*step)(void *), void *arg)
{
	static struct watch w;
	struct delays most;
	uint64_t end;

	memset(&w, 0, sizeof(w));
	REQUIRE_EQ(pthread_create(&w.thread, NULL, watch_main, &w), 0);
	for (end = now_us() + MEASURE_US; now_us() < end;)
		step(arg);
	w.stop = true;
	REQUIRE_EQ(pthread_join(w.thread, NULL), 0);
	REQUIRE(w.count > 1000);
	qsort(w.late, w.count, sizeof(w.late[0]), compare);
	qsort(w.interrupted, w.count, sizeof(w.interrupted[0]), compare);
	most.late = w.late[w.count * 99 / 100];
	most.interrupted = w.interrupted[w.count * 99 / 100];
	test_note("%s: late by %.1f us in half of %u times, %.1f in 99 of 100, %.1f at most",
		  what, w.late[w.count / 2] / 1e3, w.count,
		  most.late / 1e3, w.late[w.count - 1] / 1e3);
	test_note("%s: interrupted for %.1f us in half, %.1f in 9 of 10, %.1f in 99 of 100, %.1f at most",
		  what, w.interrupted[w.count / 2] / 1e3, w.interrupted[w.count * 9 / 10] / 1e3,
		  most.interrupted / 1e3, w.interrupted[w.count - 1] / 1e3);
	return most;
}

void judge(void (*calm)(void *), void (*step)(void *), void *arg, uint64_t most_ns)
{
	struct delays before, beside;

	before = measure("without the device", calm, arg);
	beside = measure("beside the device", step, arg);
	test_note("later by %.1f us", ((double)beside.late - before.late) / 1e3);
	if (beside.late > before.late + most_ns)
		FAIL("later by more than %d us", (int)(most_ns / 1000));
	if (beside.interrupted > before.interrupted + INTERRUPTED_NS)
		FAIL("interrupted for more than %d us longer", INTERRUPTED_NS / 1000);
}
