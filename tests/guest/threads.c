// SPDX-License-Identifier: GPL-2.0
/*
 * Threads of one program that make queues of their own. The driver's own engine
 * serves each of them beside the others, as far as there are processors; all
 * memory of the program is at the service of each, as if there were one engine.
 */
#include "threads/threads.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

const struct end_config thread_end = {
	.access = ACCESS | IBV_ACCESS_REMOTE_ATOMIC,
};

struct place place_of(const struct region *r, size_t offset)
{
	return (struct place){ r->data + offset, r->mr };
}

struct place side(const struct worker *w, const struct region *r, int side)
{
	return place_of(r, (2 * w->number + side) * PART);
}

struct ibv_sge sge_at(struct place p, size_t len)
{
	return (struct ibv_sge){ (uintptr_t)p.data, len, p.mr->lkey };
}

static struct peer target(struct place p)
{
	return (struct peer){ .addr = (uintptr_t)p.data, .rkey = p.mr->rkey };
}

void transfer(struct end *a, struct end *b, struct place from, struct place to,
	      size_t len, uint64_t seed)
{
	struct ibv_sge mine = sge_at(from, len), theirs = sge_at(to, len);
	struct peer peer = target(to);

	fill(from.data, len, seed);
	send_sges(a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &mine, 1, &peer,
		  0, 0);
	EXPECT_OK(a->scq, 1);
	VERIFY(to.data, len, seed);

	fill(from.data, len, seed + 1);
	REQUIRE_ERRNO(try_recv(b, 2, &theirs, 1), 0);
	send_sges(a, 3, IBV_WR_SEND, IBV_SEND_SIGNALED, &mine, 1, NULL, 0, 0);
	EXPECT_OK(a->scq, 3);
	EXPECT_OK(b->rcq, 2);
	VERIFY(to.data, len, seed + 1);

	fill(to.data, len, seed + 2);
	send_sges(a, 4, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &mine, 1, &peer, 0,
		  0);
	EXPECT_OK(a->scq, 4);
	VERIFY(from.data, len, seed + 2);
}

void refused(struct end *a, struct end *b, struct ibv_sge from,
	     struct place to, enum ibv_wc_status status)
{
	struct peer peer = target(to);

	send_sges(a, 9, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &from, 1, &peer,
		  0, 0);
	EXPECT_WC(a->scq, 9, status);
	end_reset(a);
	end_reset(b);
	ends_connect(a, b);
}

void round_of(struct worker *w)
{
	struct place given = side(w, &w->team->given, 0);
	struct place given_2 = side(w, &w->team->given, 1);
	struct place own = place_of(&w->own, 0);
	struct place own_2 = place_of(&w->own, PART);
	size_t len = w->done % 3 ? 64 : PART;

	w->seed += 3;
	transfer(&w->a, &w->b, given, given_2, len, w->seed);
	transfer(&w->b, &w->a, own, own_2, len, w->seed);
	transfer(&w->a, &w->b, given, own, len, w->seed);
	transfer(&w->b, &w->a, own, given, len, w->seed);
	w->done++;
}

void work(struct worker *w)
{
	while (!w->team->stop)
		round_of(w);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;

	w->seed = (uint64_t)(w->number + 1) << 32;
	ends_make(&w->a, &w->b, &w->d, &thread_end);
	region_make(&w->own, &w->d, 2 * PART, 0, ACCESS);
	team_meet(w->team);
	w->run(w);
	end_free(&w->a);
	end_free(&w->b);
	region_free(&w->own);
	return NULL;
}

void team_open_on(struct team *t, const struct device *d, unsigned int count)
{
	memset(t, 0, sizeof(*t));
	t->d = *d;
	REQUIRE(count <= MOST);
	t->count = count;
	region_make(&t->given, &t->d, count * 2 * PART, 0, ACCESS);
	for (unsigned int i = 0; i < count; i++) {
		t->w[i].team = t;
		t->w[i].number = i;
		t->w[i].d = t->d;
	}
	REQUIRE(!pthread_barrier_init(&t->barrier, NULL, count + 1));
}

