// SPDX-License-Identifier: GPL-2.0
/*
 * The device goes away under programs that use it: by `rdma link delete`,
 * because its netdev does, or because a PCI function loses its driver. Nobody
 * blocks: the removal does not wait for the programs, and their work ends with
 * flush errors; then posting answers EIO, and everything can be closed.
 */
#define _GNU_SOURCE
#include "programs.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void use(struct own_device *own)
{
	own_device_make(own, 0, 9000);
	opt.device = own->device;
}

static void timed_delete(const struct own_device *own)
{
	uint64_t begin = now_us();

	own_device_delete(own);
	in_time("the removal of the device", begin);
}

static void remove_under(void (*run)(struct program *))
{
	struct own_device own;
	struct program p;

	use(&own);
	program_start(&p, run);
	timed_delete(&own);
	program_join(&p);
	own_device_clean(&own);
}

static void while_polling(void)
{
	remove_under(polling_program);
}

static void while_sleeping(void)
{
	remove_under(sleeping_program);
}

static void while_idle(void)
{
	remove_under(idle_program);
}

static void while_making_objects(void)
{
	remove_under(busy_program);
}

static void under_many_programs(void)
{
	struct program p[MANY_PROGRAMS];
	struct own_device own;

	use(&own);
	programs_start(p);
	timed_delete(&own);
	programs_join(p);
	own_device_clean(&own);
}

/* The netdev is taken away: the device goes with it. */
static void netdev_deleted(void)
{
	struct own_device own;
	struct program p;

	use(&own);
	if (own.function[0])
		test_skip("a PCI function is not its netdev's, and stays");
	program_start(&p, polling_program);
	timed_command("ip link delete", own.netdev);
	wait_for_device(false);
	program_join(&p);
}

/*
 * The same name again while a program of the old device is still alive: it is
 * another device, and works.
 */
static void name_used_again(void)
{
	struct own_device own, again;
	struct loopback s;

	use(&own);
	loopback_make(&s);
	timed_delete(&own);
	expect_flush(&s, 0, 0, false);
	own_device_make(&again, 0, 9000);
	expect_round_trip();
	expect_post_eio(&s);
	close_all(&s);
	own_device_remove(&again);
}

/* A program that is killed in the middle of traffic leaves nothing behind. */
static void program_killed(void)
{
	struct own_device own;

	use(&own);
	for (int i = 0; i < 5; i++) {
		struct program p;
		int status;

		program_start(&p, polling_program);
		REQUIRE_EQ(kill(p.pid, SIGKILL), 0);
		REQUIRE_EQ(waitpid(p.pid, &status, 0), p.pid);
		close(p.ready[0]);
	}
	REQUIRE_EQ(run_command("found=$(rdma resource show qp link %s/1) && "
			       "! echo \"$found\" | grep 'pid '",
			       own.device), 0);
	timed_delete(&own);
	own_device_clean(&own);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "while_polling", while_polling },
		{ "while_sleeping", while_sleeping },
		{ "while_idle", while_idle },
		{ "while_making_objects", while_making_objects, 60 },
		{ "under_many_programs", under_many_programs, 60 },
		{ "netdev_deleted", netdev_deleted },
		{ "name_used_again", name_used_again },
		{ "program_killed", program_killed },
		{ }
	};

	return test_main(argc, argv, cases);
}
