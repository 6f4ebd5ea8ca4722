// SPDX-License-Identifier: GPL-2.0
/* Cases and their TAP lines, processes, time. */
#define _GNU_SOURCE
#include "../common.h"

#include <getopt.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct test_options opt = { .slow = 1 };

/* Memory by which the processes of a case tell the program. */
static struct {
	volatile bool failed;
	volatile bool skipped;
	char reason[256];
} *verdict;

static void print_line(const char *prefix, const char *fmt, va_list args)
{
	char line[512];
	int n = snprintf(line, sizeof(line), "%s", prefix);

	n += vsnprintf(line + n, sizeof(line) - n - 1, fmt, args);
	if (n > (int)sizeof(line) - 2)
		n = sizeof(line) - 2;
	line[n++] = '\n';
	/* One write a line: lines of several processes do not mix. */
	if (write(STDOUT_FILENO, line, n) != n)
		_exit(1);
}

static void print_formatted(const char *prefix, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void print_formatted(const char *prefix, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	print_line(prefix, fmt, args);
	va_end(args);
}

void test_note(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	print_line("# ", fmt, args);
	va_end(args);
}

/* The whole case ends at the first failure, in whatever process it occurs. */
static void end_case(void)
{
	kill(0, SIGKILL);
	_exit(1);
}

void test_fail(const char *file, int line, const char *fmt, ...)
{
	const char *base = strrchr(file, '/');
	char prefix[128];
	va_list args;

	snprintf(prefix, sizeof(prefix), "# %s:%d: ", base ? base + 1 : file,
		 line);
	va_start(args, fmt);
	print_line(prefix, fmt, args);
	va_end(args);
	/* A program without cases ends. */
	if (!verdict)
		exit(1);
	verdict->failed = true;
	end_case();
	__builtin_unreachable();
}

void test_skip(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(verdict->reason, sizeof(verdict->reason), fmt, args);
	va_end(args);
	verdict->skipped = true;
	end_case();
	__builtin_unreachable();
}

static bool is_long(void)
{
	return getenv("TEST_LONG");
}

void test_skip_if_slow(const char *reason)
{
	if (opt.slow > 1 && !is_long())
		test_skip("%s", reason);
}

unsigned int test_rounds(unsigned int count)
{
	return is_long() ? count : (count + opt.slow - 1) / opt.slow;
}

pid_t fork_process(void (*run)(void *), void *arg)
{
	pid_t pid = fork();

	if (pid < 0)
		FAIL("fork: %s", strerror(errno));
	if (pid == 0) {
		/* The parent's limit does not pass to a child by itself. */
		alarm(120 * opt.slow);
		run(arg);
		_exit(0);
	}
	return pid;
}

void join_process(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid)
		FAIL("waitpid: %s", strerror(errno));
	if (WIFSIGNALED(status))
		FAIL("process %d died of %s", pid, strsignal(WTERMSIG(status)));
	if (WEXITSTATUS(status))
		FAIL("process %d exited with %d", pid, WEXITSTATUS(status));
}

void put_bytes(int fd, const void *data, size_t len)
{
	while (len) {
		ssize_t n = write(fd, data, len);

		if (n <= 0)
			FAIL("write to the other process: %s", strerror(errno));
		data = (const char *)data + n;
		len -= n;
	}
}

void get_bytes(int fd, void *data, size_t len)
{
	while (len) {
		ssize_t n = read(fd, data, len);

		if (n < 0)
			FAIL("read from the other process: %s", strerror(errno));
		if (n == 0)
			FAIL("the other process has closed its end");
		data = (char *)data + n;
		len -= n;
	}
}

void become_nobody(rlim_t memlock)
{
	struct rlimit limit = { memlock, memlock };

	REQUIRE_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	REQUIRE_EQ(setgroups(0, NULL), 0);
	REQUIRE_EQ(setresgid(65534, 65534, 65534), 0);
	REQUIRE_EQ(setresuid(65534, 65534, 65534), 0);
}

static bool run_case(const struct test_case *c, unsigned int number)
{
	/* In a long run the rounds are many times as many. */
	unsigned int factor = opt.slow * (is_long() ? 10 : 1);
	unsigned int seconds = (c->seconds ?: 30) * factor;
	uint64_t begin = now_us();
	int status;
	pid_t pid;

	memset(verdict, 0, sizeof(*verdict));
	pid = fork();
	if (pid < 0) {
		print_formatted("", "Bail out! fork: %s", strerror(errno));
		exit(1);
	}
	if (pid == 0) {
		setpgid(0, 0);
		alarm(seconds);
		c->run();
		_exit(0);
	}
	setpgid(pid, pid);
	if (waitpid(pid, &status, 0) != pid)
		status = -1;
	/* No process of the case may live on. */
	kill(-pid, SIGKILL);
	if (verdict->skipped && !verdict->failed) {
		print_formatted("", "ok %u - %s # SKIP %s", number, c->name,
				verdict->reason);
		return true;
	}
	if (!verdict->failed && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
		print_formatted("", "ok %u - %s # %.1f s", number, c->name,
				(now_us() - begin) / 1e6);
		return true;
	}
	if (!verdict->failed && WIFSIGNALED(status))
		test_note("%s", WTERMSIG(status) == SIGALRM ?
			  "not done within its time" :
			  strsignal(WTERMSIG(status)));
	print_formatted("", "not ok %u - %s", number, c->name);
	return false;
}

static void usage(const char *program)
{
	fprintf(stderr,
		"usage: %s [--type TYPE] [--rounds N] [--only CASE] [--list] DEVICE\n",
		program);
	exit(2);
}

int test_main(int argc, char **argv, const struct test_case *cases)
{
	const struct test_case *const tables[] = { cases, NULL };

	return test_main_of(argc, argv, tables);
}

int test_main_of(int argc, char **argv, const struct test_case *const *tables)
{
	static const struct option longs[] = {
		{ "type", required_argument, NULL, 't' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "only", required_argument, NULL, 'o' },
		{ "list", no_argument, NULL, 'l' },
		{ }
	};
	const char *slow = getenv("TEST_SLOW");
	unsigned int number = 0, failed = 0;
	const struct test_case *one;
	const char *only = NULL;
	int c;

	if (slow && atoi(slow) > 0)
		opt.slow = atoi(slow);
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 't':
			opt.type = optarg;
			break;
		case 'r':
			opt.rounds = strtoul(optarg, NULL, 0);
			break;
		case 'o':
			only = optarg;
			break;
		case 'l':
			for (; *tables; tables++)
				for (one = *tables; one->name; one++)
					puts(one->name);
			return 0;
		default:
			usage(argv[0]);
		}
	}
	if (optind != argc - 1)
		usage(argv[0]);
	opt.device = argv[optind];

	verdict = shared_map(sizeof(*verdict));
	for (; *tables; tables++) {
		for (one = *tables; one->name; one++) {
			if (only && strcmp(only, one->name))
				continue;
			if (!run_case(one, ++number))
				failed++;
		}
	}
	print_formatted("", "1..%u", number);
	if (!number) {
		fprintf(stderr, "%s: no case named %s\n", argv[0], only);
		return 2;
	}
	return failed != 0;
}

uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000ull + t.tv_nsec / 1000;
}

void sleep_us(uint64_t us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&t, NULL);
}

void be_real_time(int priority)
{
	struct sched_param param = { .sched_priority = priority };

	REQUIRE_EQ(sched_setscheduler(0, SCHED_FIFO, &param), 0);
}
