// SPDX-License-Identifier: GPL-2.0
/* Commands that no library of today gives, straight to the kernel. */
#include "arguments.h"

#include <rdma/ib_user_verbs.h>

/*
 * Posting and polling by commands is for devices whose drivers do that in the
 * kernel. Here the kernel's own users have these verbs, whose addresses are
 * the kernel's.
 */
static void data_path_by_commands(void)
{
	struct {
		struct ib_uverbs_post_send head;
		struct ib_uverbs_send_wr wr;
		struct ib_uverbs_sge sge;
	} send = {
		.head = { .wr_count = 1, .sge_count = 1, .wqe_size = sizeof(send.wr) },
		.wr = { .num_sge = 1, .opcode = IB_UVERBS_WR_SEND },
	};
	struct {
		struct ib_uverbs_post_recv head;
		struct ib_uverbs_recv_wr wr;
		struct ib_uverbs_sge sge;
	} recv = {
		.head = { .wr_count = 1, .sge_count = 1, .wqe_size = sizeof(recv.wr) },
		.wr = { .num_sge = 1 },
	};
	struct ib_uverbs_poll_cq poll = { .ne = 1 };
	uint64_t answer[16];
	struct ibv_srq_init_attr srq_init = {
		.attr = { .max_wr = 4, .max_sge = 1 }
	};
	struct ibv_srq *srq;
	struct device d;
	struct end e;
	int fd;

	device_open(&d);
	fd = d.ctx->cmd_fd;
	end_make(&e, &d, NULL);
	srq = ibv_create_srq(d.pd, &srq_init);
	REQUIRE(srq);
	send.head.qp_handle = e.qp->handle;
	REQUIRE_EQ(UVERBS_COMMAND(fd, POST_SEND, &send, &answer), EOPNOTSUPP);
	recv.head.qp_handle = e.qp->handle;
	REQUIRE_EQ(UVERBS_COMMAND(fd, POST_RECV, &recv, &answer), EOPNOTSUPP);
	/* The same command, for another object. */
	recv.head.qp_handle = srq->handle;
	REQUIRE_EQ(UVERBS_COMMAND(fd, POST_SRQ_RECV, &recv, &answer), EOPNOTSUPP);
	poll.cq_handle = e.scq->handle;
	REQUIRE_EQ(UVERBS_COMMAND(fd, POLL_CQ, &poll, &answer), EOPNOTSUPP);
	REQUIRE_ERRNO(ibv_destroy_srq(srq), 0);
	end_free(&e);
	device_close(&d);
}

/*
 * Verbs that change an object judge what is sent along with the command before
 * they change anything: an answer of EOPNOTSUPP leaves the object as it was.
 */
static void unknown_requests(void)
{
	struct {
		struct ib_uverbs_resize_cq head;
		uint64_t unknown;
	} resize = { .head = { .cqe = 1000 }, .unknown = 1 };
	struct {
		struct ib_uverbs_rereg_mr head;
		uint64_t unknown;
	} rereg = {
		.head = { .flags = IBV_REREG_MR_CHANGE_ACCESS },
		.unknown = 1,
	};
	uint64_t answer[16];
	struct region r;
	struct device d;
	struct end e;

	device_open(&d);
	end_make(&e, &d, NULL);
	end_to_state(&e, IBV_QPS_RTS);
	region_make(&r, &d, 64, 0, ACCESS_ALL);
	resize.head.cq_handle = e.scq->handle;
	REQUIRE_EQ(UVERBS_COMMAND(d.ctx->cmd_fd, RESIZE_CQ, &resize, &answer),
		   EOPNOTSUPP);
	rereg.head.mr_handle = r.mr->handle;
	REQUIRE_EQ(UVERBS_COMMAND(d.ctx->cmd_fd, REREG_MR, &rereg, &answer),
		   EOPNOTSUPP);
	/*
	 * Completions come where the program looks; received data are written.
	 */
	recv_region(&e, 1, &r, 0, 8);
	send_region(&e, 2, &r, 8, 8);
	EXPECT_OK(e.scq, 2);
	EXPECT_OK(e.rcq, 1);
	end_free(&e);
	region_free(&r);
	device_close(&d);
}

const struct test_case command_cases[] = {
	{ "data_path_by_commands", data_path_by_commands },
	{ "unknown_requests", unknown_requests },
	{ }
};
