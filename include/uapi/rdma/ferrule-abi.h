/* SPDX-License-Identifier: ((GPL-2.0 WITH Linux-syscall-note) OR BSD-2-Clause) */
/*
 * The ferrule ABI: what user space and the kernel module share.
 *
 * Rules of this file
 *
 *  - Every word that lives in mapped memory is little-endian and of fixed
 *    size. Those of the command channel are in host order, as uverbs has them.
 *  - A reserved field must be zero. The kernel and the engine refuse requests
 *    with another value; nobody looks at those of answers and of control words.
 *  - FERRULE_ABI_VERSION changes only when an older provider can no longer
 *    work. Until then a structure of the command channel may grow at its
 *    end, a reserved field may get a meaning in which zero means the same as
 *    before, and a new opcode, flag or status may take an unused value. Ring
 *    entries never change their size or move a field.
 *
 * How the data channel works
 *
 *  Each queue pair has one buffer, mapped readable and writable: the slots of
 *  the send queue, the slots of the receive queue and struct ferrule_qp_ctrl.
 *  Each shared receive queue has one likewise: its slots and struct
 *  ferrule_srq_ctrl.
 *  Each completion queue has its slots, mapped read-only, and a page with
 *  struct ferrule_cq_ctrl. Each user context has a doorbell area, which it
 *  writes, and a status area of the same layout, which the engine writes and
 *  the context can only read.
 *
 *  All indices are free-running 32-bit counters; the slot of index i is
 *  i modulo the queue's depth, which is a power of two.
 *
 *  To post a send request: fill the slot, store the producer index with
 *  release semantics, then ring the doorbell (below). To post a receive
 *  request: fill the slot, store the producer index, and after a full fence
 *  ring the doorbell only if ferrule_qp_ctrl.rq_doorbell is not 0; otherwise
 *  the engine reads the index when a message arrives. A shared receive queue
 *  has no doorbell: to post there, fill the slot and store the producer index.
 *  Several queue pairs take from it and complete in any order, so completions
 *  do not tell which of its slots are free; ferrule_srq_ctrl.consumer does.
 *
 *  To ring doorbell d, where d = qp_num & FERRULE_DB_INDEX_MASK, two bits are
 *  toggled at most, and rung is replaced: its count goes up by one, its doorbell
 *  is d, and its run tells how many rings in a row were of d, with this one.
 *
 *      if (leaf[d / 64] and ack.leaf[d / 64] agree in bit d % 64) {
 *              toggle that bit of leaf, with release semantics
 *              full fence
 *              if (top[d / 4096] and its ack agree in bit d / 64 % 64)
 *                      toggle that bit of top
 *      }
 *      replace rung with release semantics
 *      full fence
 *      if (nothing was toggled, and the leaf's bits agree by now)
 *              begin anew
 *      if (status.sleeping, loaded with acquire semantics)
 *              invoke FERRULE_METHOD_KICK
 *      else if (status.deferred)
 *              invoke it when the program waits, or has posted much
 *
 *  A program that posts requests far ahead of its polls sets backlog first,
 *  and the engine may set deferred. To wait is to poll in vain, or to arm.
 *
 *  The engine stores the count in taken. If it has missed no more rings than the
 *  run, it fences, and goes to this queue pair; bits stay rung. Otherwise it
 *  looks for bits: it acknowledges one, fences, and reads what lies below. So if
 *  a bit still differs after the fence, it will see what was stored before; and
 *  nobody need ring d if after a fence the leaf's bits differ, rung is of d, and
 *  taken is behind its count. Threads toggle bits under a lock, rung by one step.
 *
 *  In state RESET both producer indices are 0, and the engine reads neither
 *  before the queue pair is in INIT. When the move to RESET has been answered,
 *  no completion of the queue pair's earlier life is written any more.
 *
 *  A completion is valid when its phase bit equals the phase of the lap: 1 in
 *  the first lap over the ring, 0 in the second, and so on; the phase of
 *  index i is !((i / depth) & 1). The phase word is written last.
 *
 *  Resizing a completion queue gives it another ring, of the least depth for what
 *  was asked for, from the completion with the index base on. The slot of index i
 *  is (i - base) modulo depth there, and its phase !(((i - base) / depth) & 1).
 *  Completions before base are in the former ring. The control words stay.
 *
 *  Resizing a shared receive queue gives it another buffer, in which the
 *  driver has put the requests that wait, at the slots of their indices, and
 *  the producer index. Nobody posts meanwhile; afterwards the engine looks at
 *  the other buffer alone.
 */
