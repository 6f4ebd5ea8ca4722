// SPDX-License-Identifier: GPL-2.0
/* Attacks of a process on its own mappings, and on those of others. */
#define _GNU_SOURCE
#include "hostile.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static void *storm_kicks(void *arg)
{
	struct hostile own = *(struct hostile *)arg, *h = &own;

	while (on(h))
		raw_kick(&h->raw);
	return NULL;
}

static void play_with(struct hostile *h, struct mapping *m)
{
	void *at = (void *)m->begin;
	size_t len = m->end - m->begin;

	switch (below(h, 6)) {
	case 0:
		munmap((char *)at + below(h, len / PAGE) * PAGE, PAGE);
		break;
	case 1:
		mremap(at, len, below(h, 2) ? len : 2 * len, MREMAP_MAYMOVE);
		break;
	case 2:
		mprotect((char *)at + below(h, len / PAGE) * PAGE, PAGE,
			 below(h, 8));
		break;
	case 3:
		mmap(at, PAGE, PROT_READ | PROT_WRITE,
		     MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		break;
	case 4:
		mlock(at, len);
		munlock(at, PAGE);
		break;
	default:
		/* All there is below those that need a privilege. */
		madvise(at, len, below(h, 26));
		break;
	}
}

/* The kernel goes on with pages that the program has not any more. */
void attack_mappings(struct hostile *h)
{
	pthread_t thread;

	REQUIRE_EQ(pthread_create(&thread, NULL, storm_kicks, h), 0);
	while (on(h)) {
		send_with_nonsense(h, h->a.sq);
		h->a.ctrl->sq_producer++;
		raw_ring(&h->raw, h->a.e.qp->qp_num);
		/* Most processes die soon after of what they have done. */
		play_with(h, &h->map[below(h, h->maps)]);
	}
	pthread_join(thread, NULL);
}

/* A child with the same file, while its parent works, and one that execs. */
void attack_fork(struct hostile *h)
{
	struct ibv_sge sge = sge_of(&h->r, 0, 100);

	while (on(h)) {
		pid_t pid = fork();

		if (pid == 0) {
			for (unsigned int i = 0; i < h->maps; i++)
				mmap(NULL, h->map[i].end - h->map[i].begin,
				     PROT_READ, MAP_SHARED, h->d.ctx->cmd_fd,
				     h->map[i].offset);
			raw_kick(&h->raw);
			if (below(h, 2))
				execl("/bin/true", "true", NULL);
			/* The provider's words are gone: this may crash. */
			try_recv(&h->b.e, 1, &sge, 1);
			_exit(0);
		}
		send_region(&h->a.e, 1, &h->r, 0, 100);
		connect_prey(h);
		if (pid > 0)
			waitpid(pid, NULL, 0);
	}
	execl("/bin/true", "true", NULL);
}

/* Another process's pages, through ptrace and through /proc. */
void attack_poke(struct hostile *h)
{
	struct hostile other = { .n = h->n, .random = h->random };
	int status, mem, pipes[2];
	char path[32], byte = 1;
	pid_t pid;

	REQUIRE_EQ(pipe(pipes), 0);
	pid = fork();
	if (pid == 0) {
		/* It has rings of its own, as a child inherits none. */
		hostile_make(&other);
		put_bytes(pipes[1], &other, sizeof(other));
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		_exit(0);
	}
	get_bytes(pipes[0], &other, sizeof(other));
	REQUIRE_EQ(waitpid(pid, &status, 0), pid);
	REQUIRE(WIFSTOPPED(status));
	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	mem = open(path, O_RDWR);
	REQUIRE(mem >= 0);
	for (unsigned int i = 0; i < other.maps; i++) {
		struct mapping *m = &other.map[i];

		for (uintptr_t at = m->begin; at < m->end; at += PAGE) {
			if (!ptrace(PTRACE_POKEDATA, pid, at, rnd(h)) &&
			    !mapping_writable(m))
				FAIL("ptrace wrote to a read-only ring");
			if (pwrite(mem, &byte, 1, at) == 1 &&
			    !mapping_writable(m))
				FAIL("/proc wrote to a read-only ring");
		}
	}
	close(mem);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
