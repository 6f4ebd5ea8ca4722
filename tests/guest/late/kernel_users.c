// SPDX-License-Identifier: GPL-2.0
/* Beside kernel users, whose requests the engine carries out in softirqs. */
#include "late.h"

enum {
	USERS = 2,
	/* How long they write: longer than is measured. */
	WRITE_MS = 3000,
	MOST_NS = 25000,
};

struct users {
	unsigned int bytes;
	bool are_there;
};

static void rest(void *arg)
{
	struct users *u = arg;

	if (!u->are_there) {
		u->are_there = true;
		REQUIRE_EQ(run_command("/run/lab/load /ferrule/module/ferrule_user.ko device=%s streams=%d bytes=%u ms=%d > /dev/null &",
				       opt.device, USERS, u->bytes, WRITE_MS), 0);
	}
	sleep_us(REST_US);
}

static void kernel_users(unsigned int bytes)
{
	struct users u = { .bytes = bytes };

	REQUIRE_EQ(run_command("dmesg -C"), 0);
	judge(system_calls, rest, &u, MOST_NS);
	REQUIRE_EQ(run_command("until rmmod ferrule_user 2> /dev/null; do sleep 0.1; done"), 0);
	/* They have been there. */
	REQUIRE_EQ(run_command("dmesg | grep -q 'ferrule_user: [1-9][0-9]* messages'"), 0);
}

#define KERNEL_USERS(n) void kernel_users_##n(void) { kernel_users(n); }
KERNEL_USERS(8)
KERNEL_USERS(4096)
KERNEL_USERS(65536)