#ifndef FERRULE_ABI_H
#define FERRULE_ABI_H

#include <linux/types.h>

/* A private value far above enum rdma_driver_id: "FERR" read as a number. */
#define FERRULE_DRIVER_ID	0x46455252
#define FERRULE_ABI_VERSION	2

/* Limits that the layouts below fix. */
#define FERRULE_MAX_SGE			32
#define FERRULE_MAX_INLINE		464	/* a slot of 512 less the header */
#define FERRULE_MAX_QP_DEPTH		32768	/* of shared receive queues, too */
#define FERRULE_MAX_CQ_DEPTH		(1 << 20)
#define FERRULE_MAX_QP			65536
#define FERRULE_DB_INDEX_MASK		(FERRULE_MAX_QP - 1)

/*
 * Work requests
 */

enum ferrule_wr_opcode {
	FERRULE_WR_SEND			= 0,
	FERRULE_WR_SEND_WITH_IMM	= 1,
	FERRULE_WR_RDMA_WRITE		= 2,
	FERRULE_WR_RDMA_WRITE_WITH_IMM	= 3,
	FERRULE_WR_RDMA_READ		= 4,
	FERRULE_WR_ATOMIC_CMP_AND_SWP	= 5,
	FERRULE_WR_ATOMIC_FETCH_AND_ADD	= 6,
	FERRULE_WR_SEND_WITH_INV	= 7,
	FERRULE_WR_LOCAL_INV		= 8,
	FERRULE_WR_BIND_MW		= 9,
	FERRULE_WR_FLUSH		= 10,
	FERRULE_WR_ATOMIC_WRITE		= 11,
};

enum ferrule_wr_flags {
	FERRULE_WR_SIGNALED	= 1 << 0,
	FERRULE_WR_SOLICITED	= 1 << 1,
	FERRULE_WR_FENCE	= 1 << 2,
	FERRULE_WR_INLINE	= 1 << 3,
};

/* A FLUSH ensures one of these, or both. */
enum ferrule_flush_placement {
	FERRULE_FLUSH_GLOBAL		= 1 << 0,	/* all can see it */
	FERRULE_FLUSH_PERSISTENT	= 1 << 1,	/* it outlives power */
};	/* the values of enum ibv_placement_type */

enum ferrule_flush_level {
	FERRULE_FLUSH_RANGE	= 0,
	FERRULE_FLUSH_REGION	= 1,	/* all that the key opens */
};	/* the values of enum ibv_selectivity_level */

struct ferrule_sge {
	__le64	addr;
	__le32	length;		/* bytes; 0 means 0 */
	__le32	lkey;
};

/*
 * A slot of the send queue: this header, then num_sge scatter/gather entries,
 * or inline_len bytes if FERRULE_WR_INLINE is set (then num_sge is 0). The
 * slot size is a power of two of at least 64 bytes; one entry, or 16 inline
 * bytes, fit the smallest.
 */
