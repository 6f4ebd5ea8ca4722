// SPDX-License-Identifier: GPL-2.0
/* Packets at random and nearly good ones, aimed and sent. */
#define _GNU_SOURCE
#include "hostile_wire.h"

#include <arpa/inet.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

/* Good packets, one of each opcode: opcode, IP version, bytes from there on. */
#define GOOD "/ferrule/tests/guest/packets.txt"

enum {
	PORT = 4791,
	MTU = 256,		/* as the good packets have it */
	LARGEST = 2048,
	/* The base transport header (IBA volume 1, 9.2). */
	BTH = 12,
	ICRC = 4,
};

struct packet {
	uint8_t bytes[LARGEST];	/* from the IP header on */
	size_t len;
	bool six;		/* the version of IP, else 4 */
};

/* The bytes of the headers of IP and UDP. */
static size_t headers(bool six)
{
	return sizeof(struct udphdr) +
	       (six ? sizeof(struct ip6_hdr) : sizeof(struct iphdr));
}

static uint32_t any(struct scene *s)
{
	s->random = s->random * 6364136223846793005ull + 1442695040888963407;
	return s->random >> 33;
}

uint32_t below(struct scene *s, uint32_t bound)
{
	return any(s) % bound;
}

bool one_in(struct scene *s, uint32_t n)
{
	return below(s, n) == 0;
}

static void put(uint8_t *to, uint64_t value, unsigned int bytes)
{
	while (bytes--) {
		to[bytes] = value;
		value >>= 8;
	}
}

void read_good(struct scene *s)
{
	FILE *file = fopen(GOOD, "r");
	const size_t before = headers(false);
	static char digits[4096];
	unsigned int version;
	char byte[3] = "";

	REQUIRE(file);
	while (s->goods < ARRAY_SIZE(s->good) &&
	       fscanf(file, "%*x %u %4095s", &version, digits) == 2) {
		struct good *g = &s->good[s->goods];

		if (version != 4)
			continue;
		g->len = strlen(digits) / 2 - before;
		REQUIRE(g->len <= sizeof(g->bytes));
		for (size_t i = 0; i < g->len; i++) {
			memcpy(byte, digits + 2 * (before + i), 2);
			g->bytes[i] = strtoul(byte, NULL, 16);
		}
		s->goods++;
	}
	fclose(file);
	REQUIRE(s->goods > 50);
}

static uint32_t crc(uint32_t sum, const uint8_t *bytes, size_t len)
{
	static uint32_t table[256];

	for (uint32_t i = 0; !table[255] && i < 256; i++) {
		table[i] = i;
		for (int bit = 0; bit < 8; bit++)
			table[i] = table[i] >> 1 ^
				   (table[i] & 1 ? 0xedb88320 : 0);
	}
	while (len--)
		sum = sum >> 8 ^ table[(sum ^ *bytes++) & 0xff];
	return sum;
}

/*
 * The invariant CRC: bits that may change on the way count as ones (A17.3.3).
 */
static uint32_t icrc(const struct packet *p)
{
	const size_t len = headers(p->six) + BTH;
	uint8_t fixed[64];
	uint8_t *bth = fixed + headers(p->six);
	struct udphdr *udp = (void *)(bth - sizeof(*udp));
	struct iphdr *ip = (void *)fixed;
	uint32_t sum;

	memcpy(fixed, p->bytes, len);
	if (p->six) {
		/* The traffic class and the flow label; the hop limit. */
		fixed[0] |= 0x0f;
		memset(fixed + 1, 0xff, 3);
		fixed[7] = 0xff;
	} else {
		ip->tos = 0xff;
		ip->ttl = 0xff;
		ip->check = 0xffff;
	}
	udp->check = 0xffff;
	bth[4] = 0xff;
	sum = crc(~0u, (const uint8_t *)"\xff\xff\xff\xff\xff\xff\xff\xff", 8);
	sum = crc(sum, fixed, len);
	return ~crc(sum, p->bytes + len, p->len - len - ICRC);
}

/*
 * Where a request has address and key: behind the base transport header, and
 * that of a FLUSH. 0: it has none.
 */
static size_t reth_of(uint8_t opcode)
{
	switch (opcode & 0x1f) {
	case 0x1c:	/* FLUSH */
		return BTH + 4;
	case 0x1d:	/* ATOMIC WRITE */
	case 0x06:	/* RDMA WRITE, first */
	case 0x0a:	/* only */
	case 0x0b:	/* only, with immediate data */
	case 0x0c:	/* RDMA READ request */
	case 0x13:	/* atomic operations */
	case 0x14:
		return BTH;
	}
	return 0;
}