void team_open(struct team *t, unsigned int count)
{
	struct device d;

	device_open(&d);
	team_open_on(t, &d, count);
}

void team_start(struct team *t, void (*run)(struct worker *w))
{
	t->stop = false;
	for (unsigned int i = 0; i < t->count; i++) {
		t->w[i].run = run;
		REQUIRE_ERRNO(pthread_create(&t->w[i].thread, NULL, worker_main,
					     &t->w[i]), 0);
	}
	team_meet(t);
}

void team_meet(struct team *t)
{
	pthread_barrier_wait(&t->barrier);
}

void team_await(struct team *t, long transfers)
{
	for (unsigned int i = 0; i < t->count; i++) {
		long want = t->w[i].done + transfers;
		uint64_t end = now_us() + PATIENCE_US;

		while (t->w[i].done < want) {
			if (now_us() > end)
				FAIL("thread %u has stopped after %ld transfers",
				     i, t->w[i].done);
			sleep_us(100);
		}
	}
}

void team_join(struct team *t)
{
	for (unsigned int i = 0; i < t->count; i++)
		REQUIRE_ERRNO(pthread_join(t->w[i].thread, NULL), 0);
}

void team_close(struct team *t)
{
	pthread_barrier_destroy(&t->barrier);
	region_free(&t->given);
	device_close(&t->d);
}

void team_busy(struct team *t, unsigned int count)
{
	team_open(t, count);
	team_start(t, work);
	team_await(t, 2);
}

void team_stop(struct team *t)
{
	team_await(t, 2);
	t->stop = true;
	team_join(t);
	team_close(t);
}

bool team_is_apart(struct team *t)
{
	const unsigned int processors = sysconf(_SC_NPROCESSORS_CONF);
	unsigned int shards = 0;

	for (unsigned int i = 0; i < t->count; i++) {
		int shard = shard_of(t->w[i].a.qp);
		unsigned int j = 0;

		if (shard < 0)
			return true;
		while (j < i && shard != shard_of(t->w[j].a.qp))
			j++;
		shards += j == i;
	}
	return shards == (t->count < processors ? t->count : processors);
}

void team_require_together(struct team *t)
{
	for (unsigned int i = 0; i < t->count; i++) {
		REQUIRE_EQ(shard_of(t->w[i].a.qp), shard_of(t->w[0].a.qp));
		REQUIRE_EQ(shard_of(t->w[i].b.qp), shard_of(t->w[0].b.qp));
	}
}

static struct team team;

static unsigned long rounds(void)
{
	return 10 * (opt.rounds ? opt.rounds : 20);
}

/* With memory of the first thread, of their own, and of their neighbours. */
static void transfers_of(struct worker *w)
{
	struct team *t = w->team;
	struct worker *next = &t->w[(w->number + 1) % t->count];

	for (unsigned long i = 0; i < rounds(); i++)
		round_of(w);
	team_meet(t);
	for (unsigned long i = 0; i < rounds(); i++) {
		w->seed += 3;
		transfer(&w->a, &w->b, side(w, &t->given, 0),
			 place_of(&next->own, 0), PART, w->seed);
	}
	team_meet(t);
}

static void transfers(void)
{
	team_open(&team, THREADS);
	team_start(&team, transfers_of);
	team_meet(&team);
	team_meet(&team);
	team_join(&team);
	team_close(&team);
}

static void more_than_processors(void)
{
	unsigned int count = 2 * sysconf(_SC_NPROCESSORS_CONF) + 3;

	team_busy(&team, count < MOST ? count : MOST);
	team_await(&team, test_rounds(5));
	team_stop(&team);
}

