// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE
#include "common.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <poll.h>
#include <rdma/ib_user_verbs.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CANARY 0xc5
#define PAGE 4096ul

struct test_options opt = { .slow = 1 };

/* What the processes of a case tell the program. */
static struct {
	volatile bool failed;
	volatile bool skipped;
	char reason[256];
} *verdict;

/* ---- Cases ---- */

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
	unsigned int factor = opt.slow * (getenv("TEST_LONG") ? 10 : 1);
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
	static const struct option longs[] = {
		{ "type", required_argument, NULL, 't' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "only", required_argument, NULL, 'o' },
		{ "list", no_argument, NULL, 'l' },
		{ }
	};
	const char *slow = getenv("TEST_SLOW");
	unsigned int number = 0, failed = 0;
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
			for (; cases->name; cases++)
				puts(cases->name);
			return 0;
		default:
			usage(argv[0]);
		}
	}
	if (optind != argc - 1)
		usage(argv[0]);
	opt.device = argv[optind];

	verdict = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (verdict == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	for (; cases->name; cases++) {
		if (only && strcmp(only, cases->name))
			continue;
		if (!run_case(cases, ++number))
			failed++;
	}
	print_formatted("", "1..%u", number);
	if (!number) {
		fprintf(stderr, "%s: no case named %s\n", argv[0], only);
		return 2;
	}
	return failed != 0;
}

/* ---- Time ---- */

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

/* ---- Device ---- */

struct ibv_context *open_by_name(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;
	bool found = false;

	for (int i = 0; list && list[i]; i++) {
		if (strcmp(ibv_get_device_name(list[i]), name))
			continue;
		found = true;
		ctx = ibv_open_device(list[i]);
	}
	if (!found)
		FAIL("libibverbs knows no device %s", name);
	if (!ctx)
		FAIL("ibv_open_device(%s): %s", name, strerror(errno));
	ibv_free_device_list(list);
	return ctx;
}

static void choose_gid(struct device *d)
{
	static const uint8_t v4_mapped[12] = { [10] = 0xff, [11] = 0xff };

	d->gid_index = -1;
	for (int i = 0; i < d->port.gid_tbl_len; i++) {
		struct ibv_gid_entry entry;
		bool v4;

		if (ibv_query_gid_ex(d->ctx, 1, i, &entry, 0) ||
		    entry.gid_type != IBV_GID_TYPE_ROCE_V2)
			continue;
		v4 = !memcmp(entry.gid.raw, v4_mapped, sizeof(v4_mapped));
		if (d->gid_index >= 0 && !v4)
			continue;
		d->gid_index = i;
		d->gid = entry.gid;
		if (v4)
			return;
	}
	if (d->gid_index < 0)
		FAIL("%s has no RoCEv2 GID", opt.device);
}

void device_open(struct device *d)
{
	d->ctx = open_by_name(opt.device);
	REQUIRE_ERRNO(ibv_query_device(d->ctx, &d->attr), 0);
	REQUIRE_ERRNO(ibv_query_port(d->ctx, 1, &d->port), 0);
	choose_gid(d);
	d->pd = ibv_alloc_pd(d->ctx);
	if (!d->pd)
		FAIL("ibv_alloc_pd: %s", strerror(errno));
}

void device_close(struct device *d)
{
	REQUIRE_ERRNO(ibv_dealloc_pd(d->pd), 0);
	REQUIRE_ERRNO(ibv_close_device(d->ctx), 0);
}

int uverbs_command(int fd, uint32_t number, void *cmd, size_t in, void *resp,
		   size_t out)
{
	uint8_t buf[512];
	struct ib_uverbs_cmd_hdr hdr = {
		.command = number,
		.in_words = (sizeof(hdr) + in) / 4,
		.out_words = out / 4,
	};

	/* Commands that answer begin with the place for the answer. */
	if (resp)
		memcpy(cmd, &(uint64_t){ (uintptr_t)resp }, sizeof(uint64_t));
	REQUIRE(sizeof(hdr) + in <= sizeof(buf));
	memcpy(buf, &hdr, sizeof(hdr));
	memcpy(buf + sizeof(hdr), cmd, in);
	return write(fd, buf, sizeof(hdr) + in) < 0 ? errno : 0;
}

