// SPDX-License-Identifier: GPL-2.0
/*
 * Completion events: one for each arming, none without, none lost, and the
 * counts that hold back the destruction of what they name.
 */
#define _GNU_SOURCE
#include "rc_events/rc_events.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

void scene_make(struct scene *s)
{
	struct end_config config = { };

	device_open(&s->d);
	s->channel = ibv_create_comp_channel(s->d.ctx);
	REQUIRE(s->channel);
	config.channel = s->channel;
	ends_make(&s->a, &s->b, &s->d, &config);
	region_make(&s->r, &s->d, 2 * LEN, 0, ACCESS_ALL);
}

void scene_free(struct scene *s)
{
	end_free(&s->a);
	end_free(&s->b);
	REQUIRE_ERRNO(ibv_destroy_comp_channel(s->channel), 0);
	region_free(&s->r);
	device_close(&s->d);
}

bool event_waits(struct ibv_comp_channel *channel, int ms)
{
	struct pollfd p = { .fd = channel->fd, .events = POLLIN };

	return poll(&p, 1, ms) == 1;
}

void expect_event(struct ibv_comp_channel *channel, struct ibv_cq *want)
{
	struct ibv_cq *cq;
	void *context;

	if (!event_waits(channel, PATIENCE_US / 1000))
		FAIL("no completion event came");
	REQUIRE_EQ(ibv_get_cq_event(channel, &cq, &context), 0);
	REQUIRE(cq == want);
	REQUIRE(context == want->cq_context);
	ibv_ack_cq_events(cq, 1);
}

void expect_no_event(struct ibv_comp_channel *channel)
{
	if (event_waits(channel, 30 * opt.slow))
		FAIL("unexpected completion event");
}

void message(struct scene *s, uint64_t wr_id, unsigned int flags)
{
	struct ibv_sge sge = sge_of(&s->r, 0, LEN);

	recv_region(&s->b, wr_id, &s->r, LEN, LEN);
	send_sges(&s->a, wr_id, IBV_WR_SEND, IBV_SEND_SIGNALED | flags, &sge, 1,
		  NULL, 0, 0);
}

void message_done(struct scene *s, uint64_t wr_id)
{
	EXPECT_OK(s->a.scq, wr_id);
	EXPECT_OK(s->b.rcq, wr_id);
}

/* No arming, no event; one arming, one event, whatever comes after it. */
static void one_event_an_arming(void)
{
	struct scene s;

	scene_make(&s);
	message(&s, 1, 0);
	message_done(&s, 1);
	expect_no_event(s.channel);

	for (int round = 0; round < 5; round++) {
		REQUIRE_ERRNO(ibv_req_notify_cq(s.b.rcq, 0), 0);
		for (int i = 0; i < 4; i++)
			message(&s, i, 0);
		expect_event(s.channel, s.b.rcq);
		for (int i = 0; i < 4; i++)
			message_done(&s, i);
		message(&s, 9, 0);
		message_done(&s, 9);
		expect_no_event(s.channel);
	}
	/* Armed twice is armed once. */
	REQUIRE_ERRNO(ibv_req_notify_cq(s.b.rcq, 0), 0);
	REQUIRE_ERRNO(ibv_req_notify_cq(s.b.rcq, 0), 0);
	message(&s, 1, 0);
	message(&s, 2, 0);
	expect_event(s.channel, s.b.rcq);
	message_done(&s, 1);
	message_done(&s, 2);
	expect_no_event(s.channel);
	scene_free(&s);
}

/*
 * Arming comes before the look at the queue: a completion between the two is
 * found by the look, one after the arming raises the event.
 */
static void armed_before_completion(void)
{
	struct scene s;

	scene_make(&s);
	REQUIRE_ERRNO(ibv_req_notify_cq(s.a.scq, 0), 0);
	expect_no_event(s.channel);
	message(&s, 1, 0);
	expect_event(s.channel, s.a.scq);
	message_done(&s, 1);
	scene_free(&s);
}

