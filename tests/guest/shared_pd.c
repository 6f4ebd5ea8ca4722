// SPDX-License-Identifier: GPL-2.0
/*
 * A device file, a protection domain and a memory region that several programs
 * have (ibv_import_device(3), ibv_import_pd(3), ibv_import_mr(3)).
 */
#define _GNU_SOURCE
#include "raw.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HALF = 4096 };

/* A region that both processes can look at: one half for each. */
struct shared {
	struct device d;
	uint8_t *data;
	struct ibv_mr *mr;
};

static void shared_make(struct shared *s)
{
	device_open(&s->d);
	s->data = mmap(NULL, 2 * HALF, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(s->data != MAP_FAILED);
	s->mr = ibv_reg_mr(s->d.pd, s->data, 2 * HALF,
			   ACCESS_ALL | IBV_ACCESS_REMOTE_READ);
	REQUIRE(s->mr);
}

static void shared_free(struct shared *s)
{
	REQUIRE_ERRNO(ibv_dereg_mr(s->mr), 0);
	REQUIRE_EQ(munmap(s->data, 2 * HALF), 0);
	device_close(&s->d);
}

/* The same by import: the file, and the handles of domain and region. */
static void shared_import(struct shared *mine, const struct shared *theirs)
{
	*mine = *theirs;
	mine->d.ctx = ibv_import_device(dup(theirs->d.ctx->cmd_fd));
	if (!mine->d.ctx)
		FAIL("ibv_import_device: %s", strerror(errno));
	REQUIRE_EQ(mine->d.ctx->num_comp_vectors,
		   theirs->d.ctx->num_comp_vectors);
	mine->d.pd = ibv_import_pd(mine->d.ctx, theirs->d.pd->handle);
	REQUIRE(mine->d.pd);
	mine->mr = ibv_import_mr(mine->d.pd, theirs->mr->handle);
	if (!mine->mr)
		FAIL("ibv_import_mr: %s", strerror(errno));
	REQUIRE_EQ(mine->mr->lkey, theirs->mr->lkey);
	REQUIRE_EQ(mine->mr->rkey, theirs->mr->rkey);
	REQUIRE_EQ(mine->mr->length, theirs->mr->length);
}

static void shared_unimport(struct shared *mine)
{
	ibv_unimport_mr(mine->mr);
	ibv_unimport_pd(mine->d.pd);
	REQUIRE_EQ(ibv_close_device(mine->d.ctx), 0);
}

/* Messages and WRITEs of one process among queue pairs of its own. */
static void transfers(struct shared *s, size_t at, unsigned int rounds)
{
	struct end a, b;

	ends_make(&a, &b, &s->d, NULL);
	for (unsigned int i = 0; i < rounds; i++) {
		struct ibv_sge from = { (uintptr_t)s->data + at, 64,
					s->mr->lkey };
		struct ibv_sge to = { from.addr + 64, 64, s->mr->lkey };
		const struct peer peer = { .addr = from.addr + 128,
					   .rkey = s->mr->rkey };

		fill(s->data + at, 64, at + i);
		REQUIRE_ERRNO(try_recv(&b, i, &to, 1), 0);
		send_sges(&a, i, IBV_WR_SEND, IBV_SEND_SIGNALED, &from, 1, NULL,
			  0, 0);
		EXPECT_OK(a.scq, i);
		EXPECT_OK(b.rcq, i);
		send_sges(&b, i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &to, 1,
			  &peer, 0, 0);
		EXPECT_OK(b.scq, i);
		VERIFY(s->data + at + 64, 64, at + i);
		VERIFY(s->data + at + 128, 64, at + i);
	}
	end_free(&a);
	end_free(&b);
}

static void import_and_transfer(void *arg)
{
	struct shared mine;

	shared_import(&mine, arg);
	transfers(&mine, HALF, opt.rounds ?: 1000);
	shared_unimport(&mine);
}

/* Two processes ring at one time, and each by doorbells of its own. */
static void both_post(void)
{
	struct shared s;
	pid_t child;

	shared_make(&s);
	child = fork_process(import_and_transfer, &s);
	transfers(&s, 0, opt.rounds ?: 1000);
	join_process(child);
	transfers(&s, 0, 10);
	shared_free(&s);
}

/* One process has imported the file of another, and they talk. */
struct talk {
	struct shared s;
	int mine[2], theirs[2];
};

static void answer(void *arg)
{
	struct talk *t = arg;
	struct shared mine;
	struct peer me, peer;
	struct ibv_sge sge;
	struct end e;

	shared_import(&mine, &t->s);
	end_make(&e, &mine.d, NULL);
	me = end_address(&e, NULL);
	sge = (struct ibv_sge){ (uintptr_t)mine.data + HALF, HALF,
				mine.mr->lkey };
	get_bytes(t->mine[0], &peer, sizeof(peer));
	end_connect(&e, &peer);
	REQUIRE_ERRNO(try_recv(&e, 7, &sge, 1), 0);
	put_bytes(t->theirs[1], &me, sizeof(me));
	EXPECT_OK(e.rcq, 7);
	VERIFY(mine.data + HALF, HALF, 9);
	end_free(&e);
	shared_unimport(&mine);
}

static void talk(void)
{
	struct peer me, peer;
	struct ibv_sge sge;
	struct talk t;
	struct end e;
	pid_t child;

	REQUIRE(!pipe(t.mine) && !pipe(t.theirs));
	shared_make(&t.s);
	child = fork_process(answer, &t);
	end_make(&e, &t.s.d, NULL);
	me = end_address(&e, NULL);
	put_bytes(t.mine[1], &me, sizeof(me));
	get_bytes(t.theirs[0], &peer, sizeof(peer));
	end_connect(&e, &peer);
	fill(t.s.data, HALF, 9);
	sge = (struct ibv_sge){ (uintptr_t)t.s.data, HALF, t.s.mr->lkey };
	send_sges(&e, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 1, NULL, 0, 0);
	EXPECT_OK(e.scq, 1);
	join_process(child);
	end_free(&e);
	shared_free(&t.s);
}

static void post_for_ever(void *arg)
{
	struct shared mine;

	shared_import(&mine, arg);
	for (;;)
		transfers(&mine, HALF, 1000);
}

/* A program that dies in the middle leaves the others as they are. */
static void importer_dies(void)
{
	struct shared s;

	shared_make(&s);
	for (int round = 0; round < 5; round++) {
		pid_t child = fork_process(post_for_ever, &s);

		transfers(&s, 0, 200);
		REQUIRE_EQ(kill(child, SIGKILL), 0);
		REQUIRE_EQ(waitpid(child, NULL, 0), child);
		transfers(&s, 0, 200);
	}
	/* Its queue pairs stay as long as the file is open. */
	REQUIRE_ERRNO(ibv_dealloc_pd(s.d.pd), EBUSY);
	REQUIRE_EQ(ibv_close_device(s.d.ctx), 0);
}

/* As many as the header says at a time; those that end make way for others. */
static void many_imports(void)
{
	struct ibv_context *all[16];
	struct shared s, one;
	int fd;

	shared_make(&s);
	for (int i = 0; i < 300; i++) {
		shared_import(&one, &s);
		shared_unimport(&one);
	}
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		all[i] = ibv_import_device(dup(s.d.ctx->cmd_fd));
		if (!all[i])
			FAIL("import %zu: %s", i, strerror(errno));
	}
	fd = dup(s.d.ctx->cmd_fd);
	REQUIRE_NULL_ERRNO(ibv_import_device(fd), ENOMEM);
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		REQUIRE_EQ(ibv_close_device(all[i]), 0);
	shared_import(&one, &s);
	transfers(&one, HALF, 10);
	shared_unimport(&one);
	transfers(&s, 0, 10);
	shared_free(&s);
}

