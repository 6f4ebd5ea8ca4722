// SPDX-License-Identifier: GPL-2.0
/* Rules: the queue pairs that get a frame by them. */
#define _GNU_SOURCE
#include "raw_packet.h"

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <sys/socket.h>
#include <unistd.h>

static uint16_t sum(const uint8_t *bytes, size_t len, uint32_t begin)
{
	for (size_t i = 0; i + 1 < len; i += 2)
		begin += bytes[i] << 8 | bytes[i + 1];
	if (len & 1)
		begin += bytes[len - 1] << 8;
	while (begin >> 16)
		begin = (begin & 0xffff) + (begin >> 16);
	return begin;
}

/* A frame of IPv4, with the length in the header, and ports. */
static void ip_frame(uint8_t *to, uint8_t protocol, size_t len)
{
	static const uint8_t head[] = {
		0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 0, 0, 0,
		10, 9, 0, 1, 10, 9, 0, 2, 0x04, 0xd2, 0x16, 0x2e,
	};
	uint16_t check;

	frame(to, mac_a, ETH_P_IP, len, 9);
	memset(to + 14, 0, 40);
	memcpy(to + 14, head, sizeof(head));
	to[16] = (len - 14) >> 8;
	to[17] = (len - 14) & 0xff;
	to[23] = protocol;
	check = ~sum(to + 14, 20, 0);
	to[24] = check >> 8;
	to[25] = check & 0xff;
}

static void headers(void)
{
	struct ibv_flow_spec_ipv4_ext v4 = {
		.type = IBV_FLOW_SPEC_IPV4_EXT, .size = sizeof(v4),
	};
	uint8_t udp[64], tcp[64];
	struct ibv_flow *flow;
	struct rule rule;
	struct raw r;

	setup();
	raw_make(&r);
	post_recv(&r, 1, r.rx.len);
	ip_frame(udp, IPPROTO_UDP, 64);
	ip_frame(tcp, IPPROTO_TCP, 64);
	for (uint16_t port = 5678; port <= 5679; port++) {
		for (int is_tcp = 0; is_tcp < 2; is_tcp++) {
			rule_begin(&rule, IBV_FLOW_ATTR_NORMAL, 0);
			rule_eth(&rule, mac_a, 0, 0);
			rule_ports(&rule, is_tcp ? IBV_FLOW_SPEC_TCP :
				   IBV_FLOW_SPEC_UDP, port);
			flow = must_flow(&r, &rule);
			judge_sends(is_tcp ? udp : tcp, 64);
			judge_sends(is_tcp ? tcp : udp, 64);
			if (port == 5678)
				GETS(&r, is_tcp ? tcp : udp, 64);
			MISSES(&r, udp, 64);
			end_flow(flow);
		}
	}
	for (uint8_t last = 2; last <= 3; last++) {
		v4.val.dst_ip = htonl(0x0a090000 + last);
		v4.mask.dst_ip = 0xffffffff;
		v4.val.ttl = 64;
		v4.mask.ttl = 0xff;
		rule_begin(&rule, IBV_FLOW_ATTR_NORMAL, 0);
		rule_eth(&rule, mac_a, 0, 0);
		rule_add(&rule, &v4, sizeof(v4));
		flow = must_flow(&r, &rule);
		judge_sends(udp, 64);
		if (last == 2)
			GETS(&r, udp, 64);
		else
			MISSES(&r, udp, 64);
		end_flow(flow);
	}
	raw_free(&r);
	teardown();
}

