/* SPDX-License-Identifier: GPL-2.0 */
/* Extended reliable connections: shared by the parts of their test. */
#ifndef TESTS_XRC_H
#define TESTS_XRC_H

#include <infiniband/verbs.h>

#include "../common.h"

#define ACCESS (ACCESS_ALL | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

enum { LEN = 8192 };

/* A program that receives: a queue in the domain, and memory. */
struct receiver {
	struct device d;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	uint32_t number;
	struct region r;
};

/* Its device is another protection domain of `d`, with rights of all kinds. */
void receiver_make(struct receiver *r, const struct device *d,
		   struct ibv_xrcd *xrcd);
void receiver_free(struct receiver *r);
/* Posts a request for `len` bytes at `offset` of its memory. */
void receiver_post(struct receiver *r, uint64_t wr_id, size_t offset,
		   size_t len);

/* An initiator and a target in the domain, connected. */
struct connection {
	struct device *d;
	struct ibv_cq *cq;
	struct ibv_qp *from, *to;
};

void connection_make(struct connection *c, struct device *d,
		     struct ibv_xrcd *xrcd);
void connection_free(struct connection *c);
struct ibv_qp *target_make(struct device *d, struct ibv_xrcd *xrcd);
enum ibv_qp_state state_of(struct ibv_qp *qp);

/* Posts a signalled request to a queue; returns the errno value. */
int try_to(struct connection *c, struct ibv_send_wr *wr, uint32_t srq);
/* A SEND of a part of a region. */
void send_to(struct connection *c, uint64_t wr_id, const struct region *r,
	     size_t offset, size_t len, uint32_t srq);

/* many.c */
void many(void);
/* refusals.c */
void refusals(void);
void errnos(void);
/* sharing.c */
void domains(void);
void another_process(void);
void in_use(void);

#endif