struct ferrule_send_wqe {
	__le64	wr_id;
	__u8	opcode;		/* enum ferrule_wr_opcode */
	__u8	flags;		/* enum ferrule_wr_flags */
	__le16	num_sge;
	__le32	inline_len;	/* bytes */
	__le64	remote_addr;	/* RDMA, atomic, FLUSH; BIND_MW: the window's first byte */
	__le32	rkey;		/* RDMA, atomic, FLUSH; BIND_MW: lower 8 bits of the new key */
	/*
	 * Immediate data, byte for byte as the application gave it (it is
	 * big-endian on the wire), or the key to invalidate, little-endian.
	 * BIND_MW: the local key of the region, likewise. Atomic over XRC: the
	 * peer's shared receive queue, likewise.
	 */
	__u8	imm_or_inv[4];
	union {
		struct {
			__le64	compare_add;
			__le64	swap;
		} atomic;
		struct {
			__le32	ah;		/* ferrule_create_ah_resp.ah */
			__le32	remote_qpn;
			__le32	remote_qkey;
			__le32	reserved;
		} ud;
		struct {
			__le32	mw_rkey;	/* the window's key until now */
			__le32	access;		/* enum ib_access_flags */
			__le64	length;		/* bytes; 0: unbinds, type 1 */
		} bind;
		struct {
			__u8	value[8];	/* byte for byte as in memory */
			__u8	reserved[8];
		} atomic_write;			/* no list, and no inline data */
		struct {
			__le32	length;		/* bytes, of a range */
			__u8	placement;	/* enum ferrule_flush_placement */
			__u8	level;		/* enum ferrule_flush_level */
			__u8	reserved[10];
		} flush;			/* no list, and no inline data */
		struct {
			__le32	remote_srq;	/* its number, 24 bits */
			__u8	reserved[12];
		} xrc;				/* SEND, RDMA over XRC */
		__u8	zero[16];	/* the other opcodes: must be zero */
	};
};

/* A slot of a receive queue: this header, then num_sge entries. */
struct ferrule_recv_wqe {
	__le64	wr_id;
	__le16	num_sge;
	__u8	reserved[6];
};

/*
 * Completions
 */

enum ferrule_wc_status {
	FERRULE_WC_SUCCESS		= 0,
	FERRULE_WC_LOC_LEN_ERR		= 1,
	FERRULE_WC_LOC_QP_OP_ERR	= 2,
	FERRULE_WC_LOC_PROT_ERR		= 4,
	FERRULE_WC_WR_FLUSH_ERR		= 5,
	FERRULE_WC_MW_BIND_ERR		= 6,
	FERRULE_WC_BAD_RESP_ERR		= 7,
	FERRULE_WC_LOC_ACCESS_ERR	= 8,
	FERRULE_WC_REM_INV_REQ_ERR	= 9,
	FERRULE_WC_REM_ACCESS_ERR	= 10,
	FERRULE_WC_REM_OP_ERR		= 11,
	FERRULE_WC_RETRY_EXC_ERR	= 12,
	FERRULE_WC_RNR_RETRY_EXC_ERR	= 13,
	FERRULE_WC_REM_ABORT_ERR	= 16,
	FERRULE_WC_FATAL_ERR		= 19,
	FERRULE_WC_GENERAL_ERR		= 21,
};	/* the values of enum ibv_wc_status */

enum ferrule_wc_opcode {
	FERRULE_WC_SEND			= 0,
	FERRULE_WC_RDMA_WRITE		= 1,
	FERRULE_WC_RDMA_READ		= 2,
	FERRULE_WC_COMP_SWAP		= 3,
	FERRULE_WC_FETCH_ADD		= 4,
	FERRULE_WC_BIND_MW		= 5,
	FERRULE_WC_LOCAL_INV		= 6,
	FERRULE_WC_FLUSH		= 8,
	FERRULE_WC_ATOMIC_WRITE		= 9,
	FERRULE_WC_RECV			= 128,
	FERRULE_WC_RECV_RDMA_WITH_IMM	= 129,
};	/* the values of enum ibv_wc_opcode */

enum ferrule_wc_flags {
	FERRULE_WC_GRH		= 1 << 0,
	FERRULE_WC_WITH_IMM	= 1 << 1,
	FERRULE_WC_WITH_INV	= 1 << 3,
};	/* the values of enum ibv_wc_flags */

#define FERRULE_CQE_PHASE	(1U << 0)

