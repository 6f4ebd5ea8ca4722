// SPDX-License-Identifier: GPL-2.0
/*
 * Helpers for the crate net_ext.
 */

#include <linux/if_vlan.h>
#include <linux/igmp.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/netfilter.h>
#include <linux/netfilter_ipv4.h>
#include <linux/udp.h>
#include <net/addrconf.h>
#include <net/inet_dscp.h>
#include <net/ip.h>
#include <net/ip6_fib.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <net/neighbour.h>
#include <net/netns/generic.h>
#include <net/route.h>

/* With the name of our module in front, a message in there is longer than clang likes it to be. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-truncation"
#include <net/sch_generic.h>
#pragma GCC diagnostic pop

#include "net.h"

/* Devices. */

u32 ferrule_helper_netdev_mtu(const struct net_device *dev)
{
	return READ_ONCE(dev->mtu);
}

int ferrule_helper_netdev_ifindex(const struct net_device *dev)
{
	return READ_ONCE(dev->ifindex);
}

unsigned short ferrule_helper_netdev_type(const struct net_device *dev)
{
	return dev->type;
}

unsigned char ferrule_helper_netdev_addr_len(const struct net_device *dev)
{
	return dev->addr_len;
}

const unsigned char *ferrule_helper_netdev_dev_addr(const struct net_device *dev)
{
	return dev->dev_addr;
}

/* A name that changes meanwhile may come as some of both. */
void ferrule_helper_netdev_copy_name(const struct net_device *dev, char *name, size_t size)
{
	strscpy(name, netdev_name(dev), size);
}

bool ferrule_helper_netif_running(const struct net_device *dev)
{
	return netif_running(dev);
}

void ferrule_helper_dev_hold(struct net_device *dev)
{
	dev_hold(dev);
}

void ferrule_helper_dev_put(struct net_device *dev)
{
	dev_put(dev);
}

struct net *ferrule_helper_dev_net_rcu(const struct net_device *dev)
{
	return dev_net_rcu(dev);
}

bool ferrule_helper_netdev_is_loopback(const struct net_device *dev)
{
	return dev->flags & IFF_LOOPBACK;
}

struct net_device *ferrule_helper_ipv6_dev_find_rcu(struct net *net, const void *addr)
{
#if IS_ENABLED(CONFIG_IPV6)
	struct in6_addr copy;

	memcpy(&copy, addr, sizeof(copy));
	return ipv6_dev_find(net, &copy, NULL);
#else
	return NULL;
#endif
}

bool ferrule_helper_is_vlan_dev(const struct net_device *dev)
{
	return is_vlan_dev(dev);
}

u16 ferrule_helper_vlan_dev_vlan_id(const struct net_device *dev)
{
	return vlan_dev_vlan_id(dev);
}

bool ferrule_helper_netdev_has_upper(struct net_device *dev, struct net_device *upper)
{
	return netdev_has_upper_dev_all_rcu(dev, upper);
}

/* Whether no NETDEV_UNREGISTER was sent yet; it is sent after the state changes. */
bool ferrule_helper_netdev_is_registered(const struct net_device *dev)
{
	return READ_ONCE(dev->reg_state) == NETREG_REGISTERED;
}

/* The RTNL is held. */
int ferrule_helper_netdev_join4(struct net_device *dev, __be32 group)
{
	struct in_device *in_dev = __in_dev_get_rtnl(dev);

	if (!in_dev)
		return -ENODEV;
	ip_mc_inc_group(in_dev, group);
	return 0;
}

void ferrule_helper_netdev_leave4(struct net_device *dev, __be32 group)
{
	struct in_device *in_dev = __in_dev_get_rtnl(dev);

	if (in_dev)
		ip_mc_dec_group(in_dev, group);
}

int ferrule_helper_netdev_join6(struct net_device *dev, const void *group)
{
#if IS_ENABLED(CONFIG_IPV6)
	struct in6_addr copy;

	memcpy(&copy, group, sizeof(copy));
	return ipv6_dev_mc_inc(dev, &copy);
#else
	return -ENODEV;
#endif
}

void ferrule_helper_netdev_leave6(struct net_device *dev, const void *group)
{
#if IS_ENABLED(CONFIG_IPV6)
	struct in6_addr copy;

	memcpy(&copy, group, sizeof(copy));
	ipv6_dev_mc_dec(dev, &copy);
#endif
}

/* Namespaces. */

