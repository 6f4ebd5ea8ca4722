// SPDX-License-Identifier: GPL-2.0
/*
 * Memory windows of both types, invalidation, and regions that are registered
 * anew: who gets in by a key, when, and who does not any more.
 */
#include "common.h"

#include <stdlib.h>
#include <sys/mman.h>

#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
		IBV_ACCESS_REMOTE_ATOMIC)
#define BINDABLE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)

static const struct end_config config = {
	.access = IBV_ACCESS_LOCAL_WRITE | REMOTE,
};

/* One end writes what the other end has opened. */
struct setup {
	struct device d;
	struct end a, b;
	struct region mine, theirs;
	uint64_t wr_id;
};

static void setup_make(struct setup *s)
{
	memset(s, 0, sizeof(*s));
	device_open(&s->d);
	REQUIRE(s->d.attr.max_mw > 0);
	REQUIRE(s->d.attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW);
	REQUIRE(s->d.attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B);
	pair_make(&s->a, &s->b, &s->d, &config);
	region_make(&s->mine, &s->d, 4096, 0, IBV_ACCESS_LOCAL_WRITE);
	/* To peers the region itself gives nothing. */
	region_make(&s->theirs, &s->d, 4096, 0, BINDABLE);
}

static void setup_free(struct setup *s)
{
	REGION_CHECK(&s->theirs);
	region_free(&s->mine);
	region_free(&s->theirs);
	end_free(&s->a);
	end_free(&s->b);
	device_close(&s->d);
}

/* After a refusal both ends are in error; they are connected anew. */
static void reconnect(struct setup *s)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	struct peer a = end_address(&s->a, NULL), b = end_address(&s->b, NULL);

	REQUIRE_ERRNO(ibv_modify_qp(s->a.qp, &reset, IBV_QP_STATE), 0);
	REQUIRE_ERRNO(ibv_modify_qp(s->b.qp, &reset, IBV_QP_STATE), 0);
	end_connect(&s->a, &b);
	end_connect(&s->b, &a);
}

static struct ibv_mw_bind_info part(struct setup *s, size_t offset, size_t len,
				    unsigned int access)
{
	struct ibv_mw_bind_info info = {
		.mr = s->theirs.mr,
		.addr = (uintptr_t)s->theirs.data + offset,
		.length = len,
		.mw_access_flags = access,
	};

	return info;
}

static void bind_1(struct setup *s, struct ibv_mw *mw,
		   struct ibv_mw_bind_info info, enum ibv_wc_status status)
{
	struct ibv_mw_bind bind = {
		.wr_id = ++s->wr_id,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = info,
	};
	uint32_t before = mw->rkey;
	struct ibv_wc wc;

	REQUIRE_ERRNO(ibv_bind_mw(s->b.qp, mw, &bind), 0);
	REQUIRE(mw->rkey != before && mw->rkey >> 8 == before >> 8);
	wc = EXPECT_WC(s->b.scq, s->wr_id, status);
	if (status == IBV_WC_SUCCESS)
		REQUIRE_EQ(wc.opcode, IBV_WC_BIND_MW);
}

static void bind_2(struct setup *s, struct ibv_mw *mw, uint32_t key,
		   struct ibv_mw_bind_info info, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	send_bind(&s->b, ++s->wr_id, mw, key, info);
	wc = EXPECT_WC(s->b.scq, s->wr_id, status);
	if (status == IBV_WC_SUCCESS)
		REQUIRE_EQ(wc.opcode, IBV_WC_BIND_MW);
}

static void local_inv(struct setup *s, uint32_t key, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	send_local_inv(&s->b, ++s->wr_id, key);
	wc = EXPECT_WC(s->b.scq, s->wr_id, status);
	if (status == IBV_WC_SUCCESS)
		REQUIRE_EQ(wc.opcode, IBV_WC_LOCAL_INV);
}