/* Regions come and go, while threads come whose first queue pairs find them. */
static void registered_meanwhile(void)
{
	for (unsigned int i = 0; i < test_rounds(20); i++) {
		struct region r[8];

		team_open(&team, THREADS);
		for (unsigned int j = 0; j < 4; j++)
			region_make(&r[j], &team.d, 4096, 0, ACCESS);
		team_start(&team, work);
		for (unsigned int j = 0; j < 4; j++) {
			region_free(&r[j]);
			region_make(&r[4 + j], &team.d, 4096, 0, ACCESS);
		}
		team_await(&team, 1);
		for (unsigned int j = 0; j < 4; j++)
			region_free(&r[4 + j]);
		team_stop(&team);
	}
}

/* No thread waits for the engine of another one, as far as there are processors. */
static void shards_of_their_own(void)
{
	int shards[THREADS];

	if (sysconf(_SC_NPROCESSORS_CONF) == 1)
		test_skip("one processor has one shard");
	team_busy(&team, THREADS);
	for (unsigned int i = 0; i < THREADS; i++) {
		shards[i] = shard_of(team.w[i].a.qp);
		if (shards[i] < 0)
			test_skip("the engine is not in this guest");
		REQUIRE_EQ(shard_of(team.w[i].b.qp), shards[i]);
	}
	test_note("shards %d, %d, %d and %d", shards[0], shards[1], shards[2],
		  shards[3]);
	REQUIRE(team_is_apart(&team));
	team_stop(&team);
}

/* The second of two ends that threads connect with each other. */
struct far {
	struct end end;
	struct region mail;
};

static struct far far[THREADS];

static void meet_neighbours(struct worker *w)
{
	struct team *t = w->team;
	unsigned int other = w->number ^ 1;
	struct far *mine = &far[w->number], *theirs = &far[other];
	struct peer peer;

	end_make(&mine->end, &w->d, &thread_end);
	region_make(&mine->mail, &w->d, 2 * PART, 0, ACCESS);
	team_meet(t);
	round_of(w);
	peer = end_address(&theirs->end, NULL);
	end_connect(&mine->end, &peer);
	team_meet(t);
	/* Each has its turn, and the others are busy beside. */
	for (unsigned int i = 0; i < 2 * THREADS; i++) {
		if (i % THREADS == w->number)
			transfer(&mine->end, &theirs->end,
				 place_of(&mine->mail, 0),
				 place_of(&theirs->mail, PART), PART, i);
		else
			round_of(w);
		team_meet(t);
	}
	end_free(&mine->end);
	region_free(&mine->mail);
}

/* Threads that are connected with each other come together in pairs. */
static void connected(void)
{
	team_open(&team, THREADS);
	team_start(&team, meet_neighbours);
	team_meet(&team);
	team_meet(&team);
	for (unsigned int i = 0; i < THREADS; i++)
		REQUIRE_EQ(shard_of(far[i].end.qp), shard_of(team.w[i].a.qp));
	/* By the wire no two need to. */
	for (unsigned int i = 0; !getenv("WIRE_ONLY") && i < THREADS; i++)
		REQUIRE_EQ(shard_of(far[i].end.qp), shard_of(far[i ^ 1].end.qp));
	for (unsigned int i = 0; i < 2 * THREADS; i++)
		team_meet(&team);
	team_join(&team);
	team_close(&team);
}

/* Sockets of two processes, one for each thread. */
static int sockets[THREADS][2];
static int process;

static void talk(struct worker *w)
{
	int fd = sockets[w->number][process];
	struct place from = side(w, &w->team->given, 0);
	struct place to = place_of(&w->own, 0);
	struct peer me, peer;
	struct end e;

	end_make(&e, &w->d, &thread_end);
	me = end_address(&e, &w->own);
	put_bytes(fd, &me, sizeof(me));
	get_bytes(fd, &peer, sizeof(peer));
	end_connect(&e, &peer);
	put_bytes(fd, "", 1);
	get_bytes(fd, &(char){ 0 }, 1);
	for (unsigned long i = 0; i < rounds(); i++) {
		uint64_t seed = i << 8 | w->number;
		struct ibv_sge mine = sge_at(from, PART), theirs = sge_at(to, PART);

		REQUIRE_ERRNO(try_recv(&e, i, &theirs, 1), 0);
		fill(from.data, PART, seed + (uint64_t)process);
		send_sges(&e, i, IBV_WR_RDMA_WRITE, 0, &mine, 1, &peer, PART, 0);
		send_sges(&e, i, IBV_WR_SEND, IBV_SEND_SIGNALED, &mine, 1, NULL,
			  0, 0);
		EXPECT_OK(e.scq, i);
		EXPECT_OK(e.rcq, i);
		VERIFY(to.data, PART, seed + !process);
		VERIFY(to.data + PART, PART, seed + !process);
		/* Nobody writes before the other has looked. */
		put_bytes(fd, "", 1);
		get_bytes(fd, &(char){ 0 }, 1);
		round_of(w);
		put_bytes(fd, "", 1);
		get_bytes(fd, &(char){ 0 }, 1);
	}
	end_free(&e);
}

