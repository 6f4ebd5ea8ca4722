/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The answers of the command channel: the RDMA core's part, followed by the
 * driver's; and the requests that carry something of the driver's.
 */
#ifndef FERRULE_PROVIDER_ABI_H
#define FERRULE_PROVIDER_ABI_H

#include <config.h>

#include <assert.h>
#include <stddef.h>

#include <infiniband/kern-abi.h>
#include <rdma/ferrule-abi.h>

/*
 * An argument of ibv_cmd_*() behind another, by the version of rdma-core that
 * has added it. Of these versions, 54 alone kept the number of the interface
 * (CMakeLists.txt tells it).
 */
#ifdef BEFORE_54
#define AND_54(_arg)
#else
#define AND_54(_arg) , _arg
#endif
#if IBVERBS_PABI_VERSION >= 57
#define AND_57(_arg) , _arg
#else
#define AND_57(_arg)
#endif
#if IBVERBS_PABI_VERSION >= 59
#define AND_59(_arg) , _arg
#else
#define AND_59(_arg)
#endif
#if IBVERBS_PABI_VERSION >= 64
#define AND_64(_arg) , _arg
#else
#define AND_64(_arg)
#endif

/*
 * A program in a confidential guest lets buffers be shared memory, for a device
 * that can use no other (IBV_DEVICE_CC_DMA_BOUNCE). Ferrule uses any.
 */
#if IBVERBS_PABI_VERSION >= 64
#define PD_CC_SHARED IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC
#else
#define PD_CC_SHARED 0
#endif

/* The two parts touch: the kernel fills each through a pointer of its own. */
#define FERRULE_RESP(_name, _core, _drv)                                       \
	struct _name {                                                         \
		struct _core core;                                             \
		struct _drv drv;                                               \
	};                                                                     \
	static_assert(offsetof(struct _name, drv) == sizeof(struct _core),     \
		      "padding inside " #_name);                               \
	static_assert(sizeof(struct _name) ==                                  \
			      sizeof(struct _core) + sizeof(struct _drv),      \
		      "padding behind " #_name)

FERRULE_RESP(alloc_ucontext_resp, ib_uverbs_get_context_resp,
	     ferrule_alloc_ucontext_resp);
FERRULE_RESP(create_cq_resp, ib_uverbs_ex_create_cq_resp,
	     ferrule_create_cq_resp);
FERRULE_RESP(resize_cq_resp, ib_uverbs_resize_cq_resp, ferrule_resize_cq_resp);
struct create_cq_cmd {
	struct ibv_create_cq_ex core;
	struct ferrule_create_cmd drv;
};
static_assert(sizeof(struct create_cq_cmd) ==
		      sizeof(struct ibv_create_cq_ex) +
			      sizeof(struct ferrule_create_cmd),
	      "padding in create_cq_cmd");
struct create_qp_cmd {
	struct ibv_create_qp_ex core;
	struct ferrule_create_cmd drv;
};
static_assert(sizeof(struct create_qp_cmd) ==
		      sizeof(struct ibv_create_qp_ex) +
			      sizeof(struct ferrule_create_cmd),
	      "padding in create_qp_cmd");
FERRULE_RESP(create_qp_resp, ib_uverbs_ex_create_qp_resp,
	     ferrule_create_qp_resp);
struct create_srq_cmd {
	struct ibv_create_srq core;
	struct ferrule_create_cmd drv;
};
static_assert(sizeof(struct create_srq_cmd) ==
		      sizeof(struct ibv_create_srq) +
			      sizeof(struct ferrule_create_cmd),
	      "padding in create_srq_cmd");
FERRULE_RESP(create_srq_resp, ib_uverbs_create_srq_resp,
	     ferrule_create_srq_resp);
struct modify_srq_cmd {
	struct ibv_modify_srq core;
	struct ferrule_modify_srq_cmd drv;
};
static_assert(sizeof(struct modify_srq_cmd) ==
		      sizeof(struct ibv_modify_srq) +
			      sizeof(struct ferrule_modify_srq_cmd),
	      "padding in modify_srq_cmd");
FERRULE_RESP(create_ah_resp, ib_uverbs_create_ah_resp, ferrule_create_ah_resp);

/* The layouts of mapped memory, as the engine has them. */
static_assert(sizeof(struct ferrule_sge) == 16, "ferrule_sge");
static_assert(sizeof(struct ferrule_send_wqe) == 48, "ferrule_send_wqe");
static_assert(offsetof(struct ferrule_send_wqe, inline_len) == 12,
	      "ferrule_send_wqe");
static_assert(offsetof(struct ferrule_send_wqe, imm_or_inv) == 28,
	      "ferrule_send_wqe");
static_assert(offsetof(struct ferrule_send_wqe, ud) == 32, "ferrule_send_wqe");
static_assert(sizeof(struct ferrule_recv_wqe) == 16, "ferrule_recv_wqe");
static_assert(sizeof(struct ferrule_cqe) == 64, "ferrule_cqe");
static_assert(offsetof(struct ferrule_cqe, queue_index) == 28, "ferrule_cqe");
static_assert(offsetof(struct ferrule_cqe, timestamp) == 40, "ferrule_cqe");
static_assert(offsetof(struct ferrule_cqe, phase) == 60, "ferrule_cqe");
static_assert(sizeof(struct ferrule_qp_ctrl) == 128, "ferrule_qp_ctrl");
static_assert(offsetof(struct ferrule_qp_ctrl, rq_producer) == 64,
	      "ferrule_qp_ctrl");
static_assert(offsetof(struct ferrule_qp_ctrl, rq_doorbell) == 68,
	      "ferrule_qp_ctrl");
static_assert(sizeof(struct ferrule_srq_ctrl) == 128, "ferrule_srq_ctrl");
static_assert(offsetof(struct ferrule_srq_ctrl, consumer) == 64,
	      "ferrule_srq_ctrl");
static_assert(sizeof(struct ferrule_cq_ctrl) == 128, "ferrule_cq_ctrl");
static_assert(offsetof(struct ferrule_cq_ctrl, arm) == 64, "ferrule_cq_ctrl");
static_assert(offsetof(struct ferrule_db, top) == 64, "ferrule_db");
static_assert(sizeof(struct ferrule_db) <= FERRULE_DB_LEAF_OFFSET,
	      "ferrule_db");
static_assert(offsetof(struct ferrule_status, top) == 64, "ferrule_status");
static_assert(sizeof(struct ferrule_status) <= FERRULE_DB_LEAF_OFFSET,
	      "ferrule_status");

#endif
