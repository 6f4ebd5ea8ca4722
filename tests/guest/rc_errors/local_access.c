// SPDX-License-Identifier: GPL-2.0
/* Errors of local access, at the requester. */
#include "rc_errors.h"

static void refused_sge(struct pair *p, struct ibv_sge *sge, int n)
{
	post_receives(p);
	send_sges(&p->a, 2, IBV_WR_SEND, 0, sge, n, NULL, 0, 0);
	post_followers(p);
	EXPECT_WC(p->a.scq, 2, IBV_WC_LOC_PROT_ERR);
	expect_followers_flushed(p);
	expect_peer_untouched(p);
}

static void lkey_unknown(void)
{
	struct ibv_sge sge;
	struct pair p;

	make(&p, NULL, ACCESS_ALL);
	sge = whole(&p);
	sge.lkey ^= 0x100;
	refused_sge(&p, &sge, 1);
	pair_close(&p);
}

static void lkey_range(void)
{
	static const struct {
		int64_t offset;
		uint32_t len;
	} bad[] = {
		{ -1, 8 }, { 2 * LEN - 7, 8 }, { 2 * LEN, 1 }, { 0, 2 * LEN + 1 },
		{ 1ll << 32, 8 }, { 0, UINT32_MAX >> 2 },
	};
	struct pair p;

	for (unsigned int i = 0; i < ARRAY_SIZE(bad); i++) {
		struct ibv_sge sge;

		make(&p, NULL, ACCESS_ALL);
		sge = sge_of(&p.mine, bad[i].offset, bad[i].len);
		refused_sge(&p, &sge, 1);
		pair_close(&p);
	}
}

/* The second of two entries is bad: nothing of the message is seen. */
static void lkey_second(void)
{
	const struct end_config config = { .send_sge = 2 };
	struct ibv_sge sge[2];
	struct pair p;

	make(&p, &config, ACCESS_ALL);
	sge[0] = sge_of(&p.mine, 0, 10);
	sge[1] = sge_of(&p.mine, 10, 10);
	sge[1].lkey = ~sge[1].lkey;
	refused_sge(&p, sge, 2);
	pair_close(&p);
}

static void lkey_other_pd(void)
{
	struct device other;
	struct ibv_sge sge;
	struct region r;
	struct pair p;

	make(&p, NULL, ACCESS_ALL);
	other = device_other_pd(&p.d);
	region_make(&r, &other, LEN, 0, ACCESS_ALL);
	sge = sge_of(&r, 0, LEN);
	refused_sge(&p, &sge, 1);
	region_free(&r);
	device_free_pd(&other);
	pair_close(&p);
}

/* A region deregistered after its request was posted, before it was served. */
static void lkey_deregistered(void)
{
	struct ibv_sge sge;
	struct region r;
	struct pair p;

	make(&p, NULL, ACCESS_ALL);
	region_make(&r, &p.d, LEN, 0, ACCESS_ALL);
	sge = sge_of(&r, 0, LEN);
	REQUIRE_ERRNO(ibv_dereg_mr(r.mr), 0);
	r.mr = NULL;
	refused_sge(&p, &sge, 1);
	region_free(&r);
	pair_close(&p);
}

const struct test_case local_access_cases[] = {
	{ "lkey_unknown", lkey_unknown },
	{ "lkey_range", lkey_range },
	{ "lkey_second", lkey_second },
	{ "lkey_other_pd", lkey_other_pd },
	{ "lkey_deregistered", lkey_deregistered },
	{ }
};
