// SPDX-License-Identifier: GPL-2.0
/*
 * Reliable connections: requests that the responder refuses, does not answer
 * yet, or does not answer at all, and the completions of both ends.
 */
#include "interop.h"

/*
 * b has found an error in what a asked for: both ends are in error, and the rest
 * of what was posted is flushed.
 */
static void both_in_error(struct scene *s)
{
	struct ibv_wc wc;

	EXPECT_WC(s->a.e.scq, 3, IBV_WC_WR_FLUSH_ERR);
	end_await_state(&s->a.e, IBV_QPS_ERR);
	next_wc(s->b.e.rcq, &wc);
	REQUIRE_EQ(wc.wr_id, 101);
	REQUIRE(wc.status != IBV_WC_SUCCESS);
	EXPECT_WC(s->b.e.rcq, 102, IBV_WC_WR_FLUSH_ERR);
	EXPECT_NO_WC(s->b.e.rcq);
	end_await_state(&s->b.e, IBV_QPS_ERR);
}

struct culprit {
	enum ibv_wr_opcode opcode;
	uint64_t offset;
	uint32_t len;
	uint32_t flip;		/* of the key */
};

/*
 * Where no receive request tells b, an event does (IBA volume 1, 10.10.3). A
 * WRITE with immediate data needs a receive request in the end: rdma_rxe tells it
 * by that one, ferrule by the event, since it was not begun. And of the events
 * rdma_rxe has the one for keys alone: its states RESPST_ERR_UNSUPPORTED_OPCODE
 * and RESPST_ERR_MISALIGNED_ATOMIC raise none.
 */
static bool tells_by_event(const struct side *b, enum ibv_wr_opcode opcode,
			   enum ibv_event_type event)
{
	return !is_rxe(b) || (event == IBV_EVENT_QP_ACCESS_ERR &&
			      opcode != IBV_WR_RDMA_WRITE_WITH_IMM);
}

static void refused(bool from_peer, const struct end_config *config,
		    struct culprit c, enum ibv_wc_status status,
		    enum ibv_event_type event)
{
	struct end_config placing = *config;
	struct ibv_sge sge;
	struct scene s;

