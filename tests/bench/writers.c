// SPDX-License-Identifier: GPL-2.0
/*
 * Threads of one program that share an open device. Each makes a connection
 * with itself, and keeps 16 RDMA WRITEs outstanding, which it posts and polls
 * one by one. Prints the messages a second of all together.
 *
 * usage: writers DEVICE NUMBER BYTES SECONDS
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../guest/common.h"

enum { WINDOW = 16, CACHE_LINE = 64 };

struct writer {
	_Alignas(CACHE_LINE) atomic_ulong done;	/* messages */
	pthread_t thread;
};

static struct device device;
static size_t size;		/* bytes of a message */
static atomic_bool stop;

static void *write_messages(void *arg)
{
	const struct end_config config = { };
	struct writer *writer = arg;
	struct ibv_send_wr *bad, wr = {
		.opcode = IBV_WR_RDMA_WRITE,
		.num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED,
	};
	unsigned int outstanding = 0;
	struct region from, to;
	struct end sender, receiver;
	struct ibv_sge sge;
	struct ibv_wc wc;

	ends_make(&sender, &receiver, &device, &config);
	region_make(&from, &device, size, 0, ACCESS_ALL);
	region_make(&to, &device, size, 0, ACCESS_ALL);
	sge = sge_of(&from, 0, size);
	wr.sg_list = &sge;
	wr.wr.rdma.remote_addr = (uintptr_t)to.data;
	wr.wr.rdma.rkey = to.mr->rkey;

	while (!stop) {
		for (; outstanding < WINDOW; outstanding++)
			REQUIRE_ERRNO(ibv_post_send(sender.qp, &wr, &bad), 0);
		if (ibv_poll_cq(sender.scq, 1, &wc) != 1)
			continue;
		REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
		outstanding--;
		writer->done++;
	}

	return NULL;
}

static unsigned long messages(struct writer *writers, unsigned long number)
{
	unsigned long sum = 0;

	for (unsigned long i = 0; i < number; i++)
		sum += writers[i].done;
	return sum;
}

int main(int argc, char **argv)
{
	unsigned long number, begun, seconds;
	struct writer *writers;
	uint64_t begin;

	if (argc != 5) {
		fprintf(stderr, "usage: writers DEVICE NUMBER BYTES SECONDS\n");
		return 2;
	}
	opt.device = argv[1];
	number = strtoul(argv[2], NULL, 0);
	size = strtoul(argv[3], NULL, 0);
	seconds = strtoul(argv[4], NULL, 0);

	device_open(&device);
	writers = aligned_alloc(CACHE_LINE, number * sizeof(*writers));
	REQUIRE(writers);
	memset(writers, 0, number * sizeof(*writers));
	for (unsigned long i = 0; i < number; i++)
		REQUIRE_EQ(pthread_create(&writers[i].thread, NULL,
					  write_messages, &writers[i]), 0);

	sleep_us(500000);
	begun = messages(writers, number);
	begin = now_us();
	sleep_us(seconds * 1000000);
	printf("%.0f\n", (messages(writers, number) - begun) * 1e6 /
				 (now_us() - begin));

	stop = true;
	for (unsigned long i = 0; i < number; i++)
		pthread_join(writers[i].thread, NULL);
	return 0;
}
