// SPDX-License-Identifier: GPL-2.0
/* The device of a test, commands, and events. */
#define _GNU_SOURCE
#include "../common.h"

#include <inttypes.h>
#include <poll.h>
#include <rdma/ib_user_verbs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

struct ibv_context *open_by_name(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;
	bool found = false;

	for (int i = 0; list && list[i]; i++) {
		if (strcmp(ibv_get_device_name(list[i]), name))
			continue;
		found = true;
		ctx = ibv_open_device(list[i]);
	}
	if (!found)
		FAIL("libibverbs knows no device %s", name);
	if (!ctx)
		FAIL("ibv_open_device(%s): %s", name, strerror(errno));
	ibv_free_device_list(list);
	return ctx;
}

uint64_t port_counter(const char *name)
{
	char path[128];
	uint64_t value;
	FILE *file;

	/* The core keeps the figures of hw_counters for 10 ms. */
	sleep_us(20000);
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/%s",
		 opt.device, name);
	file = fopen(path, "r");
	if (!file)
		FAIL("%s: %s", path, strerror(errno));
	REQUIRE_EQ(fscanf(file, "%" SCNu64, &value), 1);
	fclose(file);
	return value;
}

FILE *engine_file(void)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/kernel/debug/ferrule/%s/engine",
		 opt.device);
	return fopen(path, "r");
}

int shard_of(const struct ibv_qp *qp)
{
	FILE *file = engine_file();
	int shard = -1, found = -1;
	unsigned int number;
	char line[256];

	if (!file)
		return -1;
	while (found < 0 && fgets(line, sizeof(line), file)) {
		sscanf(line, "shard %d", &shard);
		if (sscanf(line, "qp %x", &number) == 1 &&
		    number == qp->qp_num)
			found = shard;
	}
	fclose(file);
	REQUIRE(found >= 0);
	return found;
}

static void choose_gid(struct device *d)
{
	static const uint8_t v4_mapped[12] = { [10] = 0xff, [11] = 0xff };

	d->gid_index = -1;
	for (int i = 0; i < d->port.gid_tbl_len; i++) {
		struct ibv_gid_entry entry;
		bool v4;

		if (ibv_query_gid_ex(d->ctx, 1, i, &entry, 0) ||
		    entry.gid_type != IBV_GID_TYPE_ROCE_V2)
			continue;
		v4 = !memcmp(entry.gid.raw, v4_mapped, sizeof(v4_mapped));
		if (d->gid_index >= 0 && !v4)
			continue;
		d->gid_index = i;
		d->gid = entry.gid;
		if (v4)
			return;
	}
	if (d->gid_index < 0)
		FAIL("%s has no RoCEv2 GID", opt.device);
}

void device_open(struct device *d)
{
	d->ctx = open_by_name(opt.device);
	REQUIRE_ERRNO(ibv_query_device(d->ctx, &d->attr), 0);
	REQUIRE_ERRNO(ibv_query_port(d->ctx, 1, &d->port), 0);
	choose_gid(d);
	d->pd = ibv_alloc_pd(d->ctx);
	if (!d->pd)
		FAIL("ibv_alloc_pd: %s", strerror(errno));
}

void device_close(struct device *d)
{
	REQUIRE_ERRNO(ibv_dealloc_pd(d->pd), 0);
	REQUIRE_ERRNO(ibv_close_device(d->ctx), 0);
}

struct device device_other_pd(const struct device *d)
{
	struct device other = *d;

	other.pd = ibv_alloc_pd(d->ctx);
	REQUIRE(other.pd);
	return other;
}

void device_free_pd(struct device *other)
{
	REQUIRE_ERRNO(ibv_dealloc_pd(other->pd), 0);
}

int uverbs_command(int fd, uint32_t number, void *cmd, size_t in, void *resp,
		   size_t out)
{
	uint8_t buf[512];
	struct ib_uverbs_cmd_hdr hdr = {
		.command = number,
		.in_words = (sizeof(hdr) + in) / 4,
		.out_words = out / 4,
	};

	/* Commands that answer begin with the place for the answer. */
	if (resp)
		memcpy(cmd, &(uint64_t){ (uintptr_t)resp }, sizeof(uint64_t));
	REQUIRE(sizeof(hdr) + in <= sizeof(buf));
	memcpy(buf, &hdr, sizeof(hdr));
	memcpy(buf + sizeof(hdr), cmd, in);
	return write(fd, buf, sizeof(hdr) + in) < 0 ? errno : 0;
}

int run_command(const char *fmt, ...)
{
	char command[512];
	va_list args;
	int status;

	va_start(args, fmt);
	vsnprintf(command, sizeof(command), fmt, args);
	va_end(args);
	status = system(command);
	if (status == -1 || !WIFEXITED(status))
		FAIL("could not run: %s", command);
	return WEXITSTATUS(status);
}

bool next_async(struct ibv_context *ctx, struct ibv_async_event *event, int ms)
{
	struct pollfd p = { .fd = ctx->async_fd, .events = POLLIN };

	if (poll(&p, 1, ms) != 1)
		return false;
	if (ibv_get_async_event(ctx, event))
		FAIL("ibv_get_async_event: %s", strerror(errno));
	ibv_ack_async_event(event);
	return true;
}

void expect_async(struct ibv_context *ctx, enum ibv_event_type type,
		  const void *element)
{
	struct ibv_async_event event;

	if (!next_async(ctx, &event, PATIENCE_US / 1000))
		FAIL("no asynchronous event, expected '%s'",
		     ibv_event_type_str(type));
	if (event.event_type != type)
		FAIL("asynchronous event '%s', expected '%s'",
		     ibv_event_type_str(event.event_type),
		     ibv_event_type_str(type));
	/* The union's members are all pointers. */
	if (element && (const void *)event.element.qp != element)
		FAIL("asynchronous event '%s' is for another object",
		     ibv_event_type_str(type));
}

void expect_no_async(struct ibv_context *ctx)
{
	struct ibv_async_event event;

	if (next_async(ctx, &event, 50 * opt.slow))
		FAIL("unexpected asynchronous event '%s'",
		     ibv_event_type_str(event.event_type));
}
