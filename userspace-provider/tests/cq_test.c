// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Completion queues: rings, polling, arming. */
#include <errno.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <ccan/array_size.h>

#include "provider_test.h"

/* Completions are taken in order through all rings that the queue had. */
void test_resize(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	struct ibv_cq *cq = new_cq(8);
	struct ibv_qp *qp = new_qp(IBV_QPT_RC, cq, 8);
	struct fake_qp *fqp = fake_qp(qp);
	struct ibv_wc wc[8];
	uint32_t n = 0, taken = 0, i;

	/* Not from the start of the ring, nor in its first lap. */
	for (; n < 11; n++) {
		fake_complete_send(fqp, n, n + 1);
		CHECK(poll(cq, 1, wc) == 1 && wc[0].wr_id == taken++);
	}
	for (i = 0; i < 3; i++, n++)
		fake_complete_send(fqp, n, n + 1);
	CHECK(!fake.ops->resize_cq(cq, 16));
	CHECK(cq->cqe == 16);
	CHECK(poll(cq, 2, wc) == 2 && wc[1].wr_id == 12);
	taken += 2;
	for (i = 0; i < 2; i++, n++)
		fake_complete_send(fqp, n, n + 1);
	/* Twice with nothing between, and smaller. */
	CHECK(!fake.ops->resize_cq(cq, 2));
	CHECK(!fake.ops->resize_cq(cq, 4));
	fake_complete_send(fqp, n, n + 1);
	n++;
	CHECK(poll(cq, 8, wc) == 4);
	for (i = 0; i < 4; i++)
		CHECK(wc[i].wr_id == taken++);
	CHECK(!poll(cq, 8, wc));
	CHECK(le32toh(fake_cq(cq)->ctrl->consumer) == n && taken == n);
	for (i = 0; i < 30; i++, n++) {
		fake_complete_send(fqp, n, n + 1);
		CHECK(poll(cq, 8, wc) == 1 && wc[0].wr_id == taken++);
	}

	/*
	 * Completions from before a reset are not seen, whichever ring they are
	 * in.
	 */
	fake_complete_send(fqp, 100, 1);
	CHECK(!fake.ops->resize_cq(cq, 8));
	fake_complete_send(fqp, 101, 2);
	CHECK(!fake.ops->modify_qp(qp, &attr, IBV_QP_STATE));
	qp->state = IBV_QPS_RTS;
	fake_complete_send(fqp, 102, 1);
	CHECK(poll(cq, 8, wc) == 1 && wc[0].wr_id == 102);

	/* A queue goes with rings that were not emptied. */
	fake_complete_send(fqp, 103, 2);
	CHECK(!fake.ops->resize_cq(cq, 8));
	CHECK(!fake.ops->resize_cq(cq, 8));
	CHECK(!fake.ops->destroy_qp(qp));
	CHECK(!fake.ops->destroy_cq(cq));
}

/* Bytes that this process has mapped. */
static size_t address_space(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	size_t pages;

	CHECK(file && fscanf(file, "%zu", &pages) == 1);
	fclose(file);

	return pages * sysconf(_SC_PAGESIZE);
}

/* A program without addresses for another ring keeps the one that it has. */
void test_resize_no_memory(void)
{
	struct ibv_cq *cq = new_cq(8);
	struct ibv_qp *qp = new_qp(IBV_QPT_RC, cq, 8);
	struct rlimit before, none;
	struct ibv_wc wc[8];

	fake_complete_send(fake_qp(qp), 0, 1);
	CHECK(!getrlimit(RLIMIT_AS, &before));
	none = before;
	none.rlim_cur = 0;
	CHECK(!setrlimit(RLIMIT_AS, &none));
	CHECK(fake.ops->resize_cq(cq, 16) == ENOMEM);
	CHECK(!setrlimit(RLIMIT_AS, &before));
	fake_complete_send(fake_qp(qp), 1, 2);
	CHECK(poll(cq, 8, wc) == 2 && wc[1].wr_id == 1);

	/* And the addresses suffice, though the program has no more of them. */
	none.rlim_cur = address_space() + sysconf(_SC_PAGESIZE);
	CHECK(!setrlimit(RLIMIT_AS, &none));
	CHECK(!fake.ops->resize_cq(cq, 16));
	CHECK(!setrlimit(RLIMIT_AS, &before));
	fake_complete_send(fake_qp(qp), 2, 3);
	CHECK(poll(cq, 8, wc) == 1 && wc[0].wr_id == 2);

	/* No ring of the device's has such a size. */
	CHECK(fake.ops->resize_cq(cq, 0) == EINVAL);
	CHECK(fake.ops->resize_cq(cq, FERRULE_MAX_CQ_DEPTH + 1) == EINVAL);
}