/* Solicited only: other completions pass, the solicited one wakes. */
static void solicited_only(void)
{
	struct scene s;

	scene_make(&s);
	for (int round = 0; round < 5; round++) {
		REQUIRE_ERRNO(ibv_req_notify_cq(s.b.rcq, 1), 0);
		message(&s, 1, 0);
		message_done(&s, 1);
		expect_no_event(s.channel);
		message(&s, 2, IBV_SEND_SOLICITED);
		expect_event(s.channel, s.b.rcq);
		message_done(&s, 2);
	}
	/* The sender's own completion is never solicited. */
	REQUIRE_ERRNO(ibv_req_notify_cq(s.a.scq, 1), 0);
	message(&s, 3, IBV_SEND_SOLICITED);
	message_done(&s, 3);
	expect_no_event(s.channel);
	scene_free(&s);
}

/* An arming for any completion is not weakened by one for solicited ones. */
static void any_outweighs_solicited(void)
{
	struct scene s;

	scene_make(&s);
	REQUIRE_ERRNO(ibv_req_notify_cq(s.b.rcq, 0), 0);
	REQUIRE_ERRNO(ibv_req_notify_cq(s.b.rcq, 1), 0);
	message(&s, 1, 0);
	expect_event(s.channel, s.b.rcq);
	message_done(&s, 1);

	REQUIRE_ERRNO(ibv_req_notify_cq(s.b.rcq, 1), 0);
	REQUIRE_ERRNO(ibv_req_notify_cq(s.b.rcq, 0), 0);
	message(&s, 2, 0);
	expect_event(s.channel, s.b.rcq);
	message_done(&s, 2);
	scene_free(&s);
}

/* An error counts as solicited (11.4.2.2): both sides of a failure wake. */
static void error_wakes_solicited(void)
{
	struct ibv_sge sge;
	struct scene s;
	struct peer to;

	scene_make(&s);
	to = end_address(&s.b, &s.r);
	to.rkey ^= 1;
	recv_region(&s.b, 5, &s.r, 0, LEN);
	sge = sge_of(&s.r, 0, 8);
	REQUIRE_ERRNO(ibv_req_notify_cq(s.a.scq, 1), 0);
	send_sges(&s.a, 1, IBV_WR_RDMA_WRITE, 0, &sge, 1, &to, 0, 0);
	expect_event(s.channel, s.a.scq);
	EXPECT_WC(s.a.scq, 1, IBV_WC_REM_ACCESS_ERR);
	EXPECT_WC(s.b.rcq, 5, IBV_WC_WR_FLUSH_ERR);
	scene_free(&s);
}

/* WRITE WITH IMM wakes by its solicited flag as SEND does; WRITE does not. */
static void solicited_write(void)
{
	struct ibv_sge sge;
	struct scene s;
	struct peer to;

	scene_make(&s);
	to = end_address(&s.b, &s.r);
	sge = sge_of(&s.r, 0, LEN);
	REQUIRE_ERRNO(try_recv(&s.b, 5, NULL, 0), 0);
	REQUIRE_ERRNO(ibv_req_notify_cq(s.b.rcq, 1), 0);
	send_sges(&s.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED |
		  IBV_SEND_SOLICITED, &sge, 1, &to, LEN, 0);
	EXPECT_OK(s.a.scq, 1);
	expect_no_event(s.channel);
	send_sges(&s.a, 2, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED |
		  IBV_SEND_SOLICITED, &sge, 1, &to, LEN, 0);
	expect_event(s.channel, s.b.rcq);
	EXPECT_OK(s.a.scq, 2);
	EXPECT_OK(s.b.rcq, 5);
	scene_free(&s);
}

/* A channel that is not blocking answers EAGAIN, and poll(2) tells when not. */
static void nonblocking(void)
{
	struct ibv_cq *cq;
	struct scene s;
	void *context;

	scene_make(&s);
	REQUIRE_EQ(fcntl(s.channel->fd, F_SETFL,
			 fcntl(s.channel->fd, F_GETFL) | O_NONBLOCK), 0);
	errno = 0;
	REQUIRE_EQ(ibv_get_cq_event(s.channel, &cq, &context), -1);
	REQUIRE_EQ(errno, EAGAIN);
	REQUIRE_ERRNO(ibv_req_notify_cq(s.b.rcq, 0), 0);
	message(&s, 1, 0);
	expect_event(s.channel, s.b.rcq);
	message_done(&s, 1);
	scene_free(&s);
}