/* An access of 8 bytes by the peer, which has to end so. */
static void try_access(struct setup *s, enum ibv_wr_opcode opcode,
		       uint32_t rkey, uint64_t addr, bool good)
{
	struct ibv_sge sge = sge_of(&s->mine, 0, 8);
	struct peer to = { .addr = addr, .rkey = rkey };

	send_sges(&s->a, ++s->wr_id, opcode, IBV_SEND_SIGNALED, &sge, 1, &to,
		  0, 0);
	EXPECT_WC(s->a.scq, s->wr_id,
		  good ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
	if (!good) {
		expect_async(s->d.ctx, IBV_EVENT_QP_ACCESS_ERR, s->b.qp);
		reconnect(s);
	}
}

static void try_write(struct setup *s, uint32_t rkey, size_t offset, bool good)
{
	try_access(s, IBV_WR_RDMA_WRITE, rkey,
		   (uintptr_t)s->theirs.data + offset, good);
}

static void type_1(void)
{
	struct ibv_mw_bind_info none = { };
	struct ibv_mw *mw;
	struct setup s;
	uint32_t old;

	setup_make(&s);
	mw = ibv_alloc_mw(s.d.pd, IBV_MW_TYPE_1);
	REQUIRE(mw);
	try_write(&s, mw->rkey, 0, false);
	bind_1(&s, mw, part(&s, 100, 50, REMOTE), IBV_WC_SUCCESS);
	fill(s.mine.data, 8, 1);
	try_write(&s, mw->rkey, 100, true);
	VERIFY(s.theirs.data + 100, 8, 1);
	try_write(&s, mw->rkey, 142, true);
	try_write(&s, mw->rkey, 143, false);
	try_write(&s, mw->rkey, 99, false);
	VERIFY_BYTE(s.theirs.data, 100, 0);
	VERIFY_BYTE(s.theirs.data + 150, 4096 - 150, 0);
	/* The region's own key opens nothing. */
	try_write(&s, s.theirs.mr->rkey, 100, false);
	/* Read-only now, and elsewhere; the key of before is no key. */
	old = mw->rkey;
	bind_1(&s, mw, part(&s, 2000, 8, IBV_ACCESS_REMOTE_READ),
	       IBV_WC_SUCCESS);
	try_write(&s, old, 100, false);
	try_write(&s, mw->rkey, 2000, false);
	try_access(&s, IBV_WR_RDMA_READ, mw->rkey,
		   (uintptr_t)s.theirs.data + 2000, true);
	/* While it is bound, the region stays. */
	REQUIRE_ERRNO(ibv_dereg_mr(s.theirs.mr), EBUSY);
	bind_1(&s, mw, none, IBV_WC_SUCCESS);
	try_write(&s, mw->rkey, 2000, false);
	REQUIRE_ERRNO(ibv_dealloc_mw(mw), 0);
	setup_free(&s);
}

static void type_2(void)
{
	uint32_t key, again;
	struct ibv_mw *mw;
	struct setup s;

	setup_make(&s);
	mw = ibv_alloc_mw(s.d.pd, IBV_MW_TYPE_2);
	REQUIRE(mw);
	key = ibv_inc_rkey(mw->rkey);
	bind_2(&s, mw, key, part(&s, 8, 8, REMOTE), IBV_WC_SUCCESS);
	try_write(&s, key, 8, true);
	/* The other end's queue pair was not the one that bound it. */
	{
		struct ibv_sge sge = sge_of(&s.mine, 0, 8);
		struct peer to = end_address(&s.b, &s.theirs);

		to.rkey = key;
		send_sges(&s.b, 77, IBV_WR_RDMA_WRITE, 0, &sge, 1, &to, 8, 0);
		EXPECT_WC(s.b.scq, 77, IBV_WC_REM_ACCESS_ERR);
		expect_async(s.d.ctx, IBV_EVENT_QP_ACCESS_ERR, s.a.qp);
		reconnect(&s);
	}
	/* Bound again before it was invalidated. */
	again = ibv_inc_rkey(key);
	bind_2(&s, mw, again, part(&s, 0, 8, REMOTE), IBV_WC_MW_BIND_ERR);
	REQUIRE_EQ(end_state(&s.b), IBV_QPS_ERR);
	expect_no_async(s.d.ctx);
	reconnect(&s);
	try_write(&s, key, 8, true);
	local_inv(&s, key, IBV_WC_SUCCESS);
	try_write(&s, key, 8, false);
	/* By addresses that count from its start. */
	bind_2(&s, mw, again, part(&s, 16, 8, REMOTE | IBV_ACCESS_ZERO_BASED),
	       IBV_WC_SUCCESS);
	fill(s.mine.data, 8, 3);
	try_access(&s, IBV_WR_RDMA_WRITE, again, 0, true);
	VERIFY(s.theirs.data + 16, 8, 3);
	try_access(&s, IBV_WR_RDMA_WRITE, again, 1, false);
	/* It goes while it is bound. */
	REQUIRE_ERRNO(ibv_dealloc_mw(mw), 0);
	try_access(&s, IBV_WR_RDMA_WRITE, again, 0, false);
	setup_free(&s);
}

static void send_with_inv(void)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_SEND_WITH_INV,
		.send_flags = IBV_SEND_SIGNALED,
		.num_sge = 1,
	}, *bad;
	struct ibv_sge sge;
	struct ibv_mw *mw;
	struct ibv_wc wc;
	struct setup s;
	uint32_t key;

	setup_make(&s);
	mw = ibv_alloc_mw(s.d.pd, IBV_MW_TYPE_2);
	REQUIRE(mw);
	key = ibv_inc_rkey(mw->rkey);
	bind_2(&s, mw, key, part(&s, 0, 64, REMOTE), IBV_WC_SUCCESS);
	recv_region(&s.b, 1, &s.theirs, 100, 64);
	recv_region(&s.b, 2, &s.theirs, 200, 64);
	fill(s.mine.data, 32, 4);
	sge = sge_of(&s.mine, 0, 32);
	wr.sg_list = &sge;
	wr.invalidate_rkey = key;
	REQUIRE_ERRNO(ibv_post_send(s.a.qp, &wr, &bad), 0);
	EXPECT_OK(s.a.scq, 0);
	wc = EXPECT_OK(s.b.rcq, 1);
	REQUIRE_EQ(wc.opcode, IBV_WC_RECV);
	REQUIRE_EQ(wc.byte_len, 32);
	REQUIRE(wc.wc_flags & IBV_WC_WITH_INV);
	REQUIRE_EQ(wc.invalidated_rkey, key);
	VERIFY(s.theirs.data + 100, 32, 4);
	/* Once more: there is nothing of this kind to invalidate. */
	wr.invalidate_rkey = s.theirs.mr->rkey;
	REQUIRE_ERRNO(ibv_post_send(s.a.qp, &wr, &bad), 0);
	EXPECT_WC(s.a.scq, 0, IBV_WC_REM_ACCESS_ERR);
	EXPECT_WC(s.b.rcq, 2, IBV_WC_REM_INV_REQ_ERR);
	REQUIRE_EQ(end_state(&s.b), IBV_QPS_ERR);
	reconnect(&s);
	try_write(&s, key, 0, false);
	/* A region's key cannot be taken back so. */
	local_inv(&s, s.theirs.mr->rkey, IBV_WC_MW_BIND_ERR);
	REQUIRE_ERRNO(ibv_dealloc_mw(mw), 0);
	setup_free(&s);
}

