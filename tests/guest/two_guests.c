// SPDX-License-Identifier: GPL-2.0
/*
 * One side of a reliable connection between two guests, whose memory the other
 * writes and reads. The sides meet by TCP: PEER is the IPv4 address of the side
 * that serves. Beside the side that asks, a neighbour moves data of its own.
 */
#include "neighbour.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define OPEN (ACCESS_ALL | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

enum {
	PORT = 7700,
	SIZE = 1 << 16,
	PAIRS = 16,	/* of a WRITE and the READ of it, posted together */
	ROUNDS = 200,
	ADDS = 4000,	/* to one word, by each side */
	SWAPS = 200,
};

struct side {
	struct device d;
	struct end e;
	struct region r;	/* the served one, or the source of WRITEs */
	struct peer peer;
	int socket;
};

static void meet(struct side *s, bool serves)
{
	struct sockaddr_in at = {
		.sin_family = AF_INET, .sin_port = htons(PORT),
	};
	const int one = 1;
	struct peer own;
	int listener;

	device_open(&s->d);
	end_make(&s->e, &s->d, &(struct end_config){
			 .access = OPEN });
	region_make(&s->r, &s->d, SIZE, 0, OPEN);
	memset(s->r.data, 0, SIZE);
	s->socket = socket(AF_INET, SOCK_STREAM, 0);
	REQUIRE(s->socket >= 0);
	if (serves) {
		listener = s->socket;
		setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one,
			   sizeof(one));
		REQUIRE_EQ(bind(listener, (void *)&at, sizeof(at)), 0);
		REQUIRE_EQ(listen(listener, 1), 0);
		test_note("listens");
		s->socket = accept(listener, NULL, NULL);
		REQUIRE(s->socket >= 0);
		close(listener);
	} else {
		REQUIRE(getenv("PEER"));
		REQUIRE_EQ(inet_pton(AF_INET, getenv("PEER"), &at.sin_addr), 1);
		REQUIRE_EQ(connect(s->socket, (void *)&at, sizeof(at)), 0);
	}
	own = end_address(&s->e, &s->r);
	put_bytes(s->socket, &own, sizeof(own));
	get_bytes(s->socket, &s->peer, sizeof(s->peer));
	end_connect(&s->e, &s->peer);
	/* Neither begins before both can. */
	put_bytes(s->socket, "", 1);
	get_bytes(s->socket, &(char){ 0 }, 1);
}

static void part(struct side *s)
{
	close(s->socket);
	region_free(&s->r);
	end_free(&s->e);
	device_close(&s->d);
}

/* Memory for the other side, until that leaves. */
static void serve(void)
{
	struct side s;
	char byte;

	meet(&s, true);
	REQUIRE_EQ(read(s.socket, &byte, 1), 0);
	EXPECT_NO_WC(s.e.scq);
	part(&s);
}

/* Writes, reads back and compares; false if the peer does not answer any more. */
static bool round_trips(struct side *s, struct region *back, uint64_t round)
{
	const size_t len = SIZE / PAIRS;
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	struct ibv_sge from, to;
	struct ibv_wc wc;

	fill(s->r.data, SIZE, round);
	for (unsigned int i = 0; i < PAIRS; i++) {
		from = sge_of(&s->r, i * len, len);
		to = sge_of(back, i * len, len);
		send_sges(&s->e, 2 * i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED,
			  &from, 1, &s->peer, i * len, 0);
		send_sges(&s->e, 2 * i + 1, IBV_WR_RDMA_READ,
			  IBV_SEND_SIGNALED, &to, 1, &s->peer, i * len, 0);
	}
	for (unsigned int i = 0; i < 2 * PAIRS; i++) {
		next_wc(s->e.scq, &wc);
		REQUIRE_EQ(wc.wr_id, i);
		if (status != IBV_WC_SUCCESS)
			REQUIRE_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
		else if (wc.status != IBV_WC_SUCCESS)
			REQUIRE_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
		if (wc.status == IBV_WC_SUCCESS && i % 2)
			VERIFY(back->data + i / 2 * len, i / 2 ? 0 : len,
			       round);
		if (status == IBV_WC_SUCCESS)
			status = wc.status;
	}
	if (status == IBV_WC_SUCCESS)
		VERIFY(back->data, SIZE, round);
	return status == IBV_WC_SUCCESS;
}