int run_command(const char *fmt, ...)
{
	char command[512];
	va_list args;
	int status;

	va_start(args, fmt);
	vsnprintf(command, sizeof(command), fmt, args);
	va_end(args);
	status = system(command);
	if (status == -1 || !WIFEXITED(status))
		FAIL("could not run: %s", command);
	return WEXITSTATUS(status);
}

static bool device_has_gid(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_gid_entry entries[8];
	struct ibv_context *ctx;
	bool ready = false;

	for (int i = 0; list && list[i]; i++) {
		if (strcmp(ibv_get_device_name(list[i]), name))
			continue;
		ctx = ibv_open_device(list[i]);
		if (!ctx)
			continue;
		/* IPv6 of the link and IPv4, of which RoCEv2 has one each. */
		ready = ibv_query_gid_table(ctx, entries, ARRAY_SIZE(entries),
					    0) >= 2;
		ibv_close_device(ctx);
	}
	ibv_free_device_list(list);
	return ready;
}

/* A case that failed does not clean up, so the next begins with that. */
void own_device_make(struct own_device *o, unsigned int number, int mtu)
{
	uint64_t end = now_us() + PATIENCE_US;

	if (!opt.type)
		FAIL("this case needs --type");
	snprintf(o->netdev, sizeof(o->netdev), "test%u", number);
	snprintf(o->device, sizeof(o->device), "%s_test%u", opt.type, number);
	run_command("rdma link delete %s 2>/dev/null; ip link delete %s 2>/dev/null",
		    o->device, o->netdev);
	REQUIRE_EQ(run_command("ip link add %s type dummy && "
			       "ip link set %s mtu %d up && "
			       "ip addr add 10.78.%u.1/24 dev %s",
			       o->netdev, o->netdev, mtu, number, o->netdev),
		   0);
	REQUIRE_EQ(run_command("rdma link add %s type %s netdev %s", o->device,
			       opt.type, o->netdev), 0);
	/* The core fills the GID table from a work queue. */
	while (!device_has_gid(o->device)) {
		if (now_us() > end)
			FAIL("%s has not got its GIDs", o->device);
		sleep_us(10000);
	}
}

void own_device_remove(struct own_device *o)
{
	REQUIRE_EQ(run_command("rdma link delete %s", o->device), 0);
	REQUIRE_EQ(run_command("ip link delete %s", o->netdev), 0);
}

static bool async_within(struct ibv_context *ctx, int ms)
{
	struct pollfd p = { .fd = ctx->async_fd, .events = POLLIN };

	return poll(&p, 1, ms) == 1;
}

void expect_async(struct ibv_context *ctx, enum ibv_event_type type,
		  const void *element)
{
	struct ibv_async_event event;

	if (!async_within(ctx, PATIENCE_US / 1000))
		FAIL("no asynchronous event, expected '%s'",
		     ibv_event_type_str(type));
	if (ibv_get_async_event(ctx, &event))
		FAIL("ibv_get_async_event: %s", strerror(errno));
	ibv_ack_async_event(&event);
	if (event.event_type != type)
		FAIL("asynchronous event '%s', expected '%s'",
		     ibv_event_type_str(event.event_type),
		     ibv_event_type_str(type));
	/* The union's members are all pointers. */
	if (element && (const void *)event.element.qp != element)
		FAIL("asynchronous event '%s' is for another object",
		     ibv_event_type_str(type));
}

void expect_no_async(struct ibv_context *ctx)
{
	struct ibv_async_event event;

	if (!async_within(ctx, 50 * opt.slow))
		return;
	if (ibv_get_async_event(ctx, &event))
		FAIL("ibv_get_async_event: %s", strerror(errno));
	FAIL("unexpected asynchronous event '%s'",
	     ibv_event_type_str(event.event_type));
}

/* ---- Memory ---- */