/* A frame that the stack has left to the device to cut and to sum up. */
static void cuts(void)
{
	enum { HEAD = 54, SIZE = 1000, COUNT = 4 };
	struct {
		struct virtio_net_hdr head;
		uint8_t bytes[HEAD + SIZE * COUNT];
	} __attribute__((packed)) big;
	uint8_t pseudo[12];
	struct ibv_flow *flow;
	struct ibv_wc wc;
	int one = 1, fd;
	uint16_t half;
	struct raw r;

	setup();
	raw_make(&r);
	fd = packet_socket(OTHER);
	REQUIRE(!setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof(one)));
	memset(&big, 0, sizeof(big));
	ip_frame(big.bytes, IPPROTO_TCP, sizeof(big.bytes));
	big.bytes[46] = 5 << 4;
	/* The sum of the pseudo header, as a device expects it. */
	memcpy(pseudo, big.bytes + 26, 8);
	pseudo[8] = 0;
	pseudo[9] = IPPROTO_TCP;
	pseudo[10] = (sizeof(big.bytes) - 34) >> 8;
	pseudo[11] = (sizeof(big.bytes) - 34) & 0xff;
	half = sum(pseudo, sizeof(pseudo), 0);
	big.bytes[50] = half >> 8;
	big.bytes[51] = half & 0xff;
	big.head.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
	big.head.gso_type = VIRTIO_NET_HDR_GSO_TCPV4;
	big.head.hdr_len = HEAD;
	big.head.gso_size = SIZE;
	big.head.csum_start = 34;
	big.head.csum_offset = 16;

	{
		struct rule rule;

		rule_begin(&rule, IBV_FLOW_ATTR_NORMAL, 0);
		rule_eth(&rule, mac_a, 0, 0);
		flow = must_flow(&r, &rule);
	}
	for (unsigned int i = 0; i < COUNT; i++)
		post_recv(&r, i, HEAD + SIZE);
	REQUIRE_EQ(send(fd, &big, sizeof(big), 0), sizeof(big));
	/* Each has the place of the one before, and is looked at when all are there. */
	for (unsigned int i = 0; i < COUNT; i++) {
		wc = EXPECT_OK(r.rcq, i);
		REQUIRE_EQ(wc.byte_len, HEAD + SIZE);
	}
	EXPECT_NO_WC(r.rcq);
	REQUIRE(!memcmp(r.rx.data + HEAD, big.bytes + HEAD + (COUNT - 1) * SIZE,
			SIZE));
	REQUIRE_EQ(sum(r.rx.data + 14, 20, 0), 0xffff);
	memcpy(pseudo, r.rx.data + 26, 8);
	pseudo[10] = (HEAD - 34 + SIZE) >> 8;
	pseudo[11] = (HEAD - 34 + SIZE) & 0xff;
	REQUIRE_EQ(sum(r.rx.data + 34, HEAD - 34 + SIZE,
		       sum(pseudo, sizeof(pseudo), 0)), 0xffff);
	close(fd);
	end_flow(flow);
	raw_free(&r);
	teardown();
}

static void priorities(void)
{
	struct ibv_flow *one, *other, *third;
	uint8_t bytes[60];
	struct raw a, b;
	struct rule rule;

	setup();
	raw_make(&a);
	raw_make(&b);
	post_recv(&a, 1, a.rx.len);
	post_recv(&b, 1, b.rx.len);
	frame(bytes, mac_a, TYPE, 60, 1);
	one = flow_to(&a, mac_a, 2);
	other = flow_to(&b, NULL, 1);
	judge_sends(bytes, 60);
	GETS(&b, bytes, 60);
	MISSES(&a, bytes, 60);
	/* Of the same priority, each gets it, and once. */
	third = flow_to(&a, NULL, 1);
	judge_sends(bytes, 60);
	GETS(&a, bytes, 60);
	GETS(&b, bytes, 60);
	MISSES(&a, bytes, 60);
	end_flow(third);
	end_flow(other);
	judge_sends(bytes, 60);
	GETS(&a, bytes, 60);
	MISSES(&b, bytes, 60);

	/* One that does not trap. */
	rule_begin(&rule, IBV_FLOW_ATTR_NORMAL, 0);
	rule.attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	rule_eth(&rule, mac_a, 0, 0);
	other = must_flow(&b, &rule);
	judge_sends(bytes, 60);
	GETS(&a, bytes, 60);
	GETS(&b, bytes, 60);
	end_flow(other);

	/* One that drops. The stack gets the frame all the same. */
	{
		int stack = packet_socket(NETDEV);
		uint8_t seen[60];

		rule_begin(&rule, IBV_FLOW_ATTR_NORMAL, 0);
		rule_eth(&rule, mac_a, 0, 0);
		rule_drop(&rule);
		other = must_flow(&b, &rule);
		judge_sends(bytes, 60);
		MISSES(&a, bytes, 60);
		MISSES(&b, bytes, 60);
		REQUIRE_EQ(take(stack, seen, sizeof(seen), 10000), 60);
		end_flow(other);
		close(stack);
	}
	judge_sends(bytes, 60);
	GETS(&a, bytes, 60);
	end_flow(one);
	raw_free(&a);
	raw_free(&b);
	teardown();
}

