// SPDX-License-Identifier: GPL-2.0
/* Two sides, and their requests to each other. */
#include "interop.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>

/*
 * How long to wait for an acknowledgement: 0.5 s, or 1.1 s where the guest is
 * slow. rdma_rxe answers from a work queue, to which a program that polls may
 * not leave the processor at once.
 */
#define ACK_TIMEOUT (opt.slow > 1 ? 18 : 17)

const struct end_config rc = { .access = IBV_ACCESS_LOCAL_WRITE | REMOTE };

unsigned long rounds(void)
{
	return opt.rounds ?: 1;
}

/* RXE_VENDOR_ID of rxe_param.h. */
bool is_rxe(const struct side *s)
{
	return s->d.attr.vendor_id == 0xffffff;
}

static void side_make(struct side *s, const char *device,
		      const struct end_config *config, size_t len,
		      size_t misalign)
{
	struct end_config c = *config;

	opt.device = device;
	device_open(&s->d);
	s->channel = ibv_create_comp_channel(s->d.ctx);
	REQUIRE(s->channel);
	c.channel = s->channel;
	c.timeout = c.timeout ?: ACK_TIMEOUT;
	end_make(&s->e, &s->d, &c);
	region_make(&s->r, &s->d, len, misalign,
		    IBV_ACCESS_LOCAL_WRITE | REMOTE);
}

static void side_free(struct side *s)
{
	struct pollfd p = { .fd = s->d.ctx->async_fd, .events = POLLIN };

	/* Each event was expected; there are too many cases to wait for more. */
	REQUIRE_EQ(poll(&p, 1, 0), 0);
	end_free(&s->e);
	REGION_CHECK(&s->r);
	region_free(&s->r);
	REQUIRE_ERRNO(ibv_destroy_comp_channel(s->channel), 0);
	device_close(&s->d);
}

void scene_make(struct scene *s, bool from_peer,
		const struct end_config *config, size_t len)
{
	const char *device = opt.device, *peer = getenv("PEER_DEVICE");
	struct peer from;

	REQUIRE(peer);
	memset(s, 0, sizeof(*s));
	side_make(&s->a, from_peer ? peer : device, config, len, MISALIGN_A);
	side_make(&s->b, from_peer ? device : peer, config, len, MISALIGN_B);
	opt.device = device;
	from = end_address(&s->a.e, &s->a.r);
	s->to = end_address(&s->b.e, &s->b.r);
	end_connect(&s->b.e, &from);
	end_connect(&s->a.e, &s->to);
}

void scene_free(struct scene *s)
{
	side_free(&s->a);
	side_free(&s->b);
}

struct ibv_wc message(struct scene *s, enum ibv_wr_opcode opcode, size_t len,
		      uint32_t carried)
{
	struct ibv_sge sge = sge_of(&s->a.r, 0, len);
	uint64_t id = ++s->seed;
	struct ibv_wc wc;

	fill(s->a.r.data, len, id);
	memset(s->b.r.data, 0, s->b.r.len);
	recv_region(&s->b.e, id, &s->b.r, 0, s->b.r.len);
	send_sges(&s->a.e, id, opcode, IBV_SEND_SIGNALED, &sge, 1, &s->to, 0,
		  carried);
	EXPECT_OK(s->a.e.scq, id);
	wc = EXPECT_OK(s->b.e.rcq, id);
	REQUIRE_EQ(wc.byte_len, len);
	REQUIRE_EQ(wc.qp_num, s->b.e.qp->qp_num);
	VERIFY(s->b.r.data, len, id);
	VERIFY_BYTE(s->b.r.data + len, s->b.r.len - len, 0);
	return wc;
}

void message_with_imm(struct scene *s, enum ibv_wr_opcode opcode, size_t len)
{
	uint32_t imm = 0x80000000 | (uint32_t)len;
	struct ibv_wc wc = message(s, opcode, len, htonl(imm));

	REQUIRE_EQ(wc.opcode, opcode == IBV_WR_SEND_WITH_IMM ?
		   IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM);
	REQUIRE(wc.wc_flags & IBV_WC_WITH_IMM);
	REQUIRE_EQ(ntohl(wc.imm_data), imm);
}

void post_atomic(struct scene *s, uint64_t wr_id, enum ibv_wr_opcode opcode,
		 unsigned int flags, size_t answer, uint64_t offset,
		 uint64_t compare_add, uint64_t swap)
{
	send_atomic(&s->a.e, wr_id, opcode, flags, sge_of(&s->a.r, answer, 8),
		    &s->to, offset, compare_add, swap);
}

void make_bindable(struct region *r, struct scene *s, struct ibv_mw **mw)
{
	region_make(r, &s->b.d, 8192, 7,
		    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	*mw = ibv_alloc_mw(s->b.d.pd, IBV_MW_TYPE_2);
	REQUIRE(*mw);
}

uint32_t bind_window(struct scene *s, struct ibv_mw *mw, struct region *r,
		     size_t offset, size_t len)
{
	struct ibv_mw_bind_info info = {
		.mr = r->mr,
		.addr = (uintptr_t)r->data + offset,
		.length = len,
		.mw_access_flags = REMOTE,
	};
	uint32_t key = ibv_inc_rkey(mw->rkey);

	send_bind(&s->b.e, ++s->seed, mw, key, info);
	REQUIRE_EQ(EXPECT_OK(s->b.e.scq, s->seed).opcode, IBV_WC_BIND_MW);
	/* By the key that it has, rdma_rxe's provider names a window. */
	mw->rkey = key;
	return key;
}

void local_invalidate(struct scene *s, uint32_t key)
{
	send_local_inv(&s->b.e, ++s->seed, key);
	REQUIRE_EQ(EXPECT_OK(s->b.e.scq, s->seed).opcode, IBV_WC_LOCAL_INV);
}
