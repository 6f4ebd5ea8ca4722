// SPDX-License-Identifier: GPL-2.0
/* Pages come and go all the time; processes end. */
#define _GNU_SOURCE
#include "odp.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	HALF = SIZE / 2,
	/* A storm lasts until so many messages have arrived, at least. */
	LEAST = 2,
};

static volatile bool stop;

/* Takes pages away all the time, in every way that leaves the data. */
static void *storm(void *arg)
{
	uint8_t *map = arg;

	for (unsigned int i = 0; !stop; i++) {
		switch (i % 4) {
		case 0:
			drop(map, SIZE);
			break;
		case 1:
			/* A message meanwhile fails. By the wire it takes a while. */
			if (i % 256 != 1)
				break;
			mprotect(map, SIZE, PROT_READ);
			mprotect(map, SIZE, PROT_READ | PROT_WRITE);
			break;
		case 2:
			madvise(map, SIZE, MADV_PAGEOUT);
			break;
		case 3:
			usleep(100);
			break;
		}
	}
	return NULL;
}

/* Not a byte is lost, in files whose pages come and go. */
void storms(void)
{
	uint64_t end = now_us() + 2000000;
	int fds[2];
	uint8_t *maps[2] = { map_file(SIZE, &fds[0]), map_file(SIZE, &fds[1]) };
	unsigned int rounds = 0, arrived = 0;
	pthread_t threads[2];
	struct scene s;

	scene_open_on(&s, maps[0], maps[1]);
	for (int i = 0; i < 2; i++)
		REQUIRE_ERRNO(pthread_create(&threads[i], NULL, storm, maps[i]), 0);
	while (now_us() < end || arrived < LEAST) {
		uint8_t data[SIZE];

		fill(data, SIZE, ++rounds);
		REQUIRE_EQ(pwrite(fds[0], data, SIZE, 0), (ssize_t)SIZE);
		request(&s, IBV_WR_RDMA_WRITE, SIZE);
		/*
		 * Now and then a page may only be read when it is asked for;
		 * that is an error of this program.
		 */
		struct ibv_wc wc;

		next_wc(s.p.a.scq, &wc);
		if (wc.status == IBV_WC_REM_ACCESS_ERR) {
			pair_reset(&s.p);
			ends_connect(&s.p.a, &s.p.b);
			continue;
		}
		REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
		REQUIRE_EQ(pread(fds[1], data, SIZE, 0), (ssize_t)SIZE);
		VERIFY(data, SIZE, rounds);
		arrived++;
	}
	stop = true;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	test_note("%u messages, %u arrived", rounds, arrived);
	scene_close(&s);
}

/* Regions come and go while their memory does. */
void registrations_in_a_storm(void)
{
	uint64_t end = now_us() + 1000000;
	int fd;
	uint8_t *map = map_file(SIZE, &fd);
	unsigned int rounds = 0, arrived = 0;
	pthread_t thread;
	struct scene s;

	scene_connect(&s);
	s.mine = map;
	s.theirs = map + HALF;
	REQUIRE_ERRNO(pthread_create(&thread, NULL, storm, map), 0);
	for (; now_us() < end || arrived < LEAST; rounds++) {
		bool is_awaited = rounds % 2;
		uint8_t data[HALF];
		struct ibv_wc wc;

		fill(data, HALF, rounds);
		REQUIRE_EQ(pwrite(fd, data, HALF, HALF), (ssize_t)HALF);
		s.my_mr = s.their_mr = reg(&s.p.d, map, SIZE, ACCESS);
		s.to = end_address(&s.p.b, NULL);
		s.to.addr = (uintptr_t)s.theirs;
		s.to.rkey = s.my_mr->rkey;
		request(&s, IBV_WR_RDMA_READ, HALF);
		if (is_awaited)
			next_wc(s.p.a.scq, &wc);
		REQUIRE_ERRNO(ibv_dereg_mr(s.my_mr), 0);
		if (!is_awaited)
			next_wc(s.p.a.scq, &wc);
		if (wc.status == IBV_WC_SUCCESS) {
			REQUIRE_EQ(pread(fd, data, HALF, 0), (ssize_t)HALF);
			VERIFY(data, HALF, rounds);
			arrived += is_awaited;
			continue;
		}
		/* Here, too, a page may only be read when it is asked for. */
		REQUIRE(!is_awaited || wc.status == IBV_WC_LOC_PROT_ERR ||
			wc.status == IBV_WC_REM_ACCESS_ERR);
		pair_reset(&s.p);
		ends_connect(&s.p.a, &s.p.b);
	}
	stop = true;
	pthread_join(thread, NULL);
	test_note("%u regions, %u READs that were awaited arrived", rounds,
		  arrived);
	pair_close(&s.p);
}

/* A process ends with requests that wait for its memory. */
static void end_of_process(void *arg)
{
	struct scene s;

	(void)arg;
	scene_open(&s);
	for (int i = 0; i < 64; i++)
		request(&s, IBV_WR_RDMA_WRITE, SIZE);
	_exit(0);
}

void process_ends(void)
{
	for (int i = 0; i < 20; i++)
		join_process(fork_process(end_of_process, NULL));
}
