// SPDX-License-Identifier: GPL-2.0
/* A program with threads that dies, shares its file, or obeys no library. */
#define _GNU_SOURCE
#include "threads.h"

#include "../neighbour.h"
#include "../raw.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>

static struct team team;

/* Threads that are busy, beside all that changes what they use. */
static void live_for_ever(void *arg)
{
	_Atomic bool *is_busy = arg;

	team_busy(&team, THREADS);
	*is_busy = true;
	for (unsigned int i = 0;; i++) {
		struct region r;
		struct ibv_mw *mw = NULL;

		region_make(&r, &team.d, 8 * PART, 0, ACCESS);
		/* Later, when they have been apart for a while. */
		if (i > 20) {
			mw = ibv_alloc_mw(team.d.pd, IBV_MW_TYPE_2);
			REQUIRE(mw);
		}
		team_await(&team, 1);
		if (mw)
			REQUIRE_ERRNO(ibv_dealloc_mw(mw), 0);
		region_free(&r);
	}
}

void killed(void)
{
	_Atomic bool *is_busy = shared_map(sizeof(*is_busy));
	struct neighbour *n = neighbour_start();

	for (unsigned int i = 0; i < test_rounds(20); i++) {
		pid_t child;

		*is_busy = false;
		child = fork_process(live_for_ever, (void *)is_busy);
		while (i % 4 && !*is_busy)
			sleep_us(100);
		sleep_us(i * 3700 % 50000);
		REQUIRE_EQ(kill(child, SIGKILL), 0);
		REQUIRE_EQ(waitpid(child, NULL, 0), child);
		neighbour_await(n, 2);
	}
	neighbour_stop(n);
	/* And whoever comes next. */
	team_busy(&team, THREADS);
	team_stop(&team);
}

/* Posts until the device has gone; all but the last request are told of. */
static void use_until_gone(struct worker *w)
{
	struct ibv_sge sge = sge_of(&w->own, 0, 64);
	struct peer to = end_address(&w->b, &w->own);
	unsigned int posted = 0, ended = 0;
	bool gone = false;
	struct ibv_wc wc;
	uint64_t end;
	int err;

	while (!gone) {
		for (; !gone && posted - ended < 4; posted += !gone) {
			err = try_send(&w->a, posted, IBV_WR_RDMA_WRITE,
				       IBV_SEND_SIGNALED, &sge, 1, &to, 64, 0);
			if (err)
				REQUIRE_ERRNO(err, EIO);
			gone = err;
		}
		if (ibv_poll_cq(w->a.scq, 1, &wc) != 1)
			continue;
		REQUIRE_EQ(wc.wr_id, ended);
		if (wc.status != IBV_WC_SUCCESS)
			REQUIRE_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
		gone |= wc.status != IBV_WC_SUCCESS;
		ended++;
		w->done++;
	}
	for (; ended + 1 < posted; ended++) {
		next_wc(w->a.scq, &wc);
		REQUIRE_EQ(wc.wr_id, ended);
		REQUIRE(wc.status == IBV_WC_SUCCESS ||
			wc.status == IBV_WC_WR_FLUSH_ERR);
	}
	end = now_us() + PATIENCE_US;
	/* Soon after the first flush posting says so, too. */
	do {
		REQUIRE(now_us() < end);
		err = try_send(&w->a, 0, IBV_WR_RDMA_WRITE, 0, &sge, 1, &to, 64,
			       0);
	} while (!err || err == ENOMEM);
	REQUIRE_ERRNO(err, EIO);
	team_meet(w->team);
	/* Until the process ends. */
	pause();
}

static int at_work[2];

static void threads_until_gone(void *arg)
{
	(void)arg;
	team_open(&team, THREADS);
	team_start(&team, use_until_gone);
	team_await(&team, 2);
	put_bytes(at_work[1], "", 1);
	team_meet(&team);
}

/* The device goes under the threads, and all are told. */
void removed(void)
{
	const char *device = opt.device;
	struct own_device own;
	pid_t child;

	for (unsigned int i = 0; i < test_rounds(5); i++) {
		REQUIRE(!pipe(at_work));
		own_device_make(&own, 0, 9000);
		opt.device = own.device;
		wait_for_gids(own.device);
		child = fork_process(threads_until_gone, NULL);
		get_bytes(at_work[0], &(char){ 0 }, 1);
		sleep_us(i * 1700 % 10000);
		own_device_delete(&own);
		join_process(child);
		own_device_clean(&own);
		opt.device = device;
		close(at_work[0]);
		close(at_work[1]);
	}
}

/* Another program by the same file, with threads of its own. */
static int ready[2];

static void work_by_import(void *arg)
{
	const struct device *theirs = arg;
	struct device mine = *theirs;
	char byte;

	get_bytes(ready[0], &byte, 1);
	mine.ctx = ibv_import_device(dup(theirs->ctx->cmd_fd));
	if (!mine.ctx)
		FAIL("ibv_import_device: %s", strerror(errno));
	mine.pd = ibv_import_pd(mine.ctx, theirs->pd->handle);
	REQUIRE(mine.pd);
	team_open_on(&team, &mine, 2);
	team_start(&team, work);
	team_await(&team, test_rounds(100));
	team.stop = true;
	team_join(&team);
	pthread_barrier_destroy(&team.barrier);
	region_free(&team.given);
	ibv_unimport_pd(mine.pd);
	REQUIRE_EQ(ibv_close_device(mine.ctx), 0);
}

