// SPDX-License-Identifier: GPL-2.0
/* Reliable connections: every operation, to the byte. */
#include "interop.h"

#include <arpa/inet.h>
#include <poll.h>

/* A WRITE or a READ, and of what it went to, all. */
static void copy_data(struct scene *s, enum ibv_wr_opcode opcode,
		      enum ibv_wc_opcode completion, size_t len)
{
	struct ibv_sge sge = sge_of(&s->a.r, 0, len);
	bool is_read = opcode == IBV_WR_RDMA_READ;
	struct region *from = is_read ? &s->b.r : &s->a.r;
	struct region *into = is_read ? &s->a.r : &s->b.r;
	uint64_t id = ++s->seed;

	fill(from->data, len, id);
	memset(into->data, 0, into->len);
	send_sges(&s->a.e, id, opcode, IBV_SEND_SIGNALED, &sge, 1, &s->to, 0,
		  0);
	REQUIRE_EQ(EXPECT_OK(s->a.e.scq, id).opcode, completion);
	VERIFY(into->data, len, id);
	VERIFY_BYTE(into->data + len, into->len - len, 0);
}

void sizes(bool from_peer)
{
	static const size_t lengths[] = { 0, 1, 4096, 4097, 70000, LONGEST };
	struct scene s;

	scene_make(&s, from_peer, &rc, LONGEST);
	for (unsigned long round = 0; round < rounds(); round++) {
		for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
			struct ibv_wc wc;

			wc = message(&s, IBV_WR_SEND, lengths[i], 0);
			REQUIRE_EQ(wc.opcode, IBV_WC_RECV);
			REQUIRE(!(wc.wc_flags &
				  (IBV_WC_WITH_IMM | IBV_WC_WITH_INV)));
			copy_data(&s, IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE,
				  lengths[i]);
			copy_data(&s, IBV_WR_RDMA_READ, IBV_WC_RDMA_READ,
				  lengths[i]);
		}
	}
	EXPECT_NO_WC(s.b.e.rcq);
	scene_free(&s);
}

void immediate(bool from_peer)
{
	static const size_t lengths[] = { 0, 1, 4096, 4097, 70000 };
	struct scene s;

	scene_make(&s, from_peer, &rc, 70000);
	for (unsigned long round = 0; round < rounds(); round++) {
		for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
			message_with_imm(&s, IBV_WR_SEND_WITH_IMM, lengths[i]);
			message_with_imm(&s, IBV_WR_RDMA_WRITE_WITH_IMM,
					 lengths[i]);
		}
	}
	scene_free(&s);
}

/*
 * Inline data is taken when it is posted (ibv_post_send(3)): from memory that
 * is not registered, and that may change at once.
 */
void inline_data(bool from_peer)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM,
	};
	enum { MOST = 200 };
	static const size_t lengths[] = { 0, 1, 64, MOST };
	struct end_config config = rc;
	uint8_t memory[MOST];
	struct scene s;

	config.inline_data = MOST;
	config.send_sge = 2;
	scene_make(&s, from_peer, &config, MOST);
	REQUIRE(s.a.e.cap.max_inline_data >= MOST);
	for (size_t i = 0; i < ARRAY_SIZE(lengths) * ARRAY_SIZE(opcodes); i++) {
		size_t len = lengths[i / ARRAY_SIZE(opcodes)], part = len / 3;
		struct ibv_sge sge[] = {
			{ (uintptr_t)memory, part, 77 },
			{ (uintptr_t)memory + part, len - part, 78 },
		};

		fill(memory, len, i);
		memset(s.b.r.data, 0, MOST);
		recv_region(&s.b.e, i, &s.b.r, 0, MOST);
		send_sges(&s.a.e, i, opcodes[i % ARRAY_SIZE(opcodes)],
			  IBV_SEND_INLINE | IBV_SEND_SIGNALED, sge, 2, &s.to,
			  0, htonl(i));
		memset(memory, 0xee, MOST);
		EXPECT_OK(s.a.e.scq, i);
		REQUIRE_EQ(EXPECT_OK(s.b.e.rcq, i).byte_len, len);
		VERIFY(s.b.r.data, len, i);
		VERIFY_BYTE(s.b.r.data + len, MOST - len, 0);

		/* And one that b's program is not told of. */
		fill(memory, len, i + 100);
		send_sges(&s.a.e, i, IBV_WR_RDMA_WRITE,
			  IBV_SEND_INLINE | IBV_SEND_SIGNALED, sge, 2, &s.to,
			  0, 0);
		memset(memory, 0xee, MOST);
		EXPECT_OK(s.a.e.scq, i);
		VERIFY(s.b.r.data, len, i + 100);
	}
	scene_free(&s);
}

/* Four pieces of memory, far from each other, one of which may be of no bytes. */
enum { PIECES = 4, PIECE = 16384 };

