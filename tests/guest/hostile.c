// SPDX-License-Identifier: GPL-2.0
/*
 * Programs that mean harm, with all that the device file and the mapped rings
 * give them. Each round is a process of its own that makes one attack and ends
 * by itself, by a signal of its own making, or is killed in the middle. Beside
 * all rounds lives a neighbour that checks its own data.
 *
 * An attack may do to its own process whatever it likes. It fails the case if
 * it is granted what it must not be.
 */
#define _GNU_SOURCE
#include "hostile/hostile.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Rounds ---- */

static const struct attack {
	const char *name;
	void (*run)(struct hostile *);
} attacks[] = {
	{ "requests", attack_requests },
	{ "garbage", attack_garbage },
	{ "jumps", attack_jumps },
	{ "changes", attack_changes },
	{ "doorbells", attack_doorbells },
	{ "arming", attack_arming },
	{ "keys", attack_keys },
	{ "stranger", attack_stranger },
	{ "handles", attack_handles },
	{ "commands", attack_commands },
	{ "mappings", attack_mappings },
	{ "fork", attack_fork },
	{ "poke", attack_poke },
	{ "ring_regions", attack_ring_regions },
	{ "regions", attack_regions },
	{ "paging", attack_paging },
	{ "bulk", attack_bulk },
	{ "privileges", attack_privileges },
	{ "memlock", attack_memlock },
	{ "xrc", attack_xrc },
	{ "device_memory", attack_device_memory },
	{ "buffers", attack_buffers },
	{ "resize", attack_resize },
	{ "frames", attack_frames },
};

struct round {
	unsigned long number;
	const struct attack *attack;
	const struct neighbour *n;
	bool *attacks;			/* shared: it has come to that */
};

/* Faults in its own memory are no news, and none for the kernel's log. */
static void end_quietly(int sig)
{
	(void)sig;
	_exit(0);
}

static void round_main(void *arg)
{
	struct round *r = arg;
	struct hostile h = {
		.n = r->n,
		.random = 0x9e3779b97f4a7c15ull * (r->number + 1),
	};

	hostile_make(&h);
	signal(SIGSEGV, end_quietly);
	signal(SIGBUS, end_quietly);
	*r->attacks = true;
	r->attack->run(&h);
	/* It leaves nothing in order. */
	_exit(0);
}

/* A process that dies of what it did to itself has not failed. */
static void await_end(pid_t pid, const struct round *r)
{
	uint64_t end = now_us() + PATIENCE_US;
	int status;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (now_us() > end)
			FAIL("round %lu, %s: the process does not end",
			     r->number, r->attack->name);
		sleep_us(1000);
	}
	if (WIFEXITED(status) && WEXITSTATUS(status))
		FAIL("round %lu, %s: exit status %d", r->number,
		     r->attack->name, WEXITSTATUS(status));
}

static void rounds(void)
{
	struct neighbour *n = neighbour_start();
	unsigned long count = opt.rounds ?: ARRAY_SIZE(attacks);
	struct round r = { .n = n, .attacks = shared_map(sizeof(bool)) };
	uint64_t random = 1;

	for (unsigned long i = 0; i < count; i++) {
		bool is_killed;
		pid_t pid;

		r.number = i;
		r.attack = &attacks[i % ARRAY_SIZE(attacks)];
		*r.attacks = false;
		pid = fork_process(round_main, &r);
		test_note("round %lu: %s", i, r.attack->name);
		/* One of three is killed, wherever it is by then. */
		random = random * 6364136223846793005ull + 1442695040888963407;
		is_killed = (random >> 33) % 3 == 0;
		if (is_killed) {
			sleep_us((random >> 40) % (4 * ATTACK_US));
			kill(pid, SIGKILL);
		}
		await_end(pid, &r);
		REQUIRE(is_killed || *r.attacks);
		neighbour_await(n, 2);
	}
	shared_unmap(r.attacks, sizeof(bool));
	neighbour_stop(n);
}

/* ---- A program without memory ---- */

#define LIMITED "/sys/fs/cgroup/hostile_limited"

static void make_queue_pairs(void *arg)
{
	struct end_config c = { .send_wr = 16, .recv_wr = 16 };
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .cap = { 16, 16, 1, 1, 0 }
	};
	unsigned int n = 0;
	struct device d;
	struct end e;

	(void)arg;
	REQUIRE_EQ(run_command("echo %d > " LIMITED "/cgroup.procs", getpid()),
		   0);
	device_open(&d);
	end_make(&e, &d, &c);
	end_to_state(&e, IBV_QPS_RTS);
	init.send_cq = init.recv_cq = e.scq;
	errno = 0;
	while (ibv_create_qp(d.pd, &init))
		if (++n > 20000)
			FAIL("the limit is enough for %u queue pairs", n);
	test_note("after %u queue pairs: %s", n, strerror(errno));
	REQUIRE_EQ(errno, ENOMEM);
	/* Its objects go on working. */
	EXPECT_NO_WC(e.scq);
	end_to_state(&e, IBV_QPS_RESET);
}

/* Its objects are charged to its control group, and end there. */
static void queue_pairs(void)
{
	struct neighbour *n = neighbour_start();
	unsigned int limit = (opt.slow > 1 ? 4 : 16) << 20;
	int status;
	pid_t pid;

	if (run_command("mkdir " LIMITED " && echo %u >" LIMITED "/memory.max",
			limit))
		test_skip("the kernel has no control groups for memory");
	pid = fork_process(make_queue_pairs, NULL);
	REQUIRE_EQ(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status))
		test_note("it was ended: %s", strsignal(WTERMSIG(status)));
	REQUIRE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
	REQUIRE_EQ(run_command("peak=$(cat " LIMITED "/memory.peak) && "
			       "[ $peak -gt %u -a $peak -le %u ]",
			       limit / 4 * 3, limit), 0);
	neighbour_await(n, 100);
	neighbour_stop(n);
	/* Pages of a dead process may be given back a little later. */
	for (int i = 0; run_command("rmdir " LIMITED " 2>/dev/null"); i++) {
		REQUIRE(i < 100);
		sleep_us(100000);
	}
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "rounds", rounds, 120 },
		{ "queue_pairs", queue_pairs },
		{ }
	};

	return test_main(argc, argv, cases);
}
