/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C inlines and macros that the crate rdma needs, as functions.
 */
#ifndef FERRULE_HELPERS_RDMA_H
#define FERRULE_HELPERS_RDMA_H

#include <linux/dma-buf.h>
#include <linux/mmu_notifier.h>
#include <linux/netdevice.h>
#include <linux/workqueue.h>
#include <net/netlink.h>
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
void *ferrule_helper_uverbs_attr_get_obj(const struct uverbs_attr_bundle *attrs_bundle, u16 idx);
bool ferrule_helper_ib_device_try_get(struct ib_device *dev);
enum ib_port_state ferrule_helper_ib_get_curr_port_state(struct net_device *dev);
enum ib_mtu ferrule_helper_iboe_get_mtu(int mtu);
void ferrule_helper_bond_port_state(struct ib_device *dev, struct net_device *netdev);
const struct attribute_group *ferrule_helper_device_group(void);
enum rdma_network_type
ferrule_helper_rdma_gid_attr_network_type(const struct ib_gid_attr *attr);
bool ferrule_helper_netdev_knows_speed(struct net_device *dev);
bool ferrule_helper_ib_device_in_init_net(struct ib_device *dev);
bool ferrule_helper_ib_device_name_in_net(struct net *net, u32 driver_id, char *name);
struct nlattr *ferrule_helper_nla_nest_start(struct sk_buff *skb, int attrtype);
void ferrule_helper_nla_nest_end(struct sk_buff *skb, struct nlattr *start);
void ferrule_helper_nla_nest_cancel(struct sk_buff *skb, struct nlattr *start);
struct mutex *ferrule_helper_new_link_mutex(void);
unsigned long ferrule_helper_kernel_addresses_start(void);
bool ferrule_helper_dma_buf_may_write(const struct dma_buf *buf);

/* Not declared in a kernel without control groups of RDMA. */
struct rdma_cgroup;

int ferrule_helper_charge_handle(struct ib_device *dev, struct rdma_cgroup **group);
void ferrule_helper_uncharge_handle(struct ib_device *dev, struct rdma_cgroup *group);

/* Of ferrule_helper_paging_fault(): what pages are brought in for, and a flag of one that was found. */
#define PAGING_NONE 0
#define PAGING_READ 1
#define PAGING_WRITE 2
#define PAGING_WRITABLE 1

/* The work queues of a module, in the order in which they are stopped. */
#define WORKQUEUE_ENDS 0
#define WORKQUEUE_CQ 1
#define WORKQUEUES 2

struct fault_queue;

bool ferrule_helper_workqueues_start(void);
void ferrule_helper_workqueues_stop(void);
struct workqueue_struct *ferrule_helper_workqueue(unsigned int which);
struct fault_queue *ferrule_helper_fault_queue_get(struct mm_struct *mm);
void ferrule_helper_fault_queue_put(struct fault_queue *faults);
struct workqueue_struct *ferrule_helper_fault_queue_workqueue(struct fault_queue *faults);
void ferrule_helper_charge_begin(struct mm_struct *mm);
void ferrule_helper_charge_end(void);
int ferrule_helper_paging_fault(struct mmu_interval_notifier *notifier, unsigned long start,
				unsigned long end, unsigned long from, unsigned long to,
				unsigned int purpose, unsigned long *pages, unsigned long *seq);
bool ferrule_helper_mmu_interval_read_retry(struct mmu_interval_notifier *notifier,
					    unsigned long seq);
void ferrule_helper_mmu_interval_set_seq(struct mmu_interval_notifier *notifier, unsigned long seq);
void ferrule_helper_set_page_dirty(void *addr);

#endif /* FERRULE_HELPERS_RDMA_H */
