// SPDX-License-Identifier: GPL-2.0
/*
 * Memory windows of both types, invalidation, and regions that are registered
 * anew: when a key opens memory for a peer, and when it does not any more.
 */
#include "rc_window/rc_window.h"

#include <stdlib.h>
#include <sys/mman.h>

#define BINDABLE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)

const struct end_config window_end = {
	.access = IBV_ACCESS_LOCAL_WRITE | REMOTE,
};

/* Of the latest request. */
static uint64_t wr_id;

void make(struct pair *p)
{
	pair_open(p, &window_end);
	REQUIRE(p->d.attr.max_mw > 0);
	REQUIRE(p->d.attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW);
	REQUIRE(p->d.attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B);
	/* To peers the region itself gives nothing. */
	pair_memory(p, 4096, 4096, BINDABLE);
}

struct ibv_mw *make_with_mw(struct pair *p, uint32_t *key)
{
	struct ibv_mw *mw;

	make(p);
	mw = ibv_alloc_mw(p->d.pd, IBV_MW_TYPE_2);
	REQUIRE(mw);
	*key = ibv_inc_rkey(mw->rkey);
	return mw;
}

void reconnect(struct pair *p)
{
	pair_reset(p);
	ends_connect(&p->a, &p->b);
}

struct ibv_mw_bind_info part(struct pair *p, size_t offset, size_t len,
			     unsigned int access)
{
	struct ibv_mw_bind_info info = {
		.mr = p->theirs.mr,
		.addr = (uintptr_t)p->theirs.data + offset,
		.length = len,
		.mw_access_flags = access,
	};

	return info;
}

void bind_1(struct pair *p, struct ibv_mw *mw, struct ibv_mw_bind_info info,
	    enum ibv_wc_status status)
{
	struct ibv_mw_bind bind = {
		.wr_id = ++wr_id,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = info,
	};
	uint32_t before = mw->rkey;
	struct ibv_wc wc;

	REQUIRE_ERRNO(ibv_bind_mw(p->b.qp, mw, &bind), 0);
	REQUIRE(mw->rkey != before && mw->rkey >> 8 == before >> 8);
	wc = EXPECT_WC(p->b.scq, wr_id, status);
	if (status == IBV_WC_SUCCESS)
		REQUIRE_EQ(wc.opcode, IBV_WC_BIND_MW);
}

void bind_2(struct pair *p, struct ibv_mw *mw, uint32_t key,
	    struct ibv_mw_bind_info info, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	send_bind(&p->b, ++wr_id, mw, key, info);
	wc = EXPECT_WC(p->b.scq, wr_id, status);
	if (status == IBV_WC_SUCCESS)
		REQUIRE_EQ(wc.opcode, IBV_WC_BIND_MW);
}

static void local_inv(struct pair *p, uint32_t key, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	send_local_inv(&p->b, ++wr_id, key);
	wc = EXPECT_WC(p->b.scq, wr_id, status);
	if (status == IBV_WC_SUCCESS)
		REQUIRE_EQ(wc.opcode, IBV_WC_LOCAL_INV);
}