struct ferrule_cqe {
	__le64	wr_id;
	__le32	qp_num;
	__le32	qp_gen;		/* ferrule_create_qp_resp.qp_gen */
	__le32	byte_len;
	__u8	imm_or_inv[4];	/* as in struct ferrule_send_wqe */
	__le32	src_qp;
	/*
	 * For the send queue: all slots before this index are free again. For
	 * the receive queue (not for a shared one): likewise there. With is_xrc:
	 * the number of the shared receive queue. Then the queue pair, a target,
	 * may be another program's.
	 */
	__le32	queue_index;
	__u8	status;		/* enum ferrule_wc_status */
	__u8	opcode;		/* enum ferrule_wc_opcode */
	__u8	flags;		/* enum ferrule_wc_flags */
	__u8	sl;
	__le16	pkey_index;
	__le16	vendor_err;
	__le64	timestamp;	/* nanoseconds: FERRULE_METHOD_QUERY_CLOCK */
	__u8	ip_version;	/* of the header with FERRULE_WC_GRH: 4 or 6 */
	__u8	is_xrc;		/* not 0: of an XRC shared receive queue */
	__le16	vlan;		/* of a datagram: its VLAN's identifier plus 1, or 0 */
	__u8	reserved[8];
	__le32	phase;		/* FERRULE_CQE_PHASE; written last */
};

/*
 * Words beside the rings
 */

/*
 * Writable by user space; each index has a cache line of its own. The engine
 * stores rq_doorbell and never reads it: not 0 says that receive requests need
 * the doorbell, too, for the queue pair is in error and they are to be flushed.
 */
struct ferrule_qp_ctrl {
	__le32	sq_producer;
	__u8	reserved0[60];
	__le32	rq_producer;
	__le32	rq_doorbell;
	__u8	reserved1[56];
};

/*
 * The words of a shared receive queue. The engine stores consumer and never
 * reads it: all slots before this index have been copied and are free again.
 */
struct ferrule_srq_ctrl {
	__le32	producer;
	__u8	reserved0[60];
	__le32	consumer;
	__u8	reserved1[60];
};

/*
 * The arm word: a sequence number in the bits above FERRULE_CQ_ARM_SN_SHIFT
 * and a command below. The queue is armed while the sequence number differs
 * from that of the last event that the engine raised, which begins as 0. User
 * space raises the number when it has taken an event, so that arming again
 * before that can be seen to be stale, and at most one event is underway. It
 * also raises it when it arms again and no event waits for it: Linux drops an
 * event for which it has no memory.
 */
#define FERRULE_CQ_ARM_SOLICITED	(1U << 0)	/* else: any completion */
#define FERRULE_CQ_ARM_SN_SHIFT		1

struct ferrule_cq_ctrl {
	__le32	consumer;
	__u8	reserved0[60];
	__le32	arm;
	__u8	reserved1[60];
};

#define FERRULE_DB_TOP_WORDS	(FERRULE_MAX_QP / 64 / 64)	/* 16 */
#define FERRULE_DB_LEAF_WORDS	(FERRULE_MAX_QP / 64)		/* 1024 */
#define FERRULE_DB_LEAF_OFFSET	4096	/* of leaf[], in either area */

/*
 * ferrule_db.rung has the run in its lower 16 bits (0: any may be rung; 65535:
 * as many or more), then the doorbell in 16 bits, and the count in 32.
 */
#define FERRULE_RUNG_DB_SHIFT	16
#define FERRULE_RUNG_COUNT_SHIFT	32

/* The doorbell area, written by user space; leaf[] is at FERRULE_DB_LEAF_OFFSET. */
struct ferrule_db {
	__le64	rung;
	__le32	backlog;	/* not 0: many posted, not polled */
	__u8	reserved[52];
	__le64	top[FERRULE_DB_TOP_WORDS];
};

/*
 * Any value but 0 says that the device is gone: posting is EIO. With
 * FERRULE_DEAD the engine has ended all work with flush errors. With
 * FERRULE_DEAD_UNFLUSHED it went without that, and writes no completions any
 * more: the provider takes those that are there, and then makes a flush error
 * for each request in the rings of a queue pair that none of them retires.
 */
enum ferrule_dead {
	FERRULE_DEAD		= 1,
	FERRULE_DEAD_UNFLUSHED	= 2,
};

