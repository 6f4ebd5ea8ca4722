// SPDX-License-Identifier: GPL-2.0
/* Two processes: both stream at once, or one of them dies. */
#include "rc_data.h"

#include <sys/socket.h>
#include <unistd.h>

/*
 * Two processes, each streaming to the other at once, with a window of
 * requests underway and sizes that change.
 */
enum { STREAM_SLOTS = 16, STREAM_SLOT = 9000 };

struct stream {
	int fd;
	unsigned int side;
	unsigned long count;
};

static uint32_t stream_size(unsigned int side, uint64_t i)
{
	return (i * 2654435761u + side * 40503u) % STREAM_SLOT;
}

static void stream_side(void *arg)
{
	const struct end_config config = {
		.send_wr = STREAM_SLOTS, .recv_wr = STREAM_SLOTS
	};
	struct stream *s = arg;
	uint64_t posted = 0, sent = 0, received = 0;
	struct peer mine, other;
	struct region out, in;
	struct device d;
	struct end e;
	char done = 1;

	device_open(&d);
	end_make(&e, &d, &config);
	region_make(&out, &d, STREAM_SLOTS * STREAM_SLOT, 11, 0);
	region_make(&in, &d, STREAM_SLOTS * STREAM_SLOT, 13,
		    IBV_ACCESS_LOCAL_WRITE);
	mine = end_address(&e, NULL);
	put_bytes(s->fd, &mine, sizeof(mine));
	get_bytes(s->fd, &other, sizeof(other));
	end_connect(&e, &other);
	for (unsigned int i = 0; i < STREAM_SLOTS; i++)
		recv_region(&e, i, &in, i * STREAM_SLOT, STREAM_SLOT);
	put_bytes(s->fd, &done, 1);
	get_bytes(s->fd, &done, 1);

	while (sent < s->count || received < s->count) {
		struct ibv_wc wc;

		while (posted < s->count && posted - sent < STREAM_SLOTS) {
			size_t at = posted % STREAM_SLOTS * STREAM_SLOT;
			uint32_t len = stream_size(s->side, posted);

			fill(out.data + at, len, posted * 2 + s->side);
			send_region(&e, posted, &out, at, len);
			posted++;
		}
		if (sent < posted && next_wc_within(e.scq, &wc, 0)) {
			REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
			REQUIRE_EQ(wc.wr_id, sent++);
		}
		if (received < s->count &&
		    next_wc_within(e.rcq, &wc, sent == s->count ? PATIENCE_US :
				   0)) {
			size_t at = received % STREAM_SLOTS * STREAM_SLOT;

			REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
			REQUIRE_EQ(wc.wr_id, received);
			REQUIRE_EQ(wc.byte_len,
				   stream_size(!s->side, received));
			VERIFY(in.data + at, wc.byte_len,
			       received * 2 + !s->side);
			received++;
			recv_region(&e, received + STREAM_SLOTS - 1, &in, at,
				    STREAM_SLOT);
		}
	}
	put_bytes(s->fd, &done, 1);
	get_bytes(s->fd, &done, 1);
	end_free(&e);
	region_free(&out);
	region_free(&in);
	device_close(&d);
}

static void two_processes(void)
{
	unsigned long count = opt.rounds ?: 2000;
	struct stream s[2];
	pid_t pid;
	int fd[2];

	REQUIRE_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	s[0] = (struct stream){ fd[0], 0, count };
	s[1] = (struct stream){ fd[1], 1, count };
	pid = fork_process(stream_side, &s[1]);
	close(fd[1]);
	stream_side(&s[0]);
	join_process(pid);
}

/*
 * Two connections between the same two processes do not mix up, and a process
 * that dies in the middle of a message harms nobody: its peer's work ends
 * with an error, and other connections of the peer go on.
 */
static void doomed_side(void *arg)
{
	const struct end_config config = { .timeout = 10, .retry = 2 };
	int fd = *(int *)arg;
	struct peer mine, other;
	struct region r;
	struct device d;
	struct end e;
	char go;

	device_open(&d);
	end_make(&e, &d, &config);
	region_make(&r, &d, MIB, 0, ACCESS_ALL);
	mine = end_address(&e, &r);
	put_bytes(fd, &mine, sizeof(mine));
	get_bytes(fd, &other, sizeof(other));
	end_connect(&e, &other);
	put_bytes(fd, "", 1);
	get_bytes(fd, &go, 1);
	/* No clean-up: the kernel's part. */
	_exit(0);
}

static void peer_dies(void)
{
	const struct end_config config = {
		.timeout = 10, .retry = 2, .send_wr = 128
	};
	struct peer mine, other;
	struct region r, dst;
	uint64_t posted = 0, good = 0;
	struct end e, a, b;
	struct device d;
	struct ibv_wc wc;
	int fd[2];
	pid_t pid;
	char go;

	REQUIRE_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	pid = fork_process(doomed_side, &fd[1]);
	device_open(&d);
	end_make(&e, &d, &config);
	region_make(&r, &d, 65536, 0, 0);
	region_make(&dst, &d, 4096, 0, ACCESS_ALL);
	mine = end_address(&e, NULL);
	get_bytes(fd[0], &other, sizeof(other));
	put_bytes(fd[0], &mine, sizeof(mine));
	end_connect(&e, &other);
	ends_make(&a, &b, &d, NULL);
	get_bytes(fd[0], &go, 1);
	for (; posted < 100; posted++) {
		struct ibv_sge sge = sge_of(&r, 0, r.len);

		send_sges(&e, posted, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED,
			  &sge, 1, &other, 0, 0);
		if (posted == 20)
			put_bytes(fd[0], "", 1);
	}
	for (uint64_t i = 0; i < posted; i++) {
		next_wc(e.scq, &wc);
		REQUIRE_EQ(wc.wr_id, i);
		if (wc.status == IBV_WC_SUCCESS) {
			REQUIRE_EQ(good, i);
			good++;
		} else if (i == good) {
			if (wc.status != IBV_WC_RETRY_EXC_ERR &&
			    wc.status != IBV_WC_REM_ACCESS_ERR &&
			    wc.status != IBV_WC_REM_OP_ERR)
				FAIL("the first failed request has status '%s'",
				     ibv_wc_status_str(wc.status));
		} else {
			REQUIRE_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
		}
	}
	test_note("%llu of %llu requests were done when the peer was gone",
		  (unsigned long long)good, (unsigned long long)posted);
	transfer(&a, &b, &r, &dst, IBV_WR_SEND, 4000, 50, 9);
	join_process(pid);
	end_free(&e);
	end_free(&a);
	end_free(&b);
	region_free(&r);
	region_free(&dst);
	device_close(&d);
}

const struct test_case process_cases[] = {
	{ "two_processes", two_processes, 60 },
	{ "peer_dies", peer_dies },
	{ }
};
