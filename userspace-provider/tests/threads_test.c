// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Doorbells of threads: each has its own, and is kicked by their number. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>

#include "provider_test.h"

/* Another thread, which lives on, and does what it is told. */
struct other {
	pthread_t thread;
	sem_t go, done;
	void (*run)(struct other *other);
	struct ibv_cq *cq;
	struct ibv_srq *srq;
};

static void *follow(void *arg)
{
	struct other *other = arg;

	for (;;) {
		sem_wait(&other->go);
		if (!other->run)
			return NULL;
		other->run(other);
		sem_post(&other->done);
	}
}

static void other_start(struct other *other)
{
	CHECK(!sem_init(&other->go, 0, 0) && !sem_init(&other->done, 0, 0));
	CHECK(!pthread_create(&other->thread, NULL, follow, other));
}

static void other_do(struct other *other, void (*run)(struct other *other))
{
	other->run = run;
	sem_post(&other->go);
	sem_wait(&other->done);
}

static void other_end(struct other *other)
{
	other->run = NULL;
	sem_post(&other->go);
	CHECK(!pthread_join(other->thread, NULL));
}

static void make_cq(struct other *other)
{
	other->cq = new_cq(16);
}

static struct ibv_cq *cq_by(struct other *other)
{
	other_do(other, make_cq);
	return other->cq;
}

static uint32_t number_of(struct ibv_cq *cq)
{
	return fake_cq(cq)->doorbells;
}

static void destroy_cq(struct ibv_cq *cq)
{
	CHECK(!fake.ops->destroy_cq(cq));
}

/* The first thread has the first doorbells, and each other one has its own. */
void test_threads(void)
{
	const uint32_t number = FAKE_FIRST_THREAD;
	struct ibv_cq *first = new_cq(16), *cq, *again;
	struct other second = {}, third = {};
	struct ferrule_status *status;
	struct ibv_qp *qp;
	struct ibv_wc wc;

	fake.max_threads = 1;
	other_start(&second);
	other_start(&third);
	cq = new_cq(16);
	CHECK(!number_of(first) && !number_of(cq));
	destroy_cq(cq);
	qp = new_qp(IBV_QPT_RC, first, 4);
	CHECK(!fake_qp(qp)->doorbells && !fake.thread_requests);
	CHECK(!post_id(qp, 0) && fake.db->rung);

	cq = cq_by(&second);
	CHECK(number_of(cq) == number && fake.thread_requests == 1);
	again = cq_by(&second);
	CHECK(number_of(again) == number && fake.thread_requests == 1);
	destroy_cq(again);
	again = new_cq(16);
	CHECK(!number_of(again));
	destroy_cq(again);

	/* Whoever makes the queue pair and posts. */
	fake.db->rung = 0;
	qp = new_qp(IBV_QPT_RC, cq, 4);
	CHECK(fake_qp(qp)->doorbells == number);
	CHECK(!post_id(qp, 0) && !fake.db->rung && !fake.kicks);
	CHECK(fake.threads[0].db->rung);
	status = fake.threads[0].status;
	status->sleeping = htole32(1);
	CHECK(!post_id(qp, 1) && fake.kicks == 1 && fake.last_kick == number);
	status->sleeping = 0;
	status->deferred = htole32(1);
	CHECK(!post_id(qp, 2) && fake.kicks == 1);
	CHECK(!poll(first, 1, &wc) && fake.kicks == 1);
	CHECK(!poll(cq, 1, &wc));
	CHECK(fake.kicks == 2 && fake.last_kick == number);
	status->deferred = 0;

	/* When nobody has them any more, another thread gets them. */
	CHECK(!fake.ops->destroy_qp(qp));
	destroy_cq(cq);
	cq = cq_by(&third);
	CHECK(number_of(cq) == number && fake.thread_requests == 1);
	destroy_cq(cq);

	/* A device that is gone says so there, too. */
	cq = cq_by(&second);
	CHECK(number_of(cq) == number);
	qp = new_qp(IBV_QPT_RC, cq, 4);
	status->dead = htole32(FERRULE_DEAD);
	CHECK(post_id(qp, 0) == EIO);
	other_end(&second);
	other_end(&third);
}

