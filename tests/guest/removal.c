// SPDX-License-Identifier: GPL-2.0
/*
 * The device goes away under programs that use it: by `rdma link delete`, or
 * because its netdev does. Nobody blocks: the removal does not wait for the
 * programs, and their work ends with flush errors; then posting answers EIO,
 * and everything can be closed.
 */
#define _GNU_SOURCE
#include "common.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WINDOW = 16, LEN = 2000 };

/* How long a removal may take. */
#define REMOVAL_US (2000000ull * opt.slow)

/* A program under test: it says when it is at work, and ends by itself. */
struct program {
	void (*run)(struct program *);
	int ready[2];
	pid_t pid;
};

static void program_entry(void *arg)
{
	struct program *p = arg;

	p->run(p);
}

static void program_ready(struct program *p)
{
	put_bytes(p->ready[1], "", 1);
}

static void program_start(struct program *p, void (*run)(struct program *))
{
	char byte;

	p->run = run;
	REQUIRE_EQ(pipe(p->ready), 0);
	p->pid = fork_process(program_entry, p);
	close(p->ready[1]);
	get_bytes(p->ready[0], &byte, 1);
}

static void program_join(struct program *p)
{
	join_process(p->pid);
	close(p->ready[0]);
}

static void timed_command(const char *command, const char *object)
{
	uint64_t begin = now_us();
	uint64_t us;

	REQUIRE_EQ(run_command("timeout %u %s %s", 20 * opt.slow, command,
			       object), 0);
	us = now_us() - begin;
	test_note("%s %s took %.0f ms", command, object, us / 1e3);
	if (us > REMOVAL_US)
		FAIL("%s took %.1f s", command, us / 1e6);
}

/* ---- The programs ---- */

struct scene {
	struct device d;
	struct ibv_comp_channel *channel;
	struct end e;		/* connected to itself */
	struct region r;
	uint64_t sends, recvs;	/* posted */
};

static void scene_make(struct scene *s)
{
	struct end_config config = { .send_wr = WINDOW, .recv_wr = 2 * WINDOW };

	memset(s, 0, sizeof(*s));
	device_open(&s->d);
	s->channel = ibv_create_comp_channel(s->d.ctx);
	REQUIRE(s->channel);
	config.channel = s->channel;
	end_make(&s->e, &s->d, &config);
	end_to_state(&s->e, IBV_QPS_RTS);
	region_make(&s->r, &s->d, 2 * LEN, 0, ACCESS_ALL);
	while (s->recvs < 2 * WINDOW)
		recv_region(&s->e, s->recvs++, &s->r, LEN, LEN);
}

/*
 * All can be given back, though the device may answer EIO by then; the
 * descriptors close and the memory is usable.
 */
static void close_all(struct scene *s)
{
	int ret = ibv_destroy_qp(s->e.qp);

	REQUIRE(ret == 0 || ret == EIO);
	if (!ret) {
		ret = ibv_destroy_cq(s->e.scq);
		REQUIRE(ret == 0 || ret == EIO);
		ret = ibv_destroy_cq(s->e.rcq);
		REQUIRE(ret == 0 || ret == EIO);
		ret = ibv_destroy_comp_channel(s->channel);
		REQUIRE(ret == 0 || ret == EIO);
	}
	ret = ibv_dereg_mr(s->r.mr);
	REQUIRE(ret == 0 || ret == EIO);
	memset(s->r.data, 1, s->r.len);
	ret = ibv_dealloc_pd(s->d.pd);
	REQUIRE(ret == 0 || ret == EIO || ret == EBUSY);
	ret = ibv_close_device(s->d.ctx);
	REQUIRE(ret == 0 || ret == EIO);
}

/*
 * Takes completions until the first error, and then until everything posted
 * has been told of, all of it flushed, in order. 'recvs' and 'sends' say how
 * many were told of before.
 *
 * 'posting' says that the program posted until the end: the provider may have
 * found the device alive and been preempted, and rung when all was over. Of
 * that one request in each queue nobody tells.
 */
static void expect_flush(struct scene *s, uint64_t sends, uint64_t recvs,
			 bool posting)
{
	uint64_t end = now_us() + PATIENCE_US;
	struct ibv_wc wc;

	while (sends < s->sends || recvs < s->recvs) {
		if (sends < s->sends && next_wc_within(s->e.scq, &wc, 0)) {
			REQUIRE_EQ(wc.wr_id, sends++);
			REQUIRE(wc.status == IBV_WC_SUCCESS ||
				wc.status == IBV_WC_WR_FLUSH_ERR);
		}
		if (recvs < s->recvs && next_wc_within(s->e.rcq, &wc, 0)) {
			REQUIRE_EQ(wc.wr_id, recvs++);
			REQUIRE(wc.status == IBV_WC_SUCCESS ||
				wc.status == IBV_WC_WR_FLUSH_ERR);
			/* The last ones never had a message. */
			if (recvs == s->recvs)
				REQUIRE_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
		}
		if (now_us() <= end)
			continue;
		if (posting && s->sends - sends <= 1 && s->recvs - recvs <= 1) {
			test_note("one was posted when all was over");
			return;
		}
		FAIL("%llu of %llu sends and %llu of %llu receives ended",
		     (unsigned long long)sends, (unsigned long long)s->sends,
		     (unsigned long long)recvs, (unsigned long long)s->recvs);
	}
}

