// SPDX-License-Identifier: GPL-2.0
/*
 * Datagrams to groups from one device to another: DEVICE and the one that
 * PEER_DEVICE names, whose networks are joined. PEER_NETDEV is the network
 * device of the latter, and PEER_NETNS the namespace that it is in.
 */
#include "common.h"

#include <stdlib.h>

enum { LEN = 64, GRH = 40 };

#define MULTICAST_QPN 0xffffff

struct side {
	struct device d;
	struct end e;
	struct region r;
};

/* The first RoCEv2 GID of the family that holds on more than a link. */
static void choose_family(struct device *d, bool ipv6)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	struct ibv_gid_entry entry;

	for (uint32_t i = 0; i < (uint32_t)d->port.gid_tbl_len; i++) {
		if (ibv_query_gid_ex(d->ctx, 1, i, &entry, 0) ||
		    entry.gid_type != IBV_GID_TYPE_ROCE_V2 ||
		    entry.gid.raw[0] == 0xfe ||
		    ipv6 == !memcmp(entry.gid.raw, mapped, sizeof(mapped)))
			continue;
		d->gid = entry.gid;
		d->gid_index = i;
		return;
	}
	FAIL("no GID of IPv%d", ipv6 ? 6 : 4);
}

static void side_make(struct side *s, const char *device, bool ipv6)
{
	const struct end_config config = { .type = IBV_QPT_UD };
	struct peer self;

	REQUIRE(device);
	opt.device = device;
	device_open(&s->d);
	choose_family(&s->d, ipv6);
	end_make(&s->e, &s->d, &config);
	self = end_address(&s->e, NULL);
	end_connect(&s->e, &self);
	region_make(&s->r, &s->d, 4096, 3, ACCESS_ALL);
}

static void side_free(struct side *s)
{
	end_free(&s->e);
	REGION_CHECK(&s->r);
	region_free(&s->r);
	device_close(&s->d);
}

static void post(struct side *from, struct ibv_ah *ah, uint64_t wr_id)
{
	send_datagram(&from->e, wr_id, &from->r,
		      (struct datagram){ ah, MULTICAST_QPN, QKEY, LEN });
	EXPECT_OK(from->e.scq, wr_id);
}

/*
 * Whether the peer's network device is a member: by IP, for routers and switches
 * ask by IGMP and MLD, and by the link address that the group has (RFC 1112, 6.4,
 * and RFC 2464, 7), for adapters pass no other ones.
 */
static void expect_member(const char *ip, const char *link, bool is_member)
{
	const char *addresses[] = { ip, link };

	for (size_t i = 0; i < ARRAY_SIZE(addresses); i++) {
		int status = run_command("ip -n \"$PEER_NETNS\" maddr show dev \"$PEER_NETDEV\" | "
					 "grep -qE '^[[:space:]]*(link|inet6?) +%s( |$)'",
					 addresses[i]);

		if (status != !is_member)
			FAIL("the network device %s %s", is_member ?
			     "has not got" : "still has", addresses[i]);
	}
}

/*
 * Members of the group receive, at the other end of the wire; former members do
 * not.
 */
static void members(bool ipv6, const union ibv_gid *group, const char *ip,
		    const char *link)
{
	const char *device = opt.device;
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = { .dgid = *group, .hop_limit = 1 },
	};
	struct side from, to;
	struct ibv_wc wc;
	struct ibv_ah *ah;

	side_make(&from, device, ipv6);
	side_make(&to, getenv("PEER_DEVICE"), ipv6);
	attr.grh.sgid_index = from.d.gid_index;
	ah = ibv_create_ah(from.d.pd, &attr);
	REQUIRE(ah);
	fill(from.r.data, LEN, 7);

	recv_region(&to.e, 1, &to.r, 0, GRH + LEN);
	post(&from, ah, 1);
	EXPECT_NO_WC(to.e.rcq);
	expect_member(ip, link, false);

	REQUIRE_ERRNO(ibv_attach_mcast(to.e.qp, group, 0), 0);
	expect_member(ip, link, true);
	/* The sender is a member as well, and hears itself once. */
	REQUIRE_ERRNO(ibv_attach_mcast(from.e.qp, group, 0), 0);
	recv_region(&from.e, 2, &from.r, 1024, GRH + LEN);
	recv_region(&from.e, 3, &from.r, 2048, GRH + LEN);
	post(&from, ah, 4);
	wc = EXPECT_OK(to.e.rcq, 1);
	REQUIRE_EQ(wc.byte_len, GRH + LEN);
	REQUIRE_EQ(wc.src_qp, from.e.qp->qp_num);
	VERIFY(to.r.data + GRH, LEN, 7);
	EXPECT_OK(from.e.rcq, 2);
	VERIFY(from.r.data + 1024 + GRH, LEN, 7);
	EXPECT_NO_WC(from.e.rcq);

	REQUIRE_ERRNO(ibv_detach_mcast(to.e.qp, group, 0), 0);
	expect_member(ip, link, false);
	recv_region(&to.e, 5, &to.r, 0, GRH + LEN);
	post(&from, ah, 6);
	EXPECT_NO_WC(to.e.rcq);
	REQUIRE_ERRNO(ibv_detach_mcast(from.e.qp, group, 0), 0);
	REQUIRE_ERRNO(ibv_destroy_ah(ah), 0);
	side_free(&from);
	side_free(&to);
}

static void ipv4(void)
{
	union ibv_gid group = { .raw = { [10] = 0xff, 0xff, 239, 1, 2, 4 } };

	members(false, &group, "239.1.2.4", "01:00:5e:01:02:04");
}

static void ipv6(void)
{
	union ibv_gid group = { .raw = { 0xff, 0x15, [15] = 0x81 } };

	members(true, &group, "ff15::81", "33:33:00:00:00:81");
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "ipv4", ipv4 },
		{ "ipv6", ipv6 },
		{ }
	};

	return test_main(argc, argv, cases);
}
