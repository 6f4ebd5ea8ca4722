// SPDX-License-Identifier: GPL-2.0
/* The control group that pays for the memory of faults. */
#define _GNU_SOURCE
#include "odp.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define GROUP "/sys/fs/cgroup/odp"

/* The bytes for which one chunk of a region's table stands, and a page of a program's tables. */
#define CHUNK (512 * PAGE)
#define CHUNKS 256ul

/* The bytes of kernel memory that the group is charged for. */
static long kernel_memory(void)
{
	FILE *file = fopen(GROUP "/memory.stat", "r");
	long bytes = 0;
	char line[128];

	REQUIRE(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "kernel %ld", &bytes) == 1)
			break;
	fclose(file);
	return bytes;
}

static void prefetch_in_group(void *arg)
{
	/* A chunk and a page of the program's tables for each, but for the first and the last. */
	const long wanted = 2 * (CHUNKS - 1) * PAGE;
	long before, more = 0;
	struct ibv_sge sge;
	struct ibv_mr *mr;
	struct device d;
	uint64_t end;
	void *map;

	(void)arg;
	REQUIRE_EQ(run_command("echo %d > " GROUP "/cgroup.procs", getpid()), 0);
	map = mmap(NULL, CHUNKS * CHUNK, PROT_READ,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	REQUIRE(map != MAP_FAILED);
	/* A kernel without huge pages, as with PREEMPT_RT, does not know the advice. */
	REQUIRE(madvise(map, CHUNKS * CHUNK, MADV_NOHUGEPAGE) == 0 || errno == EINVAL);
	device_open(&d);
	mr = reg(&d, map, CHUNKS * CHUNK, IBV_ACCESS_REMOTE_READ);
	before = kernel_memory();
	sge = (struct ibv_sge){ (uintptr_t)map, CHUNKS * CHUNK, mr->lkey };
	REQUIRE_ERRNO(ibv_advise_mr(d.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), 0);
	for (end = now_us() + PATIENCE_US; more < wanted && now_us() < end;) {
		sleep_us(10000);
		more = kernel_memory() - before;
	}
	test_note("%ld kB of kernel memory for %lu MB", more >> 10, CHUNKS * CHUNK >> 20);
	REQUIRE(more >= wanted);
	REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);
	device_close(&d);
}

/* Faults that no thread of the program waits for are charged to its control group, as all others. */
void charged(void)
{
	run_command("echo +memory > /sys/fs/cgroup/cgroup.subtree_control");
	if (run_command("mkdir -p " GROUP " && [ -e " GROUP "/memory.stat ]"))
		test_skip("the kernel has no control groups for memory");
	join_process(fork_process(prefetch_in_group, NULL));
	/* Pages of a dead process may be given back a little later. */
	for (int i = 0; run_command("rmdir " GROUP " 2>/dev/null"); i++) {
		REQUIRE(i < 100);
		sleep_us(100000);
	}
}