	placing.send_ops = PLACEMENT;
	scene_make(&s, from_peer, &placing, LEN);
	for (int i = 100; i < 103; i++)
		recv_region(&s.b.e, i, &s.b.r, 0, LEN);
	fill(s.a.r.data, LEN, 1);
	/* The request before it is done. */
	send_region(&s.a.e, 1, &s.a.r, 0, 0);
	s.to.rkey ^= c.flip;
	sge = sge_of(&s.a.r, 0, c.len);
	if (c.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		post_atomic(&s, 2, c.opcode, 0, 0, c.offset, 1, 0);
	else if (c.opcode == IBV_WR_ATOMIC_WRITE)
		send_atomic_write(&s.a.e, 2, 0, &s.to, c.offset, 1);
	else
		send_sges(&s.a.e, 2, c.opcode, 0, &sge, 1, &s.to, c.offset, 0);
	send_region(&s.a.e, 3, &s.a.r, 0, 10);
	EXPECT_OK(s.a.e.scq, 1);
	EXPECT_WC(s.a.e.scq, 2, status);
	EXPECT_OK(s.b.e.rcq, 100);
	both_in_error(&s);
	VERIFY_BYTE(s.b.r.data, LEN, 0);
	if (tells_by_event(&s.b, c.opcode, event))
		expect_async(s.b.d.ctx, event, s.b.e.qp);
	scene_free(&s);
}

void remote_access(bool from_peer)
{
	static const struct culprit culprits[] = {
		{ IBV_WR_RDMA_WRITE, 0, 8, 1 },
		{ IBV_WR_RDMA_READ, 0, 8, 1 },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, WORD, 8, 1 },
		{ IBV_WR_RDMA_WRITE, -1, 8, 0 },
		{ IBV_WR_RDMA_WRITE, LEN - 7, 8, 0 },
		{ IBV_WR_RDMA_READ, LEN, 1, 0 },
		{ IBV_WR_ATOMIC_WRITE, WORD, 8, 1 },
		{ IBV_WR_RDMA_WRITE_WITH_IMM, 0, 8, 1 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(culprits); i++)
		refused(from_peer, &rc, culprits[i], IBV_WC_REM_ACCESS_ERR,
			IBV_EVENT_QP_ACCESS_ERR);
}

/* The queue pair gives no such right (IBA volume 1, 10.10.3.2 and 11.6.2). */
void remote_invalid_request(bool from_peer)
{
	const struct end_config config = { .access = IBV_ACCESS_LOCAL_WRITE };
	static const struct culprit culprits[] = {
		{ IBV_WR_RDMA_WRITE, 0, 8, 0 },
		{ IBV_WR_RDMA_READ, 0, 8, 0 },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, WORD, 8, 0 },
		{ IBV_WR_ATOMIC_WRITE, WORD, 8, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(culprits); i++)
		refused(from_peer, &config, culprits[i], IBV_WC_REM_INV_REQ_ERR,
			IBV_EVENT_QP_REQ_ERR);
	/* An atomic write that is not aligned. */
	refused(from_peer, &rc,
		(struct culprit){ IBV_WR_ATOMIC_WRITE, WORD + 4, 8, 0 },
		IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
	/* An atomic that is not aligned; rdma_rxe's provider posts none. */
	if (!from_peer)
		refused(from_peer, &rc,
			(struct culprit){ IBV_WR_ATOMIC_FETCH_AND_ADD,
					  WORD + 4, 8, 0 },
			IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
}

/*
 * More than the receive request has space for is an invalid request, and an error
 * of length at b (IBA volume 1, 11.6.2). rdma_rxe's send_data_in() takes it for
 * a receive request that is malformed: an error of operation at both ends.
 */
void too_long(bool from_peer)
{
	static const uint32_t lengths[] = { 0, 1, LEN - 1 };

	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		struct scene s;

		scene_make(&s, from_peer, &rc, LEN);
		fill(s.a.r.data, LEN, 1);
		recv_region(&s.b.e, 100, &s.b.r, 0, lengths[i]);
		recv_region(&s.b.e, 101, &s.b.r, 0, LEN);
		recv_region(&s.b.e, 102, &s.b.r, 0, LEN);
		send_region(&s.a.e, 2, &s.a.r, 0, LEN);
		send_region(&s.a.e, 3, &s.a.r, 0, 10);
		EXPECT_WC(s.a.e.scq, 2, is_rxe(&s.b) ? IBV_WC_REM_OP_ERR :
						       IBV_WC_REM_INV_REQ_ERR);
		EXPECT_WC(s.b.e.rcq, 100, is_rxe(&s.b) ? IBV_WC_LOC_QP_OP_ERR :
							 IBV_WC_LOC_LEN_ERR);
		both_in_error(&s);
		VERIFY_BYTE(s.b.r.data + lengths[i], LEN - lengths[i], 0);
		scene_free(&s);
	}
}

/*
 * A window before it is bound, beyond its end, and after each way to end it. Where
 * a window ends rdma_rxe does not look: check_rkey() has the region's end alone.
 */
void refused_window(bool from_peer)
{
	enum way { UNBOUND, BEYOND, BY_OWNER, BY_PEER, FREED, WAYS };

	for (enum way way = UNBOUND; way < WAYS; way++) {
		size_t offset = 0;
		struct peer to = { };
		struct region r;
		struct ibv_sge sge;
		struct ibv_mw *mw;
		struct scene s;

		scene_make(&s, from_peer, &rc, LEN);
		make_bindable(&r, &s, &mw);
		to.addr = (uintptr_t)r.data;
		to.rkey = mw->rkey;
		if (way == BEYOND)
			offset = (is_rxe(&s.b) ? r.len : 64) - 4;
		if (way != UNBOUND)
			to.rkey = bind_window(&s, mw, &r, 0, 64);
		if (way == BY_OWNER)
			local_invalidate(&s, to.rkey);
		if (way == BY_PEER)
			message(&s, IBV_WR_SEND_WITH_INV, 10, to.rkey);
		if (way == FREED)
			REQUIRE_ERRNO(ibv_dealloc_mw(mw), 0);
		fill(s.a.r.data, LEN, 1);
		recv_region(&s.b.e, 101, &s.b.r, 0, LEN);
		recv_region(&s.b.e, 102, &s.b.r, 0, LEN);
		sge = sge_of(&s.a.r, 0, 8);
		send_sges(&s.a.e, 2, IBV_WR_RDMA_WRITE, 0, &sge, 1, &to,
			  offset, 0);
		send_region(&s.a.e, 3, &s.a.r, 0, 10);
		EXPECT_WC(s.a.e.scq, 2, IBV_WC_REM_ACCESS_ERR);
		both_in_error(&s);
		expect_async(s.b.d.ctx, IBV_EVENT_QP_ACCESS_ERR, s.b.e.qp);
		VERIFY_BYTE(r.data, r.len, 0);
		if (way != FREED)
			REQUIRE_ERRNO(ibv_dealloc_mw(mw), 0);
		region_free(&r);
		scene_free(&s);
	}
}

/*
 * A key that cannot be taken back: b's receive request tells it. ferrule answers
 * as to any wrong key. rdma_rxe acknowledges the request that put it in error:
 * RESPST_ERR_INVALIDATE_RKEY leaves the syndrome as it was. It must be the key
 * of a region: what rxe_do_invalidate_mw() does to a window that is not bound
 * takes the kernel down.
 */
void refused_invalidation(bool from_peer)
{
	struct ibv_sge sge;
	struct scene s;

	scene_make(&s, from_peer, &rc, LEN);
	for (int i = 100; i < 103; i++)
		recv_region(&s.b.e, i, &s.b.r, 0, LEN);
	sge = sge_of(&s.a.r, 0, 10);
	send_sges(&s.a.e, 2, IBV_WR_SEND_WITH_INV, IBV_SEND_SIGNALED, &sge, 1,
		  NULL, 0, s.to.rkey);
	EXPECT_WC(s.a.e.scq, 2, is_rxe(&s.b) ? IBV_WC_SUCCESS :
					       IBV_WC_REM_ACCESS_ERR);
	EXPECT_WC(s.b.e.rcq, 100, IBV_WC_REM_INV_REQ_ERR);
	EXPECT_WC(s.b.e.rcq, 101, IBV_WC_WR_FLUSH_ERR);
	end_await_state(&s.b.e, IBV_QPS_ERR);
	scene_free(&s);
}

/* No receive request, and no more patience: a is in error, and b none the worse. */
void rnr_exhausted(bool from_peer)
{
	static const uint8_t retries[] = { 0, 1, 3 };

	for (size_t i = 0; i < ARRAY_SIZE(retries); i++) {
		struct end_config config = rc;
		struct scene s;

		config.rnr_none = retries[i] == 0;
		config.rnr_retry = retries[i];
		scene_make(&s, from_peer, &config, LEN);
		send_region(&s.a.e, 1, &s.a.r, 0, LEN);
		send_region(&s.a.e, 2, &s.a.r, 0, LEN);
		EXPECT_WC(s.a.e.scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
		EXPECT_WC(s.a.e.scq, 2, IBV_WC_WR_FLUSH_ERR);
		end_await_state(&s.a.e, IBV_QPS_ERR);
		REQUIRE_EQ(end_state(&s.b.e), IBV_QPS_RTS);
		/* The last packets may still wait in rdma_rxe's work queue. */
		sleep_us(50000 * opt.slow);
		recv_region(&s.b.e, 3, &s.b.r, 0, LEN);
		EXPECT_NO_WC(s.b.e.rcq);
		scene_free(&s);
	}
}

/* Messages of one packet and of many wait until they can be received, in order. */
void rnr_waits(bool from_peer)
{
	static const size_t lengths[] = { 100, 70000, 0, 5000 };
	enum { N = ARRAY_SIZE(lengths), SLOT = 70000 };
	struct scene s;

	scene_make(&s, from_peer, &rc, N * SLOT);
	for (unsigned long round = 0; round < rounds(); round++) {
		memset(s.b.r.data, 0, s.b.r.len);
		for (int i = 0; i < N; i++) {
			struct ibv_sge sge = sge_of(&s.a.r, i * SLOT,
						    lengths[i]);

			fill(s.a.r.data + i * SLOT, lengths[i], i + round);
			send_sges(&s.a.e, i, i == 1 ?
				  IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND,
				  IBV_SEND_SIGNALED, &sge, 1, &s.to, i * SLOT,
				  0);
		}
		EXPECT_NO_WC(s.a.e.scq);
		for (int i = 0; i < N; i++) {
			recv_region(&s.b.e, i, &s.b.r, i * SLOT, SLOT);
			EXPECT_OK(s.a.e.scq, i);
			REQUIRE_EQ(EXPECT_OK(s.b.e.rcq, i).byte_len,
				   lengths[i]);
			VERIFY(s.b.r.data + i * SLOT, lengths[i], i + round);
		}
	}
	scene_free(&s);
}

/* Nobody answers: as often as was told, and then the error. */
void nobody_answers(bool from_peer)
{
	struct end_config config = rc;
	struct scene s;

	/* 4 ms, or the device's nearest value. */
	config.timeout = 10;
	config.retry = 2;
	scene_make(&s, from_peer, &config, LEN);
	end_reset(&s.b.e);
	send_region(&s.a.e, 1, &s.a.r, 0, LEN);
	send_region(&s.a.e, 2, &s.a.r, 0, LEN);
	EXPECT_WC(s.a.e.scq, 1, IBV_WC_RETRY_EXC_ERR);
	EXPECT_WC(s.a.e.scq, 2, IBV_WC_WR_FLUSH_ERR);
	end_await_state(&s.a.e, IBV_QPS_ERR);
	scene_free(&s);
}
