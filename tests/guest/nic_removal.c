// SPDX-License-Identifier: GPL-2.0
/*
 * The PCI function of ferrule-nic goes away under programs: by its driver, by
 * the PCI core, or because it is reset behind the backs of both. As with a
 * link, nobody blocks, all work ends with flush errors, and then posting
 * answers EIO. Afterwards the function works again.
 */
#define _GNU_SOURCE
#include "programs.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define DRIVER "/sys/bus/pci/drivers/ferrule"
#define DEVICES "/sys/bus/pci/devices"

/* Where the device's function is, such as 0000:01:00.0. */
static char address[64];

static void find_function(void)
{
	char path[128], target[256];
	ssize_t length;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device",
		 opt.device);
	length = readlink(path, target, sizeof(target) - 1);
	if (length < 0)
		FAIL("%s is no device of a PCI function", opt.device);
	target[length] = 0;
	snprintf(address, sizeof(address), "%s", strrchr(target, '/') + 1);
}

/* Pages of programs that some device holds. */
static long pinned_pages(void)
{
	long value, pinned = 0;
	char name[64];
	FILE *file;

	REQUIRE_EQ(run_command("echo 1 >/proc/sys/vm/stat_refresh"), 0);
	file = fopen("/proc/vmstat", "r");
	REQUIRE(file);
	while (fscanf(file, "%63s %ld", name, &value) == 2) {
		if (!strcmp(name, "nr_foll_pin_acquired"))
			pinned += value;
		if (!strcmp(name, "nr_foll_pin_released"))
			pinned -= value;
	}
	fclose(file);
	return pinned;
}

static void expect_it_works(void)
{
	wait_for_device(true);
	wait_for_gids(opt.device);
	expect_round_trip();
}

/* ---- Ways to go, each with the way back ---- */

struct way {
	void (*go)(void);
	void (*come)(void);
};

static void unbind(void)
{
	timed_command("echo >" DRIVER "/unbind", address);
	REQUIRE(!device_is_there());
}

static void bind(void)
{
	REQUIRE_EQ(run_command("echo %s >" DRIVER "/bind", address), 0);
}

static void remove_function(void)
{
	char file[128];

	snprintf(file, sizeof(file), DEVICES "/%s/remove", address);
	timed_command("echo 1 >", file);
	REQUIRE(!device_is_there());
}

static void rescan(void)
{
	REQUIRE_EQ(run_command("echo 1 >/sys/bus/pci/rescan"), 0);
}

/* The driver is told before, and takes the function again. */
static void reset(void)
{
	char file[128];

	snprintf(file, sizeof(file), DEVICES "/%s/reset", address);
	timed_command("echo 1 >", file);
}

static void nothing(void)
{
}

/* Initiate Function Level Reset, by a write that nobody tells the driver of. */
static void reset_unseen(void)
{
	/* Device Control, in the capability that the datasheet has at 0x40. */
	const off_t control = 0x40 + 8;
	uint16_t word;
	char file[128];
	int fd;

	snprintf(file, sizeof(file), DEVICES "/%s/config", address);
	fd = open(file, O_RDWR);
	REQUIRE(fd >= 0);
	REQUIRE_EQ(pread(fd, &word, sizeof(word), control), sizeof(word));
	word |= 1 << 15;
	REQUIRE_EQ(pwrite(fd, &word, sizeof(word), control), sizeof(word));
	close(fd);
}

static void bind_again(void)
{
	wait_for_device(false);
	REQUIRE_EQ(run_command("echo %s >" DRIVER "/unbind", address), 0);
	bind();
}

static const struct way by_driver = { unbind, bind };
static const struct way by_core = { remove_function, rescan };
static const struct way by_reset = { reset, nothing };
static const struct way unseen = { reset_unseen, bind_again };

static void go_under(const struct way *way, void (*run)(struct program *))
{
	struct program p;

	find_function();
	program_start(&p, run);
	way->go();
	program_join(&p);
	way->come();
	expect_it_works();
}

static void go_under_many(const struct way *way)
{
	struct program p[MANY_PROGRAMS];
	long pinned = pinned_pages();

	find_function();
	programs_start(p);
	way->go();
	programs_join(p);
	way->come();
	/* The function has answered, so it uses none of them. */
	REQUIRE_EQ(pinned_pages(), pinned);
	expect_it_works();
}

/* ---- The network device ---- */

/* As the lab makes it. */
static void netdev_comes(const char *mac)
{
	REQUIRE_EQ(run_command("ip link add dummy0 type dummy && "
			       "ip link set dummy0 address %s mtu 9000 "
			       "addrgenmode eui64 up && "
			       "ip address add 10.77.0.1/24 dev dummy0 && "
			       "ip address add fd77::1/64 dev dummy0 nodad",
			       mac), 0);
}

static void netdev_goes(char mac[32])
{
	FILE *file = fopen("/sys/class/net/dummy0/address", "r");

	REQUIRE(file && fscanf(file, "%31s", mac) == 1);
	fclose(file);
	REQUIRE_EQ(run_command("ip link delete dummy0"), 0);
}

static void expect_port(struct ibv_context *ctx, enum ibv_event_type type,
			enum ibv_port_state state)
{
	struct ibv_async_event event;
	struct ibv_port_attr port;

	/* Each GID that comes or goes is an event as well. */
	do {
		REQUIRE(next_async(ctx, &event, PATIENCE_US / 1000));
	} while (event.event_type == IBV_EVENT_GID_CHANGE);
	REQUIRE_EQ(event.event_type, type);
	REQUIRE_ERRNO(ibv_query_port(ctx, 1, &port), 0);
	REQUIRE_EQ(port.state, state);
}

