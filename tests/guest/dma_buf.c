// SPDX-License-Identifier: GPL-2.0
/*
 * Regions of buffers of other drivers (ibv_reg_dmabuf_mr(3)). Linux's udmabuf
 * is the exporter: it makes a buffer of the pages of a memfd, which this
 * program maps to look at the bytes.
 */
#define _GNU_SOURCE
#include "common.h"

#include <fcntl.h>
#include <linux/dma-heap.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define BUF_ACCESS (ACCESS_ALL | IBV_ACCESS_REMOTE_READ | \
		    IBV_ACCESS_REMOTE_ATOMIC)

/* Buffers are whole pages. */
#define PAGE 4096
#define SIZE (8 * PAGE)

struct buffer {
	int fd;
	uint8_t *data;
};

static void buffer_open(struct buffer *b)
{
	b->fd = udmabuf_make(SIZE, &b->data);
	if (b->fd < 0)
		FAIL("/dev/udmabuf: %s", strerror(errno));
}

static void buffer_close(struct buffer *b)
{
	REQUIRE(!munmap(b->data, SIZE));
	if (b->fd >= 0)
		close(b->fd);
}

static struct ibv_mr *must_reg(struct ibv_pd *pd, const struct buffer *b,
			       uint64_t offset, size_t length, uint64_t iova,
			       int access)
{
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(pd, offset, length, iova, b->fd,
					      access);

	if (!mr)
		FAIL("ibv_reg_dmabuf_mr: %s", strerror(errno));
	return mr;
}

/*
 * A connection, and a buffer of which b has opened all but the first and the
 * last bytes. The address has nothing to do with the place in the buffer, but
 * for that in its page.
 */
enum { OFFSET = PAGE + 100, LENGTH = SIZE - 2 * PAGE, IOVA = 0x7000064 };

struct scene {
	struct pair p;
	struct buffer buf;
	struct ibv_mr *mr;
	struct peer to;		/* the region's first byte */
};

static void scene_open(struct scene *s)
{
	static const struct end_config config = {
		.access = BUF_ACCESS,
	};

	pair_open(&s->p, &config);
	pair_memory(&s->p, LENGTH, LENGTH, ACCESS_ALL);
	buffer_open(&s->buf);
	s->mr = must_reg(s->p.d.pd, &s->buf, OFFSET, LENGTH, IOVA, BUF_ACCESS);
	s->to = s->p.to;
	s->to.addr = IOVA;
	s->to.rkey = s->mr->rkey;
}

static void scene_close(struct scene *s)
{
	REQUIRE_ERRNO(ibv_dereg_mr(s->mr), 0);
	buffer_close(&s->buf);
	pair_close(&s->p);
}

static struct ibv_sge buf_sge(const struct scene *s, uint64_t offset,
			      uint32_t length)
{
	return (struct ibv_sge){
		.addr = IOVA + offset, .length = length, .lkey = s->mr->lkey,
	};
}

static void transfers(void)
{
	struct ibv_sge sge, into;
	struct scene s;

	scene_open(&s);

	/* Into it, from memory: the bytes around the region stay. */
	sge = sge_of(&s.p.mine, 0, LENGTH);
	send_sges(&s.p.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 1,
		  &s.to, 0, 0);
	EXPECT_OK(s.p.a.scq, 1);
	VERIFY_BYTE(s.buf.data, OFFSET, 0);
	VERIFY(s.buf.data + OFFSET, LENGTH, 1);
	VERIFY_BYTE(s.buf.data + OFFSET + LENGTH, SIZE - OFFSET - LENGTH, 0);

	/* Out of it, to memory. */
	memset(s.p.mine.data, 0, LENGTH);
	send_sges(&s.p.a, 2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &sge, 1,
		  &s.to, 0, 0);
	EXPECT_OK(s.p.a.scq, 2);
	VERIFY(s.p.mine.data, LENGTH, 1);

	/* From one part of it to another, as local memory at both ends. */
	fill(s.buf.data + OFFSET, 5000, 2);
	into = buf_sge(&s, 8001, 5000);
	REQUIRE_ERRNO(try_recv(&s.p.b, 3, &into, 1), 0);
	sge = buf_sge(&s, 0, 5000);
	send_sges(&s.p.a, 4, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 1, NULL, 0,
		  0);
	EXPECT_OK(s.p.a.scq, 4);
	EXPECT_OK(s.p.b.rcq, 3);
	VERIFY(s.buf.data + OFFSET + 8001, 5000, 2);

	scene_close(&s);
}