void imported(void)
{
	struct device d;
	pid_t child;

	REQUIRE(!pipe(ready));
	device_open(&d);
	child = fork_process(work_by_import, &d);
	team_open_on(&team, &d, THREADS);
	team_start(&team, work);
	put_bytes(ready[1], "", 1);
	team_await(&team, test_rounds(100));
	join_process(child);
	team_stop(&team);
}

/* FERRULE_METHOD_ADD_THREAD or FERRULE_METHOD_IMPORT; 0 or an errno value. */
static int add_doorbells(int fd, uint16_t method,
			 struct ferrule_alloc_ucontext_resp *resp)
{
	return raw_call(fd, method, FERRULE_ATTR_DOORBELLS, sizeof(*resp),
			(uintptr_t)resp);
}

/* The head of an extended command by write(2), with a request of the driver's. */
struct head {
	struct ib_uverbs_cmd_hdr hdr;
	struct ib_uverbs_ex_cmd_hdr ex;
};

static int write_command(int fd, void *cmd, size_t size, int number, void *resp,
			 size_t core_resp, size_t drv_resp)
{
	struct head *head = cmd;
	const size_t drv = sizeof(struct ferrule_create_cmd);

	head->hdr.command = IB_USER_VERBS_CMD_FLAG_EXTENDED | number;
	head->hdr.in_words = (size - sizeof(*head) - drv) / 8;
	head->hdr.out_words = core_resp / 8;
	head->ex.response = (uintptr_t)resp;
	head->ex.provider_in_words = drv / 8;
	head->ex.provider_out_words = drv_resp / 8;
	return write(fd, cmd, size) == (ssize_t)size ? 0 : errno;
}

struct cq_resp {
	struct ib_uverbs_ex_create_cq_resp core;
	struct ferrule_create_cq_resp drv;
};

struct qp_resp {
	struct ib_uverbs_ex_create_qp_resp core;
	struct ferrule_create_qp_resp drv;
};

static int create_cq(struct device *d, struct ferrule_create_cmd drv,
		     struct cq_resp *resp)
{
	struct {
		struct head head;
		struct ib_uverbs_ex_create_cq core;
		struct ferrule_create_cmd drv;
	} cmd = {
		.core = { .cqe = 16, .comp_channel = -1 },
		.drv = drv,
	};

	return write_command(d->ctx->cmd_fd, &cmd, sizeof(cmd),
			     IB_USER_VERBS_EX_CMD_CREATE_CQ, resp,
			     sizeof(resp->core), sizeof(resp->drv));
}

static int create_qp(struct device *d, const struct ibv_cq *cq,
		     struct ferrule_create_cmd drv, struct qp_resp *resp)
{
	struct {
		struct head head;
		struct ib_uverbs_ex_create_qp core;
		struct ferrule_create_cmd drv;
	} cmd = {
		.core = {
			.pd_handle = d->pd->handle,
			.send_cq_handle = cq->handle,
			.recv_cq_handle = cq->handle,
			.max_send_wr = 4,
			.max_recv_wr = 4,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.qp_type = IBV_QPT_RC,
		},
		.drv = drv,
	};

	return write_command(d->ctx->cmd_fd, &cmd, sizeof(cmd),
			     IB_USER_VERBS_EX_CMD_CREATE_QP, resp,
			     sizeof(resp->core), sizeof(resp->drv));
}

struct srq_resp {
	struct ib_uverbs_create_srq_resp core;
	struct ferrule_create_srq_resp drv;
};

/* Not an extended command, so its sizes are in words of 32 bits. */
static int create_srq(struct device *d, struct ferrule_create_cmd drv,
		      struct srq_resp *resp)
{
	const struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_create_srq core;
		struct ferrule_create_cmd drv;
	} cmd = {
		.hdr = {
			.command = IB_USER_VERBS_CMD_CREATE_SRQ,
			.in_words = sizeof(cmd) / 4,
			.out_words = sizeof(*resp) / 4,
		},
		.core = {
			.response = (uintptr_t)resp,
			.pd_handle = d->pd->handle,
			.max_wr = 4,
			.max_sge = 1,
		},
		.drv = drv,
	};

	return write(d->ctx->cmd_fd, &cmd, sizeof(cmd)) == sizeof(cmd) ? 0 :
									 errno;
}

