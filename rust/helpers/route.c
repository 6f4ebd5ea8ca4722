// SPDX-License-Identifier: GPL-2.0
/*
 * Routes, and sending by them, for the crate net_ext.
 */

#include <linux/ip.h>
#include <linux/ipv6.h>
#include <net/addrconf.h>
#include <net/inet_dscp.h>
#include <net/ip.h>
#include <net/ip6_fib.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <net/neighbour.h>
#include <net/route.h>

#include "net.h"

struct dst_entry *ferrule_helper_route4(struct net *net, __be32 *saddr, __be32 daddr, int oif,
					u8 tos, __be16 sport, __be16 dport)
{
	struct flowi4 flow = {
		.flowi4_oif = oif,
		.flowi4_proto = IPPROTO_UDP,
		.flowi4_dscp = inet_dsfield_to_dscp(tos),
		.saddr = *saddr,
		.daddr = daddr,
		.fl4_sport = sport,
		.fl4_dport = dport,
	};
	struct rtable *rt = ip_route_output_flow(net, &flow, NULL);

	if (IS_ERR(rt))
		return ERR_CAST(rt);
	*saddr = flow.saddr;
	return &rt->dst;
}

struct dst_entry *ferrule_helper_route6(struct net *net, struct in6_addr *saddr,
					const struct in6_addr *daddr, int oif, u8 tclass,
					u32 flow_label, __be16 sport, __be16 dport, u32 *cookie)
{
#if IS_ENABLED(CONFIG_IPV6)
	struct flowi6 flow = {
		.flowi6_oif = oif,
		.flowi6_proto = IPPROTO_UDP,
		.flowlabel = ip6_make_flowinfo(tclass, htonl(flow_label)),
		.saddr = *saddr,
		.daddr = *daddr,
		.fl6_sport = sport,
		.fl6_dport = dport,
	};
	struct dst_entry *dst;
	bool own;

	/* The look-up takes any source. That of IPv4 does not. */
	rcu_read_lock();
	own = ipv6_addr_any(saddr) ||
	      ipv6_chk_addr(net, saddr, dev_get_by_index_rcu(net, oif), 0);
	rcu_read_unlock();
	if (!own)
		return ERR_PTR(-EADDRNOTAVAIL);
	dst = ip6_dst_lookup_flow(net, NULL, &flow, NULL);
	if (IS_ERR(dst))
		return dst;
	if (dst->error) {
		int err = dst->error;

		dst_release(dst);
		return ERR_PTR(err);
	}
	*saddr = flow.saddr;
	*cookie = rt6_get_cookie(dst_rt6_info(dst));
	return dst;
#else
	return ERR_PTR(-EAFNOSUPPORT);
#endif
}

bool ferrule_helper_dst_is_current(struct dst_entry *dst, u32 cookie)
{
	return dst_check(dst, cookie);
}

void ferrule_helper_dst_hold(struct dst_entry *dst)
{
	dst_hold(dst);
}

u32 ferrule_helper_dst_mtu(const struct dst_entry *dst)
{
	return dst_mtu(dst);
}

struct net_device *ferrule_helper_dst_dev_rcu(const struct dst_entry *dst)
{
	return dst_dev_rcu(dst);
}

/* The space that the way out may need before the network header. */
unsigned int ferrule_helper_dst_headroom(const struct dst_entry *dst)
{
	unsigned int headroom;

	rcu_read_lock();
	headroom = LL_RESERVED_SPACE(dst_dev_rcu(dst)) + dst->header_len;
	rcu_read_unlock();
	return headroom;
}

/*
 * The hardware address of the next hop towards `daddr`, 6 bytes. If it is not
 * known yet, the neighbour is asked, and the result is -EAGAIN.
 */
int ferrule_helper_dst_resolve(struct dst_entry *dst, const void *daddr, u8 *address)
{
	struct neighbour *n = dst_neigh_lookup(dst, daddr);
	int err = 0;

	if (!n)
		return -EHOSTUNREACH;
	if (n->dev->addr_len != ETH_ALEN)
		err = -EOPNOTSUPP;
	else if (neigh_event_send(n, NULL))
		err = READ_ONCE(n->nud_state) & NUD_FAILED ? -EHOSTUNREACH : -EAGAIN;
	else
		neigh_ha_snapshot(address, n, n->dev);
	neigh_release(n);
	return err;
}

/*
 * Sends a packet whose network header is at its start and has no options, by a
 * route that is still current, and charges it to a socket, which need not be
 * the one that it is sent from. The packet is gone in any case.
 */
int ferrule_helper_ip_xmit(struct sk_buff *skb, struct sock *sk, struct sock *charged,
			   struct dst_entry *dst, u32 cookie, bool ipv6, u32 priority)
{
	struct net_device *dev;
	struct net *net;
	int err;

	rcu_read_lock();
	/* From here on RCU keeps the route valid. */
	if (!dst_check(dst, cookie)) {
		rcu_read_unlock();
		kfree_skb(skb);
		return -ESTALE;
	}
	dev = dst_dev_rcu(dst);
	net = dev_net_rcu(dev);
	skb_dst_set_noref(skb, dst);
	skb_reset_network_header(skb);
	skb_set_transport_header(skb, ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
	skb->priority = priority;
	skb->protocol = ipv6 ? htons(ETH_P_IPV6) : htons(ETH_P_IP);
	skb->dev = dev;
	skb_set_owner_w(skb, charged);
#if IS_ENABLED(CONFIG_IPV6)
	if (ipv6)
		err = ip6_local_out(net, sk, skb);
	else
#endif
		err = ip_local_out(net, sk, skb);
	rcu_read_unlock();
	return err > 0 ? net_xmit_errno(err) : err;
}

void ferrule_helper_local_bh_disable(void)
{
	local_bh_disable();
}

void ferrule_helper_local_bh_enable(void)
{
	local_bh_enable();
}