static void atomics(void)
{
	uint64_t word = 40;
	struct scene s;

	scene_open(&s);
	/* IOVA is a multiple of 4 alone. */
	memcpy(s.buf.data + OFFSET + 4, &word, sizeof(word));
	send_atomic(&s.p.a, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_SEND_SIGNALED,
		    sge_of(&s.p.mine, 0, 8), &s.to, 4, 2, 0);
	EXPECT_OK(s.p.a.scq, 1);
	memcpy(&word, s.p.mine.data, sizeof(word));
	REQUIRE_EQ(word, 40);
	send_atomic(&s.p.a, 2, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_SEND_SIGNALED,
		    buf_sge(&s, 100, 8), &s.to, 4, 42, 7);
	EXPECT_OK(s.p.a.scq, 2);
	memcpy(&word, s.buf.data + OFFSET + 4, sizeof(word));
	REQUIRE_EQ(word, 7);
	memcpy(&word, s.buf.data + OFFSET + 100, sizeof(word));
	REQUIRE_EQ(word, 42);
	scene_close(&s);
}

/* A peer reaches the region, and no byte of the buffer around it. */
static void bounds(void)
{
	struct ibv_sge sge;
	struct scene s;

	scene_open(&s);
	pair_refuses_outside(&s.p, &s.to, LENGTH);
	VERIFY_BYTE(s.buf.data, SIZE, 0);
	/* Nor does anybody by a key without the right. */
	REQUIRE_ERRNO(ibv_dereg_mr(s.mr), 0);
	s.mr = must_reg(s.p.d.pd, &s.buf, OFFSET, LENGTH, IOVA, 0);
	sge = buf_sge(&s, 0, 8);
	REQUIRE_ERRNO(try_recv(&s.p.b, 10, &sge, 1), 0);
	send_region(&s.p.a, 11, &s.p.mine, 0, 8);
	EXPECT_WC(s.p.b.rcq, 10, IBV_WC_LOC_PROT_ERR);
	EXPECT_WC(s.p.a.scq, 11, IBV_WC_REM_OP_ERR);
	VERIFY_BYTE(s.buf.data, SIZE, 0);
	scene_close(&s);
}

static void refused(void)
{
	static const struct {
		uint64_t offset;
		size_t length;
		uint64_t iova;
		int access;
		int err;
	} wrong[] = {
		{ 0, 0, 0, BUF_ACCESS, EINVAL },
		{ 0, SIZE + 1, 0, BUF_ACCESS, EINVAL },
		{ SIZE, 1, 0, BUF_ACCESS, EINVAL },
		{ ~0ull, 2, ~0ull, BUF_ACCESS, EINVAL },
		{ PAGE, ~0ull, 0, BUF_ACCESS, EINVAL },
		/* The place in the page is another one. */
		{ 1, PAGE, 0, BUF_ACCESS, EINVAL },
		/* Flags that the manual page does not name. */
		{ 0, SIZE, 0, BUF_ACCESS | IBV_ACCESS_MW_BIND, EINVAL },
		{ 0, SIZE, 0, BUF_ACCESS | IBV_ACCESS_ZERO_BASED, EINVAL },
		/* Peers write only where the owner may (IBA volume 1, 10.6.3.1). */
		{ 0, SIZE, 0, IBV_ACCESS_REMOTE_WRITE, EINVAL },
	};
	struct buffer b, none = { .fd = -1 };
	struct device d;
	int file;

	device_open(&d);
	buffer_open(&b);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		REQUIRE_NULL_ERRNO(ibv_reg_dmabuf_mr(d.pd, wrong[i].offset,
						     wrong[i].length,
						     wrong[i].iova, b.fd,
						     wrong[i].access),
				   wrong[i].err);
	REQUIRE_NULL_ERRNO(ibv_reg_dmabuf_mr(d.pd, 0, SIZE, 0, none.fd,
					     BUF_ACCESS), EBADF);
	file = open("/dev/zero", O_RDWR);
	REQUIRE(file >= 0);
	REQUIRE_NULL_ERRNO(ibv_reg_dmabuf_mr(d.pd, 0, SIZE, 0, file,
					     BUF_ACCESS), EINVAL);
	close(file);
	buffer_close(&b);
	device_close(&d);
}

