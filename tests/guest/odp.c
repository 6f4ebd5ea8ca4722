// SPDX-License-Identifier: GPL-2.0
/*
 * On-demand paging: memory that comes and goes under regions of which no page
 * is pinned. Never touched, dropped, swapped, forked, truncated, unmapped, or
 * not for the kernel at all: requests wait for what can be had, and end with
 * an error for what cannot.
 */
#define _GNU_SOURCE
#include "odp/odp.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void abilities(void)
{
	const uint32_t messages = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV |
				  IBV_ODP_SUPPORT_SRQ_RECV;
	struct ibv_device_attr_ex attr = {};
	struct device d;

	device_open(&d);
	REQUIRE_ERRNO(ibv_query_device_ex(d.ctx, NULL, &attr), 0);
	REQUIRE_EQ(attr.odp_caps.general_caps,
		   IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT);
	REQUIRE_EQ(attr.odp_caps.per_transport_caps.rc_odp_caps & messages,
		   messages);
	REQUIRE_EQ(attr.odp_caps.per_transport_caps.uc_odp_caps,
		   messages | IBV_ODP_SUPPORT_WRITE);
	REQUIRE_EQ(attr.odp_caps.per_transport_caps.ud_odp_caps,
		   IBV_ODP_SUPPORT_SEND);
	device_close(&d);
}

/* Nothing is pinned, nor brought in, by a registration. */
static void registration(void)
{
	const size_t len = 1ul << 40;
	uint8_t *map = mmap(NULL, len, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct ibv_mr *mr, *far;
	long before = pinned_kib();
	struct device d;

	REQUIRE(map != MAP_FAILED);
	device_open(&d);
	mr = reg(&d, map, len, ACCESS);
	/* Addresses that are not mapped may be some day. */
	far = reg(&d, (void *)(1ul << 45), PAGE, ACCESS);
	REQUIRE_EQ(pinned_kib(), before);
	REQUIRE_NULL_ERRNO(ibv_reg_mr(d.pd, map, 0,
				      ACCESS | IBV_ACCESS_ON_DEMAND), EINVAL);
	REQUIRE_ERRNO(ibv_dereg_mr(far), 0);
	REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);
	device_close(&d);
}

/* So many of one process, all of the same page; those that end make way for others. */
static void many_regions(void)
{
	static struct ibv_mr *all[8192];
	uint8_t *map = map_anonymous(PAGE);
	struct device d;

	device_open(&d);
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		all[i] = reg(&d, map, PAGE, ACCESS);
	REQUIRE_NULL_ERRNO(ibv_reg_mr(d.pd, map, PAGE, ACCESS | IBV_ACCESS_ON_DEMAND), ENOMEM);
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		REQUIRE_ERRNO(ibv_dereg_mr(all[i]), 0);
	REQUIRE_ERRNO(ibv_dereg_mr(reg(&d, map, PAGE, ACCESS)), 0);
	device_close(&d);
}

/* Each operation, with memory at both ends that was never touched or is dropped. */
static void operations(struct scene *s)
{
	for (unsigned int round = 1; round <= 4; round++) {
		drop(s->mine, SIZE);
		drop(s->theirs, SIZE);
		receive(s, SIZE);
		request(s, IBV_WR_SEND, SIZE);
		EXPECT_OK(s->p.a.scq, 1);
		EXPECT_OK(s->p.b.rcq, 2);
		VERIFY_BYTE(s->theirs, SIZE, 0);

		fill(s->mine, SIZE, round);
		drop(s->theirs, SIZE);
		receive(s, SIZE);
		request(s, IBV_WR_SEND, SIZE);
		EXPECT_OK(s->p.a.scq, 1);
		EXPECT_OK(s->p.b.rcq, 2);
		VERIFY(s->theirs, SIZE, round);

		drop(s->theirs, SIZE);
		request(s, IBV_WR_RDMA_WRITE, SIZE);
		EXPECT_OK(s->p.a.scq, 1);
		VERIFY(s->theirs, SIZE, round);

		drop(s->mine, SIZE);
		request(s, IBV_WR_RDMA_READ, SIZE);
		EXPECT_OK(s->p.a.scq, 1);
		VERIFY(s->mine, SIZE, round);

		/* Once, though the answer's place is absent. */
		drop(s->mine, SIZE);
		*(uint64_t *)s->theirs = round;
		send_atomic(&s->p.a, 1, IBV_WR_ATOMIC_FETCH_AND_ADD,
			    IBV_SEND_SIGNALED, mine(s, 8, 8), &s->to, 0, 3, 0);
		EXPECT_OK(s->p.a.scq, 1);
		REQUIRE_EQ(*(uint64_t *)(s->mine + 8), round);
		REQUIRE_EQ(*(uint64_t *)s->theirs, round + 3);
		drop(s->theirs, SIZE);
		send_atomic(&s->p.a, 1, IBV_WR_ATOMIC_CMP_AND_SWP,
			    IBV_SEND_SIGNALED, mine(s, 8, 8), &s->to, 0, 0, 5);
		EXPECT_OK(s->p.a.scq, 1);
		REQUIRE_EQ(*(uint64_t *)(s->mine + 8), 0);
		REQUIRE_EQ(*(uint64_t *)s->theirs, 5);
	}
}

