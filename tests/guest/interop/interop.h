/* SPDX-License-Identifier: GPL-2.0 */
/* Two sides that know each other by the wire alone, and the cases. */
#ifndef TESTS_INTEROP_H
#define TESTS_INTEROP_H

#include "../common.h"

#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
		IBV_ACCESS_REMOTE_ATOMIC)

enum { LEN = 1000, LONGEST = 1 << 20 };

/* The two regions differ in how their bytes lie in pages and in words. */
enum { MISALIGN_A = 3, MISALIGN_B = 5, WORD = 8 - MISALIGN_B };

/* scene.c */

struct side {
	struct device d;
	struct end e;
	struct region r;
	struct ibv_comp_channel *channel;
};

struct scene {
	struct side a, b;	/* a asks, b answers */
	struct peer to;		/* b, and its region */
	uint64_t seed;		/* of the latest message, and its wr_id */
};

/*
 * The parameters of a case of reliable connections, unless it says otherwise.
 */
extern const struct end_config rc;

/* For ibv_wr_atomic_write() and ibv_wr_flush(). */
#define PLACEMENT (IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH | \
		   IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE)

/* How often a case repeats what it does. */
unsigned long rounds(void);
bool is_rxe(const struct side *s);
void scene_make(struct scene *s, bool from_peer,
		const struct end_config *config, size_t len);
void scene_free(struct scene *s);

/*
 * A message of this length, for which b has a receive request. It carries
 * immediate data in the order of the wire, or a key, as in ibv_send_wr.
 */
struct ibv_wc message(struct scene *s, enum ibv_wr_opcode opcode, size_t len,
		      uint32_t carried);
/* One whose immediate data depends on its length. */
void message_with_imm(struct scene *s, enum ibv_wr_opcode opcode, size_t len);
/* To a word of b; the answer comes to a byte of a. */
void post_atomic(struct scene *s, uint64_t wr_id, enum ibv_wr_opcode opcode,
		 unsigned int flags, size_t answer, uint64_t offset,
		 uint64_t compare_add, uint64_t swap);

/* A region of b that gives peers nothing by itself, and a window of type 2. */
void make_bindable(struct region *r, struct scene *s, struct ibv_mw **mw);
/* b opens a part of it to a; returns the key. */
uint32_t bind_window(struct scene *s, struct ibv_mw *mw, struct region *r,
		     size_t offset, size_t len);
void local_invalidate(struct scene *s, uint32_t key);

/* reliable.c, memory.c, errors.c, unreliable.c: the way is from PEER_DEVICE, or to it. */

void sizes(bool from_peer);
void immediate(bool from_peer);
void inline_data(bool from_peer);
void lists(bool from_peer);
void unsignalled(bool from_peer);
void solicited(bool from_peer);
void compare_and_swap(bool from_peer);
void fetch_and_add(bool from_peer);
void atomic_write(bool from_peer);
void flush(bool from_peer);
void pipelined(bool from_peer);
void invalidate(bool from_peer);
void remote_access(bool from_peer);
void remote_invalid_request(bool from_peer);
void too_long(bool from_peer);
void refused_window(bool from_peer);
void refused_invalidation(bool from_peer);
void rnr_exhausted(bool from_peer);
void rnr_waits(bool from_peer);
void nobody_answers(bool from_peer);
void shared_queue(bool from_peer);
void on_demand(bool from_peer);
void uc_sizes(bool from_peer);
void uc_losses(bool from_peer);
void datagrams(bool from_peer);

#endif /* TESTS_INTEROP_H */