struct net *ferrule_helper_get_net(struct net *net)
{
	return get_net(net);
}

struct net *ferrule_helper_maybe_get_net(struct net *net)
{
	return maybe_get_net(net);
}

void ferrule_helper_put_net(struct net *net)
{
	put_net(net);
}

void *ferrule_helper_net_generic(const struct net *net, unsigned int id)
{
	return net_generic(net, id);
}

u64 ferrule_helper_net_cookie(const struct net *net)
{
	return net->net_cookie;
}

/* Notifiers. */

struct net_device *ferrule_helper_netdev_notifier_info_to_dev(const void *info)
{
	return netdev_notifier_info_to_dev(info);
}

int ferrule_helper_register_netdevice_notifier(struct notifier_block *nb)
{
	return register_netdevice_notifier(nb);
}

int ferrule_helper_unregister_netdevice_notifier(struct notifier_block *nb)
{
	return unregister_netdevice_notifier(nb);
}

struct net_device *ferrule_helper_in_ifaddr_dev(const struct in_ifaddr *ifa)
{
	return ifa->ifa_dev->dev;
}

__be32 ferrule_helper_in_ifaddr_local(const struct in_ifaddr *ifa)
{
	return ifa->ifa_local;
}

struct net_device *ferrule_helper_inet6_ifaddr_dev(const struct inet6_ifaddr *ifa)
{
	return ifa->idev->dev;
}

const struct in6_addr *ferrule_helper_inet6_ifaddr_addr(const struct inet6_ifaddr *ifa)
{
	return &ifa->addr;
}

/* Without IPv6 there are no such addresses, and nothing will ever be told. */

int ferrule_helper_register_inet6addr_notifier(struct notifier_block *nb)
{
#if IS_ENABLED(CONFIG_IPV6)
	return register_inet6addr_notifier(nb);
#else
	return 0;
#endif
}

int ferrule_helper_unregister_inet6addr_notifier(struct notifier_block *nb)
{
#if IS_ENABLED(CONFIG_IPV6)
	return unregister_inet6addr_notifier(nb);
#else
	return 0;
#endif
}

/* Buffers. */

void ferrule_helper_skb_queue_head_init(struct sk_buff_head *list)
{
	skb_queue_head_init(list);
}

u32 ferrule_helper_skb_queue_len_lockless(const struct sk_buff_head *list)
{
	return skb_queue_len_lockless(list);
}

struct sk_buff *ferrule_helper_alloc_skb(unsigned int size)
{
	return alloc_skb(size, GFP_ATOMIC | __GFP_NOWARN);
}

void ferrule_helper_kfree_skb(struct sk_buff *skb)
{
	kfree_skb(skb);
}

unsigned int ferrule_helper_skb_headroom(const struct sk_buff *skb)
{
	return skb_headroom(skb);
}

int ferrule_helper_skb_tailroom(const struct sk_buff *skb)
{
	return skb_tailroom(skb);
}

void ferrule_helper_skb_reserve(struct sk_buff *skb, int len)
{
	skb_reserve(skb, len);
}

struct sk_buff *ferrule_helper_skb_clone(struct sk_buff *skb)
{
	return skb_clone(skb, GFP_ATOMIC | __GFP_NOWARN);
}

bool ferrule_helper_pskb_may_pull(struct sk_buff *skb, unsigned int len)
{
	return pskb_may_pull(skb, len);
}

int ferrule_helper_pskb_trim(struct sk_buff *skb, unsigned int len)
{
	return pskb_trim(skb, len);
}

const void *ferrule_helper_skb_network_header(const struct sk_buff *skb)
{
	return skb_network_header(skb);
}

u8 ferrule_helper_skb_ip_summed(const struct sk_buff *skb)
{
	return skb->ip_summed;
}

bool ferrule_helper_skb_vlan_tag_present(const struct sk_buff *skb)
{
	return skb_vlan_tag_present(skb);
}

u16 ferrule_helper_skb_vlan_tag_get(const struct sk_buff *skb)
{
	return skb_vlan_tag_get(skb);
}

/*
 * How many bytes from `offset` on lie in one piece, and where; 0 where there
 * are none, or none that the processor can reach.
 */
