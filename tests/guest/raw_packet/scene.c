// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE
#include "raw_packet.h"

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAC_MASK "\xff\xff\xff\xff\xff\xff"

const uint8_t mac_a[6] = { 2, 0, 0, 0, 0, 0xa };
const uint8_t mac_b[6] = { 2, 0, 0, 0, 0, 0xb };
const uint8_t mac_group[6] = { 3, 0, 0, 0, 0, 0xc };

struct device dev;
int judge;

int packet_socket(const char *netdev)
{
	struct sockaddr_ll to = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_ALL),
		.sll_ifindex = if_nametoindex(netdev),
	};
	int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));

	REQUIRE(fd >= 0 && to.sll_ifindex);
	REQUIRE(!bind(fd, (struct sockaddr *)&to, sizeof(to)));
	return fd;
}

void setup(void)
{
	if (!opt.type)
		FAIL("this needs --type");
	run_command("rdma link delete " DEVICE " 2>/dev/null; "
		    "ip link delete " NETDEV " 2>/dev/null");
	/* Nobody speaks but the case: no IPv6. */
	REQUIRE_EQ(run_command("ip link add " NETDEV " type veth peer name " OTHER
			       " && for n in " NETDEV " " OTHER "; do echo 1 > "
			       "/proc/sys/net/ipv6/conf/$n/disable_ipv6; done"
			       " && ip link set " NETDEV " up"
			       " && ip link set " OTHER " up"
			       " && ip addr add 10.79.0.1/24 dev " NETDEV
			       " && rdma link add " DEVICE " type %s netdev " NETDEV,
			       opt.type), 0);
	wait_for_gids(DEVICE);
	opt.device = DEVICE;
	device_open(&dev);
	judge = packet_socket(OTHER);
}

void teardown(void)
{
	close(judge);
	device_close(&dev);
	run_command("rdma link delete " DEVICE "; ip link delete " NETDEV);
}

struct ibv_qp_init_attr init_attr(struct raw *r, struct ibv_srq *srq)
{
	return (struct ibv_qp_init_attr) {
		.qp_type = IBV_QPT_RAW_PACKET,
		.send_cq = r->scq,
		.recv_cq = r->rcq,
		.srq = srq,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = 16, .max_recv_wr = srq ? 0 : 16,
			 .max_send_sge = 2, .max_recv_sge = srq ? 0 : 2,
			 .max_inline_data = 64 },
	};
}

void to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state, .port_num = 1 };
	int mask = IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PORT : 0);

	REQUIRE_ERRNO(ibv_modify_qp(qp, &attr, mask), 0);
}

void to_rts(struct ibv_qp *qp)
{
	to_state(qp, IBV_QPS_INIT);
	to_state(qp, IBV_QPS_RTR);
	to_state(qp, IBV_QPS_RTS);
}

void raw_make(struct raw *r)
{
	struct ibv_qp_init_attr attr;

	memset(r, 0, sizeof(*r));
	r->scq = ibv_create_cq(dev.ctx, 64, NULL, NULL, 0);
	r->rcq = ibv_create_cq(dev.ctx, 64, NULL, NULL, 0);
	REQUIRE(r->scq && r->rcq);
	attr = init_attr(r, NULL);
	r->qp = ibv_create_qp(dev.pd, &attr);
	if (!r->qp)
		FAIL("ibv_create_qp: %s", strerror(errno));
	to_rts(r->qp);
	region_make(&r->tx, &dev, 8192, 0, ACCESS_ALL);
	region_make(&r->rx, &dev, 8192, 0, ACCESS_ALL);
}

void raw_free(struct raw *r)
{
	REQUIRE_ERRNO(ibv_destroy_qp(r->qp), 0);
	REQUIRE_ERRNO(ibv_destroy_cq(r->scq), 0);
	REQUIRE_ERRNO(ibv_destroy_cq(r->rcq), 0);
	region_free(&r->tx);
	region_free(&r->rx);
}

void frame(uint8_t *to, const uint8_t *dst, uint16_t type, size_t len,
	   uint64_t seed)
{
	uint16_t be = htons(type);

	fill(to, len, seed);
	memcpy(to, dst, 6);
	memcpy(to + 6, mac_b, 6);
	memcpy(to + 12, &be, 2);
}

void post(struct raw *r, uint64_t id, size_t len, unsigned int flags)
{
	struct ibv_sge sge = sge_of(&r->tx, 0, len);
	struct ibv_send_wr wr = {
		.wr_id = id, .opcode = IBV_WR_SEND, .send_flags = flags,
		.sg_list = &sge, .num_sge = 1,
	}, *bad;

	REQUIRE_ERRNO(ibv_post_send(r->qp, &wr, &bad), 0);
}