struct pieces {
	struct ibv_sge sge[PIECES];
	size_t len;
};

static struct pieces pieces_of(const struct region *r, const uint32_t *lens)
{
	struct pieces p = { };

	for (int i = 0; i < PIECES; i++) {
		p.sge[i] = sge_of(r, i * PIECE + i, lens[i]);
		p.len += lens[i];
	}
	return p;
}

static void pieces_fill(const struct pieces *p, uint64_t seed)
{
	static uint8_t flat[PIECES * PIECE];
	size_t at = 0;

	fill(flat, p->len, seed);
	for (int i = 0; i < PIECES; at += p->sge[i++].length)
		memcpy((void *)(uintptr_t)p->sge[i].addr, flat + at,
		       p->sge[i].length);
}

static void pieces_verify(const struct pieces *p, uint64_t seed)
{
	static uint8_t flat[PIECES * PIECE];
	size_t at = 0;

	for (int i = 0; i < PIECES; at += p->sge[i++].length)
		memcpy(flat + at, (void *)(uintptr_t)p->sge[i].addr,
		       p->sge[i].length);
	VERIFY(flat, p->len, seed);
}

void lists(bool from_peer)
{
	/* The same sum, of which no border is one of the other, or of packets. */
	static const uint32_t lens_a[] = { 1, 5000, 0, 10001 };
	static const uint32_t lens_b[] = { 4099, 0, 10, 10893 };
	struct end_config config = rc;
	struct pieces mine, theirs;
	struct ibv_wc wc;
	struct scene s;

	config.send_sge = PIECES;
	config.recv_sge = PIECES;
	scene_make(&s, from_peer, &config, PIECES * PIECE);
	mine = pieces_of(&s.a.r, lens_a);
	theirs = pieces_of(&s.b.r, lens_b);
	for (unsigned long i = 0; i < rounds(); i++) {
		uint64_t id = 4 * i;

		pieces_fill(&mine, id + 1);
		memset(s.b.r.data, 0, s.b.r.len);
		REQUIRE_ERRNO(try_recv(&s.b.e, id + 1, theirs.sge, PIECES), 0);
		send_sges(&s.a.e, id + 1, IBV_WR_SEND, IBV_SEND_SIGNALED,
			  mine.sge, PIECES, NULL, 0, 0);
		EXPECT_OK(s.a.e.scq, id + 1);
		wc = EXPECT_OK(s.b.e.rcq, id + 1);
		REQUIRE_EQ(wc.byte_len, mine.len);
		pieces_verify(&theirs, id + 1);

		pieces_fill(&mine, id + 2);
		memset(s.b.r.data, 0, s.b.r.len);
		send_sges(&s.a.e, id + 2, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED,
			  mine.sge, PIECES, &s.to, 0, 0);
		EXPECT_OK(s.a.e.scq, id + 2);
		VERIFY(s.b.r.data, mine.len, id + 2);
		VERIFY_BYTE(s.b.r.data + mine.len, s.b.r.len - mine.len, 0);

		fill(s.b.r.data, mine.len, id + 3);
		memset(s.a.r.data, 0, s.a.r.len);
		send_sges(&s.a.e, id + 3, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED,
			  mine.sge, PIECES, &s.to, 0, 0);
		EXPECT_OK(s.a.e.scq, id + 3);
		pieces_verify(&mine, id + 3);
	}
	scene_free(&s);
}

/*
 * A program that asks for no completions gets none; the one that is asked for
 * tells of all.
 */
void unsignalled(bool from_peer)
{
	enum { N = 32, EACH = 8, SIZE = 96 };
	struct scene s;

	scene_make(&s, from_peer, &rc, N * SIZE);
	for (unsigned long round = 0; round < rounds(); round++) {
		memset(s.b.r.data, 0, s.b.r.len);
		for (int i = 0; i < N; i++)
			recv_region(&s.b.e, i, &s.b.r, i * SIZE, SIZE);
		for (int i = 0; i < N; i++) {
			struct ibv_sge sge = sge_of(&s.a.r, i * SIZE, SIZE - i);

			fill(s.a.r.data + i * SIZE, SIZE - i, i);
			send_sges(&s.a.e, i, IBV_WR_SEND,
				  (i + 1) % EACH ? 0 : IBV_SEND_SIGNALED, &sge,
				  1, NULL, 0, 0);
		}
		for (int i = EACH - 1; i < N; i += EACH)
			EXPECT_OK(s.a.e.scq, i);
		for (int i = 0; i < N; i++) {
			struct ibv_wc wc = EXPECT_OK(s.b.e.rcq, i);

			REQUIRE_EQ(wc.byte_len, SIZE - i);
			VERIFY(s.b.r.data + i * SIZE, SIZE - i, i);
		}
	}
	EXPECT_NO_WC(s.a.e.scq);
	scene_free(&s);
}

