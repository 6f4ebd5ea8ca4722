// SPDX-License-Identifier: GPL-2.0
/*
 * Each allocation of each verb fails in turn, and each copy from and to user
 * space. The caller gets ENOMEM or EFAULT, or success where it could be done
 * without; nothing is half made: the same call works afterwards, and the
 * device's objects, the memory that it shares, and the process's pinned pages
 * are as many as before.
 *
 * With --rounds N only every N-th allocation of a device that comes, by
 * `rdma link add` or by the probe of a PCI function, which has very many, is
 * made to fail.
 */
#define _GNU_SOURCE
#include "fail_nth/fail_nth.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 5000 };

/* ---- What must be as before ---- */

/*
 * The objects that the engine counts, unless it is outside of the guest, and
 * the pages that programs share with the driver. All other memory of the driver
 * is what kmemleak looks after.
 */
static void resources(char *text, size_t len)
{
	unsigned int areas = 0, pages = 0, more;
	char line[512], module[32];
	bool objects = false;
	size_t have = 0;
	FILE *file;

	file = engine_file();
	REQUIRE(file || has_function());
	while (file && fgets(line, sizeof(line), file)) {
		objects |= !strncmp(line, "Objects", 7);
		if (objects)
			have += snprintf(text + have, len - have, "%s", line);
		objects &= line[0] != '}';
		REQUIRE(have < len);
	}
	if (file)
		fclose(file);

	file = fopen("/proc/vmallocinfo", "r");
	REQUIRE(file);
	snprintf(module, sizeof(module), "[%s]", opt.type);
	while (fgets(line, sizeof(line), file)) {
		const char *number = strstr(line, " pages=");

		if (!strstr(line, module) || !number)
			continue;
		REQUIRE_EQ(sscanf(number, " pages=%u", &more), 1);
		areas++;
		pages += more;
	}
	fclose(file);
	REQUIRE((areas && have) || has_function());
	have += snprintf(text + have, len - have, "%u areas of %u pages",
			 areas, pages);
	REQUIRE(have < len);
}

/* The objects that the core counts; this takes its time. */
static void core_objects(char *text, size_t len)
{
	char command[128];
	FILE *pipe;
	size_t n;

	snprintf(command, sizeof(command), "rdma resource show %s", opt.device);
	pipe = popen(command, "r");
	REQUIRE(pipe);
	n = fread(text, 1, len - 1, pipe);
	text[n] = 0;
	REQUIRE_EQ(pclose(pipe), 0);
}

/* ---- The verbs ---- */

/* Of all verbs of the case: failures that were injected, and calls refused. */
static unsigned int failures, refusals;

static void try_verb(const struct verb *v)
{
	unsigned int n, refused = 0;
	char before[1024], after[1024];
	long pinned = pinned_kib();

	resources(before, sizeof(before));
	for (n = 1; n < MOST; n++) {
		bool injected;
		int ret;

		if (v->prepare)
			v->prepare();
		arm(n);
		ret = v->do_it();
		injected = disarm();
		if (ret && !injected)
			FAIL("%s: %s, and nothing had failed", v->name,
			     strerror(ret));
		if (ret && !expected_error(ret))
			FAIL("%s: %s, when allocation %u failed", v->name,
			     strerror(ret), n);
		if (ret) {
			refused++;
			REQUIRE_EQ(pinned_kib(), pinned);
		} else if (v->undo) {
			v->undo();
		}
		if (!injected)
			break;
	}
	REQUIRE(n < MOST);
	REQUIRE_EQ(pinned_kib(), pinned);
	resources(after, sizeof(after));
	if (strcmp(before, after))
		FAIL("%s: before: %s, and after: %s", v->name, before, after);
	failures += n - 1;
	refusals += refused;
	test_note("%s: %u allocations, %u of them refused the call", v->name,
		  n - 1, refused);
}

static void try_verbs(const struct verb *table)
{
	for (const struct verb *v = table; v->name; v++)
		try_verb(v);
}

static void each_verb(void)
{
	static const struct verb *const tables[] = {
		object_verbs, change_verbs, query_verbs, traffic_verbs,
		sharing_verbs, thread_verbs,
	};
	char before[1024], after[1024];

	injection_begin();
	stage_make();
	core_objects(before, sizeof(before));
	for (unsigned int i = 0; i < ARRAY_SIZE(tables); i++)
		try_verbs(tables[i]);
	if (stage_has_paging())
		try_verbs(paging_verbs);
	if (stage_has_raw_packets())
		try_verbs(raw_packet_verbs);
	REQUIRE(failures && refusals);
	core_objects(after, sizeof(after));
	if (strcmp(before, after))
		FAIL("before: %s, and after: %s", before, after);
	stage_free();
}