/* What a bind must not do. */
static void bad_binds(void)
{
	struct ibv_mw *mw, *mw_2;
	struct region closed, read_only;
	struct ibv_mw_bind_info info;
	struct ibv_mw_bind bind = { };
	struct setup s;

	setup_make(&s);
	mw = ibv_alloc_mw(s.d.pd, IBV_MW_TYPE_1);
	mw_2 = ibv_alloc_mw(s.d.pd, IBV_MW_TYPE_2);
	REQUIRE(mw && mw_2);
	REQUIRE_NULL_ERRNO(ibv_alloc_mw(s.d.pd, 3), EINVAL);
	region_make(&closed, &s.d, 64, 0, ACCESS_ALL);
	region_make(&read_only, &s.d, 64, 0, IBV_ACCESS_MW_BIND);

	info = part(&s, 0, 4097, REMOTE);
	bind_1(&s, mw, info, IBV_WC_MW_BIND_ERR);
	reconnect(&s);
	info = part(&s, -1, 8, REMOTE);
	bind_1(&s, mw, info, IBV_WC_MW_BIND_ERR);
	reconnect(&s);
	info = part(&s, 0, 8, REMOTE);
	info.mr = closed.mr;
	info.addr = (uintptr_t)closed.data;
	bind_1(&s, mw, info, IBV_WC_MW_BIND_ERR);
	reconnect(&s);
	info.mr = read_only.mr;
	info.addr = (uintptr_t)read_only.data;
	bind_1(&s, mw, info, IBV_WC_MW_BIND_ERR);
	reconnect(&s);
	/* Another window's key; the key that it has. */
	bind_2(&s, mw_2, mw_2->rkey ^ 0x100, part(&s, 0, 8, REMOTE),
	       IBV_WC_MW_BIND_ERR);
	reconnect(&s);
	bind_2(&s, mw_2, mw_2->rkey, part(&s, 0, 8, REMOTE),
	       IBV_WC_MW_BIND_ERR);
	reconnect(&s);
	bind_2(&s, mw_2, ibv_inc_rkey(mw_2->rkey), part(&s, 0, 0, REMOTE),
	       IBV_WC_MW_BIND_ERR);
	reconnect(&s);
	/* Each type has its own way to be bound. */
	bind.bind_info = part(&s, 0, 8, REMOTE);
	REQUIRE_ERRNO(ibv_bind_mw(s.b.qp, mw_2, &bind), EINVAL);
	bind.bind_info.mw_access_flags |= IBV_ACCESS_ZERO_BASED;
	REQUIRE_ERRNO(ibv_bind_mw(s.b.qp, mw, &bind), EINVAL);

	expect_no_async(s.d.ctx);
	region_free(&closed);
	region_free(&read_only);
	REQUIRE_ERRNO(ibv_dealloc_mw(mw), 0);
	REQUIRE_ERRNO(ibv_dealloc_mw(mw_2), 0);
	setup_free(&s);
}

