// SPDX-License-Identifier: GPL-2.0
/*
 * The second driver, tests/rdma_loop: its program's view of the abstractions
 * that it stands on. There is no provider for it, so this speaks the command
 * channel (rdma/ib_user_verbs.h) itself.
 */
#define _GNU_SOURCE
#include "rdma_loop/rdma_loop.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

/* A completion event is there, and is of the queue. */
static void expect_event(struct loop *l)
{
	struct pollfd p = { .fd = l->channel, .events = POLLIN };
	struct ib_uverbs_comp_event_desc event;

	REQUIRE_EQ(poll(&p, 1, 1000), 1);
	REQUIRE_EQ(read(l->channel, &event, sizeof(event)), sizeof(event));
	REQUIRE_EQ(event.cq_handle, 0x1234);
}

static void messages(void)
{
	struct loop l;

	open_device(&l);
	make_objects(&l);
	for (uint64_t i = 0; i < 3 * DEPTH; i++) {
		fill(l.mem, LEN, i);
		memset(l.mem + LEN, 0, LEN);
		post(&l, i, l.lkey);
		REQUIRE_ERRNO(kick(&l), 0);
		expect(&l, i, IBV_WC_RECV, IBV_WC_SUCCESS);
		expect(&l, i, IBV_WC_SEND, IBV_WC_SUCCESS);
		VERIFY(l.mem + LEN, LEN, i);
		expect_event(&l);
		expect_event(&l);
	}
	destroy_objects(&l);
	close_device(&l);
}

static void wrong_key(void)
{
	struct loop l;

	open_device(&l);
	make_objects(&l);
	memset(l.mem, 1, LEN);
	post(&l, 7, l.lkey + 1000);
	REQUIRE_ERRNO(kick(&l), 0);
	expect(&l, 7, IBV_WC_RECV, IBV_WC_LOC_PROT_ERR);
	expect(&l, 7, IBV_WC_SEND, IBV_WC_LOC_PROT_ERR);
	VERIFY_BYTE(l.mem + LEN, LEN, 0);
	destroy_objects(&l);
	close_device(&l);
}

static void child(void *arg)
{
	struct loop *l = arg;
	unsigned char present;

	REQUIRE(mincore((void *)l->cqe, CQ_SIZE, &present));
	REQUIRE_EQ(errno, ENOMEM);
	REQUIRE(mincore(l->q, 4096, &present));
	REQUIRE_EQ(errno, ENOMEM);
}

static void mappings(void)
{
	struct loop l;
	void *p;

	open_device(&l);
	make_objects(&l);

	/* Read-only means it, now and later. */
	p = map(&l, l.cq_offset, CQ_SIZE, PROT_READ | PROT_WRITE);
	REQUIRE(p == MAP_FAILED && errno == EPERM);
	REQUIRE(mprotect((void *)l.cqe, CQ_SIZE, PROT_READ | PROT_WRITE));
	REQUIRE_EQ(errno, EACCES);
	/* The whole and nothing else, and no copy of it. */
	p = map(&l, l.cq_offset, 2 * CQ_SIZE, PROT_READ);
	REQUIRE(p == MAP_FAILED && errno == EINVAL);
	p = map(&l, l.cq_offset + (1ul << 40), CQ_SIZE, PROT_READ);
	REQUIRE(p == MAP_FAILED && errno == EINVAL);
	p = mmap(NULL, CQ_SIZE, PROT_READ, MAP_PRIVATE, l.fd, l.cq_offset);
	REQUIRE(p == MAP_FAILED && errno == EINVAL);
	p = mremap((void *)l.cqe, CQ_SIZE, 2 * CQ_SIZE, MREMAP_MAYMOVE);
	REQUIRE(p == MAP_FAILED);
	/* Twice is fine. */
	p = map(&l, l.cq_offset, CQ_SIZE, PROT_READ);
	REQUIRE(p != MAP_FAILED);
	/* A child has none of it. */
	join_process(fork_process(child, &l));

	destroy_objects(&l);
	/* A queue that was destroyed cannot be mapped. */
	p = map(&l, l.cq_offset, CQ_SIZE, PROT_READ);
	REQUIRE(p == MAP_FAILED && errno == EINVAL);
	close_device(&l);
}