static void talk_in_process(void *arg)
{
	process = *(int *)arg;
	team_open(&team, THREADS);
	team_start(&team, talk);
	team_join(&team);
	team_close(&team);
}

static void between_processes(void)
{
	int numbers[2] = { 0, 1 };
	pid_t child;

	for (unsigned int i = 0; i < THREADS; i++)
		REQUIRE(!socketpair(AF_UNIX, SOCK_STREAM, 0, sockets[i]));
	child = fork_process(talk_in_process, &numbers[1]);
	talk_in_process(&numbers[0]);
	join_process(child);
}

/* A thread that is soon over, with all that it has made. */
static void *short_life(void *arg)
{
	struct worker *w = arg;
	struct region r;
	struct end a, b;

	ends_make(&a, &b, &w->d, &thread_end);
	region_make(&r, &w->d, 2 * PART, 0, ACCESS);
	transfer(&a, &b, side(w, &w->team->given, 0), place_of(&r, 0), PART,
		 ++w->seed);
	transfer(&b, &a, place_of(&r, PART), side(w, &w->team->given, 1), PART,
		 ++w->seed);
	end_free(&a);
	end_free(&b);
	region_free(&r);
	return NULL;
}

static void come_and_go(void)
{
	unsigned int count = test_rounds(200);

	team_open(&team, THREADS);
	for (unsigned int i = 0; i < count + THREADS; i++) {
		struct worker *w = &team.w[i % THREADS];

		if (i >= THREADS)
			REQUIRE_ERRNO(pthread_join(w->thread, NULL), 0);
		if (i < count)
			REQUIRE_ERRNO(pthread_create(&w->thread, NULL,
						     short_life, w), 0);
	}
	team_close(&team);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "shards_of_their_own", shards_of_their_own },
		{ "transfers", transfers, 60 },
		{ "connected", connected, 60 },
		{ "between_processes", between_processes, 60 },
		{ "registered_meanwhile", registered_meanwhile, 60 },
		{ "come_and_go", come_and_go, 60 },
		{ "more_than_processors", more_than_processors, 60 },
		{ "deregistered", deregistered, 60 },
		{ "deregistered_source", deregistered_source, 60 },
		{ "deregistered_sink", deregistered_sink, 60 },
		{ "keys_used_again", keys_used_again, 120 },
		{ "domains_apart", domains_apart },
		{ "atomics", atomics, 60 },
		{ "window", window },
		{ "paged", paged },
		{ "registered_anew", registered_anew },
		{ "device_memory", device_memory },
		{ "extended", extended },
		{ "crossed_queues", crossed_queues, 60 },
		{ "sent_here_received_there", sent_here_received_there, 60 },
		{ "receives_of_their_own", receives_of_their_own, 60 },
		{ "shared_receives", shared_receives, 60 },
		{ "datagrams", datagrams },
		{ "events", events, 60 },
		{ "unreliable", unreliable },
		{ "killed", killed, 60 },
		{ "removed", removed, 60 },
		{ "imported", imported, 60 },
		{ "hostile", hostile },
		{ "unanswered", unanswered },
		{ }
	};

	return test_main(argc, argv, cases);
}