static void rereg(struct setup *s, int flags, struct ibv_pd *pd, void *addr,
		  size_t len, int access, int want)
{
	uint32_t key = s->theirs.mr->rkey;

	errno = 0;
	REQUIRE_EQ(ibv_rereg_mr(s->theirs.mr, flags, pd, addr, len, access),
		   want ? IBV_REREG_MR_ERR_CMD : 0);
	if (want)
		REQUIRE_ERRNO(errno, want);
	REQUIRE_EQ(s->theirs.mr->rkey, key);
}

/* A region that is registered anew, in all ways. */
static void reregister(void)
{
	struct ibv_mw_bind_info none = { };
	struct ibv_pd *other;
	struct ibv_mw *mw;
	struct setup s;
	uint8_t *map;
	uint32_t key;

	setup_make(&s);
	key = s.theirs.mr->rkey;
	map = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(map != MAP_FAILED);
	try_write(&s, key, 0, false);
	rereg(&s, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
	      BINDABLE | REMOTE, 0);
	try_write(&s, key, 0, true);
	/* To be read only; what the pages were pinned for stays. */
	rereg(&s, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
	      IBV_ACCESS_REMOTE_READ, 0);
	try_write(&s, key, 0, false);
	/* Other memory, which is pinned to be read only, and then is not. */
	rereg(&s, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, map, 8192, 0, 0);
	try_access(&s, IBV_WR_RDMA_READ, key, (uintptr_t)map, true);
	try_access(&s, IBV_WR_RDMA_WRITE, key, (uintptr_t)map, false);
	try_write(&s, key, 0, false);
	rereg(&s, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
	      BINDABLE | REMOTE, 0);
	fill(s.mine.data, 8, 9);
	try_access(&s, IBV_WR_RDMA_WRITE, key, (uintptr_t)map + 8184, true);
	VERIFY(map + 8184, 8, 9);
	/* In another domain, and back. */
	other = ibv_alloc_pd(s.d.ctx);
	REQUIRE(other);
	rereg(&s, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0, 0);
	try_access(&s, IBV_WR_RDMA_READ, key, (uintptr_t)map, false);
	REQUIRE_ERRNO(ibv_dealloc_pd(other), EBUSY);
	rereg(&s, IBV_REREG_MR_CHANGE_PD, s.d.pd, NULL, 0, 0, 0);
	try_access(&s, IBV_WR_RDMA_READ, key, (uintptr_t)map, true);
	REQUIRE_ERRNO(ibv_dealloc_pd(other), 0);
	/* What fails changes nothing. */
	rereg(&s, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
	      IBV_ACCESS_REMOTE_WRITE, EINVAL);
	rereg(&s, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, (void *)4096, 4096, 0,
	      EFAULT);
	try_access(&s, IBV_WR_RDMA_WRITE, key, (uintptr_t)map, true);
	/* Not while a window is bound. */
	mw = ibv_alloc_mw(s.d.pd, IBV_MW_TYPE_1);
	REQUIRE(mw);
	s.theirs.mr->addr = map;
	bind_1(&s, mw, (struct ibv_mw_bind_info){
		.mr = s.theirs.mr, .addr = (uintptr_t)map, .length = 8,
		.mw_access_flags = REMOTE }, IBV_WC_SUCCESS);
	rereg(&s, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, BINDABLE, EBUSY);
	bind_1(&s, mw, none, IBV_WC_SUCCESS);
	REQUIRE_ERRNO(ibv_dealloc_mw(mw), 0);
	setup_free(&s);
	munmap(map, 8192);
}

