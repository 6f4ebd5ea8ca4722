// SPDX-License-Identifier: GPL-2.0
/* Posting requests, and their completions. */
#define _GNU_SOURCE
#include "../common.h"

#include <arpa/inet.h>
#include <sched.h>
#include <stdlib.h>

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

void send_atomic_write(struct end *e, uint64_t wr_id, unsigned int flags,
		       const struct peer *to, uint64_t offset, uint64_t value)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(e->qp);

	ibv_wr_start(qp);
	qp->wr_id = wr_id;
	qp->wr_flags = flags;
	ibv_wr_atomic_write(qp, to->rkey, to->addr + offset, &value);
	REQUIRE_ERRNO(ibv_wr_complete(qp), 0);
}

void send_flush(struct end *e, uint64_t wr_id, unsigned int flags,
		const struct peer *to, uint64_t offset, size_t length,
		uint8_t type, uint8_t level)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(e->qp);

	ibv_wr_start(qp);
	qp->wr_id = wr_id;
	qp->wr_flags = flags;
	ibv_wr_flush(qp, to->rkey, to->addr + offset, length, type, level);
	REQUIRE_ERRNO(ibv_wr_complete(qp), 0);
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

static struct ibv_wc completion_of(struct ibv_cq *cq, uint64_t wr_id,
				   const char *file, int line)
{
	struct ibv_wc wc;

	if (!next_wc_within(cq, &wc, PATIENCE_US))
		test_fail(file, line, "no completion came for request %llu",
			  (unsigned long long)wr_id);
	return wc;
}

static void check_wc(const struct ibv_wc *wc, uint64_t wr_id,
		     enum ibv_wc_status status, const char *file, int line)
{
	if (wc->wr_id != wr_id || wc->status != status)
		test_fail(file, line,
			  "completion of request %llu: %s; expected request %llu: %s",
			  (unsigned long long)wc->wr_id,
			  ibv_wc_status_str(wc->status),
			  (unsigned long long)wr_id, ibv_wc_status_str(status));
}

struct ibv_wc expect_wc_at(struct ibv_cq *cq, uint64_t wr_id,
			   enum ibv_wc_status status, const char *file,
			   int line)
{
	struct ibv_wc wc = completion_of(cq, wr_id, file, line);

	check_wc(&wc, wr_id, status, file, line);
	return wc;
}

bool expect_refusal_at(struct ibv_cq *cq, uint64_t wr_id,
		       enum ibv_wc_status status, const char *file, int line)
{
	struct ibv_wc wc = completion_of(cq, wr_id, file, line);

	/* wire_only.sh says so. */
	if (getenv("WIRE_LOSES") && wc.wr_id == wr_id &&
	    wc.status == IBV_WC_RETRY_EXC_ERR)
		return false;
	check_wc(&wc, wr_id, status, file, line);
	return true;
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
