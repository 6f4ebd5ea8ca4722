// SPDX-License-Identifier: GPL-2.0
/*
 * What a process can reach: the mappings of the rings and their rights, what
 * a child inherits, what another process's mapping offsets are worth, how much
 * memory an unprivileged user may pin, how many objects a control group has.
 */
#define _GNU_SOURCE
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- Mappings ---- */

/* Ends with all their rings, so that there is something to attack. */
struct scene {
	struct device d;
	struct end a, b;
	struct region r;
	struct mapping map[32];
	unsigned int maps;
};

static void scene_make(struct scene *s)
{
	device_open(&s->d);
	ends_make(&s->a, &s->b, &s->d, NULL);
	region_make(&s->r, &s->d, 200, 0, ACCESS_ALL);
	s->maps = device_mappings(s->map, ARRAY_SIZE(s->map));
	for (unsigned int i = 0; i < s->maps; i++)
		test_note("mapping of %zu bytes at offset %#llx, %s",
			  s->map[i].end - s->map[i].begin,
			  (unsigned long long)s->map[i].offset,
			  s->map[i].rights);
	REQUIRE(s->maps >= 2);
}

static void scene_works(struct scene *s)
{
	recv_region(&s->b, 1, &s->r, 100, 100);
	send_region(&s->a, 1, &s->r, 0, 100);
	EXPECT_OK(s->a.scq, 1);
	EXPECT_OK(s->b.rcq, 1);
}

static void scene_free(struct scene *s)
{
	scene_works(s);
	end_free(&s->a);
	end_free(&s->b);
	region_free(&s->r);
	REQUIRE_EQ(device_mappings(s->map, ARRAY_SIZE(s->map)) <= 2, 1);
	device_close(&s->d);
	/* With the context go the last of them. */
	REQUIRE_EQ(device_mappings(s->map, ARRAY_SIZE(s->map)), 0);
}

static bool read_only(const struct mapping *m)
{
	return !mapping_writable(m);
}

/* rdma_rxe maps all its rings writable, and children inherit them. */
static void require_read_only(struct scene *s)
{
	for (unsigned int i = 0; i < s->maps; i++)
		if (read_only(&s->map[i]))
			return;
	if (!strncmp(opt.device, "rxe", 3))
		test_skip("rdma_rxe has no read-only rings");
	FAIL("there is no read-only mapping");
}

static void *try_map(struct scene *s, size_t len, int prot, int flags,
		     off_t offset)
{
	return mmap(NULL, len, prot, flags, s->d.ctx->cmd_fd, offset);
}

#define REQUIRE_REFUSED(map, why) \
	do { \
		if ((map) != MAP_FAILED) \
			FAIL("%s was granted", why); \
	} while (0)

/* A ring that the device writes is not to be written by the program. */
static void completions_read_only(void)
{
	struct scene s;

	scene_make(&s);
	require_read_only(&s);
	for (unsigned int i = 0; i < s.maps; i++) {
		struct mapping *m = &s.map[i];
		size_t len = m->end - m->begin;

		if (!read_only(m))
			continue;
		REQUIRE_REFUSED(try_map(&s, len, PROT_READ | PROT_WRITE,
					MAP_SHARED, m->offset),
				"a writable mapping of a read-only ring");
		REQUIRE_REFUSED(try_map(&s, len, PROT_WRITE, MAP_SHARED,
					m->offset),
				"a write-only mapping of a read-only ring");
		if (mprotect((void *)m->begin, len, PROT_READ | PROT_WRITE)
		    == 0)
			FAIL("mprotect made a read-only ring writable");
		REQUIRE_EQ(errno, EACCES);
		/* Nor by a new mapping that is made writable later. */
		void *again = try_map(&s, len, PROT_READ, MAP_SHARED,
				      m->offset);

		if (again != MAP_FAILED) {
			REQUIRE_EQ(mprotect(again, len,
					    PROT_READ | PROT_WRITE), -1);
			REQUIRE_EQ(munmap(again, len), 0);
		}
	}
	scene_free(&s);
}

