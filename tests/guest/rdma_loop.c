// SPDX-License-Identifier: GPL-2.0
/*
 * The second driver, tests/rdma_loop: what its program sees of the abstractions
 * that it stands on. There is no provider for it, so this speaks the command
 * channel (rdma/ib_user_verbs.h) itself.
 */
#define _GNU_SOURCE
#include "common.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl.h>
#include <rdma/rdma_user_ioctl_cmds.h>

/* The layouts of tests/rdma_loop/queue.rs and driver.rs. */
enum {
	LOOP_DRIVER_ID = 0x4c4f4f50,
	LOOP_METHOD_KICK = 1 << 12,
	DEPTH = 64,
	LEN = 10000,
};

struct request {
	uint64_t wr_id, addr;
	uint32_t length, lkey, reserved[2];
};

struct queues {
	uint32_t sq_producer, reserved0[15];
	uint32_t rq_producer, reserved1[1007];
	struct request sq[DEPTH], rq[DEPTH];
};

struct completion {
	uint64_t wr_id;
	uint32_t qp_num, byte_len, status, opcode, reserved, number;
};

/* Whole pages. */
enum { CQ_SIZE = 4096 };
_Static_assert(DEPTH * sizeof(struct completion) <= CQ_SIZE, "");
_Static_assert(sizeof(struct queues) % 4096 == 0, "");

#define NETDEV "loop_test"
#define DEVICE "loop_test0"

/* Everything that a program has of the device. */
struct loop {
	int fd, channel;
	uint32_t pd, mr, lkey, cq, qp, qp_num, consumer;
	uint64_t cq_offset;
	const struct completion *cqe;
	struct queues *q;
	uint8_t *mem;		/* LEN bytes to send, LEN to receive */
};

#define COMMAND(l, name, cmd, resp) UVERBS_COMMAND((l)->fd, name, cmd, resp)

static int kick(struct loop *l)
{
	struct ib_uverbs_ioctl_hdr hdr = {
		.length = sizeof(hdr),
		.object_id = UVERBS_OBJECT_DEVICE,
		.method_id = LOOP_METHOD_KICK,
		.driver_id = LOOP_DRIVER_ID,
	};

	return ioctl(l->fd, RDMA_VERBS_IOCTL, &hdr) ? errno : 0;
}

/* The GID of the netdev's address, and its place in the table, or -1. */
static const uint8_t gid[16] = { [10] = 0xff, 0xff, 10, 79, 0, 1 };

static int gid_index(void)
{
	static const char path[] = "/sys/class/infiniband/" DEVICE "/ports/1/";
	char command[256];

	for (int i = 0; i < 16; i++) {
		snprintf(command, sizeof(command),
			 "grep -q :ffff:0a4f:0001 %sgids/%d 2>/dev/null && "
			 "grep -q v2 %sgid_attrs/types/%d 2>/dev/null",
			 path, i, path, i);
		if (!run_command("%s", command))
			return i;
	}
	return -1;
}

/* A device of the case's own. One that failed does not clean up. */
static void make_device(void)
{
	uint64_t end = now_us() + PATIENCE_US;

	run_command("rdma link delete " DEVICE " 2>/dev/null; "
		    "ip link delete " NETDEV " 2>/dev/null");
	REQUIRE_EQ(run_command("ip link add " NETDEV " type dummy && "
			       "ip link set " NETDEV " up && "
			       "ip addr add 10.79.0.1/24 dev " NETDEV " && "
			       "rdma link add " DEVICE " type loop netdev " NETDEV), 0);
	/* The core fills the GID table from a work queue. */
	while (gid_index() < 0) {
		if (now_us() > end)
			FAIL("%s has not got its GIDs", DEVICE);
		sleep_us(10000);
	}
}

static void remove_device(void)
{
	REQUIRE_EQ(run_command("rdma link delete " DEVICE), 0);
	REQUIRE_EQ(run_command("ip link delete " NETDEV), 0);
}

