// SPDX-License-Identifier: GPL-2.0
/*
 * Measurements that perftest cannot make: many idle queue pairs, WRITEs spread
 * over queue pairs and over a large memory region, and the time that
 * registering takes.
 *
 * usage: load DEVICE
 *
 * Takes commands, one a line, each a word and NAME=NUMBER pairs, and answers
 * each with one line, a number. Both ends of a connection are this process.
 *
 *   idle count=N   makes N queue pairs of depth 16, in RTS, connected to
 *                  themselves, on one completion queue. Returns how many
 *                  there are now.
 *   drop           destroys the idle queue pairs. Returns 0.
 *   write size=BYTES count=N qps=N window=N list=N every=N mr=BYTES
 *                  does `count` WRITEs of `size` bytes, each to the next of
 *                  `qps` queue pairs and to a random place of a memory region
 *                  of `mr` bytes, at most `window` of them under way; `list`
 *                  of them are posted with one call, and the last of each
 *                  `every` is signalled. Returns microseconds a message.
 *   register size=BYTES count=N
 *                  registers and deregisters memory. Returns microseconds of
 *                  both together.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "../guest/common.h"

enum {
	IDLE_DEPTH = 16,
	TRAFFIC_DEPTH = 128,
	MAX_LIST = 64,
	CQ_DEPTH = 1024,
};

struct command {
	size_t size;
	size_t mr;
	unsigned long count;
	unsigned int qps;
	unsigned int window;
	unsigned int list;
	unsigned int every;
};

/* A connection of this process with itself. */
struct connection {
	struct end from, to;
	unsigned int unsignalled;	/* posted since the last signalled one */
};

static struct device device;
static struct ibv_cq *idle_cq, *traffic_cq;
static struct end *idle;
static unsigned long idle_count;
static struct connection *connections;
static unsigned int connection_count;

static void *checked(void *memory)
{
	if (!memory)
		FAIL("no memory");
	return memory;
}

static struct ibv_cq *make_cq(void)
{
	struct ibv_cq *cq = ibv_create_cq(device.ctx, CQ_DEPTH, NULL, NULL, 0);

	if (!cq)
		FAIL("ibv_create_cq: %s", strerror(errno));
	return cq;
}

static double make_idle(const struct command *c)
{
	struct end_config config = {
		.send_wr = IDLE_DEPTH, .recv_wr = IDLE_DEPTH, .cq = idle_cq,
	};

	idle = checked(realloc(idle, (idle_count + c->count) * sizeof(*idle)));
	for (unsigned long i = 0; i < c->count; i++) {
		end_make(&idle[idle_count], &device, &config);
		end_to_state(&idle[idle_count++], IBV_QPS_RTS);
	}
	return idle_count;
}

static double drop_idle(const struct command *c)
{
	(void)c;
	while (idle_count)
		end_free(&idle[--idle_count]);
	return 0;
}

static void need_connections(unsigned int count)
{
	struct end_config config = {
		.send_wr = TRAFFIC_DEPTH, .recv_wr = 1, .cq = traffic_cq,
	};

	if (count <= connection_count)
		return;
	connections = checked(realloc(connections, count * sizeof(*connections)));
	for (; connection_count < count; connection_count++) {
		struct connection *p = &connections[connection_count];

		memset(p, 0, sizeof(*p));
		ends_make(&p->from, &p->to, &device, &config);
	}
}