void test_poll_ex(void)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 8,
		.wc_flags = IBV_WC_STANDARD_FLAGS |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
	};
	struct ibv_values_ex clock = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	struct ibv_poll_cq_attr poll_attr = {};
	struct ibv_cq_ex *cq;
	struct fake_qp *fqp;
	struct ibv_wc wc;
	struct ferrule_cqe cqe = {
		.wr_id = htole64(5),
		.byte_len = htole32(6),
		.imm_or_inv = { 1, 2, 3, 4 },
		.src_qp = htole32(7),
		.opcode = FERRULE_WC_RECV,
		.flags = FERRULE_WC_WITH_IMM,
		.sl = 3,
		.vendor_err = htole16(9),
	};

	attr.wc_flags |= IBV_WC_EX_WITH_CVLAN;
	CHECK(!fake.ops->create_cq_ex(fake.context, &attr));
	CHECK(errno == EOPNOTSUPP);
	attr.wc_flags &= ~IBV_WC_EX_WITH_CVLAN;
	cq = fake.ops->create_cq_ex(fake.context, &attr);
	CHECK(cq);
	fqp = fake_qp(new_qp(IBV_QPT_RC, ibv_cq_ex_to_cq(cq), 4));
	cqe.qp_num = htole32(fqp->qp_num);
	cqe.qp_gen = htole32(fqp->layout.qp_gen);

	CHECK(ibv_start_poll(cq, &poll_attr) == ENOENT);
	CHECK(!fake.ops->query_rt_values(fake.context, &clock));
	cqe.timestamp = htole64(clock.raw_clock.tv_nsec);
	fake_complete(fqp->recv_cq, cqe);
	cqe.flags = FERRULE_WC_WITH_INV;
	cqe.status = FERRULE_WC_WR_FLUSH_ERR;
	fake_complete(fqp->recv_cq, cqe);
	fake_complete(fqp->recv_cq, cqe);

	CHECK(!ibv_start_poll(cq, &poll_attr));
	CHECK(cq->wr_id == 5 && cq->status == IBV_WC_SUCCESS);
	CHECK(ibv_wc_read_opcode(cq) == IBV_WC_RECV);
	CHECK(ibv_wc_read_byte_len(cq) == 6 && ibv_wc_read_src_qp(cq) == 7);
	CHECK(ibv_wc_read_imm_data(cq) == htobe32(0x01020304));
	CHECK(ibv_wc_read_wc_flags(cq) == IBV_WC_WITH_IMM);
	CHECK(ibv_wc_read_sl(cq) == 3 && ibv_wc_read_vendor_err(cq) == 9);
	CHECK(ibv_wc_read_completion_ts(cq) == clock.raw_clock.tv_nsec);
	CHECK(ibv_wc_read_completion_wallclock_ns(cq) / 1000000000 + 60 >
	      (uint64_t)time(NULL));
	CHECK(!ibv_next_poll(cq));
	CHECK(cq->status == IBV_WC_WR_FLUSH_ERR);
	CHECK(ibv_wc_read_invalidated_rkey(cq) == 0x04030201);
	ibv_end_poll(cq);

	CHECK(!ibv_start_poll(cq, &poll_attr));
	CHECK(ibv_next_poll(cq) == ENOENT);
	ibv_end_poll(cq);

	/* A datagram: both ways to poll tell the kind of its packet alike. */
	cqe.flags = FERRULE_WC_GRH;
	cqe.status = FERRULE_WC_SUCCESS;
	for (cqe.ip_version = 4; cqe.ip_version <= 6; cqe.ip_version += 2) {
		int kind = 8 | (cqe.ip_version == 4 ? 2 : 1);

		fake_complete(fqp->recv_cq, cqe);
		fake_complete(fqp->recv_cq, cqe);
		CHECK(!ibv_start_poll(cq, &poll_attr));
		CHECK(ibv_wc_read_sl(cq) == kind);
		ibv_end_poll(cq);
		CHECK(poll(ibv_cq_ex_to_cq(cq), 1, &wc) == 1 && wc.sl == kind);
	}

	/* The other way to poll the same queue. */
	cqe.flags = FERRULE_WC_WITH_INV;
	cqe.status = FERRULE_WC_WR_FLUSH_ERR;
	fake_complete(fqp->recv_cq, cqe);
	CHECK(poll(ibv_cq_ex_to_cq(cq), 1, &wc) == 1);
	CHECK(wc.invalidated_rkey == 0x04030201);
	CHECK(wc.wc_flags == IBV_WC_WITH_INV && wc.byte_len == 6);
}