/* Opens the character device of the RDMA device. */
static int open_uverbs(void)
{
	DIR *dir = opendir("/sys/class/infiniband_verbs");
	struct dirent *entry;

	REQUIRE(dir);
	while ((entry = readdir(dir))) {
		char path[320], name[64] = "";
		FILE *file;
		int fd;

		snprintf(path, sizeof(path), "/sys/class/infiniband_verbs/%s/ibdev",
			 entry->d_name);
		file = fopen(path, "r");
		if (!file)
			continue;
		if (fscanf(file, "%63s", name) != 1)
			name[0] = 0;
		fclose(file);
		if (strcmp(name, DEVICE))
			continue;
		snprintf(path, sizeof(path), "/dev/infiniband/%s", entry->d_name);
		closedir(dir);
		fd = open(path, O_RDWR | O_CLOEXEC);
		REQUIRE(fd >= 0);
		return fd;
	}
	FAIL("%s has no device file", DEVICE);
}

static void *map(struct loop *l, uint64_t offset, size_t len, int prot)
{
	return mmap(NULL, len, prot, MAP_SHARED, l->fd, offset);
}

static int modify(struct loop *l, enum ibv_qp_state state)
{
	struct ib_uverbs_modify_qp cmd = {
		.qp_handle = l->qp,
		.attr_mask = IBV_QP_STATE,
		.qp_state = state,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = l->qp_num,
		.port_num = 1,
		.dest = { .is_global = 1, .port_num = 1, .hop_limit = 1 },
	};

	switch (state) {
	case IBV_QPS_INIT:
		cmd.attr_mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
		break;
	case IBV_QPS_RTR:
		cmd.attr_mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				 IBV_QP_MIN_RNR_TIMER;
		cmd.dest.sgid_index = gid_index();
		memcpy(cmd.dest.dgid, gid, sizeof(gid));
		break;
	case IBV_QPS_RTS:
		cmd.attr_mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
		break;
	default:
		break;
	}
	return uverbs_command(l->fd, IB_USER_VERBS_CMD_MODIFY_QP, &cmd,
			      sizeof(cmd), NULL, 0);
}

static void open_device(struct loop *l)
{
	struct ib_uverbs_get_context get_context = { };
	struct ib_uverbs_get_context_resp context;
	struct ib_uverbs_alloc_pd alloc_pd = { };
	struct ib_uverbs_alloc_pd_resp pd;

	memset(l, 0, sizeof(*l));
	make_device();
	l->fd = open_uverbs();
	REQUIRE_ERRNO(COMMAND(l, GET_CONTEXT, &get_context, &context), 0);
	REQUIRE_EQ(context.num_comp_vectors, 1);
	REQUIRE_ERRNO(COMMAND(l, ALLOC_PD, &alloc_pd, &pd), 0);
	l->pd = pd.pd_handle;
}