/* A file of no device, a handle of no region, a number of no import. */
static void refused(void)
{
	struct shared s;
	int ends[2], fd;

	shared_make(&s);
	fd = s.d.ctx->cmd_fd;
	REQUIRE(!pipe(ends));
	REQUIRE_NULL_ERRNO(ibv_import_device(-1), EINVAL);
	REQUIRE_NULL_ERRNO(ibv_import_device(ends[0]), EINVAL);
	REQUIRE_NULL_ERRNO(ibv_import_mr(s.d.pd, s.mr->handle + 1000), ENOENT);
	REQUIRE_ERRNO(raw_method(fd, FERRULE_METHOD_UNIMPORT, 0), EINVAL);
	REQUIRE_ERRNO(raw_method(fd, FERRULE_METHOD_UNIMPORT, 1), EINVAL);
	REQUIRE_ERRNO(raw_method(fd, FERRULE_METHOD_UNIMPORT, ~0u), EINVAL);
	REQUIRE_ERRNO(raw_method(fd, FERRULE_METHOD_KICK_DOORBELLS, 1), EINVAL);
	transfers(&s, 0, 10);
	shared_free(&s);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "both_post", both_post, 120 },
		{ "talk", talk },
		{ "importer_dies", importer_dies, 60 },
		{ "many_imports", many_imports, 60 },
		{ "refused", refused },
		{ }
	};

	return test_main(argc, argv, cases);
}
