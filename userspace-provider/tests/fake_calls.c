// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Commands by ioctl, and other calls of the system. */
#define _GNU_SOURCE

#include <errno.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <rdma/ferrule_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_cmds.h>

#include "../abi.h"
#include "fake_kernel.h"

static int query_clock(uint64_t *clock)
{
	struct timespec now;

	fake.clock_queries++;
	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	*clock = now.tv_sec * 1000000000ULL + now.tv_nsec + fake.clock_ahead;

	return 0;
}

static int add_thread(struct ferrule_alloc_ucontext_resp *resp)
{
	fake.thread_requests++;
	if (fake.num_threads == fake.max_threads)
		return fake.thread_refusal ? fake.thread_refusal : EOPNOTSUPP;
	CHECK(fake.num_threads < FAKE_MAX_THREADS);
	fake.threads[fake.num_threads] = fake_new_areas(resp);
	resp->number = FAKE_FIRST_THREAD + fake.num_threads++;

	return 0;
}

static int import(struct ferrule_alloc_ucontext_resp *resp)
{
	fake_new_first(resp);
	resp->number = FAKE_IMPORT;

	return 0;
}

/* The commands by ioctl that tests let the provider give: each has an answer. */
int execute_ioctl(struct ibv_context *context, struct ibv_command_buffer *cmd)
{
	const struct ib_uverbs_attr *attr = cmd->hdr.attrs;
	void *answer = (void *)(uintptr_t)attr->data;

	CHECK(cmd->hdr.object_id == UVERBS_OBJECT_DEVICE);
	CHECK(cmd->next_attr == attr + 1);
	switch (cmd->hdr.method_id) {
	case FERRULE_METHOD_QUERY_CLOCK:
		CHECK(attr->attr_id == FERRULE_ATTR_CLOCK);
		CHECK(attr->len == sizeof(uint64_t));
		return query_clock(answer);
	case FERRULE_METHOD_UNIMPORT:
		CHECK(attr->attr_id == FERRULE_ATTR_NUMBER);
		CHECK(attr->len == sizeof(uint32_t));
		fake.unimported = attr->data;
		return 0;
	}
	CHECK(attr->attr_id == FERRULE_ATTR_DOORBELLS);
	CHECK(attr->len == sizeof(struct ferrule_alloc_ucontext_resp));
	if (cmd->hdr.method_id == FERRULE_METHOD_IMPORT)
		return import(answer);
	CHECK(context == fake.context);
	CHECK(cmd->hdr.method_id == FERRULE_METHOD_ADD_THREAD);
	return add_thread(answer);
}

/* Looks at a kick, and returns the number of the doorbells that it is for. */
static uint32_t kicked(const struct ib_uverbs_ioctl_hdr *hdr)
{
	const struct ib_uverbs_attr *attr = hdr->attrs;

	CHECK(hdr->object_id == UVERBS_OBJECT_DEVICE);
	CHECK(hdr->driver_id == FERRULE_DRIVER_ID);
	CHECK(!hdr->reserved1 && !hdr->reserved2);
	if (hdr->method_id == FERRULE_METHOD_KICK) {
		CHECK(hdr->length == sizeof(*hdr) && !hdr->num_attrs);
		return 0;
	}
	CHECK(hdr->method_id == FERRULE_METHOD_KICK_DOORBELLS);
	CHECK(hdr->length == sizeof(*hdr) + sizeof(*attr));
	CHECK(hdr->num_attrs == 1 && attr->attr_id == FERRULE_ATTR_NUMBER);
	CHECK(attr->len == sizeof(uint32_t) && attr->data);
	CHECK(attr->flags == UVERBS_ATTR_F_MANDATORY);
	return attr->data;
}

/* The kick. glibc's own is hidden by this one. */
int ioctl(int fd, unsigned long request, ...)
{
	struct ib_uverbs_ioctl_hdr *hdr;
	va_list args;

	va_start(args, request);
	hdr = va_arg(args, struct ib_uverbs_ioctl_hdr *);
	va_end(args);

	CHECK(fd == fake.context->cmd_fd && request == RDMA_VERBS_IOCTL);
	__atomic_store_n(&fake.last_kick, kicked(hdr), __ATOMIC_RELAXED);
	__atomic_add_fetch(&fake.kicks, 1, __ATOMIC_RELAXED);
	if (fake.on_kick)
		fake.on_kick();
	return 0;
}

/* Counts. glibc's own is hidden by this one, too. */
int sched_yield(void)
{
	__atomic_add_fetch(&fake.yields, 1, __ATOMIC_RELAXED);
	return syscall(SYS_sched_yield);
}