static void make_objects(struct loop *l)
{
	struct ib_uverbs_create_comp_channel create_channel = { };
	struct ib_uverbs_create_comp_channel_resp channel;
	struct ib_uverbs_reg_mr reg_mr = { };
	struct ib_uverbs_reg_mr_resp mr;
	struct ib_uverbs_create_cq create_cq = { };
	struct {
		struct ib_uverbs_create_cq_resp core;
		uint64_t offset;
	} cq;
	struct ib_uverbs_create_qp create_qp = { };
	struct {
		struct ib_uverbs_create_qp_resp core;
		uint64_t offset;
	} qp;

	REQUIRE_ERRNO(COMMAND(l, CREATE_COMP_CHANNEL, &create_channel, &channel), 0);
	l->channel = channel.fd;

	l->mem = mmap(NULL, 2 * LEN, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(l->mem != MAP_FAILED);
	reg_mr.start = reg_mr.hca_va = (uintptr_t)l->mem;
	reg_mr.length = 2 * LEN;
	reg_mr.pd_handle = l->pd;
	reg_mr.access_flags = IBV_ACCESS_LOCAL_WRITE;
	REQUIRE_ERRNO(COMMAND(l, REG_MR, &reg_mr, &mr), 0);
	l->mr = mr.mr_handle;
	l->lkey = mr.lkey;

	create_cq.cqe = 10;
	create_cq.comp_channel = l->channel;
	create_cq.user_handle = 0x1234;
	REQUIRE_ERRNO(COMMAND(l, CREATE_CQ, &create_cq, &cq), 0);
	REQUIRE_EQ(cq.core.cqe, DEPTH);
	l->cq = cq.core.cq_handle;
	l->cq_offset = cq.offset;
	l->cqe = map(l, cq.offset, CQ_SIZE, PROT_READ);
	REQUIRE(l->cqe != MAP_FAILED);

	create_qp.pd_handle = l->pd;
	create_qp.send_cq_handle = create_qp.recv_cq_handle = l->cq;
	create_qp.max_send_wr = create_qp.max_recv_wr = 10;
	create_qp.max_send_sge = create_qp.max_recv_sge = 1;
	create_qp.qp_type = IBV_QPT_RC;
	REQUIRE_ERRNO(COMMAND(l, CREATE_QP, &create_qp, &qp), 0);
	REQUIRE_EQ(qp.core.max_send_wr, DEPTH);
	l->qp = qp.core.qp_handle;
	l->qp_num = qp.core.qpn;
	l->q = map(l, qp.offset, sizeof(*l->q), PROT_READ | PROT_WRITE);
	REQUIRE(l->q != MAP_FAILED);

	REQUIRE_ERRNO(modify(l, IBV_QPS_RTR), EINVAL);
	REQUIRE_ERRNO(modify(l, IBV_QPS_INIT), 0);
	REQUIRE_ERRNO(modify(l, IBV_QPS_RTR), 0);
	REQUIRE_ERRNO(modify(l, IBV_QPS_RTS), 0);
}

static void destroy_objects(struct loop *l)
{
	struct ib_uverbs_destroy_qp destroy_qp = { .qp_handle = l->qp };
	struct ib_uverbs_destroy_qp_resp qp;
	struct ib_uverbs_destroy_cq destroy_cq = { .cq_handle = l->cq };
	struct ib_uverbs_destroy_cq_resp cq;
	struct ib_uverbs_dereg_mr dereg_mr = { .mr_handle = l->mr };
	struct ib_uverbs_dealloc_pd dealloc_pd = { .pd_handle = l->pd };

	/* Not while something uses them. */
	REQUIRE_ERRNO(COMMAND(l, DESTROY_CQ, &destroy_cq, &cq), EBUSY);
	REQUIRE_ERRNO(uverbs_command(l->fd, IB_USER_VERBS_CMD_DEALLOC_PD,
				     &dealloc_pd, sizeof(dealloc_pd), NULL, 0),
		      EBUSY);

	REQUIRE_ERRNO(COMMAND(l, DESTROY_QP, &destroy_qp, &qp), 0);
	REQUIRE_ERRNO(COMMAND(l, DESTROY_CQ, &destroy_cq, &cq), 0);
	REQUIRE_ERRNO(uverbs_command(l->fd, IB_USER_VERBS_CMD_DEREG_MR,
				     &dereg_mr, sizeof(dereg_mr), NULL, 0),
		      0);
	REQUIRE_ERRNO(uverbs_command(l->fd, IB_USER_VERBS_CMD_DEALLOC_PD,
				     &dealloc_pd, sizeof(dealloc_pd), NULL, 0),
		      0);
	/* Mappings outlive what was mapped. */
	REQUIRE_EQ(l->cqe[0].number != 0, l->consumer != 0);
	l->q->sq_producer = 0;
}

static void close_device(struct loop *l)
{
	close(l->channel);
	close(l->fd);
	remove_device();
}

/* Posts a send and a receive request of the same number. */
static void post(struct loop *l, uint64_t wr_id, uint32_t lkey)
{
	uint32_t index = l->q->sq_producer;

	l->q->rq[index % DEPTH] = (struct request){
		.wr_id = wr_id, .addr = (uintptr_t)l->mem + LEN, .length = LEN,
		.lkey = l->lkey,
	};
	l->q->sq[index % DEPTH] = (struct request){
		.wr_id = wr_id, .addr = (uintptr_t)l->mem, .length = LEN,
		.lkey = lkey,
	};
	__atomic_store_n(&l->q->rq_producer, index + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&l->q->sq_producer, index + 1, __ATOMIC_RELEASE);
}

static void expect(struct loop *l, uint64_t wr_id, uint32_t opcode,
		   enum ibv_wc_status status)
{
	const struct completion *c = &l->cqe[l->consumer % DEPTH];

	REQUIRE_EQ(__atomic_load_n(&c->number, __ATOMIC_ACQUIRE), ++l->consumer);
	REQUIRE_EQ(c->wr_id, wr_id);
	REQUIRE_EQ(c->qp_num, l->qp_num);
	REQUIRE_EQ(c->opcode, opcode);
	REQUIRE_EQ(c->status, status);
	REQUIRE_EQ(c->byte_len, LEN);
}

/* A completion event is there, and is of the queue. */
static void expect_event(struct loop *l)
{
	struct pollfd p = { .fd = l->channel, .events = POLLIN };
	struct ib_uverbs_comp_event_desc event;

	REQUIRE_EQ(poll(&p, 1, 1000), 1);
	REQUIRE_EQ(read(l->channel, &event, sizeof(event)), sizeof(event));
	REQUIRE_EQ(event.cq_handle, 0x1234);
}

static void messages(void)
{
	struct loop l;

	open_device(&l);
	make_objects(&l);
	for (uint64_t i = 0; i < 3 * DEPTH; i++) {
		fill(l.mem, LEN, i);
		memset(l.mem + LEN, 0, LEN);
		post(&l, i, l.lkey);
		REQUIRE_ERRNO(kick(&l), 0);
		expect(&l, i, IBV_WC_RECV, IBV_WC_SUCCESS);
		expect(&l, i, IBV_WC_SEND, IBV_WC_SUCCESS);
		VERIFY(l.mem + LEN, LEN, i);
		expect_event(&l);
		expect_event(&l);
	}
	destroy_objects(&l);
	close_device(&l);
}

static void wrong_key(void)
{
	struct loop l;

	open_device(&l);
	make_objects(&l);
	memset(l.mem, 1, LEN);
	post(&l, 7, l.lkey + 1000);
	REQUIRE_ERRNO(kick(&l), 0);
	expect(&l, 7, IBV_WC_RECV, IBV_WC_LOC_PROT_ERR);
	expect(&l, 7, IBV_WC_SEND, IBV_WC_LOC_PROT_ERR);
	VERIFY_BYTE(l.mem + LEN, LEN, 0);
	destroy_objects(&l);
	close_device(&l);
}

static void child(void *arg)
{
	struct loop *l = arg;
	unsigned char present;

	REQUIRE(mincore((void *)l->cqe, CQ_SIZE, &present));
	REQUIRE_EQ(errno, ENOMEM);
	REQUIRE(mincore(l->q, 4096, &present));
	REQUIRE_EQ(errno, ENOMEM);
}

static void mappings(void)
{
	struct loop l;
	void *p;

	open_device(&l);
	make_objects(&l);

	/* Read-only means it, now and later. */
	p = map(&l, l.cq_offset, CQ_SIZE, PROT_READ | PROT_WRITE);
	REQUIRE(p == MAP_FAILED && errno == EPERM);
	REQUIRE(mprotect((void *)l.cqe, CQ_SIZE, PROT_READ | PROT_WRITE));
	REQUIRE_EQ(errno, EACCES);
	/* The whole and nothing else, and no copy of it. */
	p = map(&l, l.cq_offset, 2 * CQ_SIZE, PROT_READ);
	REQUIRE(p == MAP_FAILED && errno == EINVAL);
	p = map(&l, l.cq_offset + (1ul << 40), CQ_SIZE, PROT_READ);
	REQUIRE(p == MAP_FAILED && errno == EINVAL);
	p = mmap(NULL, CQ_SIZE, PROT_READ, MAP_PRIVATE, l.fd, l.cq_offset);
	REQUIRE(p == MAP_FAILED && errno == EINVAL);
	p = mremap((void *)l.cqe, CQ_SIZE, 2 * CQ_SIZE, MREMAP_MAYMOVE);
	REQUIRE(p == MAP_FAILED);
	/* Twice is fine. */
	p = map(&l, l.cq_offset, CQ_SIZE, PROT_READ);
	REQUIRE(p != MAP_FAILED);
	/* A child has none of it. */
	join_process(fork_process(child, &l));

	destroy_objects(&l);
	/* What was destroyed cannot be mapped. */
	p = map(&l, l.cq_offset, CQ_SIZE, PROT_READ);
	REQUIRE(p == MAP_FAILED && errno == EINVAL);
	close_device(&l);
}

/* A request with something in it that the driver does not know. */
static void udata(void)
{
	struct {
		struct ib_uverbs_alloc_pd core;
		uint64_t driver;
	} alloc = { };
	struct {
		struct ib_uverbs_alloc_pd_resp core;
		uint32_t driver[3];
	} resp;
	struct loop l;

	open_device(&l);
	/* Zeroes are fine, and the answer is filled up with them. */
	memset(&resp, 0xff, sizeof(resp));
	REQUIRE_ERRNO(COMMAND(&l, ALLOC_PD, &alloc, &resp), 0);
	REQUIRE_EQ(resp.driver[0] | resp.driver[1] | resp.driver[2], 0);
	alloc.driver = 1;
	REQUIRE_ERRNO(COMMAND(&l, ALLOC_PD, &alloc, &resp), EOPNOTSUPP);
	close(l.fd);
	remove_device();
}

/* The device goes while its rings are mapped, and nobody waits for the program. */
static void removal_by(const char *how)
{
	struct ib_uverbs_alloc_pd alloc_pd = { };
	struct ib_uverbs_alloc_pd_resp pd;
	struct loop l;
	uint64_t end;

	open_device(&l);
	make_objects(&l);
	post(&l, 1, l.lkey);
	REQUIRE_ERRNO(kick(&l), 0);
	REQUIRE_EQ(run_command("%s", how), 0);
	/* A netdev does not wait for the device. */
	end = now_us() + PATIENCE_US;
	while (!access("/sys/class/infiniband/" DEVICE, F_OK)) {
		REQUIRE(now_us() < end);
		sleep_us(1000);
	}
	expect(&l, 1, IBV_WC_RECV, IBV_WC_SUCCESS);
	post(&l, 2, l.lkey);
	REQUIRE_ERRNO(kick(&l), EIO);
	REQUIRE_ERRNO(COMMAND(&l, ALLOC_PD, &alloc_pd, &pd), EIO);
	close(l.channel);
	close(l.fd);
	/* The memory is still ours. */
	REQUIRE_EQ(l.q->sq_producer, 2);
	REQUIRE_EQ(l.cqe[0].wr_id, 1);
}

static void link_deleted(void)
{
	removal_by("rdma link delete " DEVICE);
}

static void netdev_gone(void)
{
	removal_by("ip link delete " NETDEV);
}

static void module_gone(void)
{
	removal_by("rmmod rdma_loop");
	run_command("ip link delete " NETDEV);
}

/* Links that cannot be made. */
static void links(void)
{
	make_device();
	REQUIRE(run_command("rdma link add " DEVICE " type loop netdev lo 2>/dev/null"));
	REQUIRE(run_command("rdma link add other type loop netdev nosuch 2>/dev/null"));
	remove_device();
	for (int i = 0; i < 8; i++) {
		make_device();
		remove_device();
	}
}

/* A program that dies leaves everything to the kernel. */
static void dies(void *arg)
{
	struct loop *l = arg;

	open_device(l);
	make_objects(l);
	post(l, 1, l->lkey);
	REQUIRE_ERRNO(kick(l), 0);
	_exit(0);
}

static void death(void)
{
	struct loop l;

	join_process(fork_process(dies, &l));
	remove_device();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "messages", messages },
		{ "wrong_key", wrong_key },
		{ "mappings", mappings },
		{ "udata", udata },
		{ "links", links, 60 },
		{ "link_deleted", link_deleted },
		{ "netdev_gone", netdev_gone },
		{ "death", death },
		/* The last: the driver is gone after it. */
		{ "module_gone", module_gone },
		{ }
	};

	return test_main(argc, argv, cases);
}