/* Once the device is gone, posting says so. */
static void expect_post_eio(struct scene *s)
{
	struct ibv_sge sge = sge_of(&s->r, 0, LEN);
	uint64_t end = now_us() + PATIENCE_US;
	int ret;

	do {
		ret = try_send(&s->e, 0, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge,
			       1, NULL, 0, 0);
		if (now_us() > end)
			FAIL("ibv_post_send answers %d (%s), expected EIO", ret,
			     strerror(ret));
	} while (ret == 0 || ret == ENOMEM);
	REQUIRE_ERRNO(ret, EIO);
	REQUIRE_ERRNO(try_recv(&s->e, 0, &sge, 1), EIO);
}

/* Sends to itself without pause and only ever polls. */
static void polling_program(struct program *p)
{
	uint64_t sends = 0, recvs = 0;
	bool told = false, dead = false;
	struct scene s;

	scene_make(&s);
	while (!dead) {
		struct ibv_wc wc;

		while (!dead && s.sends - sends < WINDOW) {
			struct ibv_sge sge = sge_of(&s.r, 0, LEN);
			int ret = try_send(&s.e, s.sends, IBV_WR_SEND,
					   IBV_SEND_SIGNALED, &sge, 1, NULL, 0,
					   0);

			REQUIRE(ret == 0 || ret == EIO);
			dead = ret == EIO;
			if (!dead)
				s.sends++;
		}
		if (next_wc_within(s.e.scq, &wc, 0)) {
			REQUIRE_EQ(wc.wr_id, sends++);
			dead |= wc.status != IBV_WC_SUCCESS;
		}
		if (next_wc_within(s.e.rcq, &wc, 0)) {
			int ret;

			REQUIRE_EQ(wc.wr_id, recvs++);
			dead |= wc.status != IBV_WC_SUCCESS;
			if (!dead) {
				struct ibv_sge sge = sge_of(&s.r, LEN, LEN);

				ret = try_recv(&s.e, s.recvs, &sge, 1);
				REQUIRE(ret == 0 || ret == EIO);
				dead = ret == EIO;
				if (!dead)
					s.recvs++;
			}
		}
		if (!told && sends > 100) {
			told = true;
			program_ready(p);
		}
	}
	expect_flush(&s, sends, recvs, true);
	expect_post_eio(&s);
	close_all(&s);
}

/* Sleeps in ibv_get_cq_event for a message that never comes. */
static void sleeping_program(struct program *p)
{
	struct ibv_cq *cq;
	struct scene s;
	void *context;

	scene_make(&s);
	REQUIRE_ERRNO(ibv_req_notify_cq(s.e.rcq, 0), 0);
	program_ready(p);
	if (ibv_get_cq_event(s.channel, &cq, &context) == 0) {
		REQUIRE(cq == s.e.rcq);
		ibv_ack_cq_events(cq, 1);
	} else {
		REQUIRE_EQ(errno, EIO);
	}
	expect_flush(&s, 0, 0, false);
	expect_post_eio(&s);
	close_all(&s);
}

/* Holds objects of each kind and does nothing but wait for the bad news. */
static void idle_program(struct program *p)
{
	struct pollfd fd;
	struct scene s;

	scene_make(&s);
	fd = (struct pollfd){ .fd = s.d.ctx->async_fd, .events = POLLIN };
	program_ready(p);
	REQUIRE_EQ(poll(&fd, 1, PATIENCE_US / 1000), 1);
	expect_async(s.d.ctx, IBV_EVENT_DEVICE_FATAL, NULL);
	expect_flush(&s, 0, 0, false);
	close_all(&s);
}

