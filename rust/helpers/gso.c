// SPDX-License-Identifier: GPL-2.0
/*
 * Whether packets may leave in lists, for the crate net_ext.
 */

#include <linux/inetdevice.h>
#include <linux/netfilter.h>
#include <linux/netfilter_ipv4.h>
#include <net/addrconf.h>
#include <net/rtnetlink.h>

/* With the name of our module in front, a message in there is longer than clang likes it to be. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-truncation"
#include <net/sch_generic.h>
#pragma GCC diagnostic pop

#include "net.h"

#ifdef CONFIG_NETFILTER
/*
 * The hooks of security modules are always there. They read packets, and change nothing.
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

/* Whether netfilter has filters at one of two hooks of a device's namespace. */
static bool are_filtered_at(const struct net_device *dev, bool ipv6, unsigned int first,
			    unsigned int second)
{
#ifdef CONFIG_NETFILTER
	const struct netns_nf *nf = &dev_net_rcu(dev)->nf;
	struct nf_hook_entries __rcu * const *hooks = ipv6 ? nf->hooks_ipv6 : nf->hooks_ipv4;

	return are_filters(rcu_dereference(hooks[first])) ||
	       are_filters(rcu_dereference(hooks[second]));
#else
	return false;
#endif
}

/* Whether a filter or the like may read or change each packet on its way out. */
static bool are_filtered_out(const struct net_device *dev, bool ipv6)
{
	if (are_filtered_at(dev, ipv6, NF_INET_LOCAL_OUT, NF_INET_POST_ROUTING))
		return true;
#ifdef CONFIG_NETFILTER_EGRESS
	if (rcu_access_pointer(dev->nf_hooks_egress))
		return true;
#endif
#ifdef CONFIG_NET_XGRESS
	if (rcu_access_pointer(dev->tcx_egress))
		return true;
#endif
	/* Packets by the member of a VRF pass the VRF's device first, with its filters. */
	if (netif_is_l3_slave(dev))
		return true;
	/* The default queueing discipline has no handle. */
	return rcu_dereference(dev->qdisc)->handle;
}

/*
 * Whether a filter or the like may read or change each packet on its way in, or
 * another device takes it, as a bridge does.
 */
static bool are_filtered_in(struct net_device *dev, bool ipv6)
{
	if (are_filtered_at(dev, ipv6, NF_INET_PRE_ROUTING, NF_INET_LOCAL_IN))
		return true;
#ifdef CONFIG_NETFILTER_INGRESS
	if (rcu_access_pointer(dev->nf_hooks_ingress))
		return true;
#endif
#ifdef CONFIG_NET_XGRESS
	if (rcu_access_pointer(dev->tcx_ingress))
		return true;
#endif
	return rcu_access_pointer(dev->rx_handler) || netif_is_l3_slave(dev) ||
	       dev_xdp_prog_count(dev);
}

/* Whether packet sockets take packets of a device. */
static bool are_captured(const struct net_device *dev)
{
	return dev_nit_active_rcu(dev) || !list_empty(&dev->ptype_specific) ||
	       !list_empty(&dev_net_rcu(dev)->ptype_specific);
}

/* Whether packets that come by a device may leave by another one. */
static bool are_forwarded(const struct net_device *dev, bool ipv6)
{
	const struct in_device *in_dev;

#if IS_ENABLED(CONFIG_IPV6)
	if (ipv6) {
		const struct inet6_dev *idev = __in6_dev_get(dev);

		return !idev || READ_ONCE(idev->cnf.force_forwarding) ||
		       READ_ONCE(dev_net_rcu(dev)->ipv6.devconf_all->forwarding);
	}
#endif
	in_dev = __in_dev_get_rcu(dev);
	return !in_dev || IN_DEV_FORWARD(in_dev);
}

/*
 * Whether a device that takes lists whole hands them straight to the receiver's
 * namespace, where UDP cuts them for the socket. Only a veth does, and only if
 * nothing at either end sees packets before that.
 */
static bool are_cut_by_peer(struct net_device *dev, bool ipv6)
{
	struct net_device *peer;

	/* A netkit has a peer, too, and a program that sees packets on their way there. */
	if (!dev->rtnl_link_ops || strcmp(dev->rtnl_link_ops->kind, "veth"))
		return false;
	peer = dev->netdev_ops->ndo_get_peer_dev(dev);
	return peer && !are_captured(dev) && !are_captured(peer) && !are_filtered_in(peer, ipv6) &&
	       !are_forwarded(peer, ipv6);
}

/*
 * Whether a list of packets may go this way.
 *
 * The network layer, filters and queueing disciplines see one packet, whose
 * headers are those of the first: if they drop it, they drop all, and if they
 * change it, they change the first alone. So where anything is set up that may
 * do either, each packet goes by itself. That includes IPsec and tunnels on the
 * route.
 *
 * The device has to be one that has lists cut before its driver, and captures,
 * get them. Those that take them whole are virtual ones, from which the list may
 * go on to anywhere: through the filters of another namespace, or into a tunnel.
 * Of these only a veth will do, and only if lists are cut behind its peer before
 * anything sees them.
 */
bool ferrule_helper_dst_takes_lists(const struct dst_entry *dst, bool ipv6)
{
	struct net_device *dev;
	bool takes;

	rcu_read_lock();
	dev = dst_dev_rcu(dst);
	takes = !dst_xfrm(dst) && !dst->lwtstate && !are_filtered_out(dev, ipv6) &&
		(!(dev->features & NETIF_F_GSO_FRAGLIST) || are_cut_by_peer(dev, ipv6));
	rcu_read_unlock();
	return takes;
}
