// SPDX-License-Identifier: GPL-2.0
/*
 * Requests that must fail: the status at both ends (IBA volume 1, 11.6.2 and
 * 10.10.3), the asynchronous event where there is no completion to carry the
 * error, the state of both queue pairs, and everything behind the failed
 * request flushed in the order of its posting.
 */
#include "rc_errors/rc_errors.h"

void make(struct pair *p, const struct end_config *config, int access)
{
	pair_open(p, config);
	pair_memory(p, 2 * LEN, LEN, access);
}

struct ibv_sge whole(struct pair *p)
{
	return sge_of(&p->mine, 0, LEN);
}

void post_receives(struct pair *p)
{
	for (int i = 0; i < RECEIVES; i++)
		recv_region(&p->b, 100 + i, &p->theirs, 0, p->theirs.len);
}

void post_followers(struct pair *p)
{
	struct ibv_sge sge = whole(p);

	for (int i = 0; i < 4; i++)
		send_sges(&p->a, 10 + i, i == 1 ? IBV_WR_RDMA_WRITE :
			  IBV_WR_SEND, i == 2 ? 0 : IBV_SEND_SIGNALED, &sge, 1,
			  i == 1 ? &p->to : NULL, 0, 0);
}

void expect_followers_flushed(struct pair *p)
{
	for (int i = 0; i < 4; i++)
		EXPECT_WC(p->a.scq, 10 + i, IBV_WC_WR_FLUSH_ERR);
	EXPECT_NO_WC(p->a.scq);
	end_await_state(&p->a, IBV_QPS_ERR);
}

void expect_receives_flushed(struct pair *p, int first)
{
	for (int i = first; i < RECEIVES; i++)
		EXPECT_WC(p->b.rcq, 100 + i, IBV_WC_WR_FLUSH_ERR);
	EXPECT_NO_WC(p->b.rcq);
	end_await_state(&p->b, IBV_QPS_ERR);
}

void expect_peer_untouched(struct pair *p)
{
	EXPECT_NO_WC(p->b.rcq);
	expect_no_async(p->d.ctx);
	REQUIRE_EQ(end_state(&p->b), IBV_QPS_RTS);
	VERIFY_BYTE(p->theirs.data, p->theirs.len, 0);
}

int main(int argc, char **argv)
{
	static const struct test_case *const tables[] = {
		remote_access_cases,
		local_access_cases,
		receive_cases,
		flush_cases,
		corner_cases,
		NULL,
	};

	return test_main_of(argc, argv, tables);
}
