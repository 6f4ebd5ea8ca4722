/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C inlines and macros that the crate net_ext needs, as functions.
 */
#ifndef FERRULE_HELPERS_NET_H
#define FERRULE_HELPERS_NET_H

#include <linux/inetdevice.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <net/dst.h>
#include <net/if_inet6.h>
#include <net/net_namespace.h>
#include <net/sock.h>
#include <net/udp_tunnel.h>

/* netdevice.c */
u32 ferrule_helper_netdev_mtu(const struct net_device *dev);
int ferrule_helper_netdev_ifindex(const struct net_device *dev);
unsigned short ferrule_helper_netdev_type(const struct net_device *dev);
unsigned char ferrule_helper_netdev_addr_len(const struct net_device *dev);
const unsigned char *ferrule_helper_netdev_dev_addr(const struct net_device *dev);
void ferrule_helper_netdev_copy_name(const struct net_device *dev, char *name, size_t size);
bool ferrule_helper_netif_running(const struct net_device *dev);
void ferrule_helper_dev_hold(struct net_device *dev);
void ferrule_helper_dev_put(struct net_device *dev);
struct net *ferrule_helper_dev_net_rcu(const struct net_device *dev);
bool ferrule_helper_netdev_is_loopback(const struct net_device *dev);
struct net_device *ferrule_helper_ipv6_dev_find_rcu(struct net *net, const void *addr,
						    struct net_device *dev);
struct net_device *ferrule_helper_netdev_by_address_rcu(struct net *net, const u8 *address);
bool ferrule_helper_is_vlan_dev(const struct net_device *dev);
u16 ferrule_helper_vlan_dev_vlan_id(const struct net_device *dev);
struct net_device *ferrule_helper_vlan_dev_real_dev(const struct net_device *dev);
u16 ferrule_helper_netdev_vlan_rcu(struct net_device *dev);
bool ferrule_helper_netdev_has_upper(struct net_device *dev, struct net_device *upper);
bool ferrule_helper_netdev_is_registered(const struct net_device *dev);

int ferrule_helper_netdev_join4(struct net_device *dev, __be32 group);
void ferrule_helper_netdev_leave4(struct net_device *dev, __be32 group);
int ferrule_helper_netdev_join6(struct net_device *dev, const void *group);
void ferrule_helper_netdev_leave6(struct net_device *dev, const void *group);

/* net_namespace.c */
struct net *ferrule_helper_get_net(struct net *net);
struct net *ferrule_helper_maybe_get_net(struct net *net);
void ferrule_helper_put_net(struct net *net);
void *ferrule_helper_net_generic(const struct net *net, unsigned int id);
u64 ferrule_helper_net_cookie(const struct net *net);

/* notifier.c */
struct net_device *ferrule_helper_netdev_notifier_info_to_dev(const void *info);
int ferrule_helper_register_netdevice_notifier(struct notifier_block *nb);
int ferrule_helper_unregister_netdevice_notifier(struct notifier_block *nb);
struct net_device *ferrule_helper_in_ifaddr_dev(const struct in_ifaddr *ifa);
__be32 ferrule_helper_in_ifaddr_local(const struct in_ifaddr *ifa);
struct net_device *ferrule_helper_inet6_ifaddr_dev(const struct inet6_ifaddr *ifa);
const struct in6_addr *ferrule_helper_inet6_ifaddr_addr(const struct inet6_ifaddr *ifa);
int ferrule_helper_register_inet6addr_notifier(struct notifier_block *nb);
int ferrule_helper_unregister_inet6addr_notifier(struct notifier_block *nb);

/* skbuff.c */
void ferrule_helper_skb_queue_head_init(struct sk_buff_head *list);
u32 ferrule_helper_skb_queue_len_lockless(const struct sk_buff_head *list);
struct sk_buff *ferrule_helper_alloc_skb(unsigned int size);
void ferrule_helper_kfree_skb(struct sk_buff *skb);
unsigned int ferrule_helper_skb_headroom(const struct sk_buff *skb);
int ferrule_helper_skb_tailroom(const struct sk_buff *skb);
void ferrule_helper_skb_reserve(struct sk_buff *skb, int len);
struct sk_buff *ferrule_helper_skb_clone(struct sk_buff *skb);
bool ferrule_helper_pskb_may_pull(struct sk_buff *skb, unsigned int len);
int ferrule_helper_pskb_trim(struct sk_buff *skb, unsigned int len);
const void *ferrule_helper_skb_network_header(const struct sk_buff *skb);
u8 ferrule_helper_skb_ip_summed(const struct sk_buff *skb);
bool ferrule_helper_skb_vlan_tag_present(const struct sk_buff *skb);
u16 ferrule_helper_skb_vlan_tag_get(const struct sk_buff *skb);
unsigned int ferrule_helper_skb_contiguous(const struct sk_buff *skb, unsigned int offset,
					   const void **bytes);