/* Destroying either works or, for want of memory, can be done again. */
static void try_destroying(const struct destroyed *d)
{
	unsigned int n;

	for (n = 1; n < MOST; n++) {
		bool injected;
		void *object;
		int ret;

		REQUIRE_ERRNO(d->make(), 0);
		object = stage_made();
		arm(n);
		ret = d->destroy(object);
		injected = disarm();
		if (ret && (!expected_error(ret) || !injected))
			FAIL("%s: %s, when allocation %u failed",
			     d->name, strerror(ret), n);
		/* The answer may be what could not be copied. */
		if (ret) {
			int again = d->destroy(object);

			REQUIRE(!again || (again == ENOENT && ret == EFAULT));
			refusals++;
		}
		if (!injected)
			break;
	}
	REQUIRE(n < MOST);
	failures += n - 1;
}

static void try_to_destroy(const struct destroyed *table)
{
	for (const struct destroyed *d = table; d->name; d++)
		try_destroying(d);
}

static void destroy_again(void)
{
	char before[1024], after[1024];

	injection_begin();
	stage_make();
	resources(before, sizeof(before));
	try_to_destroy(destroyed);
	try_to_destroy(sharing_destroyed);
	if (stage_has_paging())
		try_to_destroy(paging_destroyed);
	if (stage_has_raw_packets())
		try_to_destroy(raw_packet_destroyed);
	test_note("%u allocations, %u of them refused the call", failures,
		  refusals);
	REQUIRE(failures && refusals);
	resources(after, sizeof(after));
	if (strcmp(before, after))
		FAIL("before: %s, and after: %s", before, after);
	stage_free();
}

/* ---- A device that comes ---- */

static void *put_text(void *at, uint16_t type, const char *text)
{
	struct nlattr *attr = at;

	attr->nla_type = type;
	attr->nla_len = NLA_HDRLEN + strlen(text) + 1;
	strcpy((char *)at + NLA_HDRLEN, text);
	return (char *)at + NLA_ALIGN(attr->nla_len);
}

/*
 * Adds a link as `rdma link add` does, but in this program: an injection does
 * not pass to another one.
 */
static int link_add(int fd, const char *device, const char *netdev)
{
	union {
		struct nlmsghdr head;
		char bytes[512];
	} message = {
		.head = {
			.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV,
						       RDMA_NLDEV_CMD_NEWLINK),
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK,
		},
	};
	void *end = message.bytes + NLMSG_HDRLEN;
	char answer[1024];
	ssize_t n;

	end = put_text(end, RDMA_NLDEV_ATTR_DEV_NAME, device);
	end = put_text(end, RDMA_NLDEV_ATTR_LINK_TYPE, opt.type);
	end = put_text(end, RDMA_NLDEV_ATTR_NDEV_NAME, netdev);
	message.head.nlmsg_len = (char *)end - message.bytes;
	if (send(fd, &message, message.head.nlmsg_len, 0) < 0)
		return errno;
	/* The answer's own allocation may be the one that fails. */
	n = recv(fd, answer, sizeof(answer), MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN ? ENOMEM : errno;
	return -((struct nlmsgerr *)NLMSG_DATA(answer))->error;
}

/* For messages to the core, or for names of functions to be probed. */
static int open_for(const struct own_device *own)
{
	int fd;

	if (own->function[0])
		fd = open("/sys/bus/pci/drivers/ferrule/bind", O_WRONLY);
	else
		fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_RDMA);
	REQUIRE(fd >= 0);
	return fd;
}

static int add(int fd, const struct own_device *own)
{
	const char *function = own->function;

	if (!function[0])
		return link_add(fd, own->device, own->netdev);
	return pwrite(fd, function, strlen(function), 0) < 0 ? errno : 0;
}

static void each_new_device(void)
{
	unsigned int n, step = opt.rounds ?: 1, refused = 0;
	struct own_device own;
	int fd;

	injection_begin();
	own_device_make(&own, 0, 9000);
	own_device_delete(&own);
	fd = open_for(&own);
	for (n = 1; n < 20 * MOST; n += step) {
		char path[128];
		struct stat info;
		bool injected;
		int ret;

		arm(n);
		ret = add(fd, &own);
		injected = disarm();
		snprintf(path, sizeof(path), "/sys/class/infiniband/%s",
			 own.device);
		if (ret && !injected)
			FAIL("a new device: %s, and nothing had failed",
			     strerror(ret));
		if (ret && !expected_error(ret))
			FAIL("a new device: %s, when allocation %u failed",
			     strerror(ret), n);
		refused += ret != 0;
		/* Only the answer may have got lost. */
		if (stat(path, &info) == 0)
			own_device_delete(&own);
		else
			REQUIRE(ret);
		if (!injected)
			break;
	}
	test_note("a new device: %u allocations, each %u. tried, %u refused it",
		  n, step, refused);
	REQUIRE(n > 1 && refused);
	close(fd);
	/* After all that it works. */
	own_device_make(&own, 0, 9000);
	own_device_remove(&own);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "each_verb", each_verb, 200 },
		{ "destroy_again", destroy_again, 60 },
		{ "each_new_device", each_new_device, 300 },
		{ }
	};

	return test_main(argc, argv, cases);
}