/* The time of day is right by whatever clock the device has. */
void test_clock(void)
{
	static const uint64_t aheads[] = { 0, 1ULL << 50, -(1ULL << 40) };
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 8,
		.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
	};
	struct ibv_values_ex clock = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	struct ibv_poll_cq_attr poll_attr = {};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(aheads); i++) {
		struct ferrule_cqe cqe = {};
		uint64_t seconds, now;
		struct fake_qp *fqp;
		struct ibv_cq_ex *cq;

		fake_close();
		fake_open();
		fake.clock_ahead = aheads[i];
		cq = fake.ops->create_cq_ex(fake.context, &attr);
		CHECK(cq);
		fqp = fake_qp(new_qp(IBV_QPT_RC, ibv_cq_ex_to_cq(cq), 4));
		CHECK(!fake.ops->query_rt_values(fake.context, &clock));
		cqe.qp_num = htole32(fqp->qp_num);
		cqe.qp_gen = htole32(fqp->layout.qp_gen);
		cqe.timestamp = htole64(clock.raw_clock.tv_nsec);
		now = time(NULL);
		fake_complete(fqp->recv_cq, cqe);
		CHECK(!ibv_start_poll(cq, &poll_attr));
		seconds = ibv_wc_read_completion_wallclock_ns(cq) / 1000000000;
		CHECK(seconds + 2 >= now && seconds <= now + 60);
		CHECK(fake.clock_queries > 1);
		ibv_end_poll(cq);
	}
}

void test_arm(void)
{
	struct ibv_cq *cq = new_cq(8);
	struct fake_cq *fcq = fake_cq(cq);
	struct ibv_comp_channel channel;
	int ends[2];

	/* Nobody would hear of the event. */
	CHECK(!fake.ops->req_notify_cq(cq, 0));
	fake_event(fcq, false);
	CHECK(!fcq->events);

	/* An event waits all the time, as far as the channel tells. */
	CHECK(!pipe(ends) && write(ends[1], "", 1) == 1);
	channel.fd = ends[0];
	cq->channel = &channel;
	fake_event(fcq, false);
	CHECK(!fcq->events);

	CHECK(!fake.ops->req_notify_cq(cq, 0));
	/* "Solicited" does not weaken "any". */
	CHECK(!fake.ops->req_notify_cq(cq, 1));
	fake_event(fcq, false);
	CHECK(fcq->events == 1);
	/* One event at a time: this arming is of the number that was used. */
	CHECK(!fake.ops->req_notify_cq(cq, 0));
	fake_event(fcq, false);
	CHECK(fcq->events == 1);

	fake.ops->cq_event(cq);
	fake_event(fcq, false);
	CHECK(fcq->events == 1);
	CHECK(!fake.ops->req_notify_cq(cq, 1));
	fake_event(fcq, false);
	CHECK(fcq->events == 1);
	fake_event(fcq, true);
	CHECK(fcq->events == 2);

	fake.ops->cq_event(cq);
	CHECK(!fake.ops->req_notify_cq(cq, 1));
	/* "Any" strengthens "solicited". */
	CHECK(!fake.ops->req_notify_cq(cq, 0));
	fake_event(fcq, false);
	CHECK(fcq->events == 3);

	cq->channel = NULL;
	close(ends[0]);
	close(ends[1]);
}

/* An event that the kernel drops does not make the queue deaf. */
void test_lost_event(void)
{
	struct ibv_cq *cq = new_cq(8);
	struct fake_cq *fcq = fake_cq(cq);
	struct ibv_comp_channel channel;
	int ends[2];

	CHECK(!pipe(ends));
	channel.fd = ends[0];
	cq->channel = &channel;

	CHECK(!fake.ops->req_notify_cq(cq, 0));
	/* Armed twice is armed once, and "solicited" does not weaken "any". */
	CHECK(!fake.ops->req_notify_cq(cq, 1));
	fake_event(fcq, false);
	fake_event(fcq, false);
	CHECK(fcq->events == 1);

	/* Nothing has come of it. */
	CHECK(!fake.ops->req_notify_cq(cq, 0));
	fake_event(fcq, false);
	CHECK(fcq->events == 2);

	/* This one is there, and has not been taken yet. */
	CHECK(write(ends[1], "", 1) == 1);
	CHECK(!fake.ops->req_notify_cq(cq, 0));
	fake_event(fcq, false);
	CHECK(fcq->events == 2);

	fake.ops->cq_event(cq);
	CHECK(!fake.ops->req_notify_cq(cq, 0));
	fake_event(fcq, false);
	CHECK(fcq->events == 3);

	cq->channel = NULL;
	close(ends[0]);
	close(ends[1]);
}