/* A request with something in it that the driver does not know. */
static void udata(void)
{
	struct {
		struct ib_uverbs_alloc_pd core;
		uint64_t driver;
	} alloc = { };
	struct {
		struct ib_uverbs_alloc_pd_resp core;
		uint32_t driver[3];
	} resp;
	struct loop l;

	open_device(&l);
	/* Zeroes are fine, and the answer is filled up with them. */
	memset(&resp, 0xff, sizeof(resp));
	REQUIRE_ERRNO(COMMAND(&l, ALLOC_PD, &alloc, &resp), 0);
	REQUIRE_EQ(resp.driver[0] | resp.driver[1] | resp.driver[2], 0);
	alloc.driver = 1;
	REQUIRE_ERRNO(COMMAND(&l, ALLOC_PD, &alloc, &resp), EOPNOTSUPP);
	close(l.fd);
	remove_device();
}

/* The device goes while its rings are mapped, and nobody waits for the program. */
static void removal_by(const char *how)
{
	struct ib_uverbs_alloc_pd alloc_pd = { };
	struct ib_uverbs_alloc_pd_resp pd;
	struct loop l;
	uint64_t end;

	open_device(&l);
	make_objects(&l);
	post(&l, 1, l.lkey);
	REQUIRE_ERRNO(kick(&l), 0);
	REQUIRE_EQ(run_command("%s", how), 0);
	/* A netdev does not wait for the device. */
	end = now_us() + PATIENCE_US;
	while (!access("/sys/class/infiniband/" DEVICE, F_OK)) {
		REQUIRE(now_us() < end);
		sleep_us(1000);
	}
	expect(&l, 1, IBV_WC_RECV, IBV_WC_SUCCESS);
	post(&l, 2, l.lkey);
	REQUIRE_ERRNO(kick(&l), EIO);
	REQUIRE_ERRNO(COMMAND(&l, ALLOC_PD, &alloc_pd, &pd), EIO);
	close(l.channel);
	close(l.fd);
	/* The memory is still ours. */
	REQUIRE_EQ(l.q->sq_producer, 2);
	REQUIRE_EQ(l.cqe[0].wr_id, 1);
}

static void link_deleted(void)
{
	removal_by("rdma link delete " DEVICE);
}

static void netdev_gone(void)
{
	removal_by("ip link delete " NETDEV);
}

static void module_gone(void)
{
	removal_by("rmmod rdma_loop");
	run_command("ip link delete " NETDEV);
}

/* Links that cannot be made. */
static void links(void)
{
	make_device();
	REQUIRE(run_command("rdma link add " DEVICE " type loop netdev lo 2>/dev/null"));
	REQUIRE(run_command("rdma link add other type loop netdev nosuch 2>/dev/null"));
	remove_device();
	for (unsigned int i = 0; i < test_rounds(8); i++) {
		make_device();
		remove_device();
	}
}

/* A program that dies leaves everything to the kernel. */
static void dies(void *arg)
{
	struct loop *l = arg;

	open_device(l);
	make_objects(l);
	post(l, 1, l->lkey);
	REQUIRE_ERRNO(kick(l), 0);
	_exit(0);
}

static void death(void)
{
	struct loop l;

	join_process(fork_process(dies, &l));
	remove_device();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "messages", messages },
		{ "wrong_key", wrong_key },
		{ "mappings", mappings },
		{ "udata", udata },
		{ "methods", methods },
		{ "links", links, 60 },
		{ "link_deleted", link_deleted },
		{ "netdev_gone", netdev_gone },
		{ "death", death },
		{ "function_messages", function_messages, 60 },
		{ "function_is_no_link", function_is_no_link, 60 },
		{ "function_without_netdev", function_without_netdev, 60 },
		{ "function_unbound", function_unbound, 120 },
		{ "function_with_module", function_with_module, 60 },
		/* The last: the driver is gone after it. */
		{ "module_gone", module_gone },
		{ }
	};

	return test_main(argc, argv, cases);
}
