// SPDX-License-Identifier: GPL-2.0
/* Domains and targets of extended reliable connections, which programs share. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "xrc.h"

static int file_make(void)
{
	int fd = memfd_create("xrc", 0);

	REQUIRE(fd >= 0);
	return fd;
}

static struct ibv_qp *open_target(struct device *d, struct ibv_xrcd *xrcd,
				  uint32_t number)
{
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
			     IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = number,
		.xrcd = xrcd,
		.qp_type = IBV_QPT_XRC_RECV,
	};

	return ibv_open_qp(d->ctx, &attr);
}

/* ibv_open_xrcd(3), ibv_open_qp(3). */
void domains(void)
{
	struct ibv_xrcd_init_attr attr = { .comp_mask = IBV_XRCD_INIT_ATTR_FD };
	struct ibv_xrcd *one, *same, *other;
	struct ibv_qp *target, *opened;
	struct device d, second;
	int fd = file_make(), fd2 = file_make();

	device_open(&d);
	device_open(&second);
	attr.fd = fd;
	REQUIRE_NULL_ERRNO(ibv_open_xrcd(d.ctx, &attr), EINVAL);
	/* As for files: there is none yet, and then there is. */
	REQUIRE_NULL_ERRNO(xrcd_open(&d, fd, 0), EAGAIN);
	one = xrcd_open(&d, fd, O_CREAT | O_EXCL);
	REQUIRE(one);
	REQUIRE_NULL_ERRNO(xrcd_open(&second, fd, O_CREAT | O_EXCL), EINVAL);
	same = xrcd_open(&second, fd, 0);
	other = xrcd_open(&second, fd2, O_CREAT);
	REQUIRE(same && other);
	REQUIRE_NULL_ERRNO(xrcd_open(&d, 12345, O_CREAT), EBADF);

	target = target_make(&d, one);
	opened = open_target(&second, same, target->qp_num);
	REQUIRE(opened);
	REQUIRE_EQ(opened->qp_num, target->qp_num);
	REQUIRE_EQ(state_of(opened), IBV_QPS_RESET);
	REQUIRE_NULL_ERRNO(open_target(&second, other, target->qp_num), EINVAL);
	REQUIRE_NULL_ERRNO(open_target(&second, same, target->qp_num + 1),
			   EINVAL);

	/* It is there until the last has closed it. */
	REQUIRE_ERRNO(ibv_destroy_qp(target), 0);
	REQUIRE_EQ(state_of(opened), IBV_QPS_RESET);
	REQUIRE_ERRNO(ibv_close_xrcd(same), EBUSY);
	REQUIRE_ERRNO(ibv_destroy_qp(opened), 0);
	REQUIRE_ERRNO(ibv_close_xrcd(same), 0);
	REQUIRE_ERRNO(ibv_close_xrcd(one), 0);
	REQUIRE_ERRNO(ibv_close_xrcd(other), 0);
	device_close(&second);
	device_close(&d);
}

/* Each object keeps those that it needs. */
void in_use(void)
{
	struct ibv_xrcd *xrcd;
	struct receiver r;
	struct ibv_qp *qp;
	struct device d;

	device_open(&d);
	xrcd = xrcd_open(&d, -1, O_CREAT);
	REQUIRE(xrcd);
	receiver_make(&r, &d, xrcd);
	REQUIRE_ERRNO(ibv_destroy_cq(r.cq), EBUSY);
	REQUIRE_ERRNO(ibv_close_xrcd(xrcd), EBUSY);
	receiver_free(&r);
	qp = target_make(&d, xrcd);
	REQUIRE_ERRNO(ibv_close_xrcd(xrcd), EBUSY);
	REQUIRE_ERRNO(ibv_destroy_qp(qp), 0);
	REQUIRE_ERRNO(ibv_close_xrcd(xrcd), 0);
	device_close(&d);
}

/* The descriptors of the process that receives: the device's file, and a way to its parent. */
struct shared {
	int fd, socket;
};

enum { MESSAGES = 100 };

/*
 * It has opened the target by its number, so the connection lives when the
 * process is gone that made it.
 */
static void receive(void *arg)
{
	struct shared *s = arg;
	struct ibv_xrcd *xrcd;
	struct ibv_qp *target;
	struct receiver r;
	struct device d;
	uint32_t number;

	device_open(&d);
	xrcd = xrcd_open(&d, s->fd, 0);
	REQUIRE(xrcd);
	get_bytes(s->socket, &number, sizeof(number));
	target = open_target(&d, xrcd, number);
	REQUIRE(target);
	receiver_make(&r, &d, xrcd);
	for (int i = 0; i < 64; i++)
		receiver_post(&r, i, (size_t)i * LEN, LEN);
	put_bytes(s->socket, &r.number, sizeof(r.number));
	for (int i = 0; i < MESSAGES; i++) {
		struct ibv_wc wc = EXPECT_OK(r.cq, i % 64);
		uint8_t *data = r.r.data + (size_t)(i % 64) * LEN;

		REQUIRE_EQ(wc.qp_num, number);
		REQUIRE_EQ(wc.byte_len, i * 50);
		VERIFY(data, (size_t)i * 50, 1);
		receiver_post(&r, i % 64, (size_t)(i % 64) * LEN, LEN);
	}
	receiver_free(&r);
	REQUIRE_ERRNO(ibv_destroy_qp(target), 0);
	REQUIRE_ERRNO(ibv_close_xrcd(xrcd), 0);
	device_close(&d);
}

void another_process(void)
{
	struct shared s = { .fd = file_make() };
	struct connection c;
	struct ibv_xrcd *xrcd;
	struct region mine;
	struct device d;
	uint32_t number;
	int sockets[2];
	pid_t pid;

	REQUIRE(!socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
	s.socket = sockets[1];
	device_open(&d);
	xrcd = xrcd_open(&d, s.fd, O_CREAT);
	REQUIRE(xrcd);
	pid = fork_process(receive, &s);
	connection_make(&c, &d, xrcd);
	region_make(&mine, &d, LEN, 0, ACCESS_ALL);
	fill(mine.data, LEN, 1);
	put_bytes(sockets[0], &c.to->qp_num, sizeof(c.to->qp_num));
	get_bytes(sockets[0], &number, sizeof(number));
	/* From now on the target is the other process's alone. */
	REQUIRE_ERRNO(ibv_destroy_qp(c.to), 0);
	for (int i = 0; i < MESSAGES; i++) {
		send_to(&c, i, &mine, 0, (size_t)i * 50, number);
		EXPECT_OK(c.cq, i);
	}
	join_process(pid);
	REQUIRE_ERRNO(ibv_destroy_qp(c.from), 0);
	REQUIRE_ERRNO(ibv_destroy_cq(c.cq), 0);
	region_free(&mine);
	REQUIRE_ERRNO(ibv_close_xrcd(xrcd), 0);
	device_close(&d);
}