void post_recv(struct raw *r, uint64_t id, size_t len)
{
	struct ibv_sge sge = sge_of(&r->rx, 0, len);
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;

	REQUIRE_ERRNO(ibv_post_recv(r->qp, &wr, &bad), 0);
}

ssize_t take(int fd, void *to, size_t size, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint8_t bytes[4096];
	uint16_t type;
	ssize_t len;

	while (poll(&p, 1, ms) > 0) {
		len = recv(fd, bytes, sizeof(bytes), 0);
		memcpy(&type, bytes + 12, 2);
		if (len < 14 || ntohs(type) != TYPE)
			continue;
		memcpy(to, bytes, (size_t)len < size ? (size_t)len : size);
		return len;
	}
	return -1;
}

void judge_sends(const void *bytes, size_t len)
{
	REQUIRE_EQ(send(judge, bytes, len, 0), len);
}

bool gets_within(struct raw *r, const uint8_t *bytes, size_t len,
		 uint64_t us)
{
	struct ibv_wc wc;

	if (!next_wc_within(r->rcq, &wc, us))
		return false;
	REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
	REQUIRE_EQ(wc.opcode, IBV_WC_RECV);
	REQUIRE_EQ(wc.qp_num, r->qp->qp_num);
	REQUIRE_EQ(wc.byte_len, len);
	REQUIRE_EQ(wc.wc_flags & IBV_WC_GRH, 0);
	REQUIRE(!memcmp(r->rx.data, bytes, len));
	post_recv(r, 1, r->rx.len);
	return true;
}

void rule_begin(struct rule *r, enum ibv_flow_attr_type type,
		uint16_t priority)
{
	memset(r, 0, sizeof(*r));
	r->attr.type = type;
	r->attr.priority = priority;
	r->attr.port = 1;
	r->attr.size = sizeof(r->attr);
}

void rule_add(struct rule *r, const void *spec, size_t size)
{
	memcpy((uint8_t *)&r->attr + r->attr.size, spec, size);
	r->attr.size += size;
	r->attr.num_of_specs++;
}

void rule_eth(struct rule *r, const uint8_t *dst, uint16_t type,
	      uint16_t vlan)
{
	struct ibv_flow_spec_eth spec = {
		.type = IBV_FLOW_SPEC_ETH,
		.size = sizeof(spec),
		.val = { .ether_type = htons(type), .vlan_tag = htons(vlan) },
		.mask = { .ether_type = type ? 0xffff : 0,
			  .vlan_tag = htons(vlan ? 0xfff : 0) },
	};

	if (dst) {
		memcpy(spec.val.dst_mac, dst, 6);
		memcpy(spec.mask.dst_mac, MAC_MASK, 6);
	}
	rule_add(r, &spec, sizeof(spec));
}

void rule_ports(struct rule *r, enum ibv_flow_spec_type type,
		uint16_t dst)
{
	struct ibv_flow_spec_tcp_udp spec = {
		.type = type,
		.size = sizeof(spec),
		.val = { .dst_port = htons(dst) },
		.mask = { .dst_port = 0xffff },
	};

	rule_add(r, &spec, sizeof(spec));
}

void rule_drop(struct rule *r)
{
	struct ibv_flow_spec_action_drop spec = {
		.type = IBV_FLOW_SPEC_ACTION_DROP,
		.size = sizeof(spec),
	};

	rule_add(r, &spec, sizeof(spec));
}

struct ibv_flow *must_flow(struct raw *r, struct rule *rule)
{
	struct ibv_flow *flow = ibv_create_flow(r->qp, &rule->attr);

	if (!flow)
		FAIL("ibv_create_flow: %s", strerror(errno));
	return flow;
}

struct ibv_flow *flow_to(struct raw *r, const uint8_t *dst,
			 uint16_t priority)
{
	struct rule rule;

	rule_begin(&rule, IBV_FLOW_ATTR_NORMAL, priority);
	rule_eth(&rule, dst, TYPE, 0);
	return must_flow(r, &rule);
}

struct ibv_flow *flow_of(struct raw *r, enum ibv_flow_attr_type type)
{
	struct rule rule;

	rule_begin(&rule, type, 0);
	return must_flow(r, &rule);
}

void end_flow(struct ibv_flow *flow)
{
	REQUIRE_ERRNO(ibv_destroy_flow(flow), 0);
}
