// SPDX-License-Identifier: GPL-2.0
/*
 * Beside packets: RDMA WRITEs of a queue pair that is connected with itself, by
 * the loopback device, against as many bytes by TCP. Softirqs delay a thread,
 * too, and packets come back within the one that sends them.
 */
#define _GNU_SOURCE
#include "late.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	/*
	 * So much later than beside TCP, which sends fewer and larger packets:
	 * a burst of four by the loopback device, and one that is being made.
	 */
	MOST_NS = 25000,
};

struct packets {
	struct device d;
	struct region r;
	struct end end;		/* connected with itself */
	struct ibv_sge sge;
	struct ibv_send_wr wr[LIST];
	/* The two ends of a connection, and how much goes over it. */
	int out, in;
	size_t length;
	char *data;
};

static void post_list(void *arg)
{
	struct packets *p = arg;

	post_and_wait(&p->end, p->wr);
	sleep_us(REST_US);
}

static void connect_sockets(struct packets *p)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	socklen_t length = sizeof(to);

	REQUIRE_EQ(bind(listener, (struct sockaddr *)&to, sizeof(to)), 0);
	REQUIRE_EQ(listen(listener, 1), 0);
	REQUIRE_EQ(getsockname(listener, (struct sockaddr *)&to, &length), 0);
	p->out = socket(AF_INET, SOCK_STREAM, 0);
	REQUIRE_EQ(connect(p->out, (struct sockaddr *)&to, sizeof(to)), 0);
	p->in = accept(listener, NULL, NULL);
	REQUIRE(p->in >= 0);
	REQUIRE_EQ(setsockopt(p->out, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
	close(listener);
}

/* Sends the bytes to itself. */
static void stream(void *arg)
{
	struct packets *p = arg;
	size_t sent = 0, got = 0;

	while (got < p->length) {
		ssize_t n = send(p->out, p->data, p->length - sent, MSG_DONTWAIT);

		REQUIRE(n >= 0 || errno == EAGAIN);
		sent += n > 0 ? n : 0;
		n = recv(p->in, p->data, p->length, MSG_DONTWAIT);
		REQUIRE(n >= 0 || errno == EAGAIN);
		got += n > 0 ? n : 0;
	}
	sleep_us(REST_US);
}

void set_wire_only(bool value)
{
	if (strncmp(opt.device, "ferrule", 7))
		return;
	REQUIRE_EQ(run_command("echo %d > /sys/kernel/debug/ferrule/%s/wire_only", value,
			       opt.device), 0);
}

static void packets(int count, uint32_t length)
{
	struct end_config many = { .send_wr = LIST, .recv_wr = 1 };
	static struct packets p;

	device_open(&p.d);
	set_wire_only(true);
	region_make(&p.r, &p.d, 2 * length, 0, ACCESS_ALL);
	end_make(&p.end, &p.d, &many);
	end_to_state(&p.end, IBV_QPS_RTS);
	set_wire_only(false);
	p.sge = sge_of(&p.r, 0, length);
	make_list(p.wr, count, &p.sge, &p.r);
	p.length = (size_t)count * length;
	p.data = malloc(p.length);
	REQUIRE(p.data);
	connect_sockets(&p);
	judge(stream, post_list, &p, MOST_NS);
}

void packets_8(void)
{
	packets(LIST, 8);
}

void packets_4096(void)
{
	packets(16, 4096);
}

void packets_65536(void)
{
	packets(4, 65536);
}