/* Many queues on one channel: each event names its own. */
static void many_cqs_one_channel(void)
{
	enum { N = 50 };
	static struct end e[N];
	struct end_config config = { .send_wr = 4, .recv_wr = 4 };
	struct ibv_comp_channel *channel;
	bool seen[N] = { };
	struct device d;
	struct region r;

	device_open(&d);
	channel = ibv_create_comp_channel(d.ctx);
	REQUIRE(channel);
	config.channel = channel;
	region_make(&r, &d, 2 * LEN, 0, ACCESS_ALL);
	for (int i = 0; i < N; i++) {
		end_make(&e[i], &d, &config);
		end_to_state(&e[i], IBV_QPS_RTS);
		recv_region(&e[i], i, &r, LEN, LEN);
		REQUIRE_ERRNO(ibv_req_notify_cq(e[i].rcq, 0), 0);
	}
	for (int i = 0; i < N; i++)
		send_region(&e[i], i, &r, 0, LEN);
	for (int n = 0; n < N; n++) {
		struct ibv_cq *cq;
		void *context;
		int i;

		if (!event_waits(channel, PATIENCE_US / 1000))
			FAIL("event %d of %d did not come", n, N);
		REQUIRE_EQ(ibv_get_cq_event(channel, &cq, &context), 0);
		for (i = 0; i < N && e[i].rcq != cq; i++)
			;
		REQUIRE(i < N && !seen[i]);
		seen[i] = true;
		ibv_ack_cq_events(cq, 1);
		EXPECT_OK(e[i].rcq, i);
		EXPECT_OK(e[i].scq, i);
	}
	expect_no_event(channel);
	for (int i = 0; i < N; i++)
		end_free(&e[i]);
	REQUIRE_ERRNO(ibv_destroy_comp_channel(channel), 0);
	region_free(&r);
	device_close(&d);
}

/* Destroying a queue waits until its events are acknowledged. */
static void *destroy_cq(void *cq)
{
	REQUIRE_ERRNO(ibv_destroy_cq(cq), 0);
	return NULL;
}

static void destroy_waits_for_ack(void)
{
	struct timespec soon;
	struct ibv_cq *cq;
	pthread_t thread;
	struct scene s;
	void *context;

	scene_make(&s);
	REQUIRE_ERRNO(ibv_req_notify_cq(s.b.rcq, 0), 0);
	message(&s, 1, 0);
	if (!event_waits(s.channel, PATIENCE_US / 1000))
		FAIL("no completion event came");
	REQUIRE_EQ(ibv_get_cq_event(s.channel, &cq, &context), 0);
	message_done(&s, 1);
	REQUIRE_ERRNO(ibv_destroy_qp(s.b.qp), 0);
	REQUIRE_EQ(pthread_create(&thread, NULL, destroy_cq, s.b.rcq), 0);
	clock_gettime(CLOCK_REALTIME, &soon);
	soon.tv_sec++;
	if (pthread_timedjoin_np(thread, NULL, &soon) != ETIMEDOUT)
		FAIL("ibv_destroy_cq did not wait for the acknowledgement");
	ibv_ack_cq_events(cq, 1);
	REQUIRE_EQ(pthread_join(thread, NULL), 0);
	end_free(&s.a);
	REQUIRE_ERRNO(ibv_destroy_cq(s.b.scq), 0);
	REQUIRE_ERRNO(ibv_destroy_comp_channel(s.channel), 0);
	region_free(&s.r);
	device_close(&s.d);
}

/* A queue destroyed with an event that nobody took: it vanishes. */
static void destroy_with_event_waiting(void)
{
	struct end_config config = { };
	struct ibv_comp_channel *channel;
	struct region r;
	struct device d;

	device_open(&d);
	channel = ibv_create_comp_channel(d.ctx);
	REQUIRE(channel);
	config.channel = channel;
	region_make(&r, &d, 2 * LEN, 0, ACCESS_ALL);
	for (int round = 0; round < 10; round++) {
		struct end e;

		end_make(&e, &d, &config);
		end_to_state(&e, IBV_QPS_RTS);
		REQUIRE_ERRNO(ibv_req_notify_cq(e.rcq, 0), 0);
		recv_region(&e, 1, &r, LEN, LEN);
		send_region(&e, 1, &r, 0, LEN);
		if (!event_waits(channel, PATIENCE_US / 1000))
			FAIL("no completion event came");
		end_free(&e);
		expect_no_event(channel);
	}
	REQUIRE_ERRNO(ibv_destroy_comp_channel(channel), 0);
	region_free(&r);
	device_close(&d);
}

