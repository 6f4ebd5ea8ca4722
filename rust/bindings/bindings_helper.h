/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The C that `bindings_ext` shows to Rust and the kernel's own bindings do not
 * have. Sorted.
 */

#include <linux/crc32.h>
#include <linux/etherdevice.h>
#include <linux/hrtimer.h>
#include <linux/if_vlan.h>
#include <linux/inetdevice.h>
#include <linux/irq_poll.h>
#include <linux/kthread.h>
#include <linux/netdevice.h>
#include <linux/random.h>
#include <linux/rtnetlink.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <linux/skbuff.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>
#include <net/dst.h>
#include <net/if_inet6.h>
#include <net/ip.h>
#include <net/net_namespace.h>
#include <net/udp_tunnel.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_netlink.h>
#include <rdma/restrack.h>
#include <rdma/uverbs_ioctl.h>

#include "../helpers/helpers.h"
#include "../helpers/net.h"
#include "../helpers/rdma.h"