/* The region keeps the buffer, whose file may be closed. */
static void outlives_its_file(void)
{
	struct ibv_sge sge;
	struct scene s;

	scene_open(&s);
	close(s.buf.fd);
	s.buf.fd = -1;
	sge = sge_of(&s.p.mine, 0, LENGTH);
	send_sges(&s.p.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 1,
		  &s.to, 0, 0);
	EXPECT_OK(s.p.a.scq, 1);
	VERIFY(s.buf.data + OFFSET, LENGTH, 1);
	scene_close(&s);
}

/* Two regions of one buffer, of which one goes. */
static void twice(void)
{
	struct ibv_mr *other;
	struct ibv_sge sge;
	struct scene s;

	scene_open(&s);
	other = must_reg(s.p.d.pd, &s.buf, 0, SIZE, 0, BUF_ACCESS);
	REQUIRE_ERRNO(ibv_dereg_mr(other), 0);
	sge = sge_of(&s.p.mine, 0, LENGTH);
	send_sges(&s.p.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 1,
		  &s.to, 0, 0);
	EXPECT_OK(s.p.a.scq, 1);
	VERIFY(s.buf.data + OFFSET, LENGTH, 1);
	scene_close(&s);
}

/*
 * libibverbs registers nothing anew but memory of the process. A program may
 * give the command by itself.
 */
static int rereg(struct ibv_mr *mr, int flags, const struct region *memory,
		 int access)
{
	struct ib_uverbs_rereg_mr cmd = {
		.flags = flags,
		.mr_handle = mr->handle,
		.access_flags = access,
	};
	struct ib_uverbs_rereg_mr_resp resp;

	if (memory) {
		cmd.start = cmd.hca_va = (uintptr_t)memory->data;
		cmd.length = memory->len;
	}
	return UVERBS_COMMAND(mr->context->cmd_fd, REREG_MR, &cmd, &resp);
}

/* Rights may be taken away, and memory of the process may take its place. */
static void registered_anew(void)
{
	struct ibv_sge sge;
	struct scene s;

	scene_open(&s);
	REQUIRE_EQ(ibv_rereg_mr(s.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				IBV_ACCESS_LOCAL_WRITE),
		   IBV_REREG_MR_ERR_INPUT);
	REQUIRE_EQ(rereg(s.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL,
			 IBV_ACCESS_LOCAL_WRITE), 0);
	sge = sge_of(&s.p.mine, 0, LENGTH);
	send_sges(&s.p.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 1,
		  &s.to, 0, 0);
	EXPECT_WC(s.p.a.scq, 1, IBV_WC_REM_ACCESS_ERR);
	VERIFY_BYTE(s.buf.data, SIZE, 0);
	pair_reset(&s.p);
	ends_connect(&s.p.a, &s.p.b);

	REQUIRE_EQ(rereg(s.mr, IBV_REREG_MR_CHANGE_ACCESS |
			       IBV_REREG_MR_CHANGE_TRANSLATION, &s.p.theirs,
			 BUF_ACCESS), 0);
	s.to.addr = (uintptr_t)s.p.theirs.data;
	send_sges(&s.p.a, 2, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 1,
		  &s.to, 0, 0);
	EXPECT_OK(s.p.a.scq, 2);
	VERIFY(s.p.theirs.data, LENGTH, 1);
	VERIFY_BYTE(s.buf.data, SIZE, 0);
	scene_close(&s);
}

/* A right to write would have the bytes pinned anew, which are no part of the process. */
static void not_pinned_anew(void)
{
	struct buffer b;
	struct ibv_mr *mr;
	struct device d;

	device_open(&d);
	buffer_open(&b);
	mr = must_reg(d.pd, &b, 0, SIZE, 0, IBV_ACCESS_REMOTE_READ);
	REQUIRE_EQ(rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, BUF_ACCESS),
		   EOPNOTSUPP);
	REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);
	buffer_close(&b);
	device_close(&d);
}

/*
 * A buffer whose file is not for writing. udmabuf makes none, so it comes from
 * the kernel's heap for such buffers; -1 without one.
 */
