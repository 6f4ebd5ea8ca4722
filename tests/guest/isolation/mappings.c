// SPDX-License-Identifier: GPL-2.0
/* The mappings of the rings: rights, lengths, offsets, other processes. */
#define _GNU_SOURCE
#include "isolation.h"

#include <sys/mman.h>

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

/* Objects that the program has destroyed cannot be mapped again. */
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

/* An unprivileged user works, and is limited to no part of the device. */
static void unprivileged(void)
{
	struct scene s;

	become_nobody(8 << 20);
	scene_make(&s);
	scene_works(&s);
	scene_free(&s);
}

const struct test_case mapping_cases[] = {
	{ "completions_read_only", completions_read_only },
	{ "wrong_mappings", wrong_mappings },
	{ "offsets_end_with_objects", offsets_end_with_objects },
	{ "other_context", other_context },
	{ "child_inherits_nothing", child_inherits_nothing },
	{ "unprivileged", unprivileged },
	{ }
};
