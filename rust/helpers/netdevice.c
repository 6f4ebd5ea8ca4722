// SPDX-License-Identifier: GPL-2.0
/*
 * Network devices, for the crate net_ext.
 */

#include <linux/if_vlan.h>
#include <linux/igmp.h>
#include <net/addrconf.h>
#include <net/ipv6.h>

#include "net.h"

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

/* A device that has the address, or, if it is given, `dev` if it has. RCU is read-locked. */
struct net_device *ferrule_helper_ipv6_dev_find_rcu(struct net *net, const void *addr,
						    struct net_device *dev)
{
#if IS_ENABLED(CONFIG_IPV6)
	struct in6_addr copy;

	memcpy(&copy, addr, sizeof(copy));
	return ipv6_dev_find(net, &copy, dev);
#else
	return NULL;
#endif
}

/*
 * An Ethernet device with the address: of several one that belongs to a bus,
 * else any that is no VLAN. RCU is read-locked.
 */
struct net_device *ferrule_helper_netdev_by_address_rcu(struct net *net, const u8 *address)
{
	struct net_device *found = NULL;
	struct net_device *dev;

	for_each_netdev_rcu(net, dev) {
		if (dev->type != ARPHRD_ETHER || memcmp(dev->dev_addr, address, ETH_ALEN))
			continue;
		if (dev->dev.parent)
			return dev;
		if (!found && !is_vlan_dev(dev))
			found = dev;
	}
	return found;
}

bool ferrule_helper_is_vlan_dev(const struct net_device *dev)
{
	return is_vlan_dev(dev);
}

u16 ferrule_helper_vlan_dev_vlan_id(const struct net_device *dev)
{
	return vlan_dev_vlan_id(dev);
}

struct net_device *ferrule_helper_vlan_dev_real_dev(const struct net_device *dev)
{
	return vlan_dev_real_dev(dev);
}

static int first_vlan(struct net_device *lower, struct netdev_nested_priv *priv)
{
	if (is_vlan_dev(lower))
		*(u16 *)priv->data = vlan_dev_vlan_id(lower) + 1;
	return 1;
}

/*
 * The identifier of the VLAN that packets to addresses of the device are in,
 * plus 1; 0 without. The RDMA core has the same with an address
 * (rdma_read_gid_l2_fields()): of a device that is stacked on others, the first
 * of those counts. RCU is read-locked.
 */
u16 ferrule_helper_netdev_vlan_rcu(struct net_device *dev)
{
	u16 vlan = 0;
	struct netdev_nested_priv priv = { .data = &vlan };

	if (is_vlan_dev(dev))
		return vlan_dev_vlan_id(dev) + 1;
	netdev_walk_all_lower_dev_rcu(dev, first_vlan, &priv);
	return vlan;
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
