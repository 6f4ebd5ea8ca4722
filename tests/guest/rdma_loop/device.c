// SPDX-License-Identifier: GPL-2.0
/* The device of the second driver, and the objects of a program, by commands. */
#define _GNU_SOURCE
#include "rdma_loop.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl.h>
#include <rdma/rdma_user_ioctl_cmds.h>

int kick(struct loop *l)
{
	struct ib_uverbs_ioctl_hdr hdr = {
		.length = sizeof(hdr),
		.object_id = UVERBS_OBJECT_DEVICE,
		.method_id = LOOP_METHOD_KICK,
		.driver_id = LOOP_DRIVER_ID,
	};

	return ioctl(l->fd, RDMA_VERBS_IOCTL, &hdr) ? errno : 0;
}

void post(struct loop *l, uint64_t wr_id, uint32_t lkey)
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

void expect(struct loop *l, uint64_t wr_id, uint32_t opcode, enum ibv_wc_status status)
{
	const struct completion *c = &l->cqe[l->consumer % DEPTH];

	REQUIRE_EQ(__atomic_load_n(&c->number, __ATOMIC_ACQUIRE), ++l->consumer);
	REQUIRE_EQ(c->wr_id, wr_id);
	REQUIRE_EQ(c->qp_num, l->qp_num);
	REQUIRE_EQ(c->opcode, opcode);
	REQUIRE_EQ(c->status, status);
	REQUIRE_EQ(c->byte_len, LEN);
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

void await_gid(void)
{
	uint64_t end = now_us() + PATIENCE_US;

	/* The core fills the GID table from a work queue. */
	while (gid_index() < 0) {
		if (now_us() > end)
			FAIL("%s has not got its GIDs", DEVICE);
		sleep_us(10000);
	}
}

void make_device(void)
{
	run_command("rdma link delete " DEVICE " 2>/dev/null; "
		    "ip link delete " NETDEV " 2>/dev/null");
	REQUIRE_EQ(run_command("ip link add " NETDEV " type dummy && "
			       "ip link set " NETDEV " up && "
			       "ip addr add 10.79.0.1/24 dev " NETDEV " && "
			       "rdma link add " DEVICE " type loop netdev " NETDEV), 0);
	await_gid();
}

void remove_device(void)
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

void *map(struct loop *l, uint64_t offset, size_t len, int prot)
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

void attach(struct loop *l)
{
	struct ib_uverbs_get_context get_context = { };
	struct ib_uverbs_get_context_resp context;
	struct ib_uverbs_alloc_pd alloc_pd = { };
	struct ib_uverbs_alloc_pd_resp pd;

	memset(l, 0, sizeof(*l));
	l->fd = open_uverbs();
	REQUIRE_ERRNO(COMMAND(l, GET_CONTEXT, &get_context, &context), 0);
	REQUIRE_EQ(context.num_comp_vectors, 1);
	REQUIRE_ERRNO(COMMAND(l, ALLOC_PD, &alloc_pd, &pd), 0);
	l->pd = pd.pd_handle;
}

void open_device(struct loop *l)
{
	make_device();
	attach(l);
}

void make_objects(struct loop *l)
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

void destroy_objects(struct loop *l)
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

void detach(struct loop *l)
{
	close(l->channel);
	close(l->fd);
}

void close_device(struct loop *l)
{
	detach(l);
	remove_device();
}