/* Makes and destroys objects all the time. */
static void busy_program(struct program *p)
{
	uint64_t end = now_us() + 3 * PATIENCE_US;
	struct ibv_context *ctx = open_by_name(opt.device);
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	unsigned long made = 0;
	static char buf[65536];
	bool told = false;

	REQUIRE(pd);
	for (;;) {
		struct ibv_qp_init_attr init = {
			.qp_type = IBV_QPT_RC,
			.cap = { 4, 4, 1, 1, 0 },
		};
		struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
		struct ibv_mr *mr = ibv_reg_mr(pd, buf, sizeof(buf), ACCESS_ALL);
		struct ibv_qp *qp;

		if (!cq || !mr)
			break;
		init.send_cq = init.recv_cq = cq;
		qp = ibv_create_qp(pd, &init);
		if (!qp)
			break;
		if (ibv_destroy_qp(qp) || ibv_destroy_cq(cq) ||
		    ibv_dereg_mr(mr))
			break;
		if (++made > 50 && !told) {
			told = true;
			program_ready(p);
		}
		if (now_us() > end)
			FAIL("the device never went away");
	}
	test_note("%lu rounds of making and destroying before the end", made);
	REQUIRE_EQ(errno ?: EIO, EIO);
	ibv_close_device(ctx);
}

/* ---- The cases ---- */

static void use(struct own_device *own)
{
	own_device_make(own, 0, 9000);
	opt.device = own->device;
}

static void remove_under(void (*run)(struct program *))
{
	struct own_device own;
	struct program p;

	use(&own);
	program_start(&p, run);
	timed_command("rdma link delete", own.device);
	program_join(&p);
	REQUIRE_EQ(run_command("ip link delete %s", own.netdev), 0);
}

static void while_polling(void)
{
	remove_under(polling_program);
}

static void while_sleeping(void)
{
	remove_under(sleeping_program);
}

static void while_idle(void)
{
	remove_under(idle_program);
}

static void while_making_objects(void)
{
	remove_under(busy_program);
}

static void under_many_programs(void)
{
	static void (*const runs[])(struct program *) = {
		polling_program, sleeping_program, idle_program, busy_program,
		polling_program, sleeping_program,
	};
	struct program p[ARRAY_SIZE(runs)];
	struct own_device own;

	use(&own);
	for (unsigned int i = 0; i < ARRAY_SIZE(runs); i++)
		program_start(&p[i], runs[i]);
	timed_command("rdma link delete", own.device);
	for (unsigned int i = 0; i < ARRAY_SIZE(runs); i++)
		program_join(&p[i]);
	REQUIRE_EQ(run_command("ip link delete %s", own.netdev), 0);
}

/* The netdev is taken away: the device goes with it. */
static void netdev_deleted(void)
{
	struct own_device own;
	struct program p;
	uint64_t end;

	use(&own);
	program_start(&p, polling_program);
	timed_command("ip link delete", own.netdev);
	end = now_us() + PATIENCE_US;
	while (run_command("test -e /sys/class/infiniband/%s", own.device) == 0) {
		if (now_us() > end)
			FAIL("%s is still there", own.device);
		sleep_us(10000);
	}
	program_join(&p);
}

/*
 * The same name again while a program of the old device is still alive: it is
 * another device, and works.
 */
static void name_used_again(void)
{
	struct own_device own, again;
	struct region r;
	struct device d;
	struct scene s;
	struct end e;

	use(&own);
	scene_make(&s);
	timed_command("rdma link delete", own.device);
	expect_flush(&s, 0, 0, false);
	own_device_make(&again, 0, 9000);
	device_open(&d);
	end_make(&e, &d, NULL);
	end_to_state(&e, IBV_QPS_RTS);
	region_make(&r, &d, 64, 0, ACCESS_ALL);
	recv_region(&e, 1, &r, 32, 32);
	send_region(&e, 1, &r, 0, 32);
	EXPECT_OK(e.scq, 1);
	EXPECT_OK(e.rcq, 1);
	expect_post_eio(&s);
	close_all(&s);
	end_free(&e);
	region_free(&r);
	device_close(&d);
	own_device_remove(&again);
}

/* A program that is killed in the middle of traffic leaves nothing behind. */
static void program_killed(void)
{
	struct own_device own;

	use(&own);
	for (int i = 0; i < 5; i++) {
		struct program p;
		int status;

		program_start(&p, polling_program);
		REQUIRE_EQ(kill(p.pid, SIGKILL), 0);
		REQUIRE_EQ(waitpid(p.pid, &status, 0), p.pid);
		close(p.ready[0]);
	}
	REQUIRE_EQ(run_command("rdma resource show qp link %s/1 | grep -q 'pid '",
			       own.device), 1);
	timed_command("rdma link delete", own.device);
	REQUIRE_EQ(run_command("ip link delete %s", own.netdev), 0);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "while_polling", while_polling },
		{ "while_sleeping", while_sleeping },
		{ "while_idle", while_idle },
		{ "while_making_objects", while_making_objects, 60 },
		{ "under_many_programs", under_many_programs, 60 },
		{ "netdev_deleted", netdev_deleted },
		{ "name_used_again", name_used_again },
		{ "program_killed", program_killed },
		{ }
	};

	return test_main(argc, argv, cases);
}
