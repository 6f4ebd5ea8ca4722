// SPDX-License-Identifier: GPL-2.0
/*
 * Regions and queue pairs go away while the bytes of large messages move. When
 * ibv_dereg_mr(), ibv_rereg_mr(), ibv_destroy_qp() or ibv_modify_qp() to RESET
 * has returned, none moves any more, and all are the program's.
 *
 * The driver copies such messages outside of its engine, so that is to be
 * waited for. Over UC it does so for RDMA WRITEs; those that the receiver drops
 * succeed, and go on.
 */
#include "common.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum {
	LEN = 256 << 10,
	DEPTH = 4,
	BYTE = 0x55,
};

/* Copies outside of the engine so far; none where the engine is elsewhere. */
static long copy_jobs(void)
{
	FILE *file = engine_file();
	long jobs = -1;
	char line[128];

	if (!file)
		return -1;
	while (jobs < 0 && fgets(line, sizeof(line), file))
		if (sscanf(line, " copy_jobs: %ld", &jobs) != 1)
			jobs = -1;
	fclose(file);
	if (jobs < 0)
		FAIL("the engine tells of no copy_jobs");
	return jobs;
}

/* A pair whose first end sends without a pause, in a thread of its own. */
struct stream {
	struct pair p;
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	pthread_t thread;
	_Atomic bool stop;
	_Atomic long done;
};

static void *run_stream(void *arg)
{
	struct stream *s = arg;
	unsigned int posted = 0, ended = 0;
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	/* The first error ends it: what it used is gone. UC has none. */
	while (!s->stop) {
		for (; posted - ended < DEPTH; posted++)
			if (ibv_post_send(s->p.a.qp, &s->wr, &bad))
				return NULL;
		if (ibv_poll_cq(s->p.a.scq, 1, &wc) != 1)
			continue;
		if (wc.status != IBV_WC_SUCCESS)
			return NULL;
		ended++;
		s->done++;
	}
	return NULL;
}

static void stream_start(struct stream *s, enum ibv_qp_type type,
			 enum ibv_wr_opcode opcode)
{
	const struct end_config config = {
		.type = type,
		.access = type == IBV_QPT_UC ? ACCESS_ALL :
			  ACCESS_ALL | IBV_ACCESS_REMOTE_READ,
	};
	uint64_t begin = now_us();

	*s = (struct stream){};
	pair_make(&s->p, &config);
	pair_memory(&s->p, LEN, LEN, config.access);
	ends_connect(&s->p.a, &s->p.b);
	s->sge = sge_of(&s->p.mine, 0, LEN);
	s->wr = (struct ibv_send_wr){
		.opcode = opcode,
		.sg_list = &s->sge,
		.num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {
			.remote_addr = (uintptr_t)s->p.theirs.data,
			.rkey = s->p.theirs.mr->rkey,
		},
	};
	REQUIRE_ERRNO(pthread_create(&s->thread, NULL, run_stream, s), 0);
	while (s->done < 4) {
		if (now_us() - begin > PATIENCE_US)
			FAIL("nothing moves");
		sleep_us(100);
	}
}

static void stream_join(struct stream *s)
{
	s->stop = true;
	REQUIRE_ERRNO(pthread_join(s->thread, NULL), 0);
}

/* The program has its memory for itself. */
static void require_still(struct region *r)
{
	memset(r->data, BYTE, LEN);
	for (int i = 0; i < 5; i++) {
		sleep_us(200);
		VERIFY_BYTE(r->data, LEN, BYTE);
	}
}

/*
 * Calls `end` in the midst of many streams, which destroys what one uses, and
 * looks whether a byte moves after that.
 */
static void ends_beside(enum ibv_qp_type type, enum ibv_wr_opcode opcode,
			void (*end)(struct stream *, struct region *))
{
	long before = copy_jobs();
	long moved = 0;

	for (unsigned int i = 0; i < (opt.rounds ? opt.rounds : 20); i++) {
		struct stream s;
		struct region *target;

		stream_start(&s, type, opcode);
		target = opcode == IBV_WR_RDMA_READ ? &s.p.mine : &s.p.theirs;
		sleep_us(i * 37 % 500);
		/* Those over UC that are dropped from here on have no copy. */
		moved += s.done;
		end(&s, target);
		require_still(target);
		stream_join(&s);
		pair_close(&s.p);
	}
	/* While a command waits for a copy, the next messages have none. */
	if (before >= 0 && copy_jobs() - before < moved / 4)
		FAIL("%ld messages of %d bytes, and %ld copies", moved, LEN,
		     copy_jobs() - before);
}

static void deregister(struct stream *s, struct region *target)
{
	(void)s;
	REQUIRE_ERRNO(ibv_dereg_mr(target->mr), 0);
	target->mr = NULL;
}

static void change_rights(struct stream *s, struct region *target)
{
	int access = IBV_ACCESS_LOCAL_WRITE;

	if (target == &s->p.mine)
		access = 0;
	REQUIRE_ERRNO(ibv_rereg_mr(target->mr, IBV_REREG_MR_CHANGE_ACCESS,
				   NULL, NULL, 0, access), 0);
}

static void destroy_receiver(struct stream *s, struct region *target)
{
	struct ibv_qp_init_attr init = {
		.send_cq = s->p.b.scq,
		.recv_cq = s->p.b.rcq,
		.cap = s->p.b.cap,
		.qp_type = s->p.b.qp->qp_type,
	};

	(void)target;
	REQUIRE_ERRNO(ibv_destroy_qp(s->p.b.qp), 0);
	/* Another one in its place, for the end. */
	s->p.b.qp = ibv_create_qp(s->p.d.pd, &init);
	REQUIRE(s->p.b.qp);
}

static void reset_sender(struct stream *s, struct region *target)
{
	(void)target;
	end_reset(&s->p.a);
	/* Its posts are refused from now on. */
	s->stop = true;
}

static void region_deregistered(void)
{
	ends_beside(IBV_QPT_RC, IBV_WR_RDMA_WRITE, deregister);
	ends_beside(IBV_QPT_RC, IBV_WR_RDMA_READ, deregister);
	ends_beside(IBV_QPT_UC, IBV_WR_RDMA_WRITE, deregister);
}

static void region_changed(void)
{
	ends_beside(IBV_QPT_RC, IBV_WR_RDMA_WRITE, change_rights);
	ends_beside(IBV_QPT_UC, IBV_WR_RDMA_WRITE, change_rights);
}

static void receiver_destroyed(void)
{
	ends_beside(IBV_QPT_RC, IBV_WR_RDMA_WRITE, destroy_receiver);
	ends_beside(IBV_QPT_UC, IBV_WR_RDMA_WRITE, destroy_receiver);
}

static void sender_reset(void)
{
	ends_beside(IBV_QPT_RC, IBV_WR_RDMA_WRITE, reset_sender);
	ends_beside(IBV_QPT_RC, IBV_WR_RDMA_READ, reset_sender);
	ends_beside(IBV_QPT_UC, IBV_WR_RDMA_WRITE, reset_sender);
}

static const struct test_case cases[] = {
	{ "region_deregistered", region_deregistered, 120 },
	{ "region_changed", region_changed, 120 },
	{ "receiver_destroyed", receiver_destroyed, 120 },
	{ "sender_reset", sender_reset, 120 },
	{ NULL, NULL },
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, cases);
}
