// SPDX-License-Identifier: GPL-2.0
/*
 * Each allocation of each verb fails in turn, and each copy from and to user
 * space (Linux, Documentation/fault-injection: fail-nth). The caller gets
 * ENOMEM or EFAULT, or success where it could be done without; nothing is half
 * made: the same call works afterwards, and the device's objects and the
 * process's pinned pages are as many as before.
 *
 * With --rounds N only every N-th allocation of `rdma link add`, which has
 * very many, is made to fail.
 */
#define _GNU_SOURCE
#include "common.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <rdma/rdma_netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 5000 };

/* ---- Injection ---- */

static int nth_fd = -1;

static void set_file(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, value, strlen(value)) < 0)
		FAIL("%s: %s", path, strerror(errno));
	close(fd);
}

/*
 * kmemleak allocates beside each allocation, and does without when it cannot:
 * half of all failures would be for nothing. So its function is left out; this
 * is where it starts and ends.
 */
static void kmemleak_range(char *start, char *end, size_t len)
{
	FILE *symbols = fopen("/proc/kallsyms", "r");
	unsigned long address, first = 0;
	char line[256], name[128], type;

	REQUIRE(symbols);
	while (fgets(line, sizeof(line), symbols)) {
		if (sscanf(line, "%lx %c %127s", &address, &type, name) != 3)
			continue;
		/* The lines are sorted by address. */
		if (first && address > first)
			break;
		if (!strcmp(name, "__alloc_object"))
			first = address;
	}
	fclose(symbols);
	REQUIRE(first && address > first);
	snprintf(start, len, "%#lx", first);
	snprintf(end, len, "%#lx", address);
}

static void injection_begin(void)
{
	static const char *const faults[] = { "failslab", "fail_page_alloc" };
	char start[32], end[32];

	nth_fd = open("/proc/thread-self/fail-nth", O_RDWR);
	if (nth_fd < 0)
		test_skip("this kernel has no fault injection");
	kmemleak_range(start, end, sizeof(start));
	for (unsigned int i = 0; i < ARRAY_SIZE(faults); i++) {
		char path[128];

		snprintf(path, sizeof(path), "/sys/kernel/debug/%s", faults[i]);
		if (access(path, F_OK))
			test_skip("this kernel has no %s", faults[i]);
		snprintf(path, sizeof(path),
			 "/sys/kernel/debug/%s/ignore-gfp-wait", faults[i]);
		set_file(path, "N");
		/* No stack trace for each of thousands. */
		snprintf(path, sizeof(path), "/sys/kernel/debug/%s/verbose",
			 faults[i]);
		set_file(path, "0");
		snprintf(path, sizeof(path),
			 "/sys/kernel/debug/%s/reject-start", faults[i]);
		set_file(path, start);
		snprintf(path, sizeof(path),
			 "/sys/kernel/debug/%s/reject-end", faults[i]);
		set_file(path, end);
	}
	set_file("/sys/kernel/debug/fail_page_alloc/min-order", "0");
	set_file("/sys/kernel/debug/fail_usercopy/verbose", "0");
}

/*
 * Where copies fail as well, the one that disarms may be the one to fail: the
 * injection is used up then, and the second try works.
 */
static void arm(unsigned int n)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%u", n);

	if (pwrite(nth_fd, text, len, 0) != len &&
	    (errno != EFAULT || pwrite(nth_fd, text, len, 0) != len))
		FAIL("fail-nth: %s", strerror(errno));
}

/* Whether the failure that was armed has happened; disarms it. */
static bool disarm(void)
{
	char text[16] = "";
	ssize_t n = pread(nth_fd, text, sizeof(text) - 1, 0);

	if (n < 0 && errno == EFAULT)
		return false;
	if (n <= 0)
		FAIL("fail-nth: %s", strerror(errno));
	arm(0);
	return atoi(text) == 0;
}

/*
 * An errno value that a failed allocation or copy may come out as; the look-up
 * of a route turns ENOMEM into ENOBUFS.
 */
static bool expected_error(int error)
{
	return error == ENOMEM || error == EFAULT || error == ENOBUFS;
}

/* ---- What must be as before ---- */