void region_make(struct region *r, struct device *d, size_t len,
		 size_t misalign, int access)
{
	r->len = len;
	r->head = PAGE + misalign;
	r->map_len = (r->head + len + 2 * PAGE - 1) & ~(PAGE - 1);
	r->map = mmap(NULL, r->map_len, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (r->map == MAP_FAILED)
		FAIL("mmap of %zu bytes: %s", r->map_len, strerror(errno));
	r->data = r->map + r->head;
	memset(r->map, CANARY, r->map_len);
	memset(r->data, 0, len);
	r->mr = ibv_reg_mr(d->pd, r->data, len, access);
	if (!r->mr)
		FAIL("ibv_reg_mr of %zu bytes, access %#x: %s", len, access,
		     strerror(errno));
}

static void check_canary(const uint8_t *p, size_t len, const uint8_t *data,
			 const char *file, int line)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] != CANARY)
			test_fail(file, line,
				  "byte %td of the region, which is outside it, was overwritten with %#x",
				  &p[i] - data, p[i]);
}

void region_check(const struct region *r, const char *file, int line)
{
	size_t tail = r->map_len - r->head - r->len;

	check_canary(r->map, r->head, r->data, file, line);
	check_canary(r->data + r->len, tail, r->data, file, line);
}

void region_free(struct region *r)
{
	REGION_CHECK(r);
	if (r->mr)
		REQUIRE_ERRNO(ibv_dereg_mr(r->mr), 0);
	munmap(r->map, r->map_len);
}

/* The finaliser of splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t stream_word(uint64_t seed, uint64_t i)
{
	uint64_t z = seed * 0xd1342543de82ef95ull + i * 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

void fill(void *buf, size_t len, uint64_t seed)
{
	uint8_t *p = buf;

	for (size_t i = 0; i < len; i += 8) {
		uint64_t word = stream_word(seed, i / 8);

		memcpy(p + i, &word, len - i < 8 ? len - i : 8);
	}
}

void verify_at(const void *buf, size_t len, uint64_t seed, const char *file,
	       int line)
{
	const uint8_t *p = buf;

	for (size_t i = 0; i < len; i += 8) {
		uint64_t word = stream_word(seed, i / 8);
		size_t n = len - i < 8 ? len - i : 8;

		if (!memcmp(p + i, &word, n))
			continue;
		for (size_t j = 0; j < n; j++) {
			uint8_t want = ((uint8_t *)&word)[j];

			if (p[i + j] != want)
				test_fail(file, line,
					  "byte %zu of %zu is %#x, expected %#x (seed %#llx)",
					  i + j, len, p[i + j], want,
					  (unsigned long long)seed);
		}
	}
}

void verify_byte_at(const void *buf, size_t len, uint8_t byte,
		    const char *file, int line)
{
	const uint8_t *p = buf;

	for (size_t i = 0; i < len; i++)
		if (p[i] != byte)
			test_fail(file, line, "byte %zu of %zu is %#x, expected %#x",
				  i, len, p[i], byte);
}

/* ---- Mappings ---- */

unsigned int device_mappings(struct mapping *m, unsigned int max)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned int n = 0;
	char line[512];

	REQUIRE(maps);
	while (fgets(line, sizeof(line), maps)) {
		unsigned long begin, end, offset;
		char rights[5];

		if (!strstr(line, "/uverbs"))
			continue;
		if (sscanf(line, "%lx-%lx %4s %lx", &begin, &end, rights,
			   &offset) != 4)
			FAIL("cannot read: %s", line);
		REQUIRE(n < max);
		m[n].begin = begin;
		m[n].end = end;
		m[n].offset = offset;
		memcpy(m[n].rights, rights, sizeof(rights));
		n++;
	}
	fclose(maps);
	return n;
}

bool mapping_writable(const struct mapping *m)
{
	return m->rights[1] == 'w';
}

/* ---- Connections ---- */

static struct ibv_cq *make_cq(struct device *d, int cqe,
			      struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq = ibv_create_cq(d->ctx, cqe, NULL, channel, 0);

	if (!cq)
		FAIL("ibv_create_cq of %d: %s", cqe, strerror(errno));
	return cq;
}

/*
 * 67 ms; or 1.1 s where the guest is slow, which takes some milliseconds for a
 * packet there, and may have to wait for its machine. By the wire, what is late
 * is taken for lost.
 */
