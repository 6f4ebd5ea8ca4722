/* SPDX-License-Identifier: GPL-2.0 */
/* The device below its provider, for a program that obeys no library. */
#ifndef TESTS_RAW_H
#define TESTS_RAW_H

#include "common.h"

#include <rdma/ferrule-abi.h>
#include <rdma/ferrule_user_ioctl_cmds.h>

/* The doorbell and status areas of a context. */
struct raw_context {
	struct ibv_context *ctx;
	struct ferrule_db *db;
	uint64_t *leaf;
	const struct ferrule_status *status;
};

/* Opens the device; the case is skipped where it is none of ours. */
void raw_open(struct raw_context *c, struct device *d);
int raw_kick(struct raw_context *c);
/* A method with one attribute; 0 or an errno value. */
int raw_call(int fd, uint16_t method, uint16_t attr, uint16_t len,
	     uint64_t data);
/* That with the number of doorbells. */
int raw_method(int fd, uint16_t method, uint32_t number);
/* Says that doorbells were rung, and not which. */
void raw_count(struct raw_context *c);
/* Rings a doorbell, which the engine looks for by its bits. */
void raw_ring(struct raw_context *c, uint32_t qpn);
/* Rings all doorbells that there are. */
void raw_ring_all(struct raw_context *c);

/* The mapping that has come since 'before', writable or not. */
void *raw_new_mapping(const struct mapping *before, unsigned int n,
		      bool writable, size_t *len);

#endif /* TESTS_RAW_H */
