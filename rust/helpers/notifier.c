// SPDX-License-Identifier: GPL-2.0
/*
 * Notifiers of network devices and addresses, for the crate net_ext.
 */

#include <net/addrconf.h>

#include "net.h"

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