unsigned int ferrule_helper_skb_contiguous(const struct sk_buff *skb, unsigned int offset,
					   const void **bytes)
{
	const struct sk_buff *part;
	unsigned int end = skb_headlen(skb);
	int i;

	BUILD_BUG_ON(IS_ENABLED(CONFIG_HIGHMEM));

	if (offset < end) {
		*bytes = skb->data + offset;
		return end - offset;
	}
	if (!skb_frags_readable(skb))
		return 0;
	for (i = 0; i < skb_shinfo(skb)->nr_frags; i++) {
		const skb_frag_t *frag = &skb_shinfo(skb)->frags[i];

		offset -= end;
		end = skb_frag_size(frag);
		if (offset < end) {
			*bytes = (const u8 *)skb_frag_address(frag) + offset;
			return end - offset;
		}
	}
	offset -= end;
	/* Buffers in the list have no lists of their own. */
	skb_walk_frags(skb, part) {
		if (offset < part->len) {
			if (skb_has_frag_list(part))
				return 0;
			return ferrule_helper_skb_contiguous(part, offset, bytes);
		}
		offset -= part->len;
	}
	return 0;
}

/*
 * Hangs a packet of UDP behind the others of a list, in which each has its own
 * headers: that of IP, of `ip_len` bytes, is at its start. This is how GRO leaves
 * lists, and skb_segment_list() expects them, but for the identifications of
 * IPv4, which stay as they are: the name of the flag is that of TCP, but it is
 * the segmentation of IPv4 that goes by it.
 *
 * The sender's socket is charged with all of them until the first one is gone.
 */
void ferrule_helper_skb_list_add(struct sk_buff *head, struct sk_buff *last, struct sk_buff *skb,
				 unsigned int ip_len)
{
	struct skb_shared_info *shared = skb_shinfo(head);

	skb_reset_network_header(skb);
	skb_set_transport_header(skb, ip_len);
	__skb_pull(skb, ip_len + sizeof(struct udphdr));
	if (last == head) {
		shared->gso_type = SKB_GSO_UDP_L4 | SKB_GSO_FRAGLIST | SKB_GSO_TCP_FIXEDID;
		shared->gso_size = head->len - ip_len - sizeof(struct udphdr);
		shared->gso_segs = 1;
		shared->frag_list = skb;
		/* There is none to be made. */
		head->ip_summed = CHECKSUM_UNNECESSARY;
	} else {
		last->next = skb;
	}
	shared->gso_segs++;
	head->len += skb->len;
	head->data_len += skb->len;
	head->truesize += skb->truesize;
	/* Who receives it whole goes by the length of all. Who cuts it puts that of the first back. */
	((struct udphdr *)(head->data + ip_len))->len = htons(head->len - ip_len);
}

/* Routes. */

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

/* What the way out may put before the network header. */
unsigned int ferrule_helper_dst_headroom(const struct dst_entry *dst)
{
	unsigned int headroom;

	rcu_read_lock();
	headroom = LL_RESERVED_SPACE(dst_dev_rcu(dst)) + dst->header_len;
	rcu_read_unlock();
	return headroom;
}

#ifdef CONFIG_NETFILTER
/*
 * The hooks of security modules are always there. They look, and change nothing.
 * RCU keeps what describes hooks, as it does for nfnetlink_hook, which lists them.
 */
static bool are_filters(const struct nf_hook_entries *hooks)
{
	struct nf_hook_ops **ops;
	unsigned int i;

	if (!hooks)
		return false;
	ops = nf_hook_entries_get_hook_ops(hooks);
	for (i = 0; i < hooks->num_hook_entries; i++) {
		int priority = READ_ONCE(ops[i])->priority;

		if (priority != NF_IP_PRI_SELINUX_FIRST && priority != NF_IP_PRI_SELINUX_LAST)
			return true;
	}
	return false;
}
#endif

/* Whether somebody may have a look at each packet on its way out, and change it. */
static bool are_looked_at(const struct net_device *dev, bool ipv6)
{
#ifdef CONFIG_NETFILTER
	const struct netns_nf *nf = &dev_net_rcu(dev)->nf;
	struct nf_hook_entries __rcu * const *hooks = ipv6 ? nf->hooks_ipv6 : nf->hooks_ipv4;

	if (are_filters(rcu_dereference(hooks[NF_INET_LOCAL_OUT])) ||
	    are_filters(rcu_dereference(hooks[NF_INET_POST_ROUTING])))
		return true;
#endif
#ifdef CONFIG_NETFILTER_EGRESS
	if (rcu_access_pointer(dev->nf_hooks_egress))
		return true;
#endif
#ifdef CONFIG_NET_XGRESS
	if (rcu_access_pointer(dev->tcx_egress))
		return true;
#endif
	/* What leaves by the member of a VRF passes the VRF's device first, and what is set up there. */
	if (netif_is_l3_slave(dev))
		return true;
	/* A queueing discipline that nobody has asked for has no handle. */
	return rcu_dereference(dev->qdisc)->handle;
}

