// SPDX-License-Identifier: GPL-2.0
/*
 * Programs that use a device until somebody outside of the guest takes it away.
 * It says when they are at work, and passes when all of them have ended well.
 */
#define _GNU_SOURCE
#include "programs.h"

static void until_gone(void)
{
	struct program p[MANY_PROGRAMS];

	programs_start(p);
	test_note("at work");
	programs_join(p);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "until_gone", until_gone, 60 },
		{ }
	};

	return test_main(argc, argv, cases);
}