/* A process that ends with windows bound leaves nothing behind. */
static void leave_bound(void *arg)
{
	struct ibv_mw *early, *late;
	struct setup s;

	(void)arg;
	memset(&s, 0, sizeof(s));
	device_open(&s.d);
	/* One window is older than its region, one younger. */
	early = ibv_alloc_mw(s.d.pd, IBV_MW_TYPE_1);
	pair_make(&s.a, &s.b, &s.d, &config);
	region_make(&s.mine, &s.d, 4096, 0, IBV_ACCESS_LOCAL_WRITE);
	region_make(&s.theirs, &s.d, 4096, 0, BINDABLE);
	late = ibv_alloc_mw(s.d.pd, IBV_MW_TYPE_2);
	REQUIRE(early && late);
	bind_1(&s, early, part(&s, 0, 8, REMOTE), IBV_WC_SUCCESS);
	bind_2(&s, late, ibv_inc_rkey(late->rkey), part(&s, 0, 8, REMOTE),
	       IBV_WC_SUCCESS);
}

static void left_bound(void)
{
	for (int i = 0; i < 10; i++)
		join_process(fork_process(leave_bound, NULL));
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "type_1", type_1 },
		{ "type_2", type_2 },
		{ "send_with_inv", send_with_inv },
		{ "bad_binds", bad_binds },
		{ "reregister", reregister },
		{ "left_bound", left_bound },
		{ }
	};

	return test_main(argc, argv, cases);
}