static bool event_within(struct side *s, int ms)
{
	struct pollfd p = { .fd = s->channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	if (poll(&p, 1, ms) != 1)
		return false;
	REQUIRE_ERRNO(ibv_get_cq_event(s->channel, &cq, &context), 0);
	REQUIRE(cq == s->e.rcq);
	ibv_ack_cq_events(cq, 1);
	return true;
}

/* The solicited bit of the last packet wakes a program that waits for such messages alone. */
void solicited(bool from_peer)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM,
	};
	struct scene s;

	scene_make(&s, from_peer, &rc, 5000);
	for (size_t i = 0; i < ARRAY_SIZE(opcodes); i++) {
		struct ibv_sge sge = sge_of(&s.a.r, 0, 5000);

		REQUIRE_ERRNO(ibv_req_notify_cq(s.b.e.rcq, 1), 0);
		message(&s, opcodes[i], 5000, 0);
		REQUIRE(!event_within(&s.b, 20 * opt.slow));
		recv_region(&s.b.e, 77, &s.b.r, 0, 5000);
		send_sges(&s.a.e, 78, opcodes[i],
			  IBV_SEND_SIGNALED | IBV_SEND_SOLICITED, &sge, 1,
			  &s.to, 0, 0);
		REQUIRE(event_within(&s.b, PATIENCE_US / 1000));
		EXPECT_OK(s.b.e.rcq, 77);
		EXPECT_OK(s.a.e.scq, 78);
	}
	scene_free(&s);
}

static uint64_t word_at(const struct side *s, size_t offset)
{
	uint64_t word;

	memcpy(&word, s->r.data + offset, sizeof(word));
	return word;
}

static void word_set(struct side *s, size_t offset, uint64_t word)
{
	memcpy(s->r.data + offset, &word, sizeof(word));
}

void compare_and_swap(bool from_peer)
{
	const enum ibv_wr_opcode opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	const uint64_t first = 0x0102030405060708, second = 1ull << 63;
	struct scene s;

	scene_make(&s, from_peer, &rc, LEN);
	for (unsigned long round = 0; round < rounds(); round++) {
		memset(s.b.r.data, 0xff, LEN);
		word_set(&s.b, WORD + 8, first);
		post_atomic(&s, 1, opcode, IBV_SEND_SIGNALED, 0, WORD + 8,
			    first, second);
		REQUIRE_EQ(EXPECT_OK(s.a.e.scq, 1).opcode, IBV_WC_COMP_SWAP);
		REQUIRE_EQ(word_at(&s.a, 0), first);
		REQUIRE_EQ(word_at(&s.b, WORD + 8), second);
		/* It is not the one to compare with any more, but is told. */
		post_atomic(&s, 2, opcode, IBV_SEND_SIGNALED, 16, WORD + 8,
			    first, 9);
		EXPECT_OK(s.a.e.scq, 2);
		REQUIRE_EQ(word_at(&s.a, 16), second);
		REQUIRE_EQ(word_at(&s.b, WORD + 8), second);
		VERIFY_BYTE(s.b.r.data, WORD + 8, 0xff);
		VERIFY_BYTE(s.b.r.data + WORD + 16, LEN - WORD - 16, 0xff);
	}
	scene_free(&s);
}

/* Each is done once, in spite of losses, and sees those before it. */
void fetch_and_add(bool from_peer)
{
	enum { N = 32 };
	const uint64_t begin = ~0ull - 5, step = 3;
	uint64_t word = begin;
	struct scene s;

	scene_make(&s, from_peer, &rc, LEN);
	word_set(&s.b, WORD, begin);
	for (unsigned long round = 0; round < rounds(); round++) {
		for (int i = 0; i < N; i++)
			post_atomic(&s, i, IBV_WR_ATOMIC_FETCH_AND_ADD,
				    i == N - 1 ? IBV_SEND_SIGNALED : 0, 8 * i,
				    WORD, step, 0);
		REQUIRE_EQ(EXPECT_OK(s.a.e.scq, N - 1).opcode,
			   IBV_WC_FETCH_ADD);
		for (int i = 0; i < N; i++, word += step)
			REQUIRE_EQ(word_at(&s.a, 8 * i), word);
		REQUIRE_EQ(word_at(&s.b, WORD), word);
	}
	VERIFY_BYTE(s.b.r.data, WORD, 0);
	VERIFY_BYTE(s.b.r.data + WORD + 8, LEN - WORD - 8, 0);
	scene_free(&s);
}

/*
 * WRITEs with immediate data, READs of what they have written and adds, all
 * under way at a time: they are carried out in their order (IBA volume 1, 9.5).
 */
