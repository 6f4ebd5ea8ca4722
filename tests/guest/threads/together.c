// SPDX-License-Identifier: GPL-2.0
/* Commands that bring the threads together: one engine has all of the program from then on. */
#define _GNU_SOURCE
#include "threads.h"

#include <fcntl.h>
#include <sys/mman.h>

static struct team team;

/* The threads are in one shard, see that they are to end, and do the rest. */
static void finish_together(void)
{
	team_require_together(&team);
	team.stop = true;
	team_meet(&team);
	team_meet(&team);
	team_join(&team);
}

static struct ibv_mw *windows[THREADS];

static void bind_own(struct worker *w)
{
	struct ibv_mw *mw;
	struct ibv_mr opened = {};
	struct region r;

	region_make(&r, &w->d, 2 * PART, 0,
		    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	while (!w->team->stop)
		round_of(w);
	team_meet(w->team);
	mw = windows[w->number];
	for (unsigned int i = 0; i < 10; i++) {
		uint32_t key = ibv_inc_rkey(mw->rkey);
		struct peer to = { .addr = (uintptr_t)r.data, .rkey = key };
		struct ibv_sge from = sge_at(place_of(&w->own, 0), PART);

		send_bind(&w->b, 1, mw, key, (struct ibv_mw_bind_info){
			  .mr = r.mr, .addr = to.addr, .length = PART,
			  .mw_access_flags = IBV_ACCESS_REMOTE_WRITE });
		EXPECT_OK(w->b.scq, 1);
		mw->rkey = key;
		fill(w->own.data, PART, i);
		send_sges(&w->a, 2, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &from,
			  1, &to, 0, 0);
		EXPECT_OK(w->a.scq, 2);
		VERIFY(r.data, PART, i);
		send_local_inv(&w->b, 3, key);
		EXPECT_OK(w->b.scq, 3);
		opened.rkey = key;
		refused(&w->a, &w->b, from, (struct place){ r.data, &opened },
			IBV_WC_REM_ACCESS_ERR);
		round_of(w);
	}
	team_meet(w->team);
	region_free(&r);
}

/* Windows come while all are busy, and each thread binds its own. */
void window(void)
{
	team_open(&team, THREADS);
	team_start(&team, bind_own);
	team_await(&team, 2);
	for (unsigned int i = 0; i < THREADS; i++) {
		windows[i] = ibv_alloc_mw(team.d.pd, IBV_MW_TYPE_2);
		REQUIRE(windows[i]);
		team_await(&team, 2);
	}
	finish_together();
	for (unsigned int i = 0; i < THREADS; i++)
		REQUIRE_ERRNO(ibv_dealloc_mw(windows[i]), 0);
	team_close(&team);
}

/* Memory that comes beside the work of all, for all. */
static struct region late;

static void use_late(struct worker *w)
{
	struct place from = place_of(&w->own, 0);

	while (!w->team->stop)
		round_of(w);
	team_meet(w->team);
	for (unsigned int i = 0; i < 10; i++) {
		struct place to = side(w, &late, i % 2);

		madvise(to.data, PART, MADV_DONTNEED);
		w->seed += 3;
		transfer(&w->a, &w->b, from, to, PART, w->seed);
		transfer(&w->a, &w->b, to, from, PART, w->seed);
		round_of(w);
	}
	team_meet(w->team);
}

void paged(void)
{
	struct ibv_device_attr_ex attr = {};

	team_open(&team, THREADS);
	REQUIRE_ERRNO(ibv_query_device_ex(team.d.ctx, NULL, &attr), 0);
	if (!(attr.odp_caps.general_caps & IBV_ODP_SUPPORT))
		test_skip("the device pages nothing on demand");
	team_start(&team, use_late);
	team_await(&team, 2);
	region_make(&late, &team.d, 2 * THREADS * PART, 0,
		    ACCESS | IBV_ACCESS_ON_DEMAND);
	team_await(&team, 2);
	finish_together();
	region_free(&late);
	team_close(&team);
}

enum { AFTER = 0x55, MOVES = 8, MOVING = 2 * THREADS * PART };
static struct place moving;
static uint8_t *memory[2];

static void follow_region(struct worker *w)
{
	for (unsigned int i = 0; i < MOVES; i++) {
		struct place from, to;

		team_meet(w->team);
		from = to = moving;
		from.data += 2 * w->number * PART;
		to.data = from.data + PART;
		if (i % 4 == 3) {
			refused(&w->a, &w->b, sge_at(place_of(&w->own, 0), 8), to,
				IBV_WC_REM_ACCESS_ERR);
			refused(&w->a, &w->b, sge_at(from, 8),
				place_of(&w->own, 0), IBV_WC_LOC_PROT_ERR);
		} else {
			w->seed += 3;
			transfer(&w->a, &w->b, from, to, PART, w->seed);
		}
		round_of(w);
		team_meet(w->team);
	}
}

static void rereg(int flags, struct ibv_pd *pd, uint8_t *data)
{
	REQUIRE_EQ(ibv_rereg_mr(moving.mr, flags, pd, data, MOVING, 0), 0);
	if (data)
		moving.data = data;
}

/* The same region, of other memory each time, and in another domain at times. */
void registered_anew(void)
{
	struct device other;

	team_open(&team, THREADS);
	other = device_other_pd(&team.d);
	for (int i = 0; i < 2; i++)
		memory[i] = shared_map(MOVING);
	moving.data = memory[0];
	moving.mr = ibv_reg_mr(team.d.pd, memory[0], MOVING, ACCESS);
	REQUIRE(moving.mr);
	team_start(&team, follow_region);
	for (unsigned int i = 0; i < MOVES; i++) {
		uint8_t *next = memory[i % 2], *idle = memory[!(i % 2)];

		if (i % 4 == 3)
			rereg(IBV_REREG_MR_CHANGE_PD, other.pd, NULL);
		else if (i)
			rereg(IBV_REREG_MR_CHANGE_TRANSLATION |
			      IBV_REREG_MR_CHANGE_PD, team.d.pd, next);
		if (i)
			team_require_together(&team);
		if (i % 4 == 3)
			memset(moving.data, AFTER, MOVING);
		else
			memset(idle, AFTER, MOVING);
		team_meet(&team);
		team_meet(&team);
		VERIFY_BYTE(i % 4 == 3 ? moving.data : idle, MOVING, AFTER);
	}
	team_join(&team);
	REQUIRE_ERRNO(ibv_dereg_mr(moving.mr), 0);
	for (int i = 0; i < 2; i++)
		shared_unmap(memory[i], MOVING);
	device_free_pd(&other);
	team_close(&team);
}

static struct ibv_mr *dm_mr;

static void use_dm(struct worker *w)
{
	struct ibv_sge from = sge_at(place_of(&w->own, 0), 64);
	struct peer to = { .addr = 64 * w->number, .rkey = dm_mr->rkey };

	for (unsigned int i = 0; i < 100; i++) {
		fill(w->own.data, 64, w->seed + i);
		send_sges(&w->a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &from,
			  1, &to, 0, 0);
		EXPECT_OK(w->a.scq, 1);
		memset(w->own.data, 0, 64);
		send_sges(&w->a, 2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &from,
			  1, &to, 0, 0);
		EXPECT_OK(w->a.scq, 2);
		VERIFY(w->own.data, 64, w->seed + i);
		round_of(w);
	}
}

void device_memory(void)
{
	struct ibv_alloc_dm_attr attr = { .length = 64 * THREADS };
	struct ibv_dm *dm;

	team_open(&team, THREADS);
	dm = ibv_alloc_dm(team.d.ctx, &attr);
	if (!dm)
		test_skip("ibv_alloc_dm: %s", strerror(errno));
	dm_mr = ibv_reg_dm_mr(team.d.pd, dm, 0, attr.length,
			      ACCESS | IBV_ACCESS_ZERO_BASED);
	REQUIRE(dm_mr);
	team_start(&team, use_dm);
	team_join(&team);
	REQUIRE_ERRNO(ibv_dereg_mr(dm_mr), 0);
	REQUIRE_ERRNO(ibv_free_dm(dm), 0);
	team_close(&team);
}

/* A domain for all; a thread has an initiator, a target and a queue of it. */
static struct ibv_xrcd *domain;

static struct ibv_qp *make_initiator(struct worker *w)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_XRC_SEND,
		.send_cq = w->a.scq,
		.cap = { .max_send_wr = 4, .max_send_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = w->d.pd,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(w->d.ctx, &init);

	REQUIRE(qp);
	return qp;
}

static void send_to_srq(struct worker *w, struct ibv_qp *qp, uint32_t number)
{
	struct ibv_sge from = sge_of(&w->own, 0, 64);
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = &from,
		.num_sge = 1,
		.qp_type.xrc.remote_srqn = number,
	}, *bad;

	REQUIRE_ERRNO(ibv_post_send(qp, &wr, &bad), 0);
}

