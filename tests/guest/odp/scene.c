// SPDX-License-Identifier: GPL-2.0
/* A connection with on-demand memory at either end. */
#define _GNU_SOURCE
#include "odp.h"

#include <sys/mman.h>
#include <unistd.h>

void *map_anonymous(size_t len)
{
	void *map = mmap(NULL, len, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED)
		FAIL("mmap of %zu bytes: %s", len, strerror(errno));
	return map;
}

/* Memory of a file that has no name, and the file. */
void *map_file(size_t len, int *fd)
{
	void *map;

	*fd = memfd_create("odp", 0);
	REQUIRE(*fd >= 0);
	REQUIRE_EQ(ftruncate(*fd, len), 0);
	map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	REQUIRE(map != MAP_FAILED);
	return map;
}

struct ibv_mr *reg(struct device *d, void *addr, size_t len, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(d->pd, addr, len,
				       access | IBV_ACCESS_ON_DEMAND);

	if (!mr)
		FAIL("ibv_reg_mr of %zu bytes: %s", len, strerror(errno));
	return mr;
}

void scene_connect(struct scene *s)
{
	const struct end_config config = { .access = ACCESS, .send_wr = 128 };

	pair_open(&s->p, &config);
}

void scene_open_on(struct scene *s, uint8_t *mine, uint8_t *theirs)
{
	scene_connect(s);
	s->mine = mine;
	s->theirs = theirs;
	s->my_mr = reg(&s->p.d, mine, SIZE, ACCESS);
	s->their_mr = reg(&s->p.d, theirs, SIZE, ACCESS);
	s->to = end_address(&s->p.b, NULL);
	s->to.addr = (uintptr_t)theirs;
	s->to.rkey = s->their_mr->rkey;
}

void scene_open(struct scene *s)
{
	scene_open_on(s, map_anonymous(SIZE), map_anonymous(SIZE));
}

void scene_close(struct scene *s)
{
	REQUIRE_ERRNO(ibv_dereg_mr(s->my_mr), 0);
	REQUIRE_ERRNO(ibv_dereg_mr(s->their_mr), 0);
	pair_close(&s->p);
}

struct ibv_sge mine(const struct scene *s, size_t offset, size_t len)
{
	return (struct ibv_sge){ (uintptr_t)s->mine + offset, len,
				 s->my_mr->lkey };
}

void request(struct scene *s, enum ibv_wr_opcode opcode, size_t len)
{
	struct ibv_sge sge = mine(s, 0, len);

	send_sges(&s->p.a, 1, opcode, IBV_SEND_SIGNALED, &sge, 1,
		  opcode == IBV_WR_SEND ? NULL : &s->to, 0, 0);
}

void receive(struct scene *s, size_t len)
{
	struct ibv_sge sge = { (uintptr_t)s->theirs, len, s->their_mr->lkey };

	REQUIRE_ERRNO(try_recv(&s->p.b, 2, &sge, 1), 0);
}

void drop(void *addr, size_t len)
{
	REQUIRE_EQ(madvise(addr, len, MADV_DONTNEED), 0);
}