/* An access of 8 bytes by the peer, which has to end so. */
static void try_access(struct pair *p, enum ibv_wr_opcode opcode,
		       uint32_t rkey, uint64_t addr, bool good)
{
	struct ibv_sge sge = sge_of(&p->mine, 0, 8);
	struct peer to = { .addr = addr, .rkey = rkey };

	send_sges(&p->a, ++wr_id, opcode, IBV_SEND_SIGNALED, &sge, 1, &to,
		  0, 0);
	EXPECT_WC(p->a.scq, wr_id,
		  good ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
	if (!good) {
		expect_async(p->d.ctx, IBV_EVENT_QP_ACCESS_ERR, p->b.qp);
		reconnect(p);
	}
}

void try_write(struct pair *p, uint32_t rkey, size_t offset, bool good)
{
	try_access(p, IBV_WR_RDMA_WRITE, rkey,
		   (uintptr_t)p->theirs.data + offset, good);
}

static void type_1(void)
{
	struct ibv_mw_bind_info none = { };
	struct ibv_mw *mw;
	struct pair p;
	uint32_t old;

	make(&p);
	mw = ibv_alloc_mw(p.d.pd, IBV_MW_TYPE_1);
	REQUIRE(mw);
	try_write(&p, mw->rkey, 0, false);
	bind_1(&p, mw, part(&p, 100, 50, REMOTE), IBV_WC_SUCCESS);
	fill(p.mine.data, 8, 1);
	try_write(&p, mw->rkey, 100, true);
	VERIFY(p.theirs.data + 100, 8, 1);
	try_write(&p, mw->rkey, 142, true);
	try_write(&p, mw->rkey, 143, false);
	try_write(&p, mw->rkey, 99, false);
	VERIFY_BYTE(p.theirs.data, 100, 0);
	VERIFY_BYTE(p.theirs.data + 150, 4096 - 150, 0);
	/* The region's own key opens nothing. */
	try_write(&p, p.theirs.mr->rkey, 100, false);
	/* Read-only now, and elsewhere; the old key is no key. */
	old = mw->rkey;
	bind_1(&p, mw, part(&p, 2000, 8, IBV_ACCESS_REMOTE_READ),
	       IBV_WC_SUCCESS);
	try_write(&p, old, 100, false);
	try_write(&p, mw->rkey, 2000, false);
	try_access(&p, IBV_WR_RDMA_READ, mw->rkey,
		   (uintptr_t)p.theirs.data + 2000, true);
	/* While it is bound, the region stays. */
	REQUIRE_ERRNO(ibv_dereg_mr(p.theirs.mr), EBUSY);
	bind_1(&p, mw, none, IBV_WC_SUCCESS);
	try_write(&p, mw->rkey, 2000, false);
	REQUIRE_ERRNO(ibv_dealloc_mw(mw), 0);
	pair_close(&p);
}

static void type_2(void)
{
	uint32_t key, again;
	struct ibv_mw *mw;
	struct pair p;

	mw = make_with_mw(&p, &key);
	bind_2(&p, mw, key, part(&p, 8, 8, REMOTE), IBV_WC_SUCCESS);
	try_write(&p, key, 8, true);
	/* The other end's queue pair was not the one that bound it. */
	{
		struct ibv_sge sge = sge_of(&p.mine, 0, 8);
		struct peer to = end_address(&p.b, &p.theirs);

		to.rkey = key;
		send_sges(&p.b, 77, IBV_WR_RDMA_WRITE, 0, &sge, 1, &to, 8, 0);
		EXPECT_WC(p.b.scq, 77, IBV_WC_REM_ACCESS_ERR);
		expect_async(p.d.ctx, IBV_EVENT_QP_ACCESS_ERR, p.a.qp);
		reconnect(&p);
	}
	/* Bound again before it was invalidated. */
	again = ibv_inc_rkey(key);
	bind_2(&p, mw, again, part(&p, 0, 8, REMOTE), IBV_WC_MW_BIND_ERR);
	REQUIRE_EQ(end_state(&p.b), IBV_QPS_ERR);
	expect_no_async(p.d.ctx);
	reconnect(&p);
	try_write(&p, key, 8, true);
	local_inv(&p, key, IBV_WC_SUCCESS);
	try_write(&p, key, 8, false);
	/* By addresses that count from its start, and by the lower 8 bits of the key. */
	bind_2(&p, mw, again & 0xff, part(&p, 16, 8, REMOTE | IBV_ACCESS_ZERO_BASED),
	       IBV_WC_SUCCESS);
	fill(p.mine.data, 8, 3);
	try_access(&p, IBV_WR_RDMA_WRITE, again, 0, true);
	VERIFY(p.theirs.data + 16, 8, 3);
	try_access(&p, IBV_WR_RDMA_WRITE, again, 1, false);
	/* It goes while it is bound. */
	REQUIRE_ERRNO(ibv_dealloc_mw(mw), 0);
	try_access(&p, IBV_WR_RDMA_WRITE, again, 0, false);
	pair_close(&p);
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
	struct pair p;
	uint32_t key;

	mw = make_with_mw(&p, &key);
	bind_2(&p, mw, key, part(&p, 0, 64, REMOTE), IBV_WC_SUCCESS);
	recv_region(&p.b, 1, &p.theirs, 100, 64);
	recv_region(&p.b, 2, &p.theirs, 200, 64);
	fill(p.mine.data, 32, 4);
	sge = sge_of(&p.mine, 0, 32);
	wr.sg_list = &sge;
	wr.invalidate_rkey = key;
	REQUIRE_ERRNO(ibv_post_send(p.a.qp, &wr, &bad), 0);
	EXPECT_OK(p.a.scq, 0);
	wc = EXPECT_OK(p.b.rcq, 1);
	REQUIRE_EQ(wc.opcode, IBV_WC_RECV);
	REQUIRE_EQ(wc.byte_len, 32);
	REQUIRE(wc.wc_flags & IBV_WC_WITH_INV);
	REQUIRE_EQ(wc.invalidated_rkey, key);
	VERIFY(p.theirs.data + 100, 32, 4);
	/* Once more: there is nothing of this kind to invalidate. */
	wr.invalidate_rkey = p.theirs.mr->rkey;
	REQUIRE_ERRNO(ibv_post_send(p.a.qp, &wr, &bad), 0);
	EXPECT_WC(p.a.scq, 0, IBV_WC_REM_ACCESS_ERR);
	EXPECT_WC(p.b.rcq, 2, IBV_WC_REM_INV_REQ_ERR);
	REQUIRE_EQ(end_state(&p.b), IBV_QPS_ERR);
	reconnect(&p);
	try_write(&p, key, 0, false);
	/* A region's key cannot be taken back so. */
	local_inv(&p, p.theirs.mr->rkey, IBV_WC_MW_BIND_ERR);
	REQUIRE_ERRNO(ibv_dealloc_mw(mw), 0);
	pair_close(&p);
}

/* Faults of binds. */
static void bad_binds(void)
{
	struct ibv_mw *mw, *mw_2;
	struct region closed, read_only;
	struct ibv_mw_bind_info info;
	struct ibv_mw_bind bind = { };
	struct pair p;

	make(&p);
	mw = ibv_alloc_mw(p.d.pd, IBV_MW_TYPE_1);
	mw_2 = ibv_alloc_mw(p.d.pd, IBV_MW_TYPE_2);
	REQUIRE(mw && mw_2);
	REQUIRE_NULL_ERRNO(ibv_alloc_mw(p.d.pd, 3), EINVAL);
	region_make(&closed, &p.d, 64, 0, ACCESS_ALL);
	region_make(&read_only, &p.d, 64, 0, IBV_ACCESS_MW_BIND);

	info = part(&p, 0, 4097, REMOTE);
	bind_1(&p, mw, info, IBV_WC_MW_BIND_ERR);
	reconnect(&p);
	info = part(&p, -1, 8, REMOTE);
	bind_1(&p, mw, info, IBV_WC_MW_BIND_ERR);
	reconnect(&p);
	info = part(&p, 0, 8, REMOTE);
	info.mr = closed.mr;
	info.addr = (uintptr_t)closed.data;
	bind_1(&p, mw, info, IBV_WC_MW_BIND_ERR);
	reconnect(&p);
	info.mr = read_only.mr;
	info.addr = (uintptr_t)read_only.data;
	bind_1(&p, mw, info, IBV_WC_MW_BIND_ERR);
	reconnect(&p);
	/* The key that it has, of which the lower 8 bits count. */
	bind_2(&p, mw_2, mw_2->rkey ^ 0x100, part(&p, 0, 8, REMOTE),
	       IBV_WC_MW_BIND_ERR);
	reconnect(&p);
	bind_2(&p, mw_2, mw_2->rkey, part(&p, 0, 8, REMOTE),
	       IBV_WC_MW_BIND_ERR);
	reconnect(&p);
	bind_2(&p, mw_2, ibv_inc_rkey(mw_2->rkey), part(&p, 0, 0, REMOTE),
	       IBV_WC_MW_BIND_ERR);
	reconnect(&p);
	/* Each type has its own way to be bound. */
	bind.bind_info = part(&p, 0, 8, REMOTE);
	REQUIRE_ERRNO(ibv_bind_mw(p.b.qp, mw_2, &bind), EINVAL);
	bind.bind_info.mw_access_flags |= IBV_ACCESS_ZERO_BASED;
	REQUIRE_ERRNO(ibv_bind_mw(p.b.qp, mw, &bind), EINVAL);

	expect_no_async(p.d.ctx);
	region_free(&closed);
	region_free(&read_only);
	REQUIRE_ERRNO(ibv_dealloc_mw(mw), 0);
	REQUIRE_ERRNO(ibv_dealloc_mw(mw_2), 0);
	pair_close(&p);
}

static void rereg(struct pair *p, int flags, struct ibv_pd *pd, void *addr,
		  size_t len, int access, int want)
{
	uint32_t key = p->theirs.mr->rkey;

	errno = 0;
	REQUIRE_EQ(ibv_rereg_mr(p->theirs.mr, flags, pd, addr, len, access),
		   want ? IBV_REREG_MR_ERR_CMD : 0);
	if (want)
		REQUIRE_ERRNO(errno, want);
	REQUIRE_EQ(p->theirs.mr->rkey, key);
}

/* A region that is registered anew, in all ways. */
static void reregister(void)
{
	struct ibv_mw_bind_info none = { };
	struct ibv_pd *other;
	struct ibv_mw *mw;
	struct pair p;
	uint8_t *map;
	uint32_t key;

	make(&p);
	key = p.theirs.mr->rkey;
	map = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(map != MAP_FAILED);
	try_write(&p, key, 0, false);
	rereg(&p, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
	      BINDABLE | REMOTE, 0);
	try_write(&p, key, 0, true);
	/* To be read only; the rights that the pages were pinned with stay. */
	rereg(&p, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
	      IBV_ACCESS_REMOTE_READ, 0);
	try_write(&p, key, 0, false);
	/* Other memory, which is pinned to be read only, and then is not. */
	rereg(&p, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, map, 8192, 0, 0);
	try_access(&p, IBV_WR_RDMA_READ, key, (uintptr_t)map, true);
	try_access(&p, IBV_WR_RDMA_WRITE, key, (uintptr_t)map, false);
	try_write(&p, key, 0, false);
	rereg(&p, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
	      BINDABLE | REMOTE, 0);
	fill(p.mine.data, 8, 9);
	try_access(&p, IBV_WR_RDMA_WRITE, key, (uintptr_t)map + 8184, true);
	VERIFY(map + 8184, 8, 9);
	/* In another domain, and back. */
	other = ibv_alloc_pd(p.d.ctx);
	REQUIRE(other);
	rereg(&p, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0, 0);
	try_access(&p, IBV_WR_RDMA_READ, key, (uintptr_t)map, false);
	REQUIRE_ERRNO(ibv_dealloc_pd(other), EBUSY);
	rereg(&p, IBV_REREG_MR_CHANGE_PD, p.d.pd, NULL, 0, 0, 0);
	try_access(&p, IBV_WR_RDMA_READ, key, (uintptr_t)map, true);
	REQUIRE_ERRNO(ibv_dealloc_pd(other), 0);
	/* A call that fails changes nothing. */
	rereg(&p, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
	      IBV_ACCESS_REMOTE_WRITE, EINVAL);
	rereg(&p, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, (void *)4096, 4096, 0,
	      EFAULT);
	try_access(&p, IBV_WR_RDMA_WRITE, key, (uintptr_t)map, true);
	/* Not while a window is bound. */
	mw = ibv_alloc_mw(p.d.pd, IBV_MW_TYPE_1);
	REQUIRE(mw);
	p.theirs.mr->addr = map;
	bind_1(&p, mw, (struct ibv_mw_bind_info){
		.mr = p.theirs.mr, .addr = (uintptr_t)map, .length = 8,
		.mw_access_flags = REMOTE }, IBV_WC_SUCCESS);
	rereg(&p, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, BINDABLE, EBUSY);
	bind_1(&p, mw, none, IBV_WC_SUCCESS);
	REQUIRE_ERRNO(ibv_dealloc_mw(mw), 0);
	pair_close(&p);
	munmap(map, 8192);
}

/* A process that ends with windows bound leaves nothing behind. */
static void leave_bound(void *arg)
{
	struct ibv_mw *early, *late;
	struct pair p;

	(void)arg;
	memset(&p, 0, sizeof(p));
	device_open(&p.d);
	/* One window is older than its region, one younger. */
	early = ibv_alloc_mw(p.d.pd, IBV_MW_TYPE_1);
	ends_make(&p.a, &p.b, &p.d, &window_end);
	region_make(&p.mine, &p.d, 4096, 0, IBV_ACCESS_LOCAL_WRITE);
	region_make(&p.theirs, &p.d, 4096, 0, BINDABLE);
	late = ibv_alloc_mw(p.d.pd, IBV_MW_TYPE_2);
	REQUIRE(early && late);
	bind_1(&p, early, part(&p, 0, 8, REMOTE), IBV_WC_SUCCESS);
	bind_2(&p, late, ibv_inc_rkey(late->rkey), part(&p, 0, 8, REMOTE),
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
	static const struct test_case *const tables[] = {
		cases,
		owner_cases,
		NULL,
	};

	return test_main_of(argc, argv, tables);
}