/* The status area, written by the engine; the acknowledged leaf[] likewise. */
struct ferrule_status {
	__le32	sleeping;	/* not 0: kick after ringing */
	__le32	dead;		/* enum ferrule_dead */
	__le32	deferred;	/* not 0: kick when waiting */
	__u8	reserved[52];
	__le64	top[FERRULE_DB_TOP_WORDS];
	__le32	taken;		/* the count in rung at the last look */
	__u8	reserved1[60];
};

#define FERRULE_DB_AREA_SIZE	(FERRULE_DB_LEAF_OFFSET + FERRULE_DB_LEAF_WORDS * 8)

/*
 * Command channel
 */

struct ferrule_alloc_ucontext_resp {
	__aligned_u64	db_offset;	/* for mmap; FERRULE_DB_AREA_SIZE bytes, read/write */
	__aligned_u64	status_offset;	/* for mmap; FERRULE_DB_AREA_SIZE bytes, read-only */
	__u32	max_inline;		/* bytes */
	__u32	number;			/* of the doorbells; 0: those of the open file */
};

struct ferrule_create_cq_resp {
	__aligned_u64	ring_offset;	/* for mmap, read-only */
	__aligned_u64	ctrl_offset;	/* for mmap, read/write: struct ferrule_cq_ctrl */
	__u32	ring_size;		/* bytes to map */
	__u32	ctrl_size;		/* bytes to map */
	__u32	depth;			/* slots; a power of two */
	__u32	cqn;
};

struct ferrule_resize_cq_resp {
	__aligned_u64	ring_offset;	/* for mmap, read-only */
	__u32	ring_size;		/* bytes to map */
	__u32	depth;			/* slots; a power of two */
	__u32	base;			/* index of the first completion there */
	__u32	reserved;
};

/* To create a CQ, a QP or an SRQ. It may be left out: then it is all zero. */
struct ferrule_create_cmd {
	__u32	doorbells;		/* the number of those that ring for it */
	__u32	reserved;
};

/* Offsets sq, rq and ctrl are bytes from the start of the mapping. */
struct ferrule_create_qp_resp {
	__aligned_u64	buf_offset;	/* for mmap, read/write */
	__u32	buf_size;		/* bytes to map */
	__u32	sq_offset;
	__u32	sq_depth;		/* slots; a power of two; 0: none */
	__u32	sq_stride;		/* bytes a slot */
	__u32	rq_offset;
	__u32	rq_depth;		/* 0: none, or a shared receive queue */
	__u32	rq_stride;
	__u32	ctrl_offset;		/* struct ferrule_qp_ctrl */
	__u32	qp_gen;
	__u32	reserved;
};

/* Offsets ring and ctrl are bytes from the start of the mapping. */
struct ferrule_create_srq_resp {
	__aligned_u64	buf_offset;	/* for mmap, read/write */
	__u32	buf_size;		/* bytes to map */
	__u32	ring_offset;
	__u32	depth;			/* slots; a power of two */
	__u32	stride;			/* bytes a slot; slots as in a receive queue */
	__u32	ctrl_offset;		/* struct ferrule_srq_ctrl */
	__u32	reserved;
};

/*
 * The request with IBV_SRQ_MAX_WR alone. uverbs has no response for this verb:
 * the driver writes it where the program says. Strides stay.
 */
struct ferrule_modify_srq_cmd {
	__aligned_u64	resp;		/* address of struct ferrule_resize_srq_resp */
};

/* Offsets ring and ctrl are bytes from the start of the mapping. */
struct ferrule_resize_srq_resp {
	__aligned_u64	buf_offset;	/* for mmap, read/write */
	__u32	buf_size;		/* bytes to map */
	__u32	ring_offset;
	__u32	depth;			/* slots; a power of two */
	__u32	ctrl_offset;		/* struct ferrule_srq_ctrl */
};

struct ferrule_create_ah_resp {
	__u32	ah;			/* never 0 */
	__u32	reserved;
};

#endif /* FERRULE_ABI_H */
