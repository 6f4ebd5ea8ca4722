// SPDX-License-Identifier: GPL-2.0
/* One call of ibv_advise_mr(3) that would take minutes: nobody waits for it. */
#define _GNU_SOURCE
#include "odp.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* As many ranges as a call can have, each as long as it can be. */
enum { RANGES = 65535 / sizeof(struct ibv_sge) };
#define LENGTH ((1ul << 32) - PAGE)

/* Takes the same pages again and again, until the device goes. */
static void prefetch_for_minutes(void *arg)
{
	static struct ibv_sge sges[RANGES];
	const int *ready = arg;
	struct ibv_mr *mr;
	struct device d;
	void *map;

	/* It is only read, so all pages are the page of zeroes. */
	map = mmap(NULL, LENGTH, PROT_READ,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	REQUIRE(map != MAP_FAILED);
	device_open(&d);
	mr = reg(&d, map, LENGTH, IBV_ACCESS_REMOTE_READ);
	for (size_t i = 0; i < RANGES; i++)
		sges[i] = (struct ibv_sge){ (uintptr_t)map, LENGTH, mr->lkey };
	put_bytes(ready[1], "", 1);
	REQUIRE_ERRNO(ibv_advise_mr(d.pd, IBV_ADVISE_MR_ADVICE_PREFETCH,
				    IBV_ADVISE_MR_FLAG_FLUSH, sges, RANGES),
		      EIO);
}

static pid_t start(void)
{
	int ready[2];
	pid_t pid;
	char byte;

	REQUIRE_EQ(pipe(ready), 0);
	pid = fork_process(prefetch_for_minutes, ready);
	get_bytes(ready[0], &byte, 1);
	sleep_us(500000);
	REQUIRE_EQ(waitpid(pid, NULL, WNOHANG), 0);
	return pid;
}

void long_prefetch_killed(void)
{
	pid_t pid = start();
	uint64_t end = now_us() + PATIENCE_US;

	REQUIRE_EQ(kill(pid, SIGKILL), 0);
	while (!waitpid(pid, NULL, WNOHANG)) {
		REQUIRE(now_us() < end);
		sleep_us(10000);
	}
}

/* The removal of a device waits for its commands, so this one ends. */
void long_prefetch_removed(void)
{
	struct own_device own;
	pid_t pid;

	own_device_make(&own, 0, 1500);
	opt.device = own.device;
	pid = start();
	own_device_delete(&own);
	join_process(pid);
	own_device_clean(&own);
}