static void resources(char *text, size_t len)
{
	char command[128];
	FILE *pipe;
	size_t n;

	snprintf(command, sizeof(command), "rdma resource show %s", opt.device);
	pipe = popen(command, "r");
	REQUIRE(pipe);
	n = fread(text, 1, len - 1, pipe);
	text[n] = 0;
	REQUIRE_EQ(pclose(pipe), 0);
}

static long pinned_kib(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	char line[256];
	long kib = 0;

	REQUIRE(status);
	while (fgets(line, sizeof(line), status))
		if (sscanf(line, "VmPin: %ld", &kib) == 1)
			break;
	fclose(status);
	return kib;
}

/* ---- The verbs ---- */

/* What a case works on; made before each verb, with no injection. */
static struct stage {
	struct device d;
	struct ibv_comp_channel *channel;
	struct end a, b;
	struct region r;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	void *made;
} st;

/*
 * A verb makes something, or changes something. Before each try, prepare makes
 * what it starts from; do_it answers 0 or an errno value; and if that was 0,
 * undo takes away what was made. prepare and undo have to succeed at once,
 * without an injection, and may be NULL.
 */
struct verb {
	const char *name;
	int (*do_it)(void);
	void (*undo)(void);
	void (*prepare)(void);
};

static int made(void *object)
{
	st.made = object;
	return object ? 0 : errno;
}

/* libibverbs tries another name when it cannot open the first: ENOENT. */
static int open_device(void)
{
	int error = made(ibv_open_device(st.d.ctx->device));

	return error == ENOENT ? ENOMEM : error;
}

static void close_device(void)
{
	REQUIRE_ERRNO(ibv_close_device(st.made), 0);
}

static int alloc_pd(void)
{
	return made(ibv_alloc_pd(st.d.ctx));
}

static void dealloc_pd(void)
{
	REQUIRE_ERRNO(ibv_dealloc_pd(st.made), 0);
}

static char *memory(void)
{
	static char *map;

	if (!map) {
		map = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE |
			   MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		REQUIRE(map != MAP_FAILED);
	}
	return map;
}

static int reg_mr_small(void)
{
	return made(ibv_reg_mr(st.d.pd, memory(), 100, ACCESS_ALL));
}

static int reg_mr_large(void)
{
	return made(ibv_reg_mr(st.d.pd, memory(), 4 << 20, ACCESS_ALL));
}

static void dereg_mr(void)
{
	REQUIRE_ERRNO(ibv_dereg_mr(st.made), 0);
}

/* Other memory, and back: a region that changes in place pins pages, too. */
static int rereg_mr(void)
{
	bool low = st.mr->addr == memory();

	errno = 0;
	return ibv_rereg_mr(st.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
			    memory() + (low ? 1 << 20 : 0), 1 << 20, 0) ?
		       errno :
		       0;
}

static int alloc_mw(void)
{
	return made(ibv_alloc_mw(st.d.pd, IBV_MW_TYPE_2));
}

static void dealloc_mw(void)
{
	REQUIRE_ERRNO(ibv_dealloc_mw(st.made), 0);
}

static int create_channel(void)
{
	return made(ibv_create_comp_channel(st.d.ctx));
}

static void destroy_channel(void)
{
	REQUIRE_ERRNO(ibv_destroy_comp_channel(st.made), 0);
}

static int create_cq_small(void)
{
	return made(ibv_create_cq(st.d.ctx, 4, NULL, st.channel, 0));
}

static int create_cq_large(void)
{
	return made(ibv_create_cq(st.d.ctx, 16384, NULL, NULL, 0));
}

static int resize_cq(void)
{
	return ibv_resize_cq(st.cq, st.cq->cqe == 1024 ? 512 : 1024);
}

static void destroy_cq(void)
{
	REQUIRE_ERRNO(ibv_destroy_cq(st.made), 0);
}

static int create_qp(uint32_t depth, uint32_t sge)
{
	struct ibv_qp_init_attr init = {
		.send_cq = st.a.scq, .recv_cq = st.a.rcq,
		.qp_type = IBV_QPT_RC, .cap = { depth, depth, sge, sge, 0 },
	};

	return made(ibv_create_qp(st.d.pd, &init));
}

static int create_qp_small(void)
{
	return create_qp(4, 1);
}

static int create_qp_large(void)
{
	return create_qp(4096, 16);
}