/*
 * Ping-pong between two processes that sleep: arm, look, sleep. A wake-up
 * that gets lost hangs the case.
 */
struct side {
	int fd;
	bool first;
	unsigned long rounds;
};

static void take_one(struct end *e, struct ibv_comp_channel *channel,
		     uint64_t wr_id, uint64_t *events)
{
	struct ibv_wc wc;

	for (;;) {
		struct ibv_cq *cq;
		void *context;

		if (ibv_poll_cq(e->rcq, 1, &wc) == 1)
			break;
		REQUIRE_ERRNO(ibv_req_notify_cq(e->rcq, 0), 0);
		if (ibv_poll_cq(e->rcq, 1, &wc) == 1)
			break;
		REQUIRE_EQ(ibv_get_cq_event(channel, &cq, &context), 0);
		REQUIRE(cq == e->rcq);
		++*events;
	}
	REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
	REQUIRE_EQ(wc.wr_id, wr_id);
}

static void ping_pong_side(void *arg)
{
	struct end_config config = { .send_wr = 16, .recv_wr = 16 };
	struct ibv_comp_channel *channel;
	struct side *side = arg;
	struct peer mine, other;
	uint64_t events = 0;
	struct region r;
	struct device d;
	struct end e;
	char done = 0;

	device_open(&d);
	channel = ibv_create_comp_channel(d.ctx);
	REQUIRE(channel);
	config.channel = channel;
	end_make(&e, &d, &config);
	region_make(&r, &d, 2 * LEN, 0, ACCESS_ALL);
	mine = end_address(&e, NULL);
	put_bytes(side->fd, &mine, sizeof(mine));
	get_bytes(side->fd, &other, sizeof(other));
	end_connect(&e, &other);
	recv_region(&e, 0, &r, LEN, LEN);
	put_bytes(side->fd, &done, 1);
	get_bytes(side->fd, &done, 1);
	for (unsigned long i = 0; i < side->rounds; i++) {
		struct ibv_sge sge = sge_of(&r, 0, 8);

		if (!side->first) {
			take_one(&e, channel, i, &events);
			recv_region(&e, i + 1, &r, LEN, LEN);
		}
		send_sges(&e, i, IBV_WR_SEND, i % 8 == 7 ? IBV_SEND_SIGNALED :
			  0, &sge, 1, NULL, 0, 0);
		if (i % 8 == 7)
			EXPECT_OK(e.scq, i);
		if (side->first) {
			take_one(&e, channel, i, &events);
			recv_region(&e, i + 1, &r, LEN, LEN);
		}
	}
	test_note("%s side: %lu rounds, %llu events",
		  side->first ? "first" : "second", side->rounds,
		  (unsigned long long)events);
	put_bytes(side->fd, &done, 1);
	get_bytes(side->fd, &done, 1);
	/* All at once, which is allowed, too. */
	ibv_ack_cq_events(e.rcq, events);
	end_free(&e);
	REQUIRE_ERRNO(ibv_destroy_comp_channel(channel), 0);
	region_free(&r);
	device_close(&d);
}

static void ping_pong(void)
{
	unsigned long rounds = opt.rounds ?: 100000;
	struct side side[2];
	pid_t pid;
	int fd[2];

	REQUIRE_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	side[0] = (struct side){ fd[0], true, rounds };
	side[1] = (struct side){ fd[1], false, rounds };
	pid = fork_process(ping_pong_side, &side[1]);
	close(fd[1]);
	ping_pong_side(&side[0]);
	join_process(pid);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "one_event_an_arming", one_event_an_arming },
		{ "armed_before_completion", armed_before_completion },
		{ "solicited_only", solicited_only },
		{ "any_outweighs_solicited", any_outweighs_solicited },
		{ "error_wakes_solicited", error_wakes_solicited },
		{ "solicited_write", solicited_write },
		{ "nonblocking", nonblocking },
		{ "many_cqs_one_channel", many_cqs_one_channel },
		{ "destroy_waits_for_ack", destroy_waits_for_ack },
		{ "destroy_with_event_waiting", destroy_with_event_waiting },
		{ "ping_pong", ping_pong, 120 },
		{ }
	};

	static const struct test_case *const tables[] = {
		cases,
		moderation_cases,
		operation_cases,
		NULL,
	};

	return test_main_of(argc, argv, tables);
}
