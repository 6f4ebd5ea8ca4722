// SPDX-License-Identifier: GPL-2.0
/*
 * The reach of a process: the mappings of the rings and their rights, a child's
 * mappings, the mapping offsets of another process, the memory that an
 * unprivileged user may pin, the objects of a control group.
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
