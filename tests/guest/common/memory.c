// SPDX-License-Identifier: GPL-2.0
/* Memory with canaries and patterns; mappings of the device. */
#define _GNU_SOURCE
#include "../common.h"

#include <fcntl.h>
#include <linux/udmabuf.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define CANARY 0xc5
#define PAGE 4096ul

void region_make(struct region *r, struct device *d, size_t len,
		 size_t misalign, int access)
{
	r->len = len;
	r->head = PAGE + misalign;
	r->map_len = (r->head + len + 2 * PAGE - 1) & ~(PAGE - 1);
	r->map = mmap(NULL, r->map_len, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (r->map == MAP_FAILED)
		FAIL("mmap of %zu bytes: %s", r->map_len, strerror(errno));
	r->data = r->map + r->head;
	memset(r->map, CANARY, r->map_len);
	memset(r->data, 0, len);
	r->mr = ibv_reg_mr(d->pd, r->data, len, access);
	if (!r->mr)
		FAIL("ibv_reg_mr of %zu bytes, access %#x: %s", len, access,
		     strerror(errno));
}

static void check_canary(const uint8_t *p, size_t len, const uint8_t *data,
			 const char *file, int line)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] != CANARY)
			test_fail(file, line,
				  "byte %td of the region, which is outside it, was overwritten with %#x",
				  &p[i] - data, p[i]);
}

void region_check(const struct region *r, const char *file, int line)
{
	size_t tail = r->map_len - r->head - r->len;

	check_canary(r->map, r->head, r->data, file, line);
	check_canary(r->data + r->len, tail, r->data, file, line);
}

void region_free(struct region *r)
{
	REGION_CHECK(r);
	if (r->mr)
		REQUIRE_ERRNO(ibv_dereg_mr(r->mr), 0);
	munmap(r->map, r->map_len);
}

/* So many bytes before shared memory cannot be reached. */
#define GUARD (16 * PAGE)

void *shared_map(size_t len)
{
	uint8_t *map = mmap(NULL, GUARD + len, PROT_NONE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED ||
	    mprotect(map + GUARD, len, PROT_READ | PROT_WRITE))
		FAIL("mmap of %zu shared bytes: %s", len, strerror(errno));
	return map + GUARD;
}

void shared_unmap(void *at, size_t len)
{
	munmap((uint8_t *)at - GUARD, GUARD + len);
}

int udmabuf_make(size_t len, uint8_t **data)
{
	struct udmabuf_create create = { .size = len };
	int maker = open("/dev/udmabuf", O_RDWR);
	int fd, memfd;

	if (maker < 0)
		return -1;
	memfd = memfd_create("buffer", MFD_ALLOW_SEALING);
	REQUIRE(memfd >= 0);
	REQUIRE(!ftruncate(memfd, len));
	REQUIRE(!fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK));
	create.memfd = memfd;
	fd = ioctl(maker, UDMABUF_CREATE, &create);
	if (fd < 0)
		FAIL("UDMABUF_CREATE: %s", strerror(errno));
	if (data) {
		*data = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED,
			     memfd, 0);
		REQUIRE(*data != MAP_FAILED);
	}
	close(memfd);
	close(maker);
	return fd;
}

/* The finaliser of splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t stream_word(uint64_t seed, uint64_t i)
{
	uint64_t z = seed * 0xd1342543de82ef95ull + i * 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

void fill(void *buf, size_t len, uint64_t seed)
{
	uint8_t *p = buf;

	for (size_t i = 0; i < len; i += 8) {
		uint64_t word = stream_word(seed, i / 8);

		memcpy(p + i, &word, len - i < 8 ? len - i : 8);
	}
}

void verify_at(const void *buf, size_t len, uint64_t seed, const char *file,
	       int line)
{
	const uint8_t *p = buf;

	for (size_t i = 0; i < len; i += 8) {
		uint64_t word = stream_word(seed, i / 8);
		size_t n = len - i < 8 ? len - i : 8;

		if (!memcmp(p + i, &word, n))
			continue;
		for (size_t j = 0; j < n; j++) {
			uint8_t want = ((uint8_t *)&word)[j];

			if (p[i + j] != want)
				test_fail(file, line,
					  "byte %zu of %zu is %#x, expected %#x (seed %#llx)",
					  i + j, len, p[i + j], want,
					  (unsigned long long)seed);
		}
	}
}

void verify_byte_at(const void *buf, size_t len, uint8_t byte,
		    const char *file, int line)
{
	const uint8_t *p = buf;

	for (size_t i = 0; i < len; i++)
		if (p[i] != byte)
			test_fail(file, line, "byte %zu of %zu is %#x, expected %#x",
				  i, len, p[i], byte);
}

long pinned_kib(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	char line[256];
	long kib = -1;

	REQUIRE(status);
	while (fgets(line, sizeof(line), status))
		if (sscanf(line, "VmPin: %ld", &kib) == 1)
			break;
	fclose(status);
	REQUIRE(kib >= 0);
	return kib;
}

unsigned int device_mappings(struct mapping *m, unsigned int max)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned int n = 0;
	char line[512];

	REQUIRE(maps);
	while (fgets(line, sizeof(line), maps)) {
		unsigned long begin, end, offset;
		char rights[5];

		if (!strstr(line, "/uverbs"))
			continue;
		if (sscanf(line, "%lx-%lx %4s %lx", &begin, &end, rights,
			   &offset) != 4)
			FAIL("cannot read: %s", line);
		REQUIRE(n < max);
		m[n].begin = begin;
		m[n].end = end;
		m[n].offset = offset;
		memcpy(m[n].rights, rights, sizeof(rights));
		n++;
	}
	fclose(maps);
	return n;
}

bool mapping_writable(const struct mapping *m)
{
	return m->rights[1] == 'w';
}