static void destroy_qp(void)
{
	REQUIRE_ERRNO(ibv_destroy_qp(st.made), 0);
}

static int create_ah(void)
{
	struct ibv_ah_attr attr = {
		.is_global = 1, .port_num = 1,
		.grh = { .dgid = st.d.gid, .sgid_index = st.d.gid_index,
			 .hop_limit = 1 },
	};

	return made(ibv_create_ah(st.d.pd, &attr));
}

static void destroy_ah(void)
{
	REQUIRE_ERRNO(ibv_destroy_ah(st.made), 0);
}

static int query_device(void)
{
	struct ibv_device_attr attr;

	return ibv_query_device(st.d.ctx, &attr);
}

static int query_port(void)
{
	struct ibv_port_attr attr;

	return ibv_query_port(st.d.ctx, 1, &attr);
}

static int query_qp(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	return ibv_query_qp(st.a.qp, &attr, IBV_QP_STATE, &init);
}

static int modify_to_init(void)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = ACCESS_ALL,
	};

	return ibv_modify_qp(st.b.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
			     IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int modify_to_rtr(void)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = st.d.port.active_mtu,
		.dest_qp_num = st.b.qp->qp_num,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1, .port_num = 1,
			.grh = { .dgid = st.d.gid,
				 .sgid_index = st.d.gid_index,
				 .hop_limit = 64 },
		},
	};

	return ibv_modify_qp(st.b.qp, &attr, IBV_QP_STATE | IBV_QP_AV |
			     IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			     IBV_QP_MIN_RNR_TIMER);
}