/* Only whole rings, at their own offsets, shared. */
static void wrong_mappings(void)
{
	struct scene s;

	scene_make(&s);
	for (unsigned int i = 0; i < s.maps; i++) {
		struct mapping *m = &s.map[i];
		size_t len = m->end - m->begin;
		int prot = read_only(m) ? PROT_READ : PROT_READ | PROT_WRITE;

		REQUIRE_REFUSED(try_map(&s, len + 4096, prot, MAP_SHARED,
					m->offset), "a mapping that is longer");
		if (len > 4096)
			REQUIRE_REFUSED(try_map(&s, len - 4096, prot,
						MAP_SHARED, m->offset),
					"a mapping that is shorter");
		if (len > 4096)
			REQUIRE_REFUSED(try_map(&s, len, prot, MAP_SHARED,
						m->offset + 4096),
					"a mapping from the second page on");
		REQUIRE_REFUSED(try_map(&s, len, PROT_READ, MAP_PRIVATE,
					m->offset), "a private mapping");
		REQUIRE_REFUSED(try_map(&s, len, PROT_READ, MAP_SHARED,
					m->offset + (1ll << 40)),
				"a mapping of an offset that is nobody's");
		if (mremap((void *)m->begin, len, len + 4096, MREMAP_MAYMOVE)
		    != MAP_FAILED)
			FAIL("mremap made a ring longer");
	}
	scene_free(&s);
}

/* What the program has destroyed cannot be mapped again. */
static void offsets_end_with_objects(void)
{
	struct mapping left[32];
	unsigned int n;
	struct scene s;

	scene_make(&s);
	end_free(&s.a);
	end_free(&s.b);
	n = device_mappings(left, ARRAY_SIZE(left));
	for (unsigned int i = 0; i < s.maps; i++) {
		bool stays = false;

		for (unsigned int j = 0; j < n; j++)
			if (left[j].offset == s.map[i].offset)
				stays = true;
		if (!stays)
			REQUIRE_REFUSED(try_map(&s, s.map[i].end -
						s.map[i].begin, PROT_READ,
						MAP_SHARED, s.map[i].offset),
					"a mapping of a destroyed object");
	}
	region_free(&s.r);
	device_close(&s.d);
}

/* Each context has its own offsets: those of one mean nothing in another. */
static void other_context(void)
{
	struct ibv_context *ctx;
	struct mapping own[32];
	struct scene s;
	unsigned int n;

	scene_make(&s);
	ctx = open_by_name(opt.device);
	n = device_mappings(own, ARRAY_SIZE(own));
	for (unsigned int i = 0; i < s.maps; i++) {
		struct mapping *m = &s.map[i];
		bool shared_offset = false;

		/* Its own rings may lie at the same offsets. */
		for (unsigned int j = 0; j < n; j++) {
			bool first = false;

			for (unsigned int k = 0; k < s.maps; k++)
				if (own[j].begin == s.map[k].begin)
					first = true;
			if (!first && own[j].offset == m->offset)
				shared_offset = true;
		}
		if (!shared_offset)
			REQUIRE_REFUSED(mmap(NULL, m->end - m->begin, PROT_READ,
					     MAP_SHARED, ctx->cmd_fd,
					     m->offset),
					"a mapping of another context's ring");
	}
	REQUIRE_ERRNO(ibv_close_device(ctx), 0);
	scene_free(&s);
}

/* A child has none of the rings, and its exit does no harm to the parent's. */
static void child_process(void *arg)
{
	struct mapping inherited[32];
	struct scene *s = arg;

	REQUIRE_EQ(device_mappings(inherited, ARRAY_SIZE(inherited)), 0);
	/* Through the inherited descriptor it gets nothing either, or its own. */
	for (unsigned int i = 0; i < s->maps; i++)
		if (mmap(NULL, s->map[i].end - s->map[i].begin, PROT_READ,
			 MAP_SHARED, s->d.ctx->cmd_fd, s->map[i].offset) !=
		    MAP_FAILED)
			test_note("a child may map what its parent shares");
}

static void child_inherits_nothing(void)
{
	struct scene s;

	scene_make(&s);
	require_read_only(&s);
	for (int i = 0; i < 3; i++) {
		join_process(fork_process(child_process, &s));
		scene_works(&s);
	}
	scene_free(&s);
}

/* ---- Pinned memory ---- */

