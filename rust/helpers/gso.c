// SPDX-License-Identifier: GPL-2.0
/*
 * Whether packets may leave in lists, for the crate net_ext.
 */

#include <linux/netfilter.h>
#include <linux/netfilter_ipv4.h>

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

/* Whether a filter or the like may read or change each packet on its way out. */
static bool are_filtered(const struct net_device *dev, bool ipv6)
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
	/* Packets by the member of a VRF pass the VRF's device first, with its filters. */
	if (netif_is_l3_slave(dev))
		return true;
	/* The default queueing discipline has no handle. */
	return rcu_dereference(dev->qdisc)->handle;
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
 */
bool ferrule_helper_dst_cuts_lists(const struct dst_entry *dst, bool ipv6)
{
	const struct net_device *dev;
	bool cuts;

	rcu_read_lock();
	dev = dst_dev_rcu(dst);
	cuts = !(dev->features & NETIF_F_GSO_FRAGLIST) && !dst_xfrm(dst) && !dst->lwtstate &&
	       !are_filtered(dev, ipv6);
	rcu_read_unlock();
	return cuts;
}