static void extend(struct worker *w)
{
	struct ibv_srq_attr attr = { .max_wr = 4, .max_sge = 1 };
	struct ibv_qp *initiator, *target;
	struct ibv_srq *srq;
	uint32_t number;

	while (!w->team->stop)
		round_of(w);
	team_meet(w->team);
	srq = xrc_create_srq(&w->d, domain, w->a.rcq, &attr);
	REQUIRE(srq);
	REQUIRE_ERRNO(ibv_get_srq_num(srq, &number), 0);
	initiator = make_initiator(w);
	target = xrc_create_target(&w->d, domain);
	REQUIRE(target);
	xrc_connect(&w->d, initiator, target, ACCESS);
	xrc_connect(&w->d, target, initiator, ACCESS);
	for (unsigned int i = 0; i < 100; i++) {
		struct ibv_sge into = sge_of(&w->own, PART, 64);
		struct ibv_recv_wr wr = { .wr_id = 2, .sg_list = &into,
					  .num_sge = 1 }, *bad;

		fill(w->own.data, 64, w->seed + i);
		REQUIRE_ERRNO(ibv_post_srq_recv(srq, &wr, &bad), 0);
		send_to_srq(w, initiator, number);
		EXPECT_OK(w->a.rcq, 2);
		EXPECT_OK(w->a.scq, 1);
		VERIFY(w->own.data + PART, 64, w->seed + i);
		round_of(w);
	}
	team_meet(w->team);
	team_meet(w->team);
	REQUIRE_ERRNO(ibv_destroy_qp(initiator), 0);
	REQUIRE_ERRNO(ibv_destroy_qp(target), 0);
	REQUIRE_ERRNO(ibv_destroy_srq(srq), 0);
}

void extended(void)
{
	team_open(&team, THREADS);
	domain = xrcd_open(&team.d, -1, O_CREAT);
	if (!domain)
		test_skip("ibv_open_xrcd: %s", strerror(errno));
	team_start(&team, extend);
	team_await(&team, 2);
	REQUIRE(team_is_apart(&team));
	team.stop = true;
	team_meet(&team);
	team_meet(&team);
	/* Their queue pairs are there until the third meeting. */
	team_require_together(&team);
	team_meet(&team);
	team_join(&team);
	REQUIRE_ERRNO(ibv_close_xrcd(domain), 0);
	team_close(&team);
}