static void defaults(void)
{
	struct ibv_flow *flow, *all, *groups;
	uint8_t bytes[60], group[60];
	struct raw a, b;

	setup();
	raw_make(&a);
	raw_make(&b);
	frame(bytes, mac_a, TYPE, 60, 1);
	frame(group, mac_group, TYPE, 60, 2);
	flow = flow_to(&a, mac_a, 0);
	groups = flow_of(&b, IBV_FLOW_ATTR_MC_DEFAULT);
	post_recv(&a, 1, a.rx.len);
	post_recv(&b, 1, b.rx.len);
	judge_sends(bytes, 60);
	GETS(&a, bytes, 60);
	judge_sends(group, 60);
	GETS(&b, group, 60);
	end_flow(groups);
	all = flow_of(&b, IBV_FLOW_ATTR_ALL_DEFAULT);
	judge_sends(group, 60);
	GETS(&b, group, 60);
	judge_sends(bytes, 60);
	GETS(&a, bytes, 60);
	end_flow(flow);
	judge_sends(bytes, 60);
	GETS(&b, bytes, 60);
	MISSES(&a, bytes, 60);
	end_flow(all);
	raw_free(&a);
	raw_free(&b);
	teardown();
}

static bool is_promiscuous(void)
{
	return !run_command("ip -d link show " NETDEV " | grep -q 'promiscuity [1-9]'");
}

/* It gets all frames, in both directions. Others may get them, too. */
static void sniffers(void)
{
	struct ibv_flow *flow, *sniffer;
	uint8_t bytes[60], own[60];
	struct raw a, b;
	int stack;

	setup();
	raw_make(&a);
	raw_make(&b);
	flow = flow_to(&a, NULL, 0);
	REQUIRE(!is_promiscuous());
	sniffer = flow_of(&b, IBV_FLOW_ATTR_SNIFFER);
	REQUIRE(is_promiscuous());
	post_recv(&a, 1, a.rx.len);
	post_recv(&b, 1, b.rx.len);
	frame(bytes, mac_a, TYPE, 60, 1);
	judge_sends(bytes, 60);
	GETS(&a, bytes, 60);
	GETS(&b, bytes, 60);
	/* Of the stack, and of a queue pair. */
	stack = packet_socket(NETDEV);
	frame(own, mac_b, TYPE, 60, 2);
	REQUIRE_EQ(send(stack, own, 60, 0), 60);
	GETS(&b, own, 60);
	close(stack);
	frame(a.tx.data, mac_group, TYPE, 60, 3);
	post(&a, 7, 60, 0);
	EXPECT_OK(a.scq, 7);
	GETS(&b, a.tx.data, 60);
	/* The group's rule has it, too, as an adapter gives it back. */
	GETS(&a, a.tx.data, 60);
	end_flow(sniffer);
	REQUIRE(!is_promiscuous());
	end_flow(flow);
	raw_free(&a);
	raw_free(&b);
	teardown();
}

static void refused_flow(struct raw *r, struct rule *rule, int err)
{
	REQUIRE_NULL_ERRNO(ibv_create_flow(r->qp, &rule->attr), err);
}

