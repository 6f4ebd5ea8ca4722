// SPDX-License-Identifier: GPL-2.0
/*
 * What a process can reach: the mappings of the rings and their rights, what
 * a child inherits, what another process's mapping offsets are worth, how much
 * memory an unprivileged user may pin, how many objects a control group has.
 */
#include "isolation/isolation.h"

int main(int argc, char **argv)
{
	static const struct test_case *const tables[] = {
		mapping_cases,
		pinned_cases,
		group_cases,
		NULL,
	};

	return test_main_of(argc, argv, tables);
}
