// SPDX-License-Identifier: GPL-2.0
/*
 * Asynchronous events of the device, of its port, and of rings that make no
 * sense: each for what happened, and once. Those of errors, limits and states
 * are counted where these are tested.
 */
#define _GNU_SOURCE
#include "raw.h"


struct expected {
	enum ibv_event_type type;
	const void *element;	/* an object, or NULL for the port */
};

static bool is_it(const struct ibv_async_event *event, const struct expected *e)
{
	return event->event_type == e->type &&
	       (e->element ? (const void *)event->element.qp == e->element :
			     event->element.port_num == 1);
}

/*
 * Each of these comes, in any order and once, and no other does. Those of the
 * table of GIDs are left out of account if the case is about something else.
 */
static void expect_once(struct ibv_context *ctx, const struct expected *e,
			size_t n, bool any_gids)
{
	bool seen[8] = { };
	size_t left = n;
	struct ibv_async_event event;

	REQUIRE(n <= ARRAY_SIZE(seen));
	while (next_async(ctx, &event, left ? PATIENCE_US / 1000 :
					      200 * opt.slow)) {
		size_t i = 0;

		if (any_gids && event.event_type == IBV_EVENT_GID_CHANGE)
			continue;
		while (i < n && (seen[i] || !is_it(&event, &e[i])))
			i++;
		if (i == n)
			FAIL("asynchronous event '%s' is one too many",
			     ibv_event_type_str(event.event_type));
		seen[i] = true;
		left--;
	}
	for (size_t i = 0; i < n; i++)
		if (!seen[i])
			FAIL("no asynchronous event '%s'",
			     ibv_event_type_str(e[i].type));
}

static void expect_port(struct ibv_context *ctx, enum ibv_event_type type,
			enum ibv_port_state state)
{
	struct ibv_port_attr port;

	expect_once(ctx, &(struct expected){ type }, 1, true);
	REQUIRE_ERRNO(ibv_query_port(ctx, 1, &port), 0);
	REQUIRE_EQ(port.state, state);
}

/* Each open file is told that the device is gone, and of nothing after that. */
static void device_fatal(void)
{
	struct own_device own;
	struct ibv_context *ctx[3];

	own_device_make(&own, 0, 9000);
	for (size_t i = 0; i < ARRAY_SIZE(ctx); i++)
		ctx[i] = open_by_name(own.device);
	/* With an object, whose own events would be others. */
	REQUIRE(ibv_alloc_pd(ctx[0]));
	REQUIRE(ibv_create_cq(ctx[0], 1, NULL, NULL, 0));
	expect_once(ctx[0], NULL, 0, true);
	own_device_delete(&own);
	for (size_t i = 0; i < ARRAY_SIZE(ctx); i++) {
		expect_async(ctx[i], IBV_EVENT_DEVICE_FATAL, NULL);
		expect_once(ctx[i], NULL, 0, false);
		ibv_close_device(ctx[i]);
	}
	own_device_clean(&own);
}

/* The port goes down and comes up with its network device, or loses its wire. */
static void port_down_and_up(void)
{
	struct own_device own;
	struct ibv_context *ctx[2];

	own_device_make(&own, 0, 9000);
	for (size_t i = 0; i < ARRAY_SIZE(ctx); i++) {
		ctx[i] = open_by_name(own.device);
		expect_once(ctx[i], NULL, 0, true);
	}
	for (int round = 0; round < 3; round++) {
		const char *off = round == 1 ? "carrier off" : "down";
		const char *on = round == 1 ? "carrier on" : "up";

		REQUIRE_EQ(run_command("ip link set %s %s", own.netdev, off), 0);
		for (size_t i = 0; i < ARRAY_SIZE(ctx); i++)
			expect_port(ctx[i], IBV_EVENT_PORT_ERR, IBV_PORT_DOWN);
		/* It is down already. */
		REQUIRE_EQ(run_command("ip link set %s mtu 1500", own.netdev), 0);
		expect_once(ctx[0], NULL, 0, true);
		REQUIRE_EQ(run_command("ip link set %s mtu 9000", own.netdev), 0);
		REQUIRE_EQ(run_command("ip link set %s %s", own.netdev, on), 0);
		for (size_t i = 0; i < ARRAY_SIZE(ctx); i++)
			expect_port(ctx[i], IBV_EVENT_PORT_ACTIVE,
				    IBV_PORT_ACTIVE);
	}
	for (size_t i = 0; i < ARRAY_SIZE(ctx); i++)
		ibv_close_device(ctx[i]);
	own_device_remove(&own);
}

/* One for each address that comes or goes. */
static void gid_change(void)
{
	static const struct expected change = { IBV_EVENT_GID_CHANGE };
	static const char *const addresses[] = {
		"10.78.9.1/24", "fd78:9::1/64",
	};
	struct own_device own;
	struct ibv_context *ctx;

	own_device_make(&own, 0, 9000);
	ctx = open_by_name(own.device);
	expect_once(ctx, NULL, 0, true);
	for (size_t i = 0; i < ARRAY_SIZE(addresses); i++) {
		REQUIRE_EQ(run_command("ip address add %s dev %s",
				       addresses[i], own.netdev), 0);
		expect_once(ctx, &change, 1, false);
		REQUIRE_EQ(run_command("ip address delete %s dev %s",
				       addresses[i], own.netdev), 0);
		expect_once(ctx, &change, 1, false);
	}
	ibv_close_device(ctx);
	own_device_remove(&own);
}