static void explicit(void)
{
	struct scene s;

	scene_open(&s);
	operations(&s);
	scene_close(&s);
}

/* One region of all addresses, which opens what is mapped later. */
static void implicit(void)
{
	struct scene s;

	scene_connect(&s);
	s.my_mr = ibv_reg_mr(s.p.d.pd, NULL, SIZE_MAX,
			     ACCESS | IBV_ACCESS_ON_DEMAND);
	REQUIRE(s.my_mr);
	s.their_mr = ibv_reg_mr(s.p.d.pd, NULL, SIZE_MAX,
				ACCESS | IBV_ACCESS_ON_DEMAND);
	REQUIRE(s.their_mr);
	s.mine = map_anonymous(SIZE);
	s.theirs = map_anonymous(SIZE);
	s.to = end_address(&s.p.b, NULL);
	s.to.addr = (uintptr_t)s.theirs;
	s.to.rkey = s.their_mr->rkey;
	operations(&s);
	scene_close(&s);
}

static void shared_receive_queue(void)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct end_config config = {};
	struct ibv_sge sge = {};
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	uint8_t *from = map_anonymous(SIZE), *to = map_anonymous(SIZE);
	struct ibv_mr *mr;
	struct device d;
	struct end a, b;

	device_open(&d);
	config.srq = ibv_create_srq(d.pd, &attr);
	REQUIRE(config.srq);
	ends_make(&a, &b, &d, &config);
	mr = ibv_reg_mr(d.pd, NULL, SIZE_MAX, ACCESS | IBV_ACCESS_ON_DEMAND);
	REQUIRE(mr);
	fill(from, SIZE, 4);
	for (int i = 0; i < 8; i++) {
		struct ibv_sge mine = { (uintptr_t)from, SIZE, mr->lkey };

		drop(to, SIZE);
		sge = (struct ibv_sge){ (uintptr_t)to, SIZE, mr->lkey };
		REQUIRE_ERRNO(ibv_post_srq_recv(config.srq, &wr, &bad), 0);
		send_sges(&a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, &mine, 1,
			  NULL, 0, 0);
		EXPECT_OK(a.scq, 1);
		EXPECT_OK(b.rcq, 0);
		VERIFY(to, SIZE, 4);
	}
	REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);
	end_free(&a);
	end_free(&b);
	REQUIRE_ERRNO(ibv_destroy_srq(config.srq), 0);
	device_close(&d);
}

/* Both see the memory as they left it, and the region is the parent's. */
static void forked(void)
{
	struct scene s;

	scene_open(&s);
	fill(s.mine, SIZE, 1);
	request(&s, IBV_WR_RDMA_WRITE, SIZE);
	EXPECT_OK(s.p.a.scq, 1);
	for (unsigned int round = 2; round < 8; round++) {
		int go[2];
		pid_t pid;
		char byte;
		int status;

		REQUIRE_EQ(pipe(go), 0);
		pid = fork();
		REQUIRE(pid >= 0);
		if (!pid) {
			REQUIRE_EQ(read(go[0], &byte, 1), 1);
			VERIFY(s.theirs, SIZE, round - 1);
			memset(s.theirs, 0xff, SIZE);
			_exit(0);
		}
		fill(s.mine, SIZE, round);
		request(&s, IBV_WR_RDMA_WRITE, SIZE);
		EXPECT_OK(s.p.a.scq, 1);
		put_bytes(go[1], "", 1);
		REQUIRE_EQ(waitpid(pid, &status, 0), pid);
		REQUIRE_EQ(status, 0);
		VERIFY(s.theirs, SIZE, round);
		close(go[0]);
		close(go[1]);
	}
	scene_close(&s);
}

