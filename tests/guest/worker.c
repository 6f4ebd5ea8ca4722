// SPDX-License-Identifier: GPL-2.0
/*
 * The awake worker serves programs that need not kick. While a thread of
 * real-time priority has its processor, they go on by themselves. So do those
 * that wait for timers while such threads have all processors.
 *
 * For a guest whose clock counts instructions: elsewhere the machine below
 * keeps the processors from each other, too.
 */
#define _GNU_SOURCE
#include "common.h"

#include <pthread.h>
#include <rdma/ferrule-abi.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	DEPTH = 32,
	/* The thread that has the worker's processor. */
	BURST_US = 100000,
	/* So many that find the worker awake, of so many at most. */
	BURSTS = 3,
	TRIES = 30,
	/* A request beside it. */
	MOST_US = 20000,
	/* So many requests without a kick: the worker is awake. */
	STREAM = 256,
	/* Others' contexts, each with timers of its own. */
	CONTEXTS = 24,
	/* A message beside them. */
	MOST_BESIDE_US = 10000,
};

static void be_on(int processor, int priority)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(processor, &set);
	REQUIRE_EQ(sched_setaffinity(0, sizeof(set), &set), 0);
	be_real_time(priority);
}

struct bursts {
	sem_t begin;
	_Atomic bool begun, ended, stop;
};

static void *take_processor(void *arg)
{
	struct bursts *b = arg;

	be_on(1, 60);
	for (;;) {
		uint64_t end;

		REQUIRE_EQ(sem_wait(&b->begin), 0);
		if (b->stop)
			return NULL;
		b->begun = true;
		for (end = now_us() + BURST_US; now_us() < end;)
			;
		b->ended = true;
	}
}

/* The status area of the only context. */
static const struct ferrule_status *status_area(void)
{
	struct mapping maps[64];
	unsigned int n = device_mappings(maps, ARRAY_SIZE(maps));

	for (unsigned int i = 0; i < n; i++)
		if (maps[i].end - maps[i].begin == FERRULE_DB_AREA_SIZE &&
		    !mapping_writable(&maps[i]))
			return (void *)maps[i].begin;
	FAIL("no status area among %u mappings", n);
}

static void write_and_wait(struct end *e, struct region *r, const struct peer *to)
{
	struct ibv_sge sge = sge_of(r, 0, 8);
	struct ibv_wc wc;

	REQUIRE_EQ(try_send(e, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 1,
			    to, 8, 0), 0);
	while (ibv_poll_cq(e->scq, 1, &wc) == 0)
		;
	REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
}

static void held_up(void)
{
	const volatile uint32_t *sleeping;
	static struct bursts b;
	struct device d;
	struct region r;
	struct peer self;
	struct end end;
	pthread_t thread;
	unsigned int bursts = 0;
	uint64_t most = 0, count = 0;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		test_skip("one processor: no worker stays awake");
	device_open(&d);
	end_make(&end, &d, &(struct end_config){ .send_wr = DEPTH });
	end_to_state(&end, IBV_QPS_RTS);
	region_make(&r, &d, 4096, 0, ACCESS_ALL);
	self = end_address(&end, &r);
	sleeping = &status_area()->sleeping;
	REQUIRE_EQ(sem_init(&b.begin, 0, 0), 0);
	REQUIRE_EQ(pthread_create(&thread, NULL, take_processor, &b), 0);
	be_on(0, 50);
	for (int i = 0; i < TRIES && bursts < BURSTS; i++) {
		uint64_t end_at = now_us() + 5 * BURST_US;
		bool is_awake = false;

		for (int n = 0; !is_awake && now_us() < end_at;) {
			write_and_wait(&end, &r, &self);
			n = *sleeping ? 0 : n + 1;
			is_awake = n == STREAM;
		}
		if (is_awake) {
			b.begun = b.ended = false;
			REQUIRE_EQ(sem_post(&b.begin), 0);
			while (!b.begun)
				;
			while (!b.ended) {
				uint64_t us = now_us();

				write_and_wait(&end, &r, &self);
				us = now_us() - us;
				most = us > most ? us : most;
				count++;
			}
			bursts++;
		}
		/* Others have to run, too. */
		sleep_us(BURST_US);
	}
	b.stop = true;
	REQUIRE_EQ(sem_post(&b.begin), 0);
	REQUIRE_EQ(pthread_join(thread, NULL), 0);
	if (!bursts)
		FAIL("in %d tries, the worker was never awake", TRIES);
	test_note("beside %u bursts of %d us, %llu requests ended; one took %llu us at most",
		  bursts, BURST_US, (unsigned long long)count,
		  (unsigned long long)most);
	REQUIRE(most < MOST_US);
}

/* ---- Timers ---- */

static void others(void *ready)
{
	wait_in_contexts(CONTEXTS);
	sem_post(ready);
	for (;;)
		pause();
}

/* A message for which the receiver is not ready at first. */
static void send_too_early(struct end *e, struct region *r)
{
	uint64_t ready_at;

	send_region(e, 1, r, 0, 8);
	for (ready_at = now_us() + 50; now_us() < ready_at;)
		;
	recv_region(e, 2, r, 8, 8);
	for (int ended = 0; ended < 2;) {
		struct ibv_wc wc;

		if (ibv_poll_cq(e->scq, 1, &wc) == 0)
			continue;
		REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
		ended++;
	}
}

static void timers_of_many(void)
{
	static struct bursts b;
	struct end_config config = { .rnr_timer = 1 };
	sem_t *ready = shared_map(sizeof(*ready));
	struct device d;
	struct region r;
	struct end end;
	pthread_t thread;
	uint64_t most = 0, count = 0;
	pid_t pid;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		test_skip("one processor: all contexts have one timer");
	REQUIRE_EQ(sem_init(ready, 1, 0), 0);
	pid = fork_process(others, ready);
	REQUIRE_EQ(sem_wait(ready), 0);
	device_open(&d);
	config.cq = ibv_create_cq(d.ctx, 4, NULL, NULL, 0);
	REQUIRE(config.cq);
	end_make(&end, &d, &config);
	end_to_state(&end, IBV_QPS_RTS);
	region_make(&r, &d, 16, 0, ACCESS_ALL);
	REQUIRE_EQ(sem_init(&b.begin, 0, 0), 0);
	REQUIRE_EQ(pthread_create(&thread, NULL, take_processor, &b), 0);
	be_on(0, 50);
	for (int i = 0; i < BURSTS; i++) {
		b.begun = b.ended = false;
		REQUIRE_EQ(sem_post(&b.begin), 0);
		while (!b.begun)
			;
		while (!b.ended) {
			uint64_t us = now_us();

			send_too_early(&end, &r);
			us = now_us() - us;
			most = us > most ? us : most;
			count++;
		}
		sleep_us(BURST_US);
	}
	b.stop = true;
	REQUIRE_EQ(sem_post(&b.begin), 0);
	REQUIRE_EQ(pthread_join(thread, NULL), 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	test_note("beside %d contexts whose timers are due, and %d bursts of %d us on both processors, %llu messages arrived; one took %llu us at most",
		  CONTEXTS, BURSTS, BURST_US, (unsigned long long)count,
		  (unsigned long long)most);
	REQUIRE(most < MOST_BESIDE_US);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "held_up", held_up, 60 },
		{ "timers_of_many", timers_of_many, 120 },
		{ }
	};

	return test_main(argc, argv, cases);
}