/* One that gets none shares those of others, and always the same. */
void test_threads_refused(void)
{
	struct other others[4] = {};
	struct ibv_cq *first = new_cq(16);
	uint32_t number;
	unsigned int i;

	fake.max_threads = 1;
	fake.thread_refusal = ENOMEM;
	CHECK(!number_of(first));
	for (i = 0; i < 4; i++)
		other_start(&others[i]);
	CHECK(number_of(cq_by(&others[0])) == FAKE_FIRST_THREAD);
	for (i = 1; i < 4; i++) {
		number = number_of(cq_by(&others[i]));
		CHECK(!number || number == FAKE_FIRST_THREAD);
		/* The device is asked once. */
		CHECK(fake.thread_requests == 2);
		if (i == 1) {
			CHECK(number_of(cq_by(&others[i])) == number);
			CHECK(fake_qp(new_qp(IBV_QPT_RC, others[i].cq, 4))
				      ->doorbells == number);
			/* Of its queues, when others come free. */
			destroy_cq(number ? first : others[0].cq);
			CHECK(number_of(cq_by(&others[i])) == number);
		}
	}
	for (i = 0; i < 4; i++)
		other_end(&others[i]);
}

/* A device without engines for threads is as without threads. */
void test_threads_unsupported(void)
{
	struct other second = {}, third = {};

	other_start(&second);
	other_start(&third);
	CHECK(!number_of(new_cq(16)));
	CHECK(!number_of(cq_by(&second)) && fake.thread_requests == 1);
	CHECK(!number_of(cq_by(&third)) && fake.thread_requests == 1);
	CHECK(!number_of(cq_by(&second)) && fake.thread_requests == 1);
	other_end(&second);
	other_end(&third);
}

/*
 * A queue pair has the doorbells of the queue where its sends complete. A thread
 * that waits at the other one kicks all the same.
 */
void test_threads_crossed(void)
{
	struct ibv_cq *first = new_cq(16), *cq;
	struct ibv_qp *here, *there;
	struct other second = {};
	struct ibv_wc wc;

	fake.max_threads = 1;
	other_start(&second);
	cq = cq_by(&second);
	here = new_qp_of_cqs(IBV_QPT_RC, first, cq, 4);
	there = new_qp_of_cqs(IBV_QPT_RC, cq, first, 4);
	CHECK(!fake_qp(here)->doorbells);
	CHECK(fake_qp(there)->doorbells == FAKE_FIRST_THREAD);

	fake.status->deferred = htole32(1);
	fake.threads[0].status->deferred = htole32(1);
	CHECK(!post_id(here, 0) && !fake.kicks);
	CHECK(!poll(cq, 1, &wc) && fake.kicks == 1 && !fake.last_kick);
	CHECK(!post_id(there, 0) && fake.kicks == 1);
	CHECK(!poll(first, 1, &wc) && fake.kicks == 2);
	CHECK(fake.last_kick == FAKE_FIRST_THREAD);
	CHECK(!post_id(here, 1) && !post_id(there, 1) && fake.kicks == 2);
	CHECK(!poll(cq, 1, &wc) && fake.kicks == 4);
	fake.status->deferred = 0;
	fake.threads[0].status->deferred = 0;
	other_end(&second);
}

static void make_srq(struct other *other)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 4,
						    .max_sge = 1 } };

	other->srq = fake.ops->create_srq(new_pd(), &attr);
	CHECK(other->srq);
}

