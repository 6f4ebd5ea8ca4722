// SPDX-License-Identifier: GPL-2.0
/* Many connections to many shared receive queues of a domain. */
#include "xrc.h"

#include <fcntl.h>

/* Several connections and queues, each message to one of them. */
void many(void)
{
	enum { CONNECTIONS = 4, QUEUES = 4, WINDOW = 8 };
	unsigned long rounds = opt.rounds ?: 2000;
	struct connection c[CONNECTIONS];
	struct receiver r[QUEUES];
	struct region mine;
	struct ibv_xrcd *xrcd;
	struct device d;

	device_open(&d);
	xrcd = xrcd_open(&d, -1, O_CREAT);
	REQUIRE(xrcd);
	region_make(&mine, &d, LEN, 0, ACCESS);
	fill(mine.data, LEN, 1);
	for (int i = 0; i < CONNECTIONS; i++)
		connection_make(&c[i], &d, xrcd);
	for (int i = 0; i < QUEUES; i++)
		receiver_make(&r[i], &d, xrcd);
	for (unsigned long n = 0; n < rounds; n++) {
		size_t len[WINDOW];

		for (int i = 0; i < WINDOW; i++) {
			struct receiver *to = &r[(n + i / 2) % QUEUES];

			receiver_post(to, i, i * LEN, LEN);
			len[i] = (n * 37 + i * 1001) % LEN;
			send_to(&c[i % CONNECTIONS], i, &mine, 0, len[i],
				to->number);
			EXPECT_OK(c[i % CONNECTIONS].cq, i);
			REQUIRE_EQ(EXPECT_OK(to->cq, i).byte_len, len[i]);
		}
		for (int i = 0; i < WINDOW; i++)
			VERIFY(r[(n + i / 2) % QUEUES].r.data + i * LEN,
			       len[i], 1);
	}
	for (int i = 0; i < QUEUES; i++)
		receiver_free(&r[i]);
	for (int i = 0; i < CONNECTIONS; i++)
		connection_free(&c[i]);
	REGION_CHECK(&mine);
	region_free(&mine);
	REQUIRE_ERRNO(ibv_close_xrcd(xrcd), 0);
	device_close(&d);
}