/* A number that the compiler cannot foresee (Marsaglia's xorshift). */
static uint64_t random_number(void)
{
	static uint64_t state = 88172645463325252ull;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* Posts `count` WRITEs with one call. */
static void post(struct connection *p, const struct command *c, unsigned int count,
		 const struct region *source, const struct region *target)
{
	size_t places = c->mr / c->size;
	struct ibv_sge sge = sge_of(source, 0, c->size);
	struct ibv_send_wr wr[MAX_LIST], *bad;

	for (unsigned int i = 0; i < count; i++) {
		bool signalled = ++p->unsignalled == c->every;

		wr[i] = (struct ibv_send_wr) {
			/* How many requests its completion retires. */
			.wr_id = p->unsignalled,
			.next = i + 1 < count ? &wr[i + 1] : NULL,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = signalled ? IBV_SEND_SIGNALED : 0,
			.wr.rdma.remote_addr = (uintptr_t)target->data +
				random_number() % places * c->size,
			.wr.rdma.rkey = target->mr->rkey,
		};
		if (signalled)
			p->unsignalled = 0;
	}
	REQUIRE_ERRNO(ibv_post_send(p->from.qp, wr, &bad), 0);
}

/* Polls once and answers how many requests are done. */
static unsigned int retire(void)
{
	struct ibv_wc wc[16];
	unsigned int done = 0;
	int n = ibv_poll_cq(traffic_cq, ARRAY_SIZE(wc), wc);

	if (n < 0)
		FAIL("ibv_poll_cq answered %d", n);
	for (int i = 0; i < n; i++) {
		if (wc[i].status)
			FAIL("a WRITE ended with: %s",
			     ibv_wc_status_str(wc[i].status));
		done += wc[i].wr_id;
	}
	return done;
}

static double do_writes(const struct command *c)
{
	unsigned long rounds = c->list ? c->count / c->list : 0;
	unsigned int under_way = 0, next = 0;
	struct region source, target;
	uint64_t begin;

	/*
	 * The last request of each queue pair is signalled, no send queue
	 * overflows, and not all that is under way is unsignalled.
	 */
	if (!c->size || c->mr < c->size || !c->list || c->list > MAX_LIST ||
	    !c->every || !c->qps || !rounds || rounds % c->qps ||
	    rounds / c->qps * c->list % c->every ||
	    c->window > TRAFFIC_DEPTH ||
	    c->window < c->qps * (c->every - 1) + c->list)
		FAIL("these numbers do not fit each other");
	need_connections(c->qps);
	region_make(&source, &device, c->size, 0, ACCESS_ALL);
	region_make(&target, &device, c->mr, 0, ACCESS_ALL);
	begin = now_us();
	for (unsigned long i = 0; i < rounds; i++) {
		while (under_way + c->list > c->window)
			under_way -= retire();
		post(&connections[next], c, c->list, &source, &target);
		under_way += c->list;
		next = (next + 1) % c->qps;
	}
	while (under_way)
		under_way -= retire();
	begin = now_us() - begin;
	region_free(&source);
	region_free(&target);
	return (double)begin / (rounds * c->list);
}

static double do_registrations(const struct command *c)
{
	void *memory = mmap(NULL, c->size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	uint64_t begin;

	if (memory == MAP_FAILED)
		FAIL("mmap of %zu bytes: %s", c->size, strerror(errno));
	begin = now_us();
	for (unsigned long i = 0; i < c->count; i++) {
		struct ibv_mr *mr = ibv_reg_mr(device.pd, memory, c->size,
					       ACCESS_ALL);

		if (!mr)
			FAIL("ibv_reg_mr of %zu bytes: %s", c->size,
			     strerror(errno));
		REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);
	}
	begin = now_us() - begin;
	munmap(memory, c->size);
	return (double)begin / c->count;
}

static void take_number(struct command *c, char *word)
{
	char *equals = strchr(word, '='), *end;
	unsigned long value;

	if (!equals)
		FAIL("%s has no number", word);
	*equals = 0;
	value = strtoul(equals + 1, &end, 0);
	if (*end || end == equals + 1)
		FAIL("%s is not a number", equals + 1);
	if (!strcmp(word, "size"))
		c->size = value;
	else if (!strcmp(word, "mr"))
		c->mr = value;
	else if (!strcmp(word, "count"))
		c->count = value;
	else if (!strcmp(word, "qps"))
		c->qps = value;
	else if (!strcmp(word, "window"))
		c->window = value;
	else if (!strcmp(word, "list"))
		c->list = value;
	else if (!strcmp(word, "every"))
		c->every = value;
	else
		FAIL("what is %s?", word);
}

static double obey(char *line)
{
	static const struct {
		const char *name;
		double (*run)(const struct command *c);
	} known[] = {
		{ "idle", make_idle },
		{ "drop", drop_idle },
		{ "write", do_writes },
		{ "register", do_registrations },
	};
	struct command c = {
		.size = 8, .mr = 4096, .count = 1000, .qps = 1, .window = 1,
		.list = 1, .every = 1,
	};
	const char *name = strtok(line, " \n");
	char *word;

	while ((word = strtok(NULL, " \n")))
		take_number(&c, word);
	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (name && !strcmp(name, known[i].name))
			return known[i].run(&c);
	FAIL("there is no such command");
}

int main(int argc, char **argv)
{
	char line[256];

	if (argc != 2) {
		fprintf(stderr, "usage: %s DEVICE\n", argv[0]);
		return 2;
	}
	opt.device = argv[1];
	device_open(&device);
	idle_cq = make_cq();
	traffic_cq = make_cq();
	while (fgets(line, sizeof(line), stdin)) {
		printf("%.4f\n", obey(line));
		fflush(stdout);
	}
	return 0;
}
