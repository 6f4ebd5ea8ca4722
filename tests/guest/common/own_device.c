// SPDX-License-Identifier: GPL-2.0
/*
 * A device that a case has for itself. With a PCI function of ferrule-nic it
 * is the function, of which a guest has one: it goes and comes as its driver
 * lets go of it and takes it. Otherwise it is made with `rdma link`.
 */
#define _GNU_SOURCE
#include "../common.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DRIVER "/sys/bus/pci/drivers/ferrule"
/* The subsystem that tells the function from others of its number. */
#define SUBSYSTEM "0x4645"

static void read_line(const char *path, char *line, size_t size)
{
	FILE *f = fopen(path, "r");

	if (!f)
		FAIL("%s: %s", path, strerror(errno));
	if (!fgets(line, size, f))
		line[0] = 0;
	line[strcspn(line, "\n")] = 0;
	fclose(f);
}

/* The PCI address of the guest's function; false if there is none. */
static bool find_function(char *address, size_t size)
{
	bool found = false;
	glob_t all;

	if (glob("/sys/bus/pci/devices/*/subsystem_device", 0, NULL, &all))
		return false;
	for (size_t i = 0; i < all.gl_pathc && !found; i++) {
		char line[16];

		read_line(all.gl_pathv[i], line, sizeof(line));
		found = !strcmp(line, SUBSYSTEM);
		if (found)
			snprintf(address, size, "%s",
				 all.gl_pathv[i] + strlen("/sys/bus/pci/devices/"));
	}
	globfree(&all);
	address[strcspn(address, "/")] = 0;
	return found;
}

bool has_function(void)
{
	char address[16];

	return find_function(address, sizeof(address));
}

static bool device_has_gid(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_gid_entry entries[8];
	struct ibv_context *ctx;
	bool ready = false;

	for (int i = 0; list && list[i]; i++) {
		if (strcmp(ibv_get_device_name(list[i]), name))
			continue;
		ctx = ibv_open_device(list[i]);
		if (!ctx)
			continue;
		/* IPv6 of the link and IPv4, of which RoCEv2 has one each. */
		ready = ibv_query_gid_table(ctx, entries, ARRAY_SIZE(entries),
					    0) >= 2;
		ibv_close_device(ctx);
	}
	ibv_free_device_list(list);
	return ready;
}

void wait_for_gids(const char *device)
{
	uint64_t end = now_us() + PATIENCE_US;

	while (!device_has_gid(device)) {
		if (now_us() > end)
			FAIL("%s has not got its GIDs", device);
		sleep_us(10000);
	}
}

static void take_function(struct own_device *o, int mtu)
{
	char path[96];

	/* A program of a case that failed may have left it without a driver. */
	run_command("[ -e " DRIVER "/%s ] || echo %s > " DRIVER "/bind",
		    o->function, o->function);
	snprintf(o->device, sizeof(o->device), "%s0", opt.type);
	wait_for_gids(o->device);
	snprintf(path, sizeof(path),
		 "/sys/class/infiniband/%s/ports/1/gid_attrs/ndevs/0", o->device);
	read_line(path, o->netdev, sizeof(o->netdev));
	REQUIRE_EQ(run_command("ip link set %s mtu %d", o->netdev, mtu), 0);
}

/* A case that failed does not clean up, so the next begins with that. */
void own_device_make(struct own_device *o, unsigned int number, int mtu)
{
	if (!opt.type)
		FAIL("this case needs --type");
	o->function[0] = 0;
	if (strcmp(opt.device, "none") &&
	    find_function(o->function, sizeof(o->function))) {
		take_function(o, mtu);
		return;
	}
	snprintf(o->netdev, sizeof(o->netdev), "test%u", number);
	snprintf(o->device, sizeof(o->device), "%s_test%u", opt.type, number);
	run_command("rdma link delete %s 2>/dev/null; ip link delete %s 2>/dev/null",
		    o->device, o->netdev);
	REQUIRE_EQ(run_command("ip link add %s type dummy && "
			       "ip link set %s mtu %d up && "
			       "ip addr add 10.78.%u.1/24 dev %s",
			       o->netdev, o->netdev, mtu, number, o->netdev),
		   0);
	REQUIRE_EQ(run_command("rdma link add %s type %s netdev %s", o->device,
			       opt.type, o->netdev), 0);
	/* wire_only.sh says so. */
	if (getenv("WIRE_ONLY"))
		REQUIRE_EQ(run_command("echo 1 > /sys/kernel/debug/ferrule/%s/wire_only",
				       o->device), 0);
	wait_for_gids(o->device);
}

void own_device_delete(const struct own_device *o)
{
	if (o->function[0])
		REQUIRE_EQ(run_command("timeout %u sh -c 'echo %s > " DRIVER "/unbind'",
				       20 * opt.slow, o->function), 0);
	else
		REQUIRE_EQ(run_command("timeout %u rdma link delete %s",
				       20 * opt.slow, o->device), 0);
}

void own_device_clean(const struct own_device *o)
{
	if (!o->function[0]) {
		REQUIRE_EQ(run_command("ip link delete %s", o->netdev), 0);
		return;
	}
	REQUIRE_EQ(run_command("ip link set %s mtu 9000 && "
			       "{ [ -e " DRIVER "/%s ] || echo %s > " DRIVER "/bind; }",
			       o->netdev, o->function, o->function), 0);
	wait_for_gids(o->device);
}

void own_device_remove(const struct own_device *o)
{
	if (!o->function[0])
		own_device_delete(o);
	own_device_clean(o);
}
