// SPDX-License-Identifier: GPL-2.0
/* Memory whose pages the program itself serves (userfaultfd). */
#define _GNU_SOURCE
#include "odp.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Serves each page that is missing, filled with a byte of its own. */
static void *serve(void *arg)
{
	uint8_t page[PAGE];
	int fd = *(int *)arg;

	for (size_t served = 0; served < SIZE / PAGE; served++) {
		struct uffdio_copy copy = { .len = PAGE, .src = (uintptr_t)page };
		struct uffd_msg msg;

		REQUIRE_EQ(read(fd, &msg, sizeof(msg)), sizeof(msg));
		REQUIRE_EQ(msg.event, UFFD_EVENT_PAGEFAULT);
		copy.dst = msg.arg.pagefault.address & ~(PAGE - 1);
		memset(page, copy.dst / PAGE, PAGE);
		REQUIRE_EQ(ioctl(fd, UFFDIO_COPY, &copy), 0);
	}
	return NULL;
}

/* A request waits for the program to serve the pages of either end, as a thread that touches them does. */
void served(void)
{
	uint8_t *ends[2];
	pthread_t servers[2];
	int fds[2];
	struct scene s;

	scene_open(&s);
	ends[0] = s.mine;
	ends[1] = s.theirs;
	for (int i = 0; i < 2; i++) {
		struct uffdio_api api = { .api = UFFD_API };
		struct uffdio_register missing = {
			.range = { (uintptr_t)ends[i], SIZE },
			.mode = UFFDIO_REGISTER_MODE_MISSING,
		};

		fds[i] = syscall(SYS_userfaultfd, O_CLOEXEC);
		if (fds[i] < 0 && errno == ENOSYS)
			test_skip("the guest's kernel has no userfaultfd");
		REQUIRE(fds[i] >= 0);
		REQUIRE_EQ(ioctl(fds[i], UFFDIO_API, &api), 0);
		REQUIRE_EQ(ioctl(fds[i], UFFDIO_REGISTER, &missing), 0);
		REQUIRE_ERRNO(pthread_create(&servers[i], NULL, serve, &fds[i]), 0);
	}
	request(&s, IBV_WR_RDMA_WRITE, SIZE);
	EXPECT_OK(s.p.a.scq, 1);
	for (int i = 0; i < 2; i++) {
		REQUIRE_ERRNO(pthread_join(servers[i], NULL), 0);
		close(fds[i]);
	}
	for (size_t at = 0; at < SIZE; at += PAGE)
		VERIFY_BYTE(s.theirs + at, PAGE,
			    (uint8_t)((uintptr_t)(s.mine + at) / PAGE));
	scene_close(&s);
}