/*
 * Whether a list of packets may go this way.
 *
 * The network layer, filters and queueing disciplines see one packet, whose
 * headers are those of the first: who loses it loses all, and who changes it
 * changes the first alone. So where anything is set up that may do either, each
 * packet goes by itself. That includes IPsec and tunnels on the route.
 *
 * The device has to be one that has lists cut before its driver, and captures,
 * get them. Those that take them whole are virtual ones, from which the list may
 * go on to anywhere: through the filters of another namespace, or into a tunnel.
 */
bool ferrule_helper_dst_cuts_lists(const struct dst_entry *dst, bool ipv6)
{
	const struct net_device *dev;
	bool cuts;

	rcu_read_lock();
	dev = dst_dev_rcu(dst);
	cuts = !(dev->features & NETIF_F_GSO_FRAGLIST) && !dst_xfrm(dst) && !dst->lwtstate &&
	       !are_looked_at(dev, ipv6);
	rcu_read_unlock();
	return cuts;
}

/*
 * The hardware address of the next hop towards `daddr`, 6 bytes. Where it is
 * not known yet, somebody is asked, and the answer is -EAGAIN.
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

/* Sockets and sending. */

/* The device is in a union. */
struct net_device *ferrule_helper_skb_dev(const struct sk_buff *skb)
{
	return skb->dev;
}

/*
 * Makes a received packet one that may be kept: what it borrows from the stack
 * under RCU is given back.
 */
void ferrule_helper_skb_detach(struct sk_buff *skb)
{
	skb_orphan(skb);
	skb_dst_drop(skb);
	skb->dev = NULL;
}

int ferrule_helper_udp_any_port_cfg(struct udp_port_cfg *cfg, bool ipv6, __be16 port)
{
	if (ipv6 && !IS_ENABLED(CONFIG_IPV6))
		return -EAFNOSUPPORT;
	memset(cfg, 0, sizeof(*cfg));
	cfg->family = ipv6 ? AF_INET6 : AF_INET;
	cfg->local_udp_port = port;
	/* Each family has a socket of its own. */
	cfg->ipv6_v6only = ipv6;
	return 0;
}

struct net *ferrule_helper_sock_net(const struct sock *sk)
{
	return sock_net(sk);
}

void *ferrule_helper_rcu_dereference_sk_user_data(const struct sock *sk)
{
	return rcu_dereference_sk_user_data(sk);
}

int ferrule_helper_sk_wmem_alloc_get(const struct sock *sk)
{
	return sk_wmem_alloc_get(sk);
}

void ferrule_helper_sock_hold(struct sock *sk)
{
	sock_hold(sk);
}

void ferrule_helper_sock_put(struct sock *sk)
{
	sock_put(sk);
}

/*
 * A socket that packets are charged to, without a port. Whoever waits there is
 * woken for each packet that is gone, for it may always be written to: it is
 * the owner who has limits.
 */
int ferrule_helper_account_socket(struct net *net, struct socket **res)
{
	int err = sock_create_kern(net, AF_INET, SOCK_DGRAM, IPPROTO_UDP, res);

	/* No memory for the inode, or for the socket. No table of files is involved. */
	if (err == -ENFILE || err == -ENOBUFS)
		return -ENOMEM;
	if (err)
		return err;
	WRITE_ONCE((*res)->sk->sk_sndbuf, INT_MAX);
	/* When the last packet is gone, whoever is woken by that may still look at the socket. */
	sock_set_flag((*res)->sk, SOCK_RCU_FREE);
	return 0;
}

void ferrule_helper_account_watch(struct socket *sock, struct wait_queue_entry *entry,
				  wait_queue_func_t func, void *private)
{
	init_waitqueue_func_entry(entry, func);
	entry->private = private;
	add_wait_queue(&sock->wq.wait, entry);
}

void ferrule_helper_account_unwatch(struct socket *sock, struct wait_queue_entry *entry)
{
	remove_wait_queue(&sock->wq.wait, entry);
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
	/* What goes on with the route from here on, RCU keeps from hurting us. */
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
