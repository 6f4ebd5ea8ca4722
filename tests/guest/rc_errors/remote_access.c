// SPDX-License-Identifier: GPL-2.0
/* Errors of remote access: keys of the peer. */
#include "rc_errors.h"

/*
 * A WRITE that b must refuse: with this key, at this address. The request
 * before it is done, those behind it are flushed.
 */
static void refused_write(struct pair *p, const struct peer *to,
			  uint64_t offset, uint32_t len,
			  enum ibv_wc_status status, enum ibv_event_type event)
{
	struct ibv_sge sge = sge_of(&p->mine, 0, len);

	post_receives(p);
	send_region(&p->a, 1, &p->mine, 0, LEN);
	send_sges(&p->a, 2, IBV_WR_RDMA_WRITE, 0, &sge, 1, to, offset, 0);
	post_followers(p);
	EXPECT_OK(p->a.scq, 1);
	EXPECT_WC(p->a.scq, 2, status);
	expect_followers_flushed(p);
	EXPECT_OK(p->b.rcq, 100);
	expect_receives_flushed(p, 1);
	expect_async(p->d.ctx, event, p->b.qp);
	expect_no_async(p->d.ctx);
	VERIFY(p->theirs.data, LEN, 1);
}

static void refused_access(struct pair *p, const struct peer *to,
			   uint64_t offset, uint32_t len)
{
	refused_write(p, to, offset, len, IBV_WC_REM_ACCESS_ERR,
		      IBV_EVENT_QP_ACCESS_ERR);
}

static void rkey_unknown(void)
{
	/* Another generation, another region, none, and the local key's bits. */
	static const uint32_t flips[] = { 1, 0x100, 0xffff0000 };
	struct pair p;

	for (unsigned int i = 0; i <= ARRAY_SIZE(flips); i++) {
		make(&p, NULL, ACCESS_ALL);
		p.to.rkey = i < ARRAY_SIZE(flips) ? p.to.rkey ^ flips[i] : 0;
		refused_access(&p, &p.to, 0, 8);
		pair_close(&p);
	}
}

static void rkey_deregistered(void)
{
	struct pair p;
	struct region r;
	struct peer to;

	make(&p, NULL, ACCESS_ALL);
	region_make(&r, &p.d, LEN, 0, ACCESS_ALL);
	to = end_address(&p.b, &r);
	REQUIRE_ERRNO(ibv_dereg_mr(r.mr), 0);
	r.mr = NULL;
	refused_access(&p, &to, 0, 8);
	VERIFY_BYTE(r.data, r.len, 0);
	region_free(&r);
	pair_close(&p);
}

static void rkey_range(void)
{
	static const struct {
		int64_t offset;
		uint32_t len;
	} bad[] = {
		{ -1, 8 },			/* begins a byte too early */
		{ LEN - 7, 8 },			/* ends a byte too late */
		{ LEN, 1 },			/* just behind */
		{ 0, LEN + 1 },			/* longer than the region */
		{ 1ll << 32, 8 },		/* right in the low 32 bits */
	};
	struct pair p;

	for (unsigned int i = 0; i < ARRAY_SIZE(bad); i++) {
		make(&p, NULL, ACCESS_ALL);
		refused_access(&p, &p.to, bad[i].offset, bad[i].len);
		pair_close(&p);
	}
	/* The end of the address space, where address + length wraps to 4. */
	make(&p, NULL, ACCESS_ALL);
	refused_access(&p, &p.to, -4 - p.to.addr, 8);
	pair_close(&p);
}

static void rkey_no_remote_write(void)
{
	struct pair p;

	make(&p, NULL, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	refused_access(&p, &p.to, 0, 8);
	pair_close(&p);
}

static void rkey_other_pd(void)
{
	struct device other;
	struct region r;
	struct pair p;
	struct peer to;

	make(&p, NULL, ACCESS_ALL);
	other = device_other_pd(&p.d);
	region_make(&r, &other, LEN, 0, ACCESS_ALL);
	to = end_address(&p.b, &r);
	refused_access(&p, &to, 0, 8);
	VERIFY_BYTE(r.data, r.len, 0);
	region_free(&r);
	device_free_pd(&other);
	pair_close(&p);
}

/* The queue pair itself admits no RDMA WRITE (10.10.3.2 and 11.6.2). */
static void qp_no_remote_write(void)
{
	const struct end_config config = { .access = IBV_ACCESS_LOCAL_WRITE };
	struct pair p;

	make(&p, &config, ACCESS_ALL);
	refused_write(&p, &p.to, 0, 8, IBV_WC_REM_INV_REQ_ERR,
		      IBV_EVENT_QP_REQ_ERR);
	pair_close(&p);
}

/* C9-88: the key of an RDMA WRITE of no bytes is not checked. */
static void rkey_unchecked_if_empty(void)
{
	struct pair p;

	make(&p, NULL, ACCESS_ALL);
	p.to.rkey = ~p.to.rkey;
	p.to.addr = 0;
	send_sges(&p.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, NULL, 0,
		  &p.to, 0, 0);
	EXPECT_OK(p.a.scq, 1);
	expect_peer_untouched(&p);
	pair_close(&p);
}

const struct test_case remote_access_cases[] = {
	{ "rkey_unknown", rkey_unknown },
	{ "rkey_deregistered", rkey_deregistered },
	{ "rkey_range", rkey_range },
	{ "rkey_no_remote_write", rkey_no_remote_write },
	{ "rkey_other_pd", rkey_other_pd },
	{ "qp_no_remote_write", qp_no_remote_write },
	{ "rkey_unchecked_if_empty", rkey_unchecked_if_empty },
	{ }
};
