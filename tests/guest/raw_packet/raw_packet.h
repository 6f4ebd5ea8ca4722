/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Queue pairs for frames on a device of their own, on a veth, at whose other
 * end a packet socket is the judge; and rules.
 */
#ifndef TESTS_RAW_PACKET_H
#define TESTS_RAW_PACKET_H

#include "../common.h"

#include <net/ethernet.h>

#define NETDEV "rawp0"
#define OTHER "rawp1"
#define DEVICE "ferrule_raw"
#define MTU 1500
/* Of local experiments (IEEE 802): nobody else here has it. */
#define TYPE 0x88b5

extern const uint8_t mac_a[6], mac_b[6], mac_group[6];
extern struct device dev;
extern int judge;

/* A queue pair for frames, and memory for both directions. */
struct raw {
	struct ibv_cq *scq, *rcq;
	struct ibv_qp *qp;
	struct region tx, rx;
};

struct rule {
	struct ibv_flow_attr attr;
	uint8_t specs[512];
};

int packet_socket(const char *netdev);
void setup(void);
void teardown(void);
struct ibv_qp_init_attr init_attr(struct raw *r, struct ibv_srq *srq);
void to_state(struct ibv_qp *qp, enum ibv_qp_state state);
void to_rts(struct ibv_qp *qp);
void raw_make(struct raw *r);
void raw_free(struct raw *r);
/* A frame: both addresses, the type, and a stream of bytes. */
void frame(uint8_t *to, const uint8_t *dst, uint16_t type, size_t len,
	   uint64_t seed);
void post(struct raw *r, uint64_t id, size_t len, unsigned int flags);
void post_recv(struct raw *r, uint64_t id, size_t len);
/* Waits for a frame of our type, as the kernel's stack sees it. */
ssize_t take(int fd, void *to, size_t size, int ms);
void judge_sends(const void *bytes, size_t len);
/* The queue pair gets the frame, or does not; the request is posted here. */
bool gets_within(struct raw *r, const uint8_t *bytes, size_t len,
		 uint64_t us);
void rule_begin(struct rule *r, enum ibv_flow_attr_type type,
		uint16_t priority);
void rule_add(struct rule *r, const void *spec, size_t size);
void rule_eth(struct rule *r, const uint8_t *dst, uint16_t type,
	      uint16_t vlan);
void rule_ports(struct rule *r, enum ibv_flow_spec_type type,
		uint16_t dst);
void rule_drop(struct rule *r);
struct ibv_flow *must_flow(struct raw *r, struct rule *rule);
/* A rule for frames of our type to an address; NULL: to any. */
struct ibv_flow *flow_to(struct raw *r, const uint8_t *dst,
			 uint16_t priority);
struct ibv_flow *flow_of(struct raw *r, enum ibv_flow_attr_type type);
void end_flow(struct ibv_flow *flow);

#define GETS(r, bytes, len) REQUIRE(gets_within(r, bytes, len, PATIENCE_US))
#define MISSES(r, bytes, len) \
	REQUIRE(!gets_within(r, bytes, len, 20000 * opt.slow))

/* steering.c */
extern const struct test_case steering_cases[];

#endif /* TESTS_RAW_PACKET_H */