static void talk(bool until_it_dies)
{
	struct neighbour *n = neighbour_start();
	struct region back;
	struct side s;
	uint64_t begin;

	meet(&s, false);
	region_make(&back, &s.d, SIZE, 0, ACCESS_ALL);
	for (unsigned int i = 0; i < ROUNDS; i++)
		REQUIRE(round_trips(&s, &back, i));
	if (until_it_dies) {
		neighbour_await(n, 20);
		test_note("at work");
		begin = now_us();
		for (uint64_t i = 0; round_trips(&s, &back, i); i++)
			if (now_us() - begin > PATIENCE_US)
				FAIL("the peer does not die");
		REQUIRE_EQ(end_state(&s.e), IBV_QPS_ERR);
		expect_no_async(s.d.ctx);
	}
	neighbour_await(n, 100);
	region_free(&back);
	part(&s);
	neighbour_stop(n);
}

static void ask(void)
{
	talk(false);
}

/* Retries end the connection; the neighbour notices nothing. */
static void ask_until_it_dies(void)
{
	talk(true);
}

static void *add_by_cpu(void *word)
{
	for (unsigned int i = 0; i < ADDS; i++)
		__atomic_fetch_add((uint64_t *)word, 1, __ATOMIC_RELAXED);
	return NULL;
}

/* Memory for the other side, with a word that this one adds to meanwhile. */
static void serve_words(void)
{
	pthread_t thread;
	struct side s;
	char byte;

	meet(&s, true);
	REQUIRE(!pthread_create(&thread, NULL, add_by_cpu, s.r.data));
	REQUIRE(!pthread_join(thread, NULL));
	put_bytes(s.socket, "", 1);
	REQUIRE_EQ(read(s.socket, &byte, 1), 0);
	EXPECT_NO_WC(s.e.scq);
	part(&s);
}

/* Carries out one atomic operation, and returns what the word was. */
static uint64_t atomic(struct side *s, enum ibv_wr_opcode opcode, size_t offset,
		       uint64_t compare_add, uint64_t swap)
{
	uint64_t value;

	send_atomic(&s->e, 1, opcode, IBV_SEND_SIGNALED, sge_of(&s->r, 0, 8),
		    &s->peer, offset, compare_add, swap);
	EXPECT_OK(s->e.scq, 1);
	memcpy(&value, s->r.data, sizeof(value));
	return value;
}

/* No add is lost, of either side, and each swap finds what the last one left. */
static void ask_words(void)
{
	const uint64_t one = 1ull << 32;
	uint64_t was, before = 0;
	struct side s;

	meet(&s, false);
	for (uint64_t i = 0; i < ADDS; i++) {
		was = atomic(&s, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, one, 0);
		REQUIRE_EQ(was >> 32, i);
		REQUIRE((uint32_t)was >= (uint32_t)before);
		before = was;
	}
	for (uint64_t i = 0; i < SWAPS; i++) {
		was = atomic(&s, IBV_WR_ATOMIC_CMP_AND_SWP, 8, i, i + 1);
		REQUIRE(was == i);
		was = atomic(&s, IBV_WR_ATOMIC_CMP_AND_SWP, 8, i, 0);
		REQUIRE(was == i + 1);
	}
	get_bytes(s.socket, &(char){ 0 }, 1);
	was = atomic(&s, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0, 0);
	REQUIRE(was == ADDS * one + ADDS);
	part(&s);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "serve", serve, 300 },
		{ "ask", ask, 60 },
		{ "serve_words", serve_words, 300 },
		{ "ask_words", ask_words, 120 },
		{ "ask_until_it_dies", ask_until_it_dies, 120 },
		{ }
	};

	return test_main(argc, argv, cases);
}
