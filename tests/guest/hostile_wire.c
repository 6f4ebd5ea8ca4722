// SPDX-License-Identifier: GPL-2.0
/*
 * A machine that means harm, beside a connection that behaves. It sends packets
 * to the port of RoCEv2 that are made at random, or of good ones with bytes
 * changed, most of them with an invariant CRC that fits, and aims at queue
 * pairs whose peer it is, whose numbers, keys and addresses it knows, and which
 * it may do with what it likes; and at the neighbour's, which are another
 * one's.
 *
 * Runs under wire_only.sh, and needs the addresses 10.77.0.66 and fd77::66 on
 * the loopback device, which are the hostile machine's. hostile_wire.py does
 * both.
 */
#define _GNU_SOURCE
#include "hostile_wire/hostile_wire.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define HOSTILE "10.77.0.66"
#define HOSTILE6 "fd77::66"

/* Packets, until the neighbour has to go on. */
enum { PER_TRANSFER = 512 };

static void take_events(struct device *d)
{
	struct ibv_async_event event;

	while (ibv_get_async_event(d->ctx, &event) == 0)
		ibv_ack_async_event(&event);
	REQUIRE_EQ(errno, EAGAIN);
}

/* The device with the first GID that is an address of the version of IP. */
static void open_with(struct device *d, bool six)
{
	static const uint8_t v4_mapped[12] = { [10] = 0xff, 0xff };
	struct ibv_gid_entry entry;

	device_open(d);
	d->port.active_mtu = IBV_MTU_256;
	REQUIRE_EQ(fcntl(d->ctx->async_fd, F_SETFL, O_NONBLOCK), 0);
	for (int i = 0; i < d->port.gid_tbl_len; i++) {
		if (ibv_query_gid_ex(d->ctx, 1, i, &entry, 0) ||
		    entry.gid_type != IBV_GID_TYPE_ROCE_V2 ||
		    !memcmp(entry.gid.raw, v4_mapped, 12) == six ||
		    entry.gid.raw[0] == 0xfe)
			continue;
		d->gid = entry.gid;
		d->gid_index = i;
		return;
	}
	FAIL("no GID of IPv%d", six ? 6 : 4);
}

static void begin(struct scene *s, bool six)
{
	static const enum ibv_qp_type types[TYPES] = {
		IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD,
	};
	const char *address = six ? HOSTILE6 : "::ffff:" HOSTILE;
	const int on = 1;

	s->socket[six] = socket(six ? AF_INET6 : AF_INET, SOCK_RAW,
				IPPROTO_RAW);
	REQUIRE(s->socket[six] >= 0);
	if (six)
		REQUIRE_EQ(setsockopt(s->socket[six], IPPROTO_IPV6,
				      IPV6_HDRINCL, &on, sizeof(on)), 0);
	REQUIRE_EQ(inet_pton(AF_INET6, address, s->hostile[six].raw), 1);
	open_with(&s->d[six], six);
	for (unsigned int i = 0; i < TYPES; i++)
		target_make(s, six, &s->targets[six][i], types[i]);
}

static void end(struct scene *s, bool six)
{
	struct target *t = s->targets[six];

	for (; t < s->targets[six] + TYPES; t++) {
		test_note("queue pair of type %d over IPv%d: broken %lu times",
			  t->e.config.type, six ? 6 : 4, t->broken);
		check_memory(t);
		end_free(&t->e);
		region_free(&t->inbox);
		region_free(&t->open);
	}
	device_close(&s->d[six]);
	close(s->socket[six]);
}

static void packets(void)
{
	struct scene *s = calloc(1, sizeof(*s));
	unsigned long count = opt.rounds ?: 40000;

	REQUIRE(s);
	s->random = count;
	read_good(s);
	s->n = neighbour_start();
	begin(s, false);
	begin(s, true);

	for (unsigned long sent = 0; sent < count; sent += BATCH) {
		const bool six = one_in(s, 2);

		look_at_neighbour(s);
		send_batch(s, six);
		for (int i = 0; i < TYPES; i++)
			tend(s, &s->targets[six][i]);
		take_events(&s->d[six]);
		if (sent % PER_TRANSFER)
			continue;
		for (int i = 0; i < 2 * TYPES; i++)
			check_memory(&s->targets[i / TYPES][i % TYPES]);
		neighbour_await(s->n, 1);
	}

	neighbour_stop(s->n);
	end(s, false);
	end(s, true);
	free(s);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "packets", packets, 240 },
		{ }
	};

	return test_main(argc, argv, cases);
}
