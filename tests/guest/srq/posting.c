// SPDX-License-Identifier: GPL-2.0
/* Requests that a shared receive queue cannot take. */
#include <pthread.h>

#include "srq.h"

/* A list without an end is posted up to the last free slot. */
static void endless_list(void)
{
	struct ibv_srq_attr granted;
	struct ibv_recv_wr wr = { .wr_id = 5 }, *bad = NULL;
	struct device d;
	struct ibv_srq *srq;

	device_open(&d);
	srq = srq_make(&d, 16, 1, &granted);
	wr.next = &wr;
	REQUIRE_ERRNO(ibv_post_srq_recv(srq, &wr, &bad), ENOMEM);
	REQUIRE(bad == &wr);
	REQUIRE_ERRNO(try_post(srq, 6, NULL, 0), ENOMEM);
	REQUIRE_ERRNO(ibv_destroy_srq(srq), 0);
	device_close(&d);
}

/* A queue pair that shares a queue has none of its own to post to. */
static void queue_pair_has_none(void)
{
	struct scene s;
	struct ibv_sge sge;

	scene_make(&s, NULL);
	sge = sge_of(&s.r, 0, LEN);
	REQUIRE_ERRNO(try_recv(&s.to[0], 1, &sge, 1), EINVAL);
	/* And is none the worse for it. */
	post(s.srq, 2, &s.r, LEN, LEN);
	send_region(&s.from[0], 3, &s.r, 0, LEN);
	EXPECT_OK(s.from[0].scq, 3);
	EXPECT_OK(s.to[0].rcq, 2);
	scene_free(&s);
}

const struct test_case posting_cases[] = {
	{ "endless_list", endless_list },
	{ "queue_pair_has_none", queue_pair_has_none },
	{ }
};