static bool is_response(uint8_t opcode)
{
	return opcode >= 0x0d && opcode <= 0x12;
}

static uint32_t next_psn(struct scene *s, struct target *t, bool response)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	REQUIRE_ERRNO(ibv_query_qp(t->e.qp, &attr, IBV_QP_RQ_PSN |
				   IBV_QP_SQ_PSN, &init), 0);
	return (response ? attr.sq_psn - 1 : attr.rq_psn) +
	       (one_in(s, 4) ? below(s, 9) - 4 : 0);
}

/* As its own peer would send it. */
static void aim_at_target(struct scene *s, bool six, uint8_t *bth)
{
	struct target *t = &s->targets[six][below(s, TYPES)];
	uint8_t opcode = bth[0] & 0x1f;
	size_t reth = reth_of(opcode);

	if (t->e.config.type == IBV_QPT_UC)
		bth[0] = 0x20 | opcode;
	else if (t->e.config.type == IBV_QPT_UD)
		bth[0] = 0x64 | (opcode & 1);
	else
		bth[0] = opcode;
	put(bth + 5, t->e.qp->qp_num, 3);
	put(bth + 9, next_psn(s, t, is_response(opcode)), 3);
	if (t->e.config.type == IBV_QPT_UD) {
		put(bth + BTH, QKEY, 4);
	} else if (reth) {
		put(bth + reth, (uintptr_t)t->open.data + below(s, MEMORY) -
		    (one_in(s, 8) ? MEMORY : 0), 8);
		put(bth + reth + 8, t->open.mr->rkey, 4);
		if (opcode == 0x06)
			put(bth + reth + 12, 1 + below(s, 4 * MTU), 4);
		else if (opcode == 0x0c || opcode == 0x1c)
			put(bth + reth + 12, below(s, 2 * MEMORY), 4);
	}
}

void look_at_neighbour(struct scene *s)
{
	unsigned int qpn, sq_psn, rq_psn;
	FILE *file = engine_file();
	bool found = false;
	char line[256];

	REQUIRE(file);
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "qp %x %*s %*s peer %*x sq %*u/%*u psn %x "
			   "rq %*u/%*u psn %x", &qpn, &sq_psn, &rq_psn) == 3 &&
		    qpn == s->n->peer.qpn) {
			s->sq_psn = sq_psn;
			s->rq_psn = rq_psn;
			found = true;
		}
	}
	fclose(file);
	REQUIRE(found);
}

/* As the neighbour's peer would, but it is not. */
static void aim_at_neighbour(struct scene *s, uint8_t *bth)
{
	size_t reth;

	bth[0] &= 0x1f;
	put(bth + 5, s->n->peer.qpn, 3);
	put(bth + 9, (is_response(bth[0]) ? s->sq_psn : s->rq_psn) +
	    below(s, 8), 3);
	reth = reth_of(bth[0]);
	if (reth) {
		put(bth + reth, s->n->peer.addr + below(s, MEMORY), 8);
		put(bth + reth + 8, s->n->peer.rkey, 4);
	}
}

static void change(struct scene *s, struct packet *p)
{
	const size_t before = headers(p->six);

	for (unsigned int i = below(s, 5); i > 0; i--)
		p->bytes[before + below(s, p->len - before)] ^=
			1 << below(s, 8);
	if (one_in(s, 4))
		p->len = before + below(s, p->len - before + 1);
	else if (one_in(s, 4))
		p->len += below(s, 600);
}

/* The headers of IP, as far as they depend on the length. */
static void make_ip(struct scene *s, struct packet *p,
		    const union ibv_gid *from)
{
	const union ibv_gid *to = &s->d[p->six].gid;
	struct ip6_hdr *ip6 = (void *)p->bytes;
	struct iphdr *ip = (void *)p->bytes;

	if (p->six) {
		ip6->ip6_flow = htonl(6u << 28 | (any(s) & 0xfffffff));
		ip6->ip6_plen = htons(p->len - sizeof(*ip6));
		ip6->ip6_nxt = IPPROTO_UDP;
		ip6->ip6_hlim = 1 + below(s, 255);
		memcpy(&ip6->ip6_src, from->raw, 16);
		memcpy(&ip6->ip6_dst, to->raw, 16);
		return;
	}
	*ip = (struct iphdr) {
		.version = 4, .ihl = 5, .tos = any(s), .ttl = 1 + below(s, 255),
		.tot_len = htons(p->len), .id = htons(1 + below(s, 0xffff)),
		.protocol = IPPROTO_UDP,
	};
	memcpy(&ip->saddr, from->raw + 12, 4);
	memcpy(&ip->daddr, to->raw + 12, 4);
}

