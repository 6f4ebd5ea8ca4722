// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Many threads against an engine. A lost doorbell or a lost kick is a test that
 * does not end; a completion queue whose slots come back too late is an
 * overrun, which fails.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <string.h>
#include <unistd.h>

#include <ccan/array_size.h>

#include "provider_test.h"

#define STRESS_THREADS	4
#define STRESS_QPS	8
#define STRESS_DEPTH	2
#define STRESS_POSTS	100000

static struct {
	/*
	 * Wait for all of one's completions before posting again. So nobody's
	 * next doorbell makes up for one that was lost.
	 */
	bool drain;
	sem_t wake;
	pthread_mutex_t engine;
	struct ibv_cq *cq;
	struct ibv_qp *qps[STRESS_QPS];
	uint32_t done[STRESS_QPS];
	bool stop;
} stress;

static void stress_visit(struct fake_qp *qp)
{
	uint32_t producer = le32toh(__atomic_load_n(&qp->ctrl->sq_producer,
						    __ATOMIC_ACQUIRE));

	CHECK(producer - qp->consumer <= STRESS_DEPTH);
	while (qp->consumer != producer) {
		uint64_t wr_id = le64toh(
			fake_send_slot(qp, qp->consumer)->wr_id);

		CHECK(wr_id == qp->next_wr_id++);
		qp->consumer++;
		fake_complete_send(qp, wr_id, qp->consumer);
	}
}

/* An engine that sleeps whenever it finds nothing to do. */
static void *stress_worker(void *arg)
{
	uint32_t *sleeping = (uint32_t *)&fake.status->sleeping;
	const uint64_t *rung = (const uint64_t *)&fake.db->rung;
	uint32_t count = 0;

	while (!__atomic_load_n(&stress.stop, __ATOMIC_RELAXED)) {
		if (fake_look(&count, stress_visit))
			continue;

		__atomic_store_n(sleeping, htole32(1), __ATOMIC_RELAXED);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (le64toh(__atomic_load_n(rung, __ATOMIC_ACQUIRE)) >>
			    FERRULE_RUNG_COUNT_SHIFT == count)
			sem_wait(&stress.wake);
		__atomic_store_n(sleeping, 0, __ATOMIC_RELAXED);
	}

	return NULL;
}

static void stress_wake(void)
{
	sem_post(&stress.wake);
}

/* An engine that works only for a thread that kicks it, and while it does. */
static void stress_inline(void)
{
	pthread_mutex_lock(&stress.engine);
	fake_scan(stress_visit);
	pthread_mutex_unlock(&stress.engine);
}

static void stress_poll(void)
{
	struct ibv_wc wc[3];
	unsigned int i;
	int n;

	n = poll(stress.cq, ARRAY_SIZE(wc), wc);
	if (!n)
		sched_yield();
	while (n--) {
		for (i = 0; stress.qps[i]->qp_num != wc[n].qp_num; i++)
			;
		__atomic_add_fetch(&stress.done[i], 1, __ATOMIC_RELAXED);
	}
}

/*
 * Posts to two queue pairs of its own, whose doorbells have neighbours, and
 * polls the completion queue that all threads share.
 */
static void *stress_thread(void *arg)
{
	unsigned int first = (uintptr_t)arg * 2;
	uint32_t posted[2] = {};
	unsigned int i;
	bool more;

	do {
		more = false;
		for (i = 0; i < 2; i++) {
			while (posted[i] < STRESS_POSTS &&
			       !post_id(stress.qps[first + i], posted[i]))
				posted[i]++;
			while (stress.drain && posted[i] !=
			       __atomic_load_n(&stress.done[first + i],
					       __ATOMIC_RELAXED))
				stress_poll();
			more |= STRESS_POSTS !=
				__atomic_load_n(&stress.done[first + i],
						__ATOMIC_RELAXED);
		}
		stress_poll();
	} while (more);

	return NULL;
}

enum stress_engine {
	STRESS_WORKER,	/* a thread, which a kick wakes */
	STRESS_INLINE,	/* works for a thread that kicks it */
	STRESS_DEFERRED,	/* the same, and kicks are deferred */
};

static void run_stress(bool drain, enum stress_engine kind)
{
	bool worker = kind == STRESS_WORKER;
	pthread_t engine, threads[STRESS_THREADS];
	unsigned int i;

	memset(&stress, 0, sizeof(stress));
	stress.drain = drain;
	sem_init(&stress.wake, 0, 0);
	pthread_mutex_init(&stress.engine, NULL);
	stress.cq = new_cq(STRESS_QPS * STRESS_DEPTH);
	for (i = 0; i < STRESS_QPS; i++) {
		/* Those of different threads are neighbours under one leaf. */
		fake.next_qp_num = 0x30000 + i % 2 * 64 + i / 2;
		stress.qps[i] = new_qp(IBV_QPT_RC, stress.cq, STRESS_DEPTH);
	}

	alarm(120);
	fake.on_kick = worker ? stress_wake : stress_inline;
	if (worker)
		CHECK(!pthread_create(&engine, NULL, stress_worker, NULL));
	else if (kind == STRESS_DEFERRED)
		fake.status->deferred = htole32(1);
	else
		fake.status->sleeping = htole32(1);
	for (i = 0; i < STRESS_THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, stress_thread,
				      (void *)(uintptr_t)i));
	for (i = 0; i < STRESS_THREADS; i++)
		pthread_join(threads[i], NULL);
	if (worker) {
		__atomic_store_n(&stress.stop, true, __ATOMIC_RELAXED);
		sem_post(&stress.wake);
		pthread_join(engine, NULL);
	}
	alarm(0);

	for (i = 0; i < STRESS_QPS; i++)
		CHECK(stress.done[i] == STRESS_POSTS);
}

void test_stress_worker(void)
{
	run_stress(false, STRESS_WORKER);
}

void test_stress_worker_drain(void)
{
	run_stress(true, STRESS_WORKER);
}

void test_stress_inline_drain(void)
{
	run_stress(true, STRESS_INLINE);
}

/* No timer of the engine's helps here: the kick of each thread counts. */
void test_stress_deferred_drain(void)
{
	run_stress(true, STRESS_DEFERRED);
}