void ferrule_helper_skb_list_add(struct sk_buff *head, struct sk_buff *last, struct sk_buff *skb,
				 unsigned int ip_len);
struct net_device *ferrule_helper_skb_dev(const struct sk_buff *skb);
void ferrule_helper_skb_detach(struct sk_buff *skb);

/* route.c */
struct dst_entry *ferrule_helper_route4(struct net *net, __be32 *saddr, __be32 daddr, int oif,
					u8 tos, __be16 sport, __be16 dport);
struct dst_entry *ferrule_helper_route6(struct net *net, struct in6_addr *saddr,
					const struct in6_addr *daddr, int oif, u8 tclass,
					u32 flow_label, __be16 sport, __be16 dport, u32 *cookie);
bool ferrule_helper_dst_is_current(struct dst_entry *dst, u32 cookie);
void ferrule_helper_dst_hold(struct dst_entry *dst);
u32 ferrule_helper_dst_mtu(const struct dst_entry *dst);
struct net_device *ferrule_helper_dst_dev_rcu(const struct dst_entry *dst);
unsigned int ferrule_helper_dst_headroom(const struct dst_entry *dst);
int ferrule_helper_dst_resolve(struct dst_entry *dst, const void *daddr, u8 *address);
int ferrule_helper_ip_xmit(struct sk_buff *skb, struct sock *sk, struct sock *charged,
			   struct dst_entry *dst, u32 cookie, bool ipv6, u32 priority);
void ferrule_helper_local_bh_disable(void);
void ferrule_helper_local_bh_enable(void);

/* backlog.c */
u32 ferrule_helper_backlog_end(unsigned int *cpu);
bool ferrule_helper_backlog_passed(unsigned int cpu, u32 end);
u32 ferrule_helper_backlog_len(void);

/* frame.c */
void ferrule_helper_frames_watch(struct packet_type *type, struct net_device *dev,
				 int (*func)(struct sk_buff *skb, struct net_device *dev,
					     struct packet_type *type,
					     struct net_device *orig_dev),
				 void *private);
void ferrule_helper_frames_watch_leaving(struct packet_type *type, bool wanted);
void ferrule_helper_frames_unwatch(struct packet_type *type);
void *ferrule_helper_frames_private(const struct packet_type *type);
int ferrule_helper_frame_head(const struct sk_buff *skb, void *to, int size);
bool ferrule_helper_frame_leaves(const struct sk_buff *skb);
struct sk_buff *ferrule_helper_frame_cut(struct sk_buff *skb);
struct sk_buff *ferrule_helper_skb_list_pop(struct sk_buff **list);
u32 ferrule_helper_skb_mark(const struct sk_buff *skb);
void ferrule_helper_skb_set_mark(struct sk_buff *skb, u32 mark);
unsigned int ferrule_helper_netdev_headroom(const struct net_device *dev);
int ferrule_helper_frame_xmit(struct sk_buff *skb, struct net_device *dev, struct sock *charged);

/* gso.c */
bool ferrule_helper_dst_takes_lists(const struct dst_entry *dst, bool ipv6);

/* socket.c */
int ferrule_helper_udp_any_port_cfg(struct udp_port_cfg *cfg, bool ipv6, __be16 port);
int ferrule_helper_udp_sock_create(struct net *net, struct udp_port_cfg *cfg,
				   struct socket **sockp);
struct net *ferrule_helper_sock_net(const struct sock *sk);
void *ferrule_helper_rcu_dereference_sk_user_data(const struct sock *sk);
void ferrule_helper_udp_sock_stop(struct sock *sk);
int ferrule_helper_sk_wmem_alloc_get(const struct sock *sk);
void ferrule_helper_sock_hold(struct sock *sk);
void ferrule_helper_sock_put(struct sock *sk);
int ferrule_helper_account_socket(struct net *net, struct socket **res);
void ferrule_helper_account_watch(struct socket *sock, struct wait_queue_entry *entry,
				  wait_queue_func_t func, void *private);
void ferrule_helper_account_unwatch(struct socket *sock, struct wait_queue_entry *entry);

#endif /* FERRULE_HELPERS_NET_H */