static int read_only_make(const uint8_t **data)
{
	struct dma_heap_allocation_data request = { .len = SIZE,
						    .fd_flags = O_RDONLY };
	int heap = open("/dev/dma_heap/system", O_RDONLY);

	if (heap < 0) {
		REQUIRE_EQ(errno, ENOENT);
		return -1;
	}
	REQUIRE(!ioctl(heap, DMA_HEAP_IOCTL_ALLOC, &request));
	close(heap);
	*data = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, request.fd, 0);
	REQUIRE(*data != MAP_FAILED);

	return request.fd;
}

/* A descriptor that is one buffer's and then another one's, again and again. */
struct changing {
	int fd, writable, read_only;
	atomic_bool stop;
};

static void *change(void *arg)
{
	struct changing *c = arg;

	while (!atomic_load(&c->stop)) {
		REQUIRE_EQ(dup2(c->writable, c->fd), c->fd);
		REQUIRE_EQ(dup2(c->read_only, c->fd), c->fd);
	}
	return NULL;
}

/*
 * Rights to write are refused for it, also where the descriptor comes to be its
 * own while the region is registered.
 */
static void read_only(void)
{
	unsigned int made = 0, refused = 0, changed = 0;
	struct changing c = { .stop = false };
	const uint8_t *data;
	pthread_t other;
	struct scene s;
	struct ibv_mr *mr;
	struct ibv_sge sge;

	c.read_only = read_only_make(&data);
	if (c.read_only < 0)
		test_skip("the kernel has no DMA heap");
	scene_open(&s);
	sge = sge_of(&s.p.mine, 0, LENGTH);
	REQUIRE_NULL_ERRNO(ibv_reg_dmabuf_mr(s.p.d.pd, 0, SIZE, 0, c.read_only,
					     BUF_ACCESS), EACCES);
	REQUIRE_NULL_ERRNO(ibv_reg_dmabuf_mr(s.p.d.pd, 0, SIZE, 0, c.read_only,
					     IBV_ACCESS_LOCAL_WRITE), EACCES);
	mr = ibv_reg_dmabuf_mr(s.p.d.pd, OFFSET, LENGTH, IOVA, c.read_only,
			       IBV_ACCESS_REMOTE_READ);
	REQUIRE(mr);
	s.to.rkey = mr->rkey;
	send_sges(&s.p.a, 1, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &sge, 1,
		  &s.to, 0, 0);
	EXPECT_OK(s.p.a.scq, 1);
	VERIFY_BYTE(s.p.mine.data, LENGTH, 0);
	REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);

	fill(s.p.mine.data, LENGTH, 1);
	c.writable = s.buf.fd;
	c.fd = dup(c.writable);
	REQUIRE(c.fd >= 0);
	REQUIRE_ERRNO(pthread_create(&other, NULL, change, &c), 0);
	for (unsigned int i = 0; i < 2000; i++) {
		mr = ibv_reg_dmabuf_mr(s.p.d.pd, OFFSET, LENGTH, IOVA, c.fd,
				       BUF_ACCESS);
		if (!mr) {
			REQUIRE(errno == EACCES || errno == EBADF);
			refused += errno == EACCES;
			changed += errno == EBADF;
			continue;
		}
		made++;
		s.to.rkey = mr->rkey;
		send_sges(&s.p.a, i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
			  1, &s.to, 0, 0);
		EXPECT_OK(s.p.a.scq, i);
		VERIFY_BYTE(data, SIZE, 0);
		REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);
	}
	atomic_store(&c.stop, true);
	REQUIRE_ERRNO(pthread_join(other, NULL), 0);
	REQUIRE(made && refused);
	test_note("%u were made, %u refused, and %u found another buffer", made,
		  refused, changed);
	close(c.fd);
	close(c.read_only);
	REQUIRE(!munmap((void *)data, SIZE));
	scene_close(&s);
}

static const struct test_case cases[] = {
	{ "transfers", transfers },
	{ "atomics", atomics },
	{ "bounds", bounds },
	{ "refused", refused },
	{ "outlives_its_file", outlives_its_file },
	{ "twice", twice },
	{ "registered_anew", registered_anew },
	{ "not_pinned_anew", not_pinned_anew },
	{ "read_only", read_only },
	{},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, cases);
}
