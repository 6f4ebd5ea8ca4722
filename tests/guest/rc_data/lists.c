// SPDX-License-Identifier: GPL-2.0
/* Gather and scatter lists, and inline data. */
#include "rc_data.h"

#include <stdlib.h>

/*
 * Inline data needs no key, and its buffer belongs to the application again
 * when the call returns.
 */
static void inline_data(void)
{
	const struct end_config config = { .inline_data = 256, .send_sge = 4 };
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_wc wc;
	struct pair p;
	uint8_t *src;
	uint32_t max;

	pair_open(&p, &config);
	max = p.a.cap.max_inline_data;
	test_note("max_inline_data %u asked for, %u granted", 256, max);
	REQUIRE(max >= 256);
	REQUIRE_ERRNO(ibv_query_qp(p.a.qp, &attr, IBV_QP_CAP, &init), 0);
	REQUIRE_EQ(init.cap.max_inline_data, max);
	src = malloc(max);
	region_make(&p.theirs, &p.d, max, 3, ACCESS_ALL);
	for (uint32_t size = 0; size <= max; size += size < 70 ? 1 : 31) {
		for (int op = 0; op < 2; op++) {
			struct peer to = end_address(&p.b, &p.theirs);
			struct ibv_sge sge[3] = {
				{ (uintptr_t)src, size / 3, 0xdead },
				{ (uintptr_t)src + size / 3, 0, 0xbeef },
				{ (uintptr_t)src + size / 3, size - size / 3, 0 },
			};

			fill(src, size, size + op);
			memset(p.theirs.data, 0x22, max);
			recv_region(&p.b, size, &p.theirs, 0, max);
			send_sges(&p.a, size, op ? IBV_WR_RDMA_WRITE_WITH_IMM :
				  IBV_WR_SEND, IBV_SEND_SIGNALED |
				  IBV_SEND_INLINE, sge, 3, op ? &to : NULL, 0,
				  0);
			memset(src, 0x33, max);
			EXPECT_OK(p.a.scq, size);
			wc = EXPECT_OK(p.b.rcq, size);
			REQUIRE_EQ(wc.byte_len, size);
			VERIFY(p.theirs.data, size, size + op);
			VERIFY_BYTE(p.theirs.data + size, max - size, 0x22);
		}
	}
	pair_close(&p);
	free(src);
}

/* Cuts len bytes into n pieces of unlike length, some empty when n is large. */
static void split(struct ibv_sge *sge, int n, const struct region *r,
		  size_t gap, size_t len, unsigned int salt)
{
	size_t at = 0, left = len;

	for (int i = 0; i < n; i++) {
		size_t piece = i == n - 1 ? left :
			       (salt * 37 + i * 101) % (2 * len / n + 1);

		if (piece > left)
			piece = left;
		if (n > 4 && i == 2)
			piece = 0;
		if (i == n - 1)
			piece = left;
		sge[i] = sge_of(r, at, piece);
		at += piece + gap;
		left -= piece;
	}
	REQUIRE(at <= r->len + gap);
}

/* Gather and scatter lists of every length, cut at odd places. */
static void scatter_gather(void)
{
	struct end_config config = { };
	struct ibv_sge *from, *to;
	struct region src, dst;
	uint8_t *flat, *got;
	struct device d;
	struct end a, b;
	int max;

	device_open(&d);
	max = d.attr.max_sge < 32 ? d.attr.max_sge : 32;
	test_note("max_sge %d of the device, %d used", d.attr.max_sge, max);
	REQUIRE(max >= 16);
	config.send_sge = config.recv_sge = max;
	ends_make(&a, &b, &d, &config);
	from = calloc(max, sizeof(*from));
	to = calloc(max, sizeof(*to));
	flat = malloc(20000);
	got = malloc(20000);
	region_make(&src, &d, 20000 + 32 * 7, 1, 0);
	region_make(&dst, &d, 20000 + 32 * 5, 2, ACCESS_ALL);
	for (int n = 1; n <= max; n++) {
		size_t len = n * 611 + 1, at;
		struct ibv_wc wc;
		struct peer peer = end_address(&b, &dst);
		int m = max + 1 - n;

		fill(flat, len, n);
		memset(src.data, 0x44, src.len);
		memset(dst.data, 0x55, dst.len);
		split(from, n, &src, 7, len, n);
		split(to, m, &dst, 5, len, n + 1);
		at = 0;
		for (int i = 0; i < n; i++) {
			memcpy((void *)(uintptr_t)from[i].addr, flat + at,
			       from[i].length);
			at += from[i].length;
		}
		REQUIRE_EQ(at, len);
		REQUIRE_ERRNO(try_recv(&b, n, to, m), 0);
		send_sges(&a, n, IBV_WR_SEND, IBV_SEND_SIGNALED, from, n, NULL,
			  0, 0);
		EXPECT_OK(a.scq, n);
		wc = EXPECT_OK(b.rcq, n);
		REQUIRE_EQ(wc.byte_len, len);
		at = 0;
		for (int i = 0; i < m; i++) {
			memcpy(got + at, (void *)(uintptr_t)to[i].addr,
			       to[i].length);
			/* Take it away; the rest must be the gaps. */
			memset((void *)(uintptr_t)to[i].addr, 0x55,
			       to[i].length);
			at += to[i].length;
		}
		REQUIRE_EQ(at, len);
		VERIFY(got, len, n);
		VERIFY_BYTE(dst.data, dst.len, 0x55);

		/* The same list, gathered into one RDMA WRITE. */
		send_sges(&a, n, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, from, n,
			  &peer, 9, 0);
		EXPECT_OK(a.scq, n);
		VERIFY(dst.data + 9, len, n);
		VERIFY_BYTE(dst.data + 9 + len, dst.len - 9 - len, 0x55);
	}
	region_free(&src);
	region_free(&dst);
	end_free(&a);
	end_free(&b);
	device_close(&d);
	free(from);
	free(to);
	free(flat);
	free(got);
}

const struct test_case list_cases[] = {
	{ "inline_data", inline_data },
	{ "scatter_gather", scatter_gather },
	{ }
};