static void check_flushed(const struct ibv_wc *wc, const struct ibv_qp *qp,
			  uint64_t wr_id)
{
	CHECK(wc->wr_id == wr_id && wc->status == IBV_WC_WR_FLUSH_ERR);
	CHECK(wc->qp_num == qp->qp_num);
}

/* The device went without flushing: polling does, and no request ends twice. */
void test_unflushed(void)
{
	struct ibv_recv_wr recv = { .wr_id = 50 }, *bad;
	struct ibv_cq *cq = new_cq(16), *other = new_cq(16);
	struct ibv_qp *qp = new_qp(IBV_QPT_RC, cq, 4);
	struct ibv_qp *second = new_qp(IBV_QPT_RC, cq, 4);
	struct ibv_qp *elsewhere = new_qp(IBV_QPT_RC, other, 4);
	struct ibv_wc wc[8];
	uint64_t i;

	for (i = 0; i < 3; i++)
		CHECK(!post_id(qp, i));
	CHECK(!post_id(second, 20) && !post_id(elsewhere, 30));
	CHECK(!fake.ops->post_recv(qp, &recv, &bad));
	fake_complete_send(fake_qp(qp), 0, 1);

	/* A device that flushes by itself is waited for. */
	fake.status->dead = htole32(FERRULE_DEAD);
	CHECK(poll(cq, 1, wc) == 1 && wc[0].wr_id == 0);
	CHECK(!poll(cq, 8, wc));

	fake_complete_send(fake_qp(qp), 1, 2);
	fake.status->dead = htole32(FERRULE_DEAD_UNFLUSHED);
	CHECK(poll(cq, 3, wc) == 3);
	CHECK(wc[0].wr_id == 1 && wc[0].status == IBV_WC_SUCCESS);
	check_flushed(&wc[1], qp, 2);
	check_flushed(&wc[2], qp, 50);
	CHECK(wc[2].opcode & IBV_WC_RECV);

	/* A completion that comes too late is not taken. */
	fake_complete_send(fake_qp(qp), 2, 3);
	CHECK(poll(cq, 8, wc) == 1);
	check_flushed(&wc[0], second, 20);
	CHECK(!poll(cq, 8, wc));
	CHECK(poll(other, 8, wc) == 1);
	check_flushed(&wc[0], elsewhere, 30);
	CHECK(!poll(other, 8, wc));
	CHECK(post_id(qp, 3) == EIO);
}

static int start_poll(struct ibv_cq *cq)
{
	struct ibv_poll_cq_attr attr = {};

	return ibv_start_poll((struct ibv_cq_ex *)cq, &attr);
}

/* A program that polls in vain gives its processor to others now and then. */
void test_yield(void)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 8,
		.wc_flags = IBV_WC_STANDARD_FLAGS,
	};
	struct ibv_cq *cq = ibv_cq_ex_to_cq(
		fake.ops->create_cq_ex(fake.context, &attr));
	struct ibv_qp *qp = new_qp(IBV_QPT_RC, cq, 4);
	unsigned int i, empty = 0;
	struct ibv_wc wc;

	for (; !fake.yields; empty++)
		CHECK(empty < 10000 && !poll(cq, 1, &wc));
	CHECK(empty > 100);
	/* Again after as many, by either interface. */
	for (i = 0; i < empty; i++)
		CHECK(fake.yields == 1 &&
		      (i % 2 ? start_poll(cq) == ENOENT : !poll(cq, 1, &wc)));
	CHECK(fake.yields == 2);

	/* Not while completions come in between. */
	for (i = 1; i < 4 * empty; i++) {
		if (i % (empty - 1)) {
			CHECK(!poll(cq, 1, &wc));
			continue;
		}
		fake_complete_send(fake_qp(qp), i, 1);
		CHECK(poll(cq, 1, &wc) == 1);
	}
	CHECK(fake.yields == 2);

	/* Nor if the user forbids it. */
	fake_close();
	setenv("FERRULE_YIELD_CQ_POLL", "0", 1);
	fake_open();
	unsetenv("FERRULE_YIELD_CQ_POLL");
	cq = new_cq(8);
	for (i = 0; i < 4 * empty; i++)
		CHECK(!poll(cq, 1, &wc));
	CHECK(!fake.yields);
}