static void expect_no_gids(struct ibv_context *ctx)
{
	uint64_t end = now_us() + PATIENCE_US;
	struct ibv_gid_entry entries[8];

	while (ibv_query_gid_table(ctx, entries, ARRAY_SIZE(entries), 0)) {
		if (now_us() > end)
			FAIL("there are GIDs still");
		sleep_us(10000);
	}
}

/* The device stays, with a port that is down, as an adapter's. */
static void netdev_goes_and_comes(void)
{
	struct device d;
	char mac[32];

	find_function();
	device_open(&d);
	netdev_goes(mac);
	expect_port(d.ctx, IBV_EVENT_PORT_ERR, IBV_PORT_DOWN);
	expect_no_gids(d.ctx);
	REQUIRE_EQ(run_command("cat /sys/class/infiniband/%s/parent 2>&1 | "
			       "grep -q 'No such device'", opt.device), 0);
	netdev_comes(mac);
	REQUIRE_EQ(run_command("grep -qx dummy0 /sys/class/infiniband/%s/parent",
			       opt.device), 0);
	expect_port(d.ctx, IBV_EVENT_PORT_ACTIVE, IBV_PORT_ACTIVE);
	device_close(&d);
	expect_it_works();
}

/* The function is found before its network device: one line tells why the port is down. */
static void netdev_comes_later(void)
{
	struct ibv_port_attr port;
	struct ibv_context *ctx;
	char mac[32];

	find_function();
	unbind();
	netdev_goes(mac);
	bind();
	wait_for_device(true);
	ctx = open_by_name(opt.device);
	REQUIRE_ERRNO(ibv_query_port(ctx, 1, &port), 0);
	REQUIRE_EQ(port.state, IBV_PORT_DOWN);
	expect_no_gids(ctx);
	ibv_close_device(ctx);
	REQUIRE_EQ(run_command("test $(dmesg | grep -c 'no network device has "
			       "its address %s') = 1", mac), 0);
	netdev_comes(mac);
	expect_it_works();
}

/* ---- The cases ---- */

static void unbound_while_polling(void)
{
	go_under(&by_driver, polling_program);
}

static void unbound_while_sleeping(void)
{
	go_under(&by_driver, sleeping_program);
}

static void unbound_under_many_programs(void)
{
	go_under_many(&by_driver);
}

static void removed_under_many_programs(void)
{
	go_under_many(&by_core);
}

static void reset_under_many_programs(void)
{
	go_under_many(&by_reset);
}

static void reset_unseen_while_polling(void)
{
	go_under(&unseen, polling_program);
}

static void reset_unseen_while_sleeping(void)
{
	go_under(&unseen, sleeping_program);
}

static void reset_unseen_while_idle(void)
{
	go_under(&unseen, idle_program);
}

static void reset_unseen_while_making_objects(void)
{
	go_under(&unseen, busy_program);
}

static void reset_unseen_under_many_programs(void)
{
	go_under_many(&unseen);
}

/* A queue pair in a group, and a window on a region: both hold others. */
static void reset_unseen_with_groups_and_windows(void)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_UD,
		.cap = { 4, 4, 1, 1, 0 },
	};
	union ibv_gid group = { .raw = { 0xff, 0x0e, [15] = 0x77 } };
	struct ibv_mw *window;
	struct region r;
	struct device d;
	struct ibv_qp *qp;

	find_function();
	device_open(&d);
	region_make(&r, &d, 4096, 0, ACCESS_ALL | IBV_ACCESS_MW_BIND);
	window = ibv_alloc_mw(d.pd, IBV_MW_TYPE_2);
	REQUIRE(window);
	init.send_cq = ibv_create_cq(d.ctx, 16, NULL, NULL, 0);
	REQUIRE(init.send_cq);
	init.recv_cq = init.send_cq;
	qp = ibv_create_qp(d.pd, &init);
	REQUIRE(qp);
	REQUIRE_ERRNO(ibv_attach_mcast(qp, &group, 0), 0);
	reset_unseen();
	expect_async(d.ctx, IBV_EVENT_DEVICE_FATAL, NULL);
	bind_again();
	expect_it_works();
}

/* The driver goes with all that it has, right after a reset that it may not have seen. */
static void unbound_right_after(void)
{
	struct program p[MANY_PROGRAMS];

	find_function();
	programs_start(p);
	reset_unseen();
	unbind();
	programs_join(p);
	bind();
	expect_it_works();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "unbound_while_polling", unbound_while_polling },
		{ "unbound_while_sleeping", unbound_while_sleeping },
		{ "unbound_under_many_programs", unbound_under_many_programs,
		  60 },
		{ "removed_under_many_programs", removed_under_many_programs,
		  60 },
		{ "reset_under_many_programs", reset_under_many_programs, 60 },
		{ "reset_unseen_while_polling", reset_unseen_while_polling },
		{ "reset_unseen_while_sleeping", reset_unseen_while_sleeping },
		{ "reset_unseen_while_idle", reset_unseen_while_idle },
		{ "reset_unseen_while_making_objects",
		  reset_unseen_while_making_objects, 60 },
		{ "reset_unseen_under_many_programs",
		  reset_unseen_under_many_programs, 60 },
		{ "reset_unseen_with_groups_and_windows",
		  reset_unseen_with_groups_and_windows },
		{ "netdev_goes_and_comes", netdev_goes_and_comes },
		{ "netdev_comes_later", netdev_comes_later },
		{ "unbound_right_after", unbound_right_after, 60 },
		{ }
	};

	return test_main(argc, argv, cases);
}