static uint8_t ack_timeout(void)
{
	return opt.slow > 1 ? 18 : 14;
}

void end_make(struct end *e, struct device *d, const struct end_config *config)
{
	struct ibv_qp_init_attr init = { };
	struct end_config *c = &e->config;

	memset(e, 0, sizeof(*e));
	if (config)
		*c = *config;
	c->type = c->type ?: IBV_QPT_RC;
	c->send_wr = c->send_wr ?: 64;
	c->recv_wr = c->recv_wr ?: 64;
	c->send_sge = c->send_sge ?: 1;
	c->recv_sge = c->recv_sge ?: 1;
	c->cqe = c->cqe ?: (int)(c->send_wr + c->recv_wr);
	c->access = c->access ?: ACCESS_ALL;
	c->timeout = c->timeout ?: ack_timeout();
	c->retry = c->retry ?: 7;
	c->rnr_retry = c->rnr_none ? 0 : c->rnr_retry ?: 7;
	c->rnr_timer = c->rnr_timer ?: 12;

	e->d = d;
	e->own_cq = !c->cq;
	e->scq = c->cq ?: make_cq(d, c->cqe, c->channel);
	e->rcq = c->cq ?: make_cq(d, c->cqe, c->channel);

	init.qp_type = c->type;
	init.send_cq = e->scq;
	init.recv_cq = e->rcq;
	init.srq = c->srq;
	init.sq_sig_all = c->signal_all;
	init.cap.max_send_wr = c->send_wr;
	init.cap.max_recv_wr = c->recv_wr;
	init.cap.max_send_sge = c->send_sge;
	init.cap.max_recv_sge = c->recv_sge;
	init.cap.max_inline_data = c->inline_data;
	e->qp = ibv_create_qp(d->pd, &init);
	if (!e->qp)
		FAIL("ibv_create_qp: %s", strerror(errno));
	e->cap = init.cap;
	/* Near the end of the 24 bits, so that every test crosses it. */
	e->psn = 0xffff00 | (e->qp->qp_num & 0xff);
}

void end_free(struct end *e)
{
	REQUIRE_ERRNO(ibv_destroy_qp(e->qp), 0);
	if (e->own_cq) {
		REQUIRE_ERRNO(ibv_destroy_cq(e->rcq), 0);
		REQUIRE_ERRNO(ibv_destroy_cq(e->scq), 0);
	}
}

struct peer end_address(const struct end *e, const struct region *r)
{
	struct peer p = {
		.qpn = e->qp->qp_num,
		.psn = e->psn,
		.gid = e->d->gid,
		.addr = r ? (uintptr_t)r->data : 0,
		.rkey = r ? r->mr->rkey : 0,
	};

	return p;
}

void end_to_init(struct end *e)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = e->config.access,
		.qkey = QKEY,
	};
	int own = e->config.type == IBV_QPT_UD ? IBV_QP_QKEY :
						 IBV_QP_ACCESS_FLAGS;

	REQUIRE_ERRNO(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE |
				    IBV_QP_PKEY_INDEX | IBV_QP_PORT | own), 0);
}

void end_to_rtr(struct end *e, const struct peer *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = e->d->port.active_mtu,
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = e->d->attr.max_qp_rd_atom ? 1 : 0,
		.min_rnr_timer = e->config.rnr_timer,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = {
				.dgid = peer->gid,
				.sgid_index = e->d->gid_index,
				.hop_limit = 64,
			},
		},
	};

	int mask = IBV_QP_STATE;

	if (e->config.type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			IBV_QP_RQ_PSN;
	if (e->config.type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	REQUIRE_ERRNO(ibv_modify_qp(e->qp, &attr, mask), 0);
}

void end_to_rts(struct end *e)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = e->psn,
		.timeout = e->config.timeout,
		.retry_cnt = e->config.retry,
		.rnr_retry = e->config.rnr_retry,
		.max_rd_atomic = e->d->attr.max_qp_init_rd_atom ? 1 : 0,
	};

	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (e->config.type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	REQUIRE_ERRNO(ibv_modify_qp(e->qp, &attr, mask), 0);
}

