// SPDX-License-Identifier: GPL-2.0
/* ATOMIC WRITE and FLUSH (IBA volume 1, annex A19). */
#include "interop.h"

static struct end_config config(void)
{
	struct end_config c = rc;

	c.send_ops = PLACEMENT;
	return c;
}

/* Several under way at a time; the bytes are as the program has them. */
void atomic_write(bool from_peer)
{
	enum { N = 32 };
	struct end_config c = config();
	struct scene s;

	scene_make(&s, from_peer, &c, LEN);
	for (unsigned long round = 0; round < rounds(); round++) {
		memset(s.b.r.data, 0xee, LEN);
		for (uint64_t i = 0; i < N; i++)
			send_atomic_write(&s.a.e, i, i == N - 1 ?
					  IBV_SEND_SIGNALED : 0, &s.to,
					  WORD + 8 * i, i << 56 | round);
		REQUIRE_EQ(EXPECT_OK(s.a.e.scq, N - 1).opcode,
			   IBV_WC_ATOMIC_WRITE);
		for (uint64_t i = 0; i < N; i++) {
			uint64_t word;

			memcpy(&word, s.b.r.data + WORD + 8 * i, 8);
			REQUIRE_EQ(word, i << 56 | round);
		}
		VERIFY_BYTE(s.b.r.data, WORD, 0xee);
		VERIFY_BYTE(s.b.r.data + WORD + 8 * N, LEN - WORD - 8 * N,
			    0xee);
	}
	scene_free(&s);
}

/*
 * There is no FLUSH between the two. rxe_opcode[] of rdma_rxe has no
 * RXE_PAYLOAD offset for it, so the invariant CRC that rxe_icrc_generate() and
 * rxe_icrc_check() make covers its headers a second time, as payload. Each end
 * drops the other's packet, as damaged ones are, and the requester gives up.
 * The WRITE in front of it is done.
 */
void flush(bool from_peer)
{
	struct end_config c = config();
	struct ibv_sge sge;
	struct scene s;

	c.access |= IBV_ACCESS_FLUSH_GLOBAL;
	c.retry = 1;
	scene_make(&s, from_peer, &c, LEN);
	sge = sge_of(&s.a.r, 0, LEN);
	fill(s.a.r.data, LEN, 1);
	send_sges(&s.a.e, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 1,
		  &s.to, 0, 0);
	EXPECT_OK(s.a.e.scq, 1);
	send_flush(&s.a.e, 2, IBV_SEND_SIGNALED, &s.to, 0, LEN,
		   IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
	EXPECT_WC(s.a.e.scq, 2, IBV_WC_RETRY_EXC_ERR);
	end_await_state(&s.a.e, IBV_QPS_ERR);
	REQUIRE_EQ(end_state(&s.b.e), IBV_QPS_RTS);
	VERIFY(s.b.r.data, LEN, 1);
	scene_free(&s);
}