/* A bond's port: the RDMA core leaves its events to the driver. */
static void port_of_a_bond(void)
{
	struct ibv_context *ctx;

	if (has_function())
		test_skip("a PCI function's network device is no bond");
	run_command("rdma link delete bonded 2>/dev/null; "
		    "ip link delete test_bond 2>/dev/null; "
		    "ip link delete test_part 2>/dev/null");
	REQUIRE_EQ(run_command("modprobe bonding max_bonds=0 && "
			       "ip link add test_part type dummy && "
			       "ip link add test_bond type bond "
			       "mode active-backup miimon 10 && "
			       "ip link set test_part master test_bond && "
			       "ip link set test_bond up && "
			       "ip address add 10.78.8.1/24 dev test_bond && "
			       "rdma link add bonded type %s netdev test_bond",
			       opt.type), 0);
	wait_for_gids("bonded");
	ctx = open_by_name("bonded");
	expect_once(ctx, NULL, 0, true);
	/* The only part of it goes and comes back, and so does the bond. */
	REQUIRE_EQ(run_command("ip link set test_part down"), 0);
	expect_port(ctx, IBV_EVENT_PORT_ERR, IBV_PORT_DOWN);
	REQUIRE_EQ(run_command("ip link set test_part up"), 0);
	expect_port(ctx, IBV_EVENT_PORT_ACTIVE, IBV_PORT_ACTIVE);
	REQUIRE_EQ(run_command("ip link set test_bond down"), 0);
	expect_port(ctx, IBV_EVENT_PORT_ERR, IBV_PORT_DOWN);
	REQUIRE_EQ(run_command("ip link set test_bond up"), 0);
	expect_port(ctx, IBV_EVENT_PORT_ACTIVE, IBV_PORT_ACTIVE);
	ibv_close_device(ctx);
	REQUIRE_EQ(run_command("rdma link delete bonded && "
			       "ip link delete test_bond && "
			       "ip link delete test_part"), 0);
}

/* The slots of a shared receive queue whose requests have one entry. */
enum { SLOTS = 64, SLOT = 64 };

/*
 * A producer's index that its ring has no slots for breaks the shared receive
 * queue, and each queue pair that wants a request of it (11.6.3.3).
 */
static void srq_error(void)
{
	struct ibv_srq_init_attr init = { .attr = { SLOTS, 1 } };
	struct end_config config = { };
	struct ferrule_srq_ctrl *ctrl;
	struct mapping before[32];
	struct raw_context raw;
	struct end a[2], b[2];
	struct device d;
	struct region r;
	unsigned int n;

	raw_open(&raw, &d);
	region_make(&r, &d, 64, 0, ACCESS_ALL);
	n = device_mappings(before, ARRAY_SIZE(before));
	config.srq = ibv_create_srq(d.pd, &init);
	REQUIRE(config.srq);
	ctrl = (void *)((char *)raw_new_mapping(before, n, true, NULL) +
			SLOTS * SLOT);
	for (int i = 0; i < 2; i++) {
		struct peer of_a, of_b;

		end_make(&a[i], &d, NULL);
		end_make(&b[i], &d, &config);
		of_a = end_address(&a[i], NULL);
		of_b = end_address(&b[i], NULL);
		end_connect(&a[i], &of_b);
		end_connect(&b[i], &of_a);
	}
	ctrl->producer = SLOTS + 1;
	for (int i = 0; i < 2; i++) {
		const struct expected first[] = {
			{ IBV_EVENT_SRQ_ERR, config.srq },
			{ IBV_EVENT_QP_FATAL, b[0].qp },
			{ IBV_EVENT_QP_LAST_WQE_REACHED, b[0].qp },
		}, second[] = {
			{ IBV_EVENT_QP_FATAL, b[1].qp },
			{ IBV_EVENT_QP_LAST_WQE_REACHED, b[1].qp },
		};

		send_region(&a[i], 1, &r, 0, 8);
		EXPECT_WC(a[i].scq, 1, IBV_WC_REM_OP_ERR);
		if (i == 0)
			expect_once(d.ctx, first, ARRAY_SIZE(first), false);
		else
			expect_once(d.ctx, second, ARRAY_SIZE(second), false);
		REQUIRE_EQ(end_state(&b[i]), IBV_QPS_ERR);
	}
	for (int i = 0; i < 2; i++) {
		end_free(&a[i]);
		end_free(&b[i]);
	}
	REQUIRE_ERRNO(ibv_destroy_srq(config.srq), 0);
	region_free(&r);
	device_close(&d);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "device_fatal", device_fatal },
		{ "port_down_and_up", port_down_and_up },
		{ "gid_change", gid_change },
		{ "port_of_a_bond", port_of_a_bond },
		{ "srq_error", srq_error },
		{ }
	};

	return test_main(argc, argv, cases);
}
