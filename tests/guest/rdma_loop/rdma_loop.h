/* SPDX-License-Identifier: GPL-2.0 */
/* The second driver as a program has it. */
#ifndef TESTS_RDMA_LOOP_H
#define TESTS_RDMA_LOOP_H

#include "../common.h"

#include <rdma/ib_user_verbs.h>

/* The layouts of tests/rdma_loop/queue.rs and driver.rs. */
enum {
	LOOP_DRIVER_ID = 0x4c4f4f50,
	LOOP_METHOD_KICK = 1 << 12,
	DEPTH = 64,
	LEN = 10000,
};

struct request {
	uint64_t wr_id, addr;
	uint32_t length, lkey, reserved[2];
};

struct queues {
	uint32_t sq_producer, reserved0[15];
	uint32_t rq_producer, reserved1[1007];
	struct request sq[DEPTH], rq[DEPTH];
};

struct completion {
	uint64_t wr_id;
	uint32_t qp_num, byte_len, status, opcode, reserved, number;
};

/* Whole pages. */
enum { CQ_SIZE = 4096 };
_Static_assert(DEPTH * sizeof(struct completion) <= CQ_SIZE, "");
_Static_assert(sizeof(struct queues) % 4096 == 0, "");

#define NETDEV "loop_test"
#define DEVICE "loop_test0"

/* Everything that a program has of the device. */
struct loop {
	int fd, channel;
	uint32_t pd, mr, lkey, cq, qp, qp_num, consumer;
	uint64_t cq_offset;
	const struct completion *cqe;
	struct queues *q;
	uint8_t *mem;		/* LEN bytes to send, LEN to receive */
};

#define COMMAND(l, name, cmd, resp) UVERBS_COMMAND((l)->fd, name, cmd, resp)

/* A device of the case's own. One that failed does not clean up. */
void make_device(void);
void remove_device(void);
/* Waits for the address of the device. */
void await_gid(void);

/* The file of the device, with a protection domain. */
void attach(struct loop *l);
void detach(struct loop *l);

/* Both. */
void open_device(struct loop *l);
void close_device(struct loop *l);
/* The other objects of a program. */
void make_objects(struct loop *l);
void destroy_objects(struct loop *l);

/* Posts a send and a receive request of the same number. */
void post(struct loop *l, uint64_t wr_id, uint32_t lkey);
/* The next completion is this one. */
void expect(struct loop *l, uint64_t wr_id, uint32_t opcode, enum ibv_wc_status status);
/* Tells the driver of new requests; returns 0 or an errno value. */
int kick(struct loop *l);
void *map(struct loop *l, uint64_t offset, size_t len, int prot);

/* A case: a method of the driver that has attributes. */
void methods(void);

/* Cases: the device of a PCI function. */
void function_messages(void);
void function_is_no_link(void);
void function_without_netdev(void);
void function_unbound(void);
void function_with_module(void);

#endif /* TESTS_RDMA_LOOP_H */