/* Data that peers wrote are swapped out as they are, and come back. */
static void swapped(void)
{
	struct scene s;

	if (run_command("grep -q zram /proc/swaps || (modprobe zram num_devices=1 && echo 64M > /sys/block/zram0/disksize && mkswap /dev/zram0 && swapon /dev/zram0) >/dev/null 2>&1"))
		test_skip("the guest has no zram to swap to");
	scene_open(&s);
	for (unsigned int round = 1; round <= 5; round++) {
		fill(s.mine, SIZE, round);
		request(&s, IBV_WR_RDMA_WRITE, SIZE);
		EXPECT_OK(s.p.a.scq, 1);
		REQUIRE_EQ(madvise(s.theirs, SIZE, MADV_PAGEOUT), 0);
		REQUIRE_EQ(madvise(s.mine, SIZE, MADV_PAGEOUT), 0);
		memset(s.mine, 0, SIZE / 2);
		request(&s, IBV_WR_RDMA_READ, SIZE);
		EXPECT_OK(s.p.a.scq, 1);
		VERIFY(s.mine, SIZE, round);
		VERIFY(s.theirs, SIZE, round);
	}
	scene_close(&s);
}

static int rereg(struct ibv_mr *mr, int access)
{
	return ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, access);
}

/* Other rights, pinned, and paged again: the program's memory stays what it is. */
static void registered_anew(void)
{
	struct scene s;
	long before;

	scene_open(&s);
	before = pinned_kib();
	REQUIRE_ERRNO(ibv_dereg_mr(s.their_mr), 0);
	s.their_mr = reg(&s.p.d, s.theirs, SIZE, IBV_ACCESS_REMOTE_READ);
	fill(s.theirs, SIZE, 1);
	for (unsigned int round = 1; round <= 4; round++) {
		const bool pinned = round % 2 == 0;

		REQUIRE_EQ(rereg(s.their_mr, pinned ? ACCESS :
					     ACCESS | IBV_ACCESS_ON_DEMAND), 0);
		s.to.rkey = s.their_mr->rkey;
		REQUIRE_EQ(pinned_kib() - before, pinned ? (long)SIZE / 1024 : 0);
		request(&s, IBV_WR_RDMA_READ, SIZE);
		EXPECT_OK(s.p.a.scq, 1);
		VERIFY(s.mine, SIZE, round);
		if (!pinned)
			drop(s.theirs, SIZE);
		fill(s.mine, SIZE, round + 1);
		request(&s, IBV_WR_RDMA_WRITE, SIZE);
		EXPECT_OK(s.p.a.scq, 1);
		VERIFY(s.theirs, SIZE, round + 1);
	}
	REQUIRE_ERRNO(ibv_dereg_mr(s.their_mr), 0);

	/* All addresses cannot be pinned, and go on being paged. */
	s.their_mr = ibv_reg_mr(s.p.d.pd, NULL, SIZE_MAX,
				IBV_ACCESS_ON_DEMAND | IBV_ACCESS_REMOTE_READ);
	REQUIRE(s.their_mr);
	errno = 0;
	REQUIRE_EQ(rereg(s.their_mr, ACCESS), IBV_REREG_MR_ERR_CMD);
	REQUIRE_ERRNO(errno, EINVAL);
	REQUIRE_EQ(rereg(s.their_mr, ACCESS | IBV_ACCESS_ON_DEMAND), 0);
	s.to.rkey = s.their_mr->rkey;
	fill(s.mine, SIZE, 9);
	request(&s, IBV_WR_RDMA_WRITE, SIZE);
	EXPECT_OK(s.p.a.scq, 1);
	VERIFY(s.theirs, SIZE, 9);
	scene_close(&s);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "abilities", abilities },
		{ "registration", registration },
		{ "many_regions", many_regions, 60 },
		{ "explicit", explicit },
		{ "implicit", implicit },
		{ "registered_anew", registered_anew },
		{ "shared_receive_queue", shared_receive_queue },
		{ "datagrams", datagrams },
		{ "extended", extended },
		{ "placement", placement },
		{ "forked", forked },
		{ "swapped", swapped },
		{ "unmapped", unmapped },
		{ "truncated", truncated },
		{ "protected", protected },
		{ "read_only", read_only },
		{ "receive_buffer", receive_buffer },
		{ "mapped_again", mapped_again },
		{ "mapped_after_a_reset", mapped_after_a_reset },
		{ "secret", secret },
		{ "storms", storms },
		{ "registrations_in_a_storm", registrations_in_a_storm },
		{ "prefetch", prefetch },
		{ "long_prefetch_killed", long_prefetch_killed },
		{ "long_prefetch_removed", long_prefetch_removed },
		{ "charged", charged },
		{ "process_ends", process_ends },
		{ "served", served },
		{ "silent_server", silent_server },
		{ "figures", figures },
		{}
	};

	return test_main(argc, argv, cases);
}