static int modify_to_rts(void)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7,
		.rnr_retry = 7,
	};

	return ibv_modify_qp(st.b.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN |
			     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

static int modify_to_err(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	return ibv_modify_qp(st.b.qp, &attr, IBV_QP_STATE);
}

static int modify_to_reset(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	return ibv_modify_qp(st.b.qp, &attr, IBV_QP_STATE);
}

static void in_reset(void)
{
	REQUIRE_ERRNO(modify_to_reset(), 0);
}

static void in_init(void)
{
	in_reset();
	REQUIRE_ERRNO(modify_to_init(), 0);
}

static void in_rtr(void)
{
	in_init();
	REQUIRE_ERRNO(modify_to_rtr(), 0);
}

static void in_rts(void)
{
	in_rtr();
	REQUIRE_ERRNO(modify_to_rts(), 0);
}

/* Traffic never fails for want of memory, it is only delayed. */
static int send_and_poll(void)
{
	recv_region(&st.a, 1, &st.r, 0, 1000);
	send_region(&st.a, 2, &st.r, 1000, 1000);
	EXPECT_OK(st.a.scq, 2);
	EXPECT_OK(st.a.rcq, 1);
	return 0;
}

static int arm_and_wake(void)
{
	struct pollfd event = { .fd = st.channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;
	int ret = ibv_req_notify_cq(st.a.rcq, 0);

	if (ret)
		return ret;
	recv_region(&st.a, 1, &st.r, 0, 1000);
	send_region(&st.a, 2, &st.r, 1000, 1000);
	EXPECT_OK(st.a.scq, 2);
	EXPECT_OK(st.a.rcq, 1);
	/*
	 * The core allocates an entry for the event where it cannot wait, and
	 * drops the event if there is none (ib_uverbs_comp_handler).
	 */
	if (poll(&event, 1, 1000 * opt.slow) != 1)
		return ENOMEM;
	ret = ibv_get_cq_event(st.channel, &cq, &context) ? errno : 0;
	if (!ret)
		ibv_ack_cq_events(cq, 1);
	return ret;
}

static const struct verb verbs[] = {
	{ "ibv_open_device", open_device, close_device },
	{ "ibv_alloc_pd", alloc_pd, dealloc_pd },
	{ "ibv_reg_mr, a page", reg_mr_small, dereg_mr },
	{ "ibv_reg_mr, 4 MiB", reg_mr_large, dereg_mr },
	{ "ibv_rereg_mr", rereg_mr },
	{ "ibv_alloc_mw", alloc_mw, dealloc_mw },
	{ "ibv_create_comp_channel", create_channel, destroy_channel },
	{ "ibv_create_cq, small", create_cq_small, destroy_cq },
	{ "ibv_create_cq, large", create_cq_large, destroy_cq },
	{ "ibv_resize_cq", resize_cq },
	{ "ibv_create_qp, small", create_qp_small, destroy_qp },
	{ "ibv_create_qp, large", create_qp_large, destroy_qp },
	{ "ibv_create_ah", create_ah, destroy_ah },
	{ "ibv_query_device", query_device },
	{ "ibv_query_port", query_port },
	{ "ibv_query_qp", query_qp },
	{ "ibv_modify_qp to INIT", modify_to_init, NULL, in_reset },
	{ "ibv_modify_qp to RTR", modify_to_rtr, NULL, in_init },
	{ "ibv_modify_qp to RTS", modify_to_rts, NULL, in_rtr },
	{ "ibv_modify_qp to ERR", modify_to_err, NULL, in_rts },
	{ "ibv_modify_qp to RESET", modify_to_reset, NULL, in_rts },
	{ "SEND and completions", send_and_poll },
	{ "arming and an event", arm_and_wake },
};

static void stage_make(void)
{
	struct end_config config = { };

	device_open(&st.d);
	st.channel = ibv_create_comp_channel(st.d.ctx);
	REQUIRE(st.channel);
	config.channel = st.channel;
	end_make(&st.a, &st.d, &config);
	end_to_state(&st.a, IBV_QPS_RTS);
	end_make(&st.b, &st.d, &config);
	region_make(&st.r, &st.d, 2000, 0, ACCESS_ALL);
	st.mr = ibv_reg_mr(st.d.pd, memory(), 1 << 20, ACCESS_ALL);
	st.cq = ibv_create_cq(st.d.ctx, 4, NULL, NULL, 0);
	REQUIRE(st.mr && st.cq);
}

static void stage_free(void)
{
	REQUIRE_ERRNO(ibv_dereg_mr(st.mr), 0);
	REQUIRE_ERRNO(ibv_destroy_cq(st.cq), 0);
	region_free(&st.r);
	end_free(&st.a);
	end_free(&st.b);
	REQUIRE_ERRNO(ibv_destroy_comp_channel(st.channel), 0);
	device_close(&st.d);
}

static void try_verb(const struct verb *v)
{
	unsigned int n, refused = 0;
	char before[4096], after[4096];
	long pinned = pinned_kib();

	resources(before, sizeof(before));
	for (n = 1; n < MOST; n++) {
		bool injected;
		int ret;

		if (v->prepare)
			v->prepare();
		arm(n);
		ret = v->do_it();
		injected = disarm();
		if (ret && !injected)
			FAIL("%s: %s, and nothing had failed", v->name,
			     strerror(ret));
		if (ret && !expected_error(ret))
			FAIL("%s: %s, when allocation %u failed", v->name,
			     strerror(ret), n);
		if (ret) {
			refused++;
			REQUIRE_EQ(pinned_kib(), pinned);
		} else if (v->undo) {
			v->undo();
		}
		if (!injected)
			break;
	}
	REQUIRE(n < MOST);
	REQUIRE_EQ(pinned_kib(), pinned);
	resources(after, sizeof(after));
	if (strcmp(before, after))
		FAIL("%s: objects before: %s, and after: %s", v->name, before,
		     after);
	test_note("%s: %u allocations, %u of them refused the call", v->name,
		  n - 1, refused);
}

static void each_verb(void)
{
	injection_begin();
	stage_make();
	for (unsigned int i = 0; i < ARRAY_SIZE(verbs); i++)
		try_verb(&verbs[i]);
	stage_free();
}

/* Destroying either works or, for want of memory, can be done again. */
static void destroy_again(void)
{
	static const struct {
		const char *name;
		int (*make)(void);
		int (*destroy)(void *);
	} objects[] = {
		{ "ibv_dealloc_pd", alloc_pd, (int (*)(void *))ibv_dealloc_pd },
		{ "ibv_dereg_mr", reg_mr_small, (int (*)(void *))ibv_dereg_mr },
		{ "ibv_dealloc_mw", alloc_mw, (int (*)(void *))ibv_dealloc_mw },
		{ "ibv_destroy_cq", create_cq_large,
		  (int (*)(void *))ibv_destroy_cq },
		{ "ibv_destroy_qp", create_qp_small,
		  (int (*)(void *))ibv_destroy_qp },
		{ "ibv_destroy_ah", create_ah, (int (*)(void *))ibv_destroy_ah },
	};
	char before[4096], after[4096];

	injection_begin();
	stage_make();
	resources(before, sizeof(before));
	for (unsigned int i = 0; i < ARRAY_SIZE(objects); i++) {
		unsigned int n;

		for (n = 1; n < MOST; n++) {
			bool injected;
			int ret;

			REQUIRE_ERRNO(objects[i].make(), 0);
			arm(n);
			ret = objects[i].destroy(st.made);
			injected = disarm();
			if (ret && (!expected_error(ret) || !injected))
				FAIL("%s: %s, when allocation %u failed",
				     objects[i].name, strerror(ret), n);
			/* The answer may be what could not be copied. */
			if (ret) {
				int again = objects[i].destroy(st.made);

				REQUIRE(!again || (again == ENOENT &&
						   ret == EFAULT));
			}
			if (!injected)
				break;
		}
		REQUIRE(n < MOST);
	}
	resources(after, sizeof(after));
	if (strcmp(before, after))
		FAIL("objects before: %s, and after: %s", before, after);
	stage_free();
}

/* ---- rdma link add ---- */

static void *put_text(void *at, uint16_t type, const char *text)
{
	struct nlattr *attr = at;

	attr->nla_type = type;
	attr->nla_len = NLA_HDRLEN + strlen(text) + 1;
	strcpy((char *)at + NLA_HDRLEN, text);
	return (char *)at + NLA_ALIGN(attr->nla_len);
}

/*
 * What `rdma link add` does; it is done here because an injection does not
 * pass to another program.
 */
static int link_add(int fd, const char *device, const char *netdev)
{
	union {
		struct nlmsghdr head;
		char bytes[512];
	} message = {
		.head = {
			.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV,
						       RDMA_NLDEV_CMD_NEWLINK),
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK,
		},
	};
	void *end = message.bytes + NLMSG_HDRLEN;
	char answer[1024];
	ssize_t n;

	end = put_text(end, RDMA_NLDEV_ATTR_DEV_NAME, device);
	end = put_text(end, RDMA_NLDEV_ATTR_LINK_TYPE, opt.type);
	end = put_text(end, RDMA_NLDEV_ATTR_NDEV_NAME, netdev);
	message.head.nlmsg_len = (char *)end - message.bytes;
	if (send(fd, &message, message.head.nlmsg_len, 0) < 0)
		return errno;
	/* The answer's own allocation may be the one that fails. */
	n = recv(fd, answer, sizeof(answer), MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN ? ENOMEM : errno;
	return -((struct nlmsgerr *)NLMSG_DATA(answer))->error;
}

static void each_link_add(void)
{
	unsigned int n, step = opt.rounds ?: 1, refused = 0;
	struct own_device own;
	int fd;

	injection_begin();
	own_device_make(&own, 0, 9000);
	REQUIRE_EQ(run_command("rdma link delete %s", own.device), 0);
	fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_RDMA);
	REQUIRE(fd >= 0);
	for (n = 1; n < 20 * MOST; n += step) {
		char path[128];
		struct stat info;
		bool injected;
		int ret;

		arm(n);
		ret = link_add(fd, own.device, own.netdev);
		injected = disarm();
		snprintf(path, sizeof(path), "/sys/class/infiniband/%s",
			 own.device);
		if (ret && !injected)
			FAIL("link add: %s, and nothing had failed",
			     strerror(ret));
		if (ret && !expected_error(ret))
			FAIL("link add: %s, when allocation %u failed",
			     strerror(ret), n);
		refused += ret != 0;
		/* Only the answer may have got lost. */
		if (stat(path, &info) == 0)
			REQUIRE_EQ(run_command("rdma link delete %s",
					       own.device), 0);
		else
			REQUIRE(ret);
		if (!injected)
			break;
	}
	test_note("link add: %u allocations, every %u. tried, %u refused it",
		  n, step, refused);
	/* After all that it works. */
	own_device_make(&own, 0, 9000);
	own_device_remove(&own);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "each_verb", each_verb, 200 },
		{ "destroy_again", destroy_again, 60 },
		{ "each_link_add", each_link_add, 300 },
		{ }
	};

	return test_main(argc, argv, cases);
}