/*
 * Headers that RoCEv2 does not have: options of IPv4, and extensions of IPv6.
 */
static void add_options(struct packet *p)
{
	static const uint8_t extension[8] = { IPPROTO_UDP, 0, 1, 4 };
	static const uint8_t options[4] = { 1, 1, 1, 0 };	/* no operation */
	const size_t ip_len = headers(p->six) - sizeof(struct udphdr);
	const size_t more = p->six ? sizeof(extension) : sizeof(options);
	struct ip6_hdr *ip6 = (void *)p->bytes;
	struct iphdr *ip = (void *)p->bytes;

	memmove(p->bytes + ip_len + more, p->bytes + ip_len, p->len - ip_len);
	memcpy(p->bytes + ip_len, p->six ? extension : options, more);
	p->len += more;
	if (p->six) {
		ip6->ip6_nxt = IPPROTO_DSTOPTS;
		ip6->ip6_plen = htons(p->len - ip_len);
	} else {
		ip->ihl++;
		ip->tot_len = htons(p->len);
	}
}

static void make_packet(struct scene *s, struct packet *p)
{
	const size_t before = headers(p->six);
	uint8_t *bth = p->bytes + before;
	struct udphdr *udp = (void *)(bth - sizeof(*udp));
	bool aimed_at_neighbour = false, complete;

	for (size_t i = 0; i < sizeof(p->bytes); i += 4)
		put(p->bytes + i, any(s) * 2654435761u, 4);
	p->len = before + below(s, 700);
	if (!one_in(s, 8)) {
		const struct good *g = &s->good[below(s, s->goods)];

		p->len = before + g->len;
		memcpy(bth, g->bytes, g->len);
		aimed_at_neighbour = one_in(s, 4);
		if (aimed_at_neighbour)
			aim_at_neighbour(s, bth);
		else if (!one_in(s, 8))
			aim_at_target(s, p->six, bth);
		if (one_in(s, 2))
			change(s, p);
	}

	make_ip(s, p, &s->hostile[p->six]);
	*udp = (struct udphdr) {
		.source = htons(49152 + below(s, 16384)), .dest = htons(PORT),
		.len = htons(p->len - before + sizeof(*udp)),
	};
	complete = p->len >= before + BTH + ICRC;
	if (complete && !one_in(s, 8)) {
		uint32_t sum = icrc(p);

		memcpy(p->bytes + p->len - ICRC, &sum, ICRC);
	}
	/* Damage on the way from a good peer: not one bit counts. */
	if (complete && aimed_at_neighbour && one_in(s, 2)) {
		make_ip(s, p, &s->d[p->six].gid);
		uint32_t sum = icrc(p) ^ 1u << below(s, 32);

		memcpy(p->bytes + p->len - ICRC, &sum, ICRC);
	}
	/* Headers that do not say how much there is. */
	if (one_in(s, 32))
		udp->len = htons(below(s, 2 * p->len));
	if (one_in(s, 32))
		add_options(p);
}

void send_batch(struct scene *s, bool six)
{
	static struct packet packets[BATCH];
	struct sockaddr_in6 to6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in to = { .sin_family = AF_INET };
	struct mmsghdr messages[BATCH] = { };
	struct iovec parts[BATCH];
	int sent;

	memcpy(&to6.sin6_addr, s->d[1].gid.raw, 16);
	memcpy(&to.sin_addr, s->d[0].gid.raw + 12, 4);
	for (int i = 0; i < BATCH; i++) {
		packets[i].six = six;
		make_packet(s, &packets[i]);
		parts[i] = (struct iovec) { packets[i].bytes, packets[i].len };
		messages[i].msg_hdr = (struct msghdr) {
			.msg_name = six ? (void *)&to6 : (void *)&to,
			.msg_namelen = six ? sizeof(to6) : sizeof(to),
			.msg_iov = &parts[i], .msg_iovlen = 1,
		};
	}
	for (int done = 0; done < BATCH; done += sent) {
		sent = sendmmsg(s->socket[six], messages + done, BATCH - done,
				0);
		if (sent < 0)
			FAIL("sendmmsg: %s", strerror(errno));
	}
}
