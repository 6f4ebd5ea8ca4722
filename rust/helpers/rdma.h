/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C inlines and macros that the crate rdma needs, as functions.
 */
#ifndef FERRULE_HELPERS_RDMA_H
#define FERRULE_HELPERS_RDMA_H

#include <linux/netdevice.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

struct ib_ucontext *ferrule_helper_rdma_udata_to_ucontext(struct ib_udata *udata);
int ferrule_helper_ib_is_udata_in_empty(struct ib_udata *udata);
int ferrule_helper_ib_respond_empty_udata(struct ib_udata *udata);
int ferrule_helper_ib_no_udata_io(struct ib_udata *udata);
int ferrule_helper__uverbs_copy_from(void *to, const struct uverbs_attr_bundle *attrs_bundle,
				     size_t idx, size_t size);
bool ferrule_helper_ib_device_try_get(struct ib_device *dev);
enum ib_port_state ferrule_helper_ib_get_curr_port_state(struct net_device *dev);
enum ib_mtu ferrule_helper_iboe_get_mtu(int mtu);
enum rdma_network_type
ferrule_helper_rdma_gid_attr_network_type(const struct ib_gid_attr *attr);
bool ferrule_helper_netdev_knows_speed(struct net_device *dev);
bool ferrule_helper_ib_device_name_in_net(struct net *net, u32 driver_id, char *name);
struct mutex *ferrule_helper_new_link_mutex(void);
unsigned long ferrule_helper_kernel_addresses_start(void);

#endif /* FERRULE_HELPERS_RDMA_H */