void end_connect(struct end *e, const struct peer *peer)
{
	end_to_init(e);
	end_to_rtr(e, peer);
	end_to_rts(e);
}

void pair_make(struct end *a, struct end *b, struct device *d,
	       const struct end_config *c)
{
	struct peer pa, pb;

	end_make(a, d, c);
	end_make(b, d, c);
	pa = end_address(a, NULL);
	pb = end_address(b, NULL);
	end_connect(a, &pb);
	end_connect(b, &pa);
}

static bool end_draining(struct end *e)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	REQUIRE_ERRNO(ibv_query_qp(e->qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.sq_draining;
}

/* From RESET; the QP's peer is itself, which the specification allows. */
void end_to_state(struct end *e, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	struct peer self = end_address(e, NULL);

	if (state == IBV_QPS_RESET)
		return;
	end_to_init(e);
	if (state == IBV_QPS_INIT)
		return;
	if (state != IBV_QPS_ERR)
		end_to_rtr(e, &self);
	if (state == IBV_QPS_RTR)
		return;
	if (state != IBV_QPS_ERR)
		end_to_rts(e);
	if (state == IBV_QPS_RTS)
		return;
	REQUIRE_ERRNO(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE), 0);
	/* Draining takes its time even when there is nothing to drain. */
	while (state == IBV_QPS_SQD && end_draining(e))
		sleep_us(1000);
}

enum ibv_qp_state end_state(struct end *e)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	REQUIRE_ERRNO(ibv_query_qp(e->qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

void end_await_state(struct end *e, enum ibv_qp_state state)
{
	uint64_t end = now_us() + PATIENCE_US;

	while (end_state(e) != state) {
		if (now_us() > end)
			FAIL("the QP is in state %d, expected %d",
			     end_state(e), state);
		sleep_us(1000);
	}
}

/* ---- Requests ---- */

struct ibv_sge sge_of(const struct region *r, size_t offset, size_t len)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)r->data + offset,
		.length = len,
		.lkey = r->mr ? r->mr->lkey : 0,
	};

	return sge;
}

int try_send(struct end *e, uint64_t wr_id, enum ibv_wr_opcode opcode,
	     unsigned int flags, struct ibv_sge *sge, int num_sge,
	     const struct peer *to, uint64_t offset, uint32_t imm)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.opcode = opcode,
		.send_flags = flags,
		.sg_list = sge,
		.num_sge = num_sge,
		.imm_data = imm,
	}, *bad = NULL;
	int ret;

	if (to) {
		wr.wr.rdma.remote_addr = to->addr + offset;
		wr.wr.rdma.rkey = to->rkey;
	}
	ret = ibv_post_send(e->qp, &wr, &bad);
	if (ret && bad != &wr)
		FAIL("ibv_post_send answered %d without naming the bad request",
		     ret);
	return ret;
}

void send_sges(struct end *e, uint64_t wr_id, enum ibv_wr_opcode opcode,
	       unsigned int flags, struct ibv_sge *sge, int num_sge,
	       const struct peer *to, uint64_t offset, uint32_t imm)
{
	REQUIRE_ERRNO(try_send(e, wr_id, opcode, flags, sge, num_sge, to,
			       offset, imm), 0);
}

void send_atomic(struct end *e, uint64_t wr_id, enum ibv_wr_opcode opcode,
		 unsigned int flags, struct ibv_sge sge, const struct peer *to,
		 uint64_t offset, uint64_t compare_add, uint64_t swap)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.opcode = opcode,
		.send_flags = flags,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.atomic = {
			.remote_addr = to->addr + offset,
			.rkey = to->rkey,
			.compare_add = compare_add,
			.swap = swap,
		},
	}, *bad;

	REQUIRE_ERRNO(ibv_post_send(e->qp, &wr, &bad), 0);
}

void send_bind(struct end *e, uint64_t wr_id, struct ibv_mw *mw, uint32_t key,
	       struct ibv_mw_bind_info info)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { .mw = mw, .rkey = key, .bind_info = info },
	}, *bad;

	REQUIRE_ERRNO(ibv_post_send(e->qp, &wr, &bad), 0);
}