/* Queues with doorbells that there are, and with others. */
static void create_all(struct device *d, uint32_t number, int want)
{
	const struct ferrule_create_cmd good = { .doorbells = number };
	const struct ferrule_create_cmd bad = { .doorbells = number,
						.reserved = 1 };
	struct cq_resp cq_resp;
	struct qp_resp qp_resp;
	struct srq_resp srq_resp;
	struct ibv_cq *cq = ibv_create_cq(d->ctx, 16, NULL, NULL, 0);

	REQUIRE(cq);
	REQUIRE_ERRNO(create_cq(d, good, &cq_resp), want);
	REQUIRE_ERRNO(create_cq(d, bad, &cq_resp), EINVAL);
	REQUIRE_ERRNO(create_qp(d, cq, good, &qp_resp), want);
	REQUIRE_ERRNO(create_qp(d, cq, bad, &qp_resp), EINVAL);
	REQUIRE_ERRNO(create_srq(d, good, &srq_resp), want);
	REQUIRE_ERRNO(create_srq(d, bad, &srq_resp), EINVAL);
	/* The queue pair that nobody knows uses the queue. */
	REQUIRE_ERRNO(ibv_destroy_cq(cq), want ? 0 : EBUSY);
}

/*
 * The core cannot tell the program of a queue that the driver has made, and has
 * the driver destroy it again: the driver's answer goes to the second page, and
 * the core's to the first one, which cannot be written.
 */
void unanswered(void)
{
	struct ferrule_create_cmd drv = {};
	struct ferrule_alloc_ucontext_resp resp;
	struct device d;
	struct ibv_cq *cq;
	uint8_t *second = (uint8_t *)shared_map(8192) + 4096;
	struct qp_resp *no_qp = (void *)(second - sizeof(no_qp->core));
	struct cq_resp *no_cq = (void *)(second - sizeof(no_cq->core));
	struct srq_resp *no_srq = (void *)(second - sizeof(no_srq->core));

	if (strncmp(opt.device, "ferrule", 7))
		test_skip("only ferrule's methods are known here");
	REQUIRE(!mprotect(second - 4096, 4096, PROT_READ));
	device_open(&d);
	cq = ibv_create_cq(d.ctx, 16, NULL, NULL, 0);
	REQUIRE(cq);
	REQUIRE_ERRNO(add_doorbells(d.ctx->cmd_fd, FERRULE_METHOD_IMPORT, &resp),
		      0);
	for (int i = 0; i < 2; i++) {
		REQUIRE_ERRNO(create_cq(&d, drv, no_cq), EFAULT);
		REQUIRE_ERRNO(create_qp(&d, cq, drv, no_qp), EFAULT);
		REQUIRE_ERRNO(create_srq(&d, drv, no_srq), EFAULT);
		drv.doorbells = resp.number;
	}
	/* There is no queue pair that would use it. */
	REQUIRE_ERRNO(ibv_destroy_cq(cq), 0);
	device_close(&d);
}

void hostile(void)
{
	struct ferrule_alloc_ucontext_resp resp[MOST] = {};
	const long processors = sysconf(_SC_NPROCESSORS_CONF);
	const uint32_t unknown[] = { 1, 16, 1000, 1u << 31, ~0u };
	struct neighbour *n = neighbour_start();
	uint32_t last = 0;
	unsigned int count = 0;
	int fd, err;

	if (strncmp(opt.device, "ferrule", 7))
		test_skip("only ferrule's methods are known here");
	team_open(&team, THREADS);
	fd = team.d.ctx->cmd_fd;
	for (; !(err = add_doorbells(fd, FERRULE_METHOD_ADD_THREAD,
				     &resp[count])); count++) {
		REQUIRE(count + 1 < processors);
		REQUIRE(resp[count].number > last);
		last = resp[count].number;
	}
	if (count || err != EOPNOTSUPP) {
		REQUIRE_ERRNO(err, ENOMEM);
		REQUIRE_EQ(count, processors <= MOST ? processors - 1 : MOST - 1);
	}
	for (unsigned int i = 0; i < count; i++) {
		REQUIRE_ERRNO(raw_method(fd, FERRULE_METHOD_UNIMPORT,
					 resp[i].number), EINVAL);
		REQUIRE_ERRNO(raw_method(fd, FERRULE_METHOD_KICK_DOORBELLS,
					 resp[i].number), 0);
		create_all(&team.d, resp[i].number, 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(unknown); i++) {
		REQUIRE_ERRNO(raw_method(fd, FERRULE_METHOD_UNIMPORT,
					 unknown[i]), EINVAL);
		REQUIRE_ERRNO(raw_method(fd, FERRULE_METHOD_KICK_DOORBELLS,
					 unknown[i]), EINVAL);
		create_all(&team.d, unknown[i], EINVAL);
	}
	REQUIRE_ERRNO(raw_method(fd, FERRULE_METHOD_KICK_DOORBELLS, last + 1),
		      EINVAL);
	create_all(&team.d, last + 1, EINVAL);
	test_note("%u threads of %ld processors", count, processors);

	/* The provider has none to give now, and all threads use the first. */
	team_start(&team, work);
	team_await(&team, 5);
	team.stop = true;
	team_join(&team);
	neighbour_await(n, 2);
	neighbour_stop(n);
	/* With objects that nobody has a handle of, so it closes the file. */
	REQUIRE_EQ(ibv_close_device(team.d.ctx), 0);
}