/* An unprivileged user pins up to RLIMIT_MEMLOCK, again and again. */
static void memlock_limit(void)
{
	const size_t limit = 256 << 10;
	struct ibv_mr *mr, *more;
	struct device d;
	long before;
	char *map;

	become_nobody(limit);
	device_open(&d);
	before = pinned_kib();
	map = mmap(NULL, 4 * limit, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(map != MAP_FAILED);
	for (int round = 0; round < 50; round++) {
		REQUIRE_NULL_ERRNO(ibv_reg_mr(d.pd, map, limit + 4096,
					      IBV_ACCESS_LOCAL_WRITE), ENOMEM);
		REQUIRE_EQ(pinned_kib(), before);
		mr = ibv_reg_mr(d.pd, map, limit / 2, IBV_ACCESS_LOCAL_WRITE);
		if (!mr)
			FAIL("ibv_reg_mr of half the limit, round %d: %s",
			     round, strerror(errno));
		REQUIRE_EQ(pinned_kib(), before + (long)limit / 2048);
		/* The limit is of all regions together. */
		REQUIRE_NULL_ERRNO(ibv_reg_mr(d.pd, map + limit,
					      limit / 2 + 4096,
					      IBV_ACCESS_LOCAL_WRITE), ENOMEM);
		more = ibv_reg_mr(d.pd, map + limit, limit / 4,
				  IBV_ACCESS_LOCAL_WRITE);
		REQUIRE(more);
		REQUIRE_ERRNO(ibv_dereg_mr(more), 0);
		REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);
		REQUIRE_EQ(pinned_kib(), before);
	}
	munmap(map, 4 * limit);
	device_close(&d);
}

/* A region that cannot be registered is unpinned again, in every case. */
static void failures_unpin(void)
{
	struct device d;
	long before;
	char *map;

	device_open(&d);
	before = pinned_kib();
	map = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(map != MAP_FAILED);
	REQUIRE_EQ(munmap(map + (1 << 20) - 4096, 4096), 0);
	for (int i = 0; i < 20; i++) {
		REQUIRE_NULL_ERRNO(ibv_reg_mr(d.pd, map, 1 << 20,
					      IBV_ACCESS_LOCAL_WRITE), EFAULT);
		REQUIRE_NULL_ERRNO(ibv_reg_mr(d.pd, map, 8192,
					      IBV_ACCESS_REMOTE_WRITE), EINVAL);
		REQUIRE_NULL_ERRNO(ibv_reg_mr_iova(d.pd, map, 8192, 1,
						   IBV_ACCESS_LOCAL_WRITE),
				   EINVAL);
	}
	REQUIRE_EQ(pinned_kib(), before);
	device_close(&d);
}

/* ---- The control group of RDMA ---- */

#define GROUP "/sys/fs/cgroup/isolation"

/* The group's count of what it has of the device. */
static void require_charged(unsigned int handles, unsigned int objects)
{
	REQUIRE_EQ(run_command("grep -qw '%s hca_handle=%u hca_object=%u' "
			       GROUP "/rdma.current",
			       opt.device, handles, objects), 0);
}

static void fill_group(void *arg)
{
	struct ibv_context *other;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct device d;
	char byte;

	(void)arg;
	REQUIRE_EQ(run_command("echo %d > " GROUP "/cgroup.procs", getpid()),
		   0);
	/* A handle and a protection domain. */
	device_open(&d);
	mr = ibv_reg_mr(d.pd, &byte, 1, 0);
	REQUIRE(mr);
	cq = ibv_create_cq(d.ctx, 16, NULL, NULL, 0);
	REQUIRE(cq);
	require_charged(1, 3);
	REQUIRE_NULL_ERRNO(ibv_create_cq(d.ctx, 16, NULL, NULL, 0), EAGAIN);
	REQUIRE_NULL_ERRNO(ibv_alloc_pd(d.ctx), EAGAIN);
	other = ibv_open_device(d.ctx->device);
	REQUIRE(!other);
	require_charged(1, 3);
	/* What is given back can be had again. */
	REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);
	require_charged(1, 2);
	REQUIRE(ibv_create_cq(d.ctx, 16, NULL, NULL, 0));
	require_charged(1, 3);
	/* The rest goes with the process. */
}