/* Shared receive queues have doorbells as completion queues do, and keep them. */
void test_threads_srq(void)
{
	struct other second = {}, third = {};

	fake.max_threads = 1;
	CHECK(!number_of(new_cq(16)));
	other_start(&second);
	other_start(&third);
	other_do(&second, make_srq);
	CHECK(fake_srq(second.srq)->doorbells == FAKE_FIRST_THREAD);
	CHECK(number_of(cq_by(&second)) == FAKE_FIRST_THREAD);
	CHECK(fake.thread_requests == 1);
	/* Another thread has them once they are nobody's. */
	destroy_cq(second.cq);
	CHECK(!fake.ops->destroy_srq(second.srq));
	CHECK(number_of(cq_by(&third)) == FAKE_FIRST_THREAD);
	CHECK(fake.thread_requests == 1);
	other_end(&second);
	other_end(&third);
}

static void fail_to_make_cq(struct other *other)
{
	other->cq = fake.ops->create_cq(fake.context, 16, NULL, 0);
	CHECK(!other->cq && errno == ENOSPC);
}

/* A queue that cannot be made leaves no thread with doorbells. */
void test_threads_failed(void)
{
	struct other second = {}, third = {};

	fake.max_threads = 1;
	CHECK(!number_of(new_cq(16)));
	other_start(&second);
	other_start(&third);
	fake.cq_refusal = ENOSPC;
	other_do(&second, fail_to_make_cq);
	fake.cq_refusal = 0;
	CHECK(fake.thread_requests == 1);
	CHECK(number_of(cq_by(&third)) == FAKE_FIRST_THREAD);
	CHECK(fake.thread_requests == 1);
	other_end(&second);
	other_end(&third);
}

static uint32_t kicked;		/* a bit for each thread; bit 0: the first */

static void note_kick(void)
{
	uint32_t bit = fake.last_kick ? fake.last_kick - FAKE_FIRST_THREAD + 1 :
					0;

	CHECK(!(kicked & 1u << bit));
	kicked |= 1u << bit;
}

/* Whoever has to look after others' kicks finds those of all threads. */
void test_threads_all(void)
{
	struct other others[FAKE_MAX_THREADS] = {};
	struct ibv_cq *first = new_cq(16);
	struct ibv_qp *qps[FAKE_MAX_THREADS];
	struct ibv_wc wc;
	unsigned int i;

	fake.max_threads = FAKE_MAX_THREADS;
	fake.on_kick = note_kick;
	for (i = 0; i < FAKE_MAX_THREADS; i++) {
		other_start(&others[i]);
		CHECK(number_of(cq_by(&others[i])) == FAKE_FIRST_THREAD + i);
		qps[i] = new_qp_of_cqs(IBV_QPT_RC, others[i].cq, first, 4);
		fake.threads[i].status->deferred = htole32(1);
	}
	for (i = 0; i < FAKE_MAX_THREADS; i++)
		CHECK(!post_id(qps[i], 0));
	CHECK(!kicked);
	CHECK(!poll(first, 1, &wc) && kicked == 0xe);
	CHECK(fake.kicks == FAKE_MAX_THREADS);
	for (i = 0; i < FAKE_MAX_THREADS; i++) {
		fake.threads[i].status->deferred = 0;
		other_end(&others[i]);
	}
}

/* An imported context has one set of doorbells, and gives it back. */
void test_threads_imported(void)
{
	struct other second = {};
	struct ibv_cq *first, *cq;
	struct ibv_qp *qp;

	fake_close();
	fake_import();
	fake.max_threads = 1;
	other_start(&second);
	first = new_cq(16);
	cq = cq_by(&second);
	/* Their queues are beside those of the first doorbells of the file. */
	CHECK(!number_of(first) && !number_of(cq) && !fake.thread_requests);
	other_do(&second, make_srq);
	CHECK(!fake_srq(second.srq)->doorbells && !fake.thread_requests);
	qp = new_qp(IBV_QPT_RC, cq, 4);
	CHECK(fake_qp(qp)->doorbells == FAKE_IMPORT);
	fake.status->sleeping = htole32(1);
	CHECK(!post_id(qp, 0) && fake.db->rung);
	CHECK(fake.kicks == 1 && fake.last_kick == FAKE_IMPORT);
	other_end(&second);
	fake.ops->free_context(fake.context);
	CHECK(fake.unimported == FAKE_IMPORT);
	fake_open();
}
