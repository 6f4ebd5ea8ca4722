// SPDX-License-Identifier: GPL-2.0
/* Programs that use a device until it goes. */
#define _GNU_SOURCE
#include "../programs.h"

#include <poll.h>
#include <unistd.h>

enum { WINDOW = 16, LEN = 2000 };

/* How long a removal may take. */
#define REMOVAL_US (2000000ull * opt.slow)

static void program_entry(void *arg)
{
	struct program *p = arg;

	p->run(p);
}

static void program_ready(struct program *p)
{
	put_bytes(p->ready[1], "", 1);
}

void program_start(struct program *p, void (*run)(struct program *))
{
	char byte;

	p->run = run;
	REQUIRE_EQ(pipe(p->ready), 0);
	p->pid = fork_process(program_entry, p);
	close(p->ready[1]);
	get_bytes(p->ready[0], &byte, 1);
}

void program_join(struct program *p)
{
	join_process(p->pid);
	close(p->ready[0]);
}

void timed_command(const char *command, const char *object)
{
	uint64_t begin = now_us();

	REQUIRE_EQ(run_command("timeout %u %s %s", 20 * opt.slow, command,
			       object), 0);
	in_time(command, begin);
}

void in_time(const char *what, uint64_t begin)
{
	uint64_t us = now_us() - begin;

	test_note("%s took %.0f ms", what, us / 1e3);
	if (us > REMOVAL_US)
		FAIL("%s took %.1f s", what, us / 1e6);
}

void loopback_make(struct loopback *s)
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

void close_all(struct loopback *s)
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

void expect_flush(struct loopback *s, uint64_t sends, uint64_t recvs,
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

void expect_post_eio(struct loopback *s)
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

void polling_program(struct program *p)
{
	uint64_t sends = 0, recvs = 0;
	bool told = false, dead = false;
	struct loopback s;

	loopback_make(&s);
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

void sleeping_program(struct program *p)
{
	struct ibv_cq *cq;
	struct loopback s;
	void *context;

	loopback_make(&s);
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

void idle_program(struct program *p)
{
	struct pollfd fd;
	struct loopback s;

	loopback_make(&s);
	fd = (struct pollfd){ .fd = s.d.ctx->async_fd, .events = POLLIN };
	program_ready(p);
	REQUIRE_EQ(poll(&fd, 1, PATIENCE_US / 1000), 1);
	expect_async(s.d.ctx, IBV_EVENT_DEVICE_FATAL, NULL);
	expect_flush(&s, 0, 0, false);
	close_all(&s);
}

void busy_program(struct program *p)
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

static void (*const many[MANY_PROGRAMS])(struct program *) = {
	polling_program, sleeping_program, idle_program, busy_program,
	polling_program, sleeping_program,
};

void programs_start(struct program p[MANY_PROGRAMS])
{
	for (unsigned int i = 0; i < MANY_PROGRAMS; i++)
		program_start(&p[i], many[i]);
}

void programs_join(struct program p[MANY_PROGRAMS])
{
	for (unsigned int i = 0; i < MANY_PROGRAMS; i++)
		program_join(&p[i]);
}

bool device_is_there(void)
{
	return !run_command("test -e /sys/class/infiniband/%s", opt.device);
}

void wait_for_device(bool wanted)
{
	uint64_t end = now_us() + PATIENCE_US;

	while (device_is_there() != wanted) {
		if (now_us() > end)
			FAIL("%s is %s", opt.device,
			     wanted ? "not there" : "still there");
		sleep_us(10000);
	}
}

void expect_round_trip(void)
{
	struct region r;
	struct device d;
	struct end e;

	device_open(&d);
	end_make(&e, &d, NULL);
	end_to_state(&e, IBV_QPS_RTS);
	region_make(&r, &d, 64, 0, ACCESS_ALL);
	recv_region(&e, 1, &r, 32, 32);
	send_region(&e, 1, &r, 0, 32);
	EXPECT_OK(e.scq, 1);
	EXPECT_OK(e.rcq, 1);
	end_free(&e);
	region_free(&r);
	device_close(&d);
}