/* Handles and objects are counted, limited, and given back. */
static void rdma_cgroup(void)
{
	run_command("echo +rdma > /sys/fs/cgroup/cgroup.subtree_control");
	REQUIRE_EQ(run_command("mkdir " GROUP), 0);
	REQUIRE_EQ(run_command("echo '%s hca_handle=1 hca_object=3' > " GROUP
			       "/rdma.max", opt.device), 0);
	join_process(fork_process(fill_group, NULL));
	REQUIRE_EQ(run_command("! grep -E '=[1-9]' " GROUP "/rdma.current"), 0);
	REQUIRE_EQ(run_command("rmdir " GROUP), 0);
}

/* ---- The control group of memory ---- */

/*
 * Objects of 17 to 32 bytes that are charged to nobody: those which are charged
 * have caches of their own (kmalloc-cg-*). Other sizes do not tell whose they
 * are: for an area of a page vmalloc() has one of 64 bytes and one of 8, which
 * it charges to nobody.
 */
static long uncharged_objects(void)
{
	FILE *file = fopen("/proc/slabinfo", "r");
	char line[512], name[64];
	long all = 0, active;

	if (!file)
		test_skip("there is no /proc/slabinfo");
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "%63s %ld", name, &active) == 2 &&
		    !strncmp(name, "kmalloc-", 8) &&
		    strncmp(name, "kmalloc-cg-", 11) &&
		    atoi(strrchr(name, '-') + 1) == 32)
			all += active;
	fclose(file);
	return all;
}

static void *one_cq(struct device *d)
{
	return ibv_create_cq(d->ctx, 1, NULL, NULL, 0);
}

static void *one_srq(struct device *d)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 1 } };

	return ibv_create_srq(d->pd, &init);
}

static void *one_qp(struct device *d)
{
	static struct ibv_cq *cq;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };

	if (!cq)
		cq = one_cq(d);
	init.send_cq = init.recv_cq = cq;
	return ibv_create_qp(d->pd, &init);
}

/* They stay open, and with them two mappings and two files each. */
static void *one_context(struct device *d)
{
	return ibv_open_device(d->ctx->device);
}

/*
 * What the driver allocates for a program, down to the smallest object, is
 * charged to its control group: many objects of each kind leave those that are
 * charged to nobody about as they were. (Caches count by pages of objects.)
 */
static void objects_charged(void)
{
	static const struct {
		const char *name;
		void *(*make)(struct device *d);
		unsigned int count;
		/* Areas of 3 or 4 pages, for which vmalloc() has one. */
		unsigned int areas;
	} kinds[] = {
		{ "completion queues", one_cq, 1000, 0 },
		{ "shared receive queues", one_srq, 1000, 0 },
		{ "queue pairs", one_qp, 1000, 0 },
		{ "contexts", one_context, 400, 2 },
	};
	struct device d;

	device_open(&d);
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		unsigned int count = kinds[i].count;
		long before, more;

		REQUIRE(kinds[i].make(&d));
		before = uncharged_objects();
		for (unsigned int n = 0; n < count; n++)
			if (!kinds[i].make(&d))
				FAIL("%s: number %u: %s", kinds[i].name, n,
				     strerror(errno));
		more = uncharged_objects() - before;
		test_note("%u %s: %ld small objects that nobody is charged for",
			  count, kinds[i].name, more);
		REQUIRE(more < (long)(count * kinds[i].areas + count / 2));
	}
	/* The rest goes with the process. */
}

/* An unprivileged user works, and is limited to no part of the device. */
static void unprivileged(void)
{
	struct scene s;

	become_nobody(8 << 20);
	scene_make(&s);
	scene_works(&s);
	scene_free(&s);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "completions_read_only", completions_read_only },
		{ "wrong_mappings", wrong_mappings },
		{ "offsets_end_with_objects", offsets_end_with_objects },
		{ "other_context", other_context },
		{ "child_inherits_nothing", child_inherits_nothing },
		{ "memlock_limit", memlock_limit },
		{ "failures_unpin", failures_unpin },
		{ "rdma_cgroup", rdma_cgroup },
		{ "objects_charged", objects_charged, 60 },
		{ "unprivileged", unprivileged },
		{ }
	};

	return test_main(argc, argv, cases);
}
