// SPDX-License-Identifier: GPL-2.0
/*
 * Helpers for the crate rdma.
 */

#include <linux/cgroup_rdma.h>
#include <linux/ethtool.h>
#include <linux/kasan.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>

#include "rdma.h"

/* NULL before the call has a context. */
struct ib_ucontext *ferrule_helper_rdma_udata_to_ucontext(struct ib_udata *udata)
{
	return rdma_udata_to_uverbs_attr_bundle(udata)->context;
}

int ferrule_helper_ib_is_udata_in_empty(struct ib_udata *udata)
{
	return ib_is_udata_in_empty(udata);
}

int ferrule_helper_ib_respond_empty_udata(struct ib_udata *udata)
{
	return ib_respond_empty_udata(udata);
}

int ferrule_helper_ib_no_udata_io(struct ib_udata *udata)
{
	return ib_no_udata_io(udata);
}

int ferrule_helper__uverbs_copy_from(void *to, const struct uverbs_attr_bundle *attrs_bundle,
				     size_t idx, size_t size)
{
	return _uverbs_copy_from(to, attrs_bundle, idx, size);
}

void *ferrule_helper_uverbs_attr_get_obj(const struct uverbs_attr_bundle *attrs_bundle, u16 idx)
{
	return uverbs_attr_get_obj(attrs_bundle, idx);
}

bool ferrule_helper_ib_device_try_get(struct ib_device *dev)
{
	return ib_device_try_get(dev);
}

/*
 * Charges the calling process's control group of RDMA with a handle of a device,
 * as the core does for each open file. @group gets the group to be uncharged.
 */
int ferrule_helper_charge_handle(struct ib_device *dev, struct rdma_cgroup **group)
{
	int ret = 0;

#ifdef CONFIG_CGROUP_RDMA
	ret = rdmacg_try_charge(group, &dev->cg_device, RDMACG_RESOURCE_HCA_HANDLE);
#endif
	return ret;
}

void ferrule_helper_uncharge_handle(struct ib_device *dev, struct rdma_cgroup *group)
{
#ifdef CONFIG_CGROUP_RDMA
	rdmacg_uncharge(group, &dev->cg_device, RDMACG_RESOURCE_HCA_HANDLE);
#endif
}

enum ib_port_state ferrule_helper_ib_get_curr_port_state(struct net_device *dev)
{
	return ib_get_curr_port_state(dev);
}

enum ib_mtu ferrule_helper_iboe_get_mtu(int mtu)
{
	return iboe_get_mtu(mtu);
}

enum rdma_network_type
ferrule_helper_rdma_gid_attr_network_type(const struct ib_gid_attr *attr)
{
	return rdma_gid_attr_network_type(attr);
}

/*
 * Tells of the state of a port whose network device is a bond or a part of one,
 * if it has changed: the core tells of all others itself.
 */
void ferrule_helper_bond_port_state(struct ib_device *dev, struct net_device *netdev)
{
	if (netif_is_lag_master(netdev) || netif_is_lag_port(netdev))
		ib_dispatch_port_state_event(dev, netdev);
}

/* The name of the port's network device, by the name that rdma_rxe has for it. */
static ssize_t parent_show(struct device *device, struct device_attribute *attr, char *buf)
{
	struct ib_device *dev = container_of(device, struct ib_device, dev);
	struct net_device *netdev = ib_device_get_netdev(dev, 1);
	ssize_t length;

	if (!netdev)
		return -ENODEV;
	length = sysfs_emit(buf, "%s\n", netdev_name(netdev));
	dev_put(netdev);
	return length;
}
static DEVICE_ATTR_RO(parent);

static struct attribute *device_attributes[] = {
	&dev_attr_parent.attr,
	NULL
};
static const struct attribute_group device_group = { .attrs = device_attributes };

const struct attribute_group *ferrule_helper_device_group(void)
{
	return &device_group;
}

/*
 * Whether the device knows its speed: dummy and the like have none, and that of
 * virtio, a bridge or a device without a link may be unknown.
 */
bool ferrule_helper_netdev_knows_speed(struct net_device *dev)
{
	struct ethtool_link_ksettings settings = {};
	bool knows = false;

	rtnl_lock();
	if (dev->reg_state == NETREG_REGISTERED && dev->ethtool_ops &&
	    dev->ethtool_ops->get_link_ksettings &&
	    !__ethtool_get_link_ksettings(dev, &settings))
		knows = settings.base.speed != (u32)SPEED_UNKNOWN;
	rtnl_unlock();

	return knows;
}

bool ferrule_helper_ib_device_in_init_net(struct ib_device *dev)
{
	return net_eq(rdma_dev_net(dev), &init_net);
}

/*
 * Copies the name, of at most IB_DEVICE_NAME_MAX bytes, of a driver's device
 * that is bound to a network device of the namespace, if there is any.
 */
bool ferrule_helper_ib_device_name_in_net(struct net *net, u32 driver_id, char *name)
{
	struct ib_device *dev = NULL;
	struct net_device *netdev;

	rcu_read_lock();
	for_each_netdev_rcu(net, netdev) {
		dev = ib_device_get_by_netdev(netdev, driver_id);
		if (dev) {
			/* Not dev_name(): a new name frees the old one at once. */
			strscpy(name, dev->name, IB_DEVICE_NAME_MAX);
			ib_device_put(dev);
			break;
		}
	}
	rcu_read_unlock();
	return dev;
}

struct nlattr *ferrule_helper_nla_nest_start(struct sk_buff *skb, int attrtype)
{
	return nla_nest_start(skb, attrtype);
}

void ferrule_helper_nla_nest_end(struct sk_buff *skb, struct nlattr *start)
{
	nla_nest_end(skb, start);
}

void ferrule_helper_nla_nest_cancel(struct sk_buff *skb, struct nlattr *start)
{
	nla_nest_cancel(skb, start);
}

/*
 * Held while a device of this module is made. Rust has no mutex that the compiler
 * initialises.
 */
static DEFINE_MUTEX(new_link_mutex);

struct mutex *ferrule_helper_new_link_mutex(void)
{
	return &new_link_mutex;
}

/*
 * All kernel memory is from here to the end. Where KASAN tags pointers in their
 * upper byte (arm64), those with the least tag come first.
 */
unsigned long ferrule_helper_kernel_addresses_start(void)
{
#if defined(CONFIG_KASAN_SW_TAGS) || defined(CONFIG_KASAN_HW_TAGS)
	return (unsigned long)arch_kasan_set_tag((void *)PAGE_OFFSET, KASAN_TAG_MIN);
#else
	return PAGE_OFFSET;
#endif
}
