// SPDX-License-Identifier: GPL-2.0
/*
 * Sockets, for the crate net_ext.
 */

#include <linux/in.h>

#include "net.h"

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

int ferrule_helper_udp_sock_create(struct net *net, struct udp_port_cfg *cfg,
				   struct socket **sockp)
{
	return udp_sock_create(net, cfg, sockp);
}

struct net *ferrule_helper_sock_net(const struct sock *sk)
{
	return sock_net(sk);
}

void *ferrule_helper_rcu_dereference_sk_user_data(const struct sock *sk)
{
	return rcu_dereference_sk_user_data(sk);
}

/*
 * Takes the user data away, and waits until no receiver has it any more. From then
 * on nobody sends from the socket in answer to what it receives.
 */
void ferrule_helper_udp_sock_stop(struct sock *sk)
{
	rcu_assign_sk_user_data(sk, NULL);
	synchronize_rcu();
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
 * A socket that packets are charged to, without a port. Its waiters are woken
 * for each packet that is gone, since it may always be written to: the limits
 * are the owner's.
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
	/* A waiter that the last packet wakes may still use the socket. */
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
