// SPDX-License-Identifier: GPL-2.0
/*
 * Failures of allocations and of copies from and to user space, one at a time
 * (Linux, Documentation/fault-injection: fail-nth).
 */
#define _GNU_SOURCE
#include "fail_nth.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int nth_fd = -1;

static void set_file(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, value, strlen(value)) < 0)
		FAIL("%s: %s", path, strerror(errno));
	close(fd);
}

/*
 * kmemleak allocates beside each allocation, and does without when it cannot:
 * half of all failures would be for nothing. So its function is left out; this
 * is where it starts and ends.
 */
static void kmemleak_range(char *start, char *end, size_t len)
{
	FILE *symbols = fopen("/proc/kallsyms", "r");
	unsigned long address, first = 0;
	char line[256], name[128], type;

	REQUIRE(symbols);
	while (fgets(line, sizeof(line), symbols)) {
		if (sscanf(line, "%lx %c %127s", &address, &type, name) != 3)
			continue;
		/* The lines are sorted by address. */
		if (first && address > first)
			break;
		if (!strcmp(name, "__alloc_object"))
			first = address;
	}
	fclose(symbols);
	REQUIRE(first && address > first);
	snprintf(start, len, "%#lx", first);
	snprintf(end, len, "%#lx", address);
}

void injection_begin(void)
{
	static const char *const faults[] = { "failslab", "fail_page_alloc" };
	char start[32], end[32];

	nth_fd = open("/proc/thread-self/fail-nth", O_RDWR);
	if (nth_fd < 0)
		test_skip("this kernel has no fault injection");
	kmemleak_range(start, end, sizeof(start));
	for (unsigned int i = 0; i < ARRAY_SIZE(faults); i++) {
		char path[128];

		snprintf(path, sizeof(path), "/sys/kernel/debug/%s", faults[i]);
		if (access(path, F_OK))
			test_skip("this kernel has no %s", faults[i]);
		snprintf(path, sizeof(path),
			 "/sys/kernel/debug/%s/ignore-gfp-wait", faults[i]);
		set_file(path, "N");
		/* No stack trace for each of thousands. */
		snprintf(path, sizeof(path), "/sys/kernel/debug/%s/verbose",
			 faults[i]);
		set_file(path, "0");
		snprintf(path, sizeof(path),
			 "/sys/kernel/debug/%s/reject-start", faults[i]);
		set_file(path, start);
		snprintf(path, sizeof(path),
			 "/sys/kernel/debug/%s/reject-end", faults[i]);
		set_file(path, end);
	}
	set_file("/sys/kernel/debug/fail_page_alloc/min-order", "0");
	set_file("/sys/kernel/debug/fail_usercopy/verbose", "0");
}

/*
 * Where copies fail as well, the one that disarms may be the one to fail: the
 * injection is used up then, and the second try works.
 */
void arm(unsigned int n)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%u", n);

	if (pwrite(nth_fd, text, len, 0) != len &&
	    (errno != EFAULT || pwrite(nth_fd, text, len, 0) != len))
		FAIL("fail-nth: %s", strerror(errno));
}

bool disarm(void)
{
	char text[16] = "";
	ssize_t n = pread(nth_fd, text, sizeof(text) - 1, 0);

	if (n < 0 && errno == EFAULT)
		return false;
	if (n <= 0)
		FAIL("fail-nth: %s", strerror(errno));
	arm(0);
	return atoi(text) == 0;
}

/*
 * An errno value that a failed allocation or copy may come out as; the look-up
 * of a route turns ENOMEM into ENOBUFS.
 */
bool expected_error(int error)
{
	return error == ENOMEM || error == EFAULT || error == ENOBUFS;
}