static void refused_rules(void)
{
	struct ibv_flow_spec_tunnel tunnel = {
		.type = IBV_FLOW_SPEC_VXLAN_TUNNEL, .size = sizeof(tunnel),
	};
	struct ibv_flow_spec_action_tag tag = {
		.type = IBV_FLOW_SPEC_ACTION_TAG, .size = sizeof(tag),
	};
	struct ibv_qp_init_attr attr;
	struct ibv_qp *qp;
	struct rule rule;
	struct raw r;

	setup();
	raw_make(&r);
	/* Two of one layer. */
	rule_begin(&rule, IBV_FLOW_ATTR_NORMAL, 0);
	rule_eth(&rule, mac_a, 0, 0);
	rule_eth(&rule, mac_b, 0, 0);
	refused_flow(&r, &rule, EINVAL);
	rule_begin(&rule, IBV_FLOW_ATTR_NORMAL, 0);
	rule_ports(&rule, IBV_FLOW_SPEC_TCP, 1);
	rule_ports(&rule, IBV_FLOW_SPEC_UDP, 1);
	refused_flow(&r, &rule, EINVAL);
	/* Default rules and sniffers have none. */
	for (int type = IBV_FLOW_ATTR_ALL_DEFAULT; type <= IBV_FLOW_ATTR_SNIFFER;
	     type++) {
		rule_begin(&rule, type, 0);
		rule_eth(&rule, mac_a, 0, 0);
		refused_flow(&r, &rule, EINVAL);
		rule_begin(&rule, type, 0);
		rule_drop(&rule);
		refused_flow(&r, &rule, EINVAL);
		rule_begin(&rule, type, 0);
		rule.attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
		refused_flow(&r, &rule, EINVAL);
	}
	rule_begin(&rule, 4, 0);
	refused_flow(&r, &rule, EINVAL);
	/* Two actions, and one that contradicts. */
	rule_begin(&rule, IBV_FLOW_ATTR_NORMAL, 0);
	rule_drop(&rule);
	rule_drop(&rule);
	refused_flow(&r, &rule, EINVAL);
	rule_begin(&rule, IBV_FLOW_ATTR_NORMAL, 0);
	rule_drop(&rule);
	rule.attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	refused_flow(&r, &rule, EINVAL);
	rule_begin(&rule, IBV_FLOW_ATTR_NORMAL, 0);
	rule.attr.port = 2;
	refused_flow(&r, &rule, EINVAL);
	/* Specifications that there are not. */
	rule_begin(&rule, IBV_FLOW_ATTR_NORMAL, 0);
	rule_add(&rule, &tunnel, sizeof(tunnel));
	refused_flow(&r, &rule, EOPNOTSUPP);
	rule_begin(&rule, IBV_FLOW_ATTR_NORMAL, 0);
	rule_add(&rule, &tag, sizeof(tag));
	refused_flow(&r, &rule, EOPNOTSUPP);
	rule_begin(&rule, IBV_FLOW_ATTR_NORMAL, 0);
	rule.attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS;
	refused_flow(&r, &rule, EOPNOTSUPP);
	/* Other queue pairs. */
	rule_begin(&rule, IBV_FLOW_ATTR_NORMAL, 0);
	rule_eth(&rule, mac_a, 0, 0);
	for (int type = IBV_QPT_RC; type <= IBV_QPT_UD; type++) {
		attr = init_attr(&r, NULL);
		attr.qp_type = type;
		qp = ibv_create_qp(dev.pd, &attr);
		REQUIRE(qp);
		REQUIRE_NULL_ERRNO(ibv_create_flow(qp, &rule.attr), EINVAL);
		REQUIRE_ERRNO(ibv_destroy_qp(qp), 0);
	}
	raw_free(&r);
	teardown();
}

/* As many as there can be; a queue pair that has one is not destroyed. */
static void many_rules(void)
{
	struct ibv_flow *flows[256];
	uint8_t bytes[60];
	struct rule rule;
	struct raw r;

	setup();
	raw_make(&r);
	for (size_t i = 0; i < ARRAY_SIZE(flows); i++)
		flows[i] = flow_to(&r, mac_a, i);
	rule_begin(&rule, IBV_FLOW_ATTR_NORMAL, 0);
	refused_flow(&r, &rule, ENOMEM);
	REQUIRE_ERRNO(ibv_destroy_qp(r.qp), EBUSY);
	post_recv(&r, 1, r.rx.len);
	frame(bytes, mac_a, TYPE, 60, 1);
	judge_sends(bytes, 60);
	GETS(&r, bytes, 60);
	MISSES(&r, bytes, 60);
	for (size_t i = 0; i < ARRAY_SIZE(flows); i++) {
		end_flow(flows[(i * 77) % 256]);
		judge_sends(bytes, 60);
		if (i < 255)
			GETS(&r, bytes, 60);
		else
			MISSES(&r, bytes, 60);
	}
	raw_free(&r);
	teardown();
}

const struct test_case steering_cases[] = {
	{ "headers", headers },
	{ "cuts", cuts },
	{ "priorities", priorities },
	{ "defaults", defaults },
	{ "sniffers", sniffers },
	{ "refused_rules", refused_rules },
	{ "many_rules", many_rules, 60 },
	{ }
};
