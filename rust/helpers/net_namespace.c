// SPDX-License-Identifier: GPL-2.0
/*
 * Network namespaces, for the crate net_ext.
 */

#include <net/netns/generic.h>

#include "net.h"

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