void send_local_inv(struct end *e, uint64_t wr_id, uint32_t key)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.opcode = IBV_WR_LOCAL_INV,
		.send_flags = IBV_SEND_SIGNALED,
		.invalidate_rkey = key,
	}, *bad;

	REQUIRE_ERRNO(ibv_post_send(e->qp, &wr, &bad), 0);
}

void send_datagram(struct end *e, uint64_t wr_id, const struct region *r,
		   struct datagram d)
{
	struct ibv_sge sge = sge_of(r, 0, d.len);
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.opcode = d.opcode ?: IBV_WR_SEND,
		.send_flags = d.flags | IBV_SEND_SIGNALED,
		.sg_list = &sge,
		.num_sge = 1,
		.imm_data = htonl(d.imm),
		.wr.ud = { d.ah, d.qpn, d.qkey },
	}, *bad;

	REQUIRE_ERRNO(ibv_post_send(e->qp, &wr, &bad), 0);
}

void send_region(struct end *e, uint64_t wr_id, const struct region *r,
		 size_t offset, size_t len)
{
	struct ibv_sge sge = sge_of(r, offset, len);

	send_sges(e, wr_id, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 1, NULL, 0,
		  0);
}

int try_recv(struct end *e, uint64_t wr_id, struct ibv_sge *sge, int num_sge)
{
	struct ibv_recv_wr wr = {
		.wr_id = wr_id,
		.sg_list = sge,
		.num_sge = num_sge,
	}, *bad = NULL;
	int ret = ibv_post_recv(e->qp, &wr, &bad);

	if (ret && bad != &wr)
		FAIL("ibv_post_recv answered %d without naming the bad request",
		     ret);
	return ret;
}

void recv_region(struct end *e, uint64_t wr_id, const struct region *r,
		 size_t offset, size_t len)
{
	struct ibv_sge sge = sge_of(r, offset, len);

	REQUIRE_ERRNO(try_recv(e, wr_id, &sge, 1), 0);
}

/* ---- Completions ---- */

unsigned int looks_before_rest = 100;

bool next_wc_within(struct ibv_cq *cq, struct ibv_wc *wc, uint64_t us)
{
	uint64_t end = now_us() + us;

	for (unsigned int empty = 0;; empty++) {
		int n = ibv_poll_cq(cq, 1, wc);

		if (n < 0)
			FAIL("ibv_poll_cq answered %d", n);
		if (n > 1)
			FAIL("ibv_poll_cq gave %d completions, asked for 1", n);
		if (n == 1)
			return true;
		if (empty < looks_before_rest)
			continue;
		if (now_us() > end)
			return false;
		/* Where to yield is slow, others can use the processor better. */
		if (opt.slow > 1)
			sleep_us(100);
		else
			sched_yield();
	}
}

void next_wc(struct ibv_cq *cq, struct ibv_wc *wc)
{
	if (!next_wc_within(cq, wc, PATIENCE_US))
		FAIL("no completion came");
}

struct ibv_wc expect_wc_at(struct ibv_cq *cq, uint64_t wr_id,
			   enum ibv_wc_status status, const char *file,
			   int line)
{
	struct ibv_wc wc;

	if (!next_wc_within(cq, &wc, PATIENCE_US))
		test_fail(file, line, "no completion came for request %llu",
			  (unsigned long long)wr_id);
	if (wc.wr_id != wr_id || wc.status != status)
		test_fail(file, line,
			  "completion of request %llu: %s; expected request %llu: %s",
			  (unsigned long long)wc.wr_id,
			  ibv_wc_status_str(wc.status),
			  (unsigned long long)wr_id, ibv_wc_status_str(status));
	return wc;
}

void expect_no_wc_at(struct ibv_cq *cq, const char *file, int line)
{
	struct ibv_wc wc;

	if (next_wc_within(cq, &wc, 20000 * opt.slow))
		test_fail(file, line,
			  "unexpected completion of request %llu: %s",
			  (unsigned long long)wc.wr_id,
			  ibv_wc_status_str(wc.status));
}