void pipelined(bool from_peer)
{
	enum { SLOTS = 16, SLOT = 8192, HALF = SLOTS * SLOT, TAIL = 2 * HALF };
	struct scene s;

	scene_make(&s, from_peer, &rc, TAIL + 4096);
	for (unsigned long round = 0; round < rounds(); round++) {
		memset(s.a.r.data + HALF, 0, HALF);
		memset(s.b.r.data, 0, HALF);
		for (int i = 0; i < SLOTS; i++)
			REQUIRE_ERRNO(try_recv(&s.b.e, i, NULL, 0), 0);
		for (int i = 0; i < SLOTS; i++) {
			uint32_t len = 1 + i * 541;
			struct ibv_sge out = sge_of(&s.a.r, i * SLOT, len);
			struct ibv_sge in = sge_of(&s.a.r, HALF + i * SLOT, len);

			fill(s.a.r.data + i * SLOT, len, round * SLOTS + i);
			send_sges(&s.a.e, 3 * i, IBV_WR_RDMA_WRITE_WITH_IMM, 0,
				  &out, 1, &s.to, i * SLOT, htonl(i));
			send_sges(&s.a.e, 3 * i + 1, IBV_WR_RDMA_READ, 0, &in,
				  1, &s.to, i * SLOT, 0);
			post_atomic(&s, 3 * i + 2, IBV_WR_ATOMIC_FETCH_AND_ADD,
				    i == SLOTS - 1 ? IBV_SEND_SIGNALED : 0,
				    TAIL + 8 * i, TAIL + WORD, 1, 0);
		}
		EXPECT_OK(s.a.e.scq, 3 * SLOTS - 1);
		for (int i = 0; i < SLOTS; i++) {
			struct ibv_wc wc = EXPECT_OK(s.b.e.rcq, i);
			uint32_t len = 1 + i * 541;
			uint64_t seed = round * SLOTS + i;

			REQUIRE_EQ(ntohl(wc.imm_data), i);
			REQUIRE_EQ(wc.byte_len, len);
			VERIFY(s.b.r.data + i * SLOT, len, seed);
			VERIFY(s.a.r.data + HALF + i * SLOT, len, seed);
			REQUIRE_EQ(word_at(&s.a, TAIL + 8 * i), seed);
		}
	}
	EXPECT_NO_WC(s.a.e.scq);
	scene_free(&s);
}

/* The use that a may make of a window's key: write to it, and read it back. */
static void use_window(struct scene *s, uint32_t key, const struct region *r,
		       size_t offset, size_t len)
{
	struct peer to = { .addr = (uintptr_t)r->data + offset, .rkey = key };
	struct ibv_sge out = sge_of(&s->a.r, 0, len);
	struct ibv_sge in = sge_of(&s->a.r, len, len);
	uint64_t id = ++s->seed;

	fill(s->a.r.data, len, id);
	memset(s->a.r.data + len, 0, len);
	send_sges(&s->a.e, id, IBV_WR_RDMA_WRITE, 0, &out, 1, &to, 0, 0);
	send_sges(&s->a.e, id, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &in, 1,
		  &to, 0, 0);
	REQUIRE_EQ(EXPECT_OK(s->a.e.scq, id).opcode, IBV_WC_RDMA_READ);
	VERIFY(r->data + offset, len, id);
	VERIFY(s->a.r.data + len, len, id);
}

/*
 * By its owner and by its peer. Since a window that is bound cannot be bound
 * again (o10-37.2.30), each bind but the first tells that the one before it has
 * ended; refused_window() has the peer's view.
 */
void invalidate(bool from_peer)
{
	static const size_t lengths[] = { 0, 32, 5000 };
	struct region r;
	struct ibv_mw *mw;
	struct scene s;
	uint32_t key;

	scene_make(&s, from_peer, &rc, 8192);
	make_bindable(&r, &s, &mw);
	for (unsigned long i = 0; i < 3 * rounds(); i++) {
		struct ibv_wc wc;

		key = bind_window(&s, mw, &r, 100, 4000);
		use_window(&s, key, &r, 100, 4000);
		wc = message(&s, IBV_WR_SEND_WITH_INV, lengths[i % 3], key);
		REQUIRE_EQ(wc.opcode, IBV_WC_RECV);
		/*
		 * rdma_rxe tells programs IB_WC_WITH_INVALIDATE, the bit that
		 * the kernel's own users know; theirs is another.
		 */
		REQUIRE(wc.wc_flags & (is_rxe(&s.b) ? 1 << 2 : IBV_WC_WITH_INV));
		REQUIRE(!(wc.wc_flags & IBV_WC_WITH_IMM));
		REQUIRE_EQ(wc.invalidated_rkey, key);

		key = bind_window(&s, mw, &r, 1, 8);
		use_window(&s, key, &r, 1, 8);
		local_invalidate(&s, key);
	}
	REQUIRE_ERRNO(ibv_dealloc_mw(mw), 0);
	region_free(&r);
	scene_free(&s);
}
