// SPDX-License-Identifier: GPL-2.0
/* Cases: the second driver's device on a PCI function, whose engine does its copies. */
#define _GNU_SOURCE
#include "rdma_loop.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* The function, which is QEMU's "edu", by its place on the bus. */
#define PLACE "$(basename $(dirname $(grep -l 0x11e8 /sys/bus/pci/devices/*/device)))"
#define DRIVER "/sys/bus/pci/drivers/rdma_loop/"
#define IBDEV "/sys/class/infiniband/" DEVICE

/* The address of the netdev is that by which the function finds it. */
static void make_function(void)
{
	REQUIRE_EQ(run_command("ip link add " NETDEV " address 02:00:00:00:0e:d0 type dummy && "
			       "ip link set " NETDEV " up && "
			       "ip addr add 10.79.0.1/24 dev " NETDEV " && "
			       "{ test -e " DRIVER PLACE " || echo " PLACE " > " DRIVER "bind; }"), 0);
	await_gid();
}

static void unbind(void)
{
	REQUIRE_EQ(run_command("echo " PLACE " > " DRIVER "unbind"), 0);
	REQUIRE(access(IBDEV, F_OK));
}

static void remove_function(void)
{
	unbind();
	REQUIRE_EQ(run_command("ip link delete " NETDEV), 0);
}

static void send_one(struct loop *l, uint64_t wr_id)
{
	fill(l->mem, LEN, wr_id);
	memset(l->mem + LEN, 0, LEN);
	post(l, wr_id, l->lkey);
	REQUIRE_ERRNO(kick(l), 0);
	expect(l, wr_id, IBV_WC_RECV, IBV_WC_SUCCESS);
	expect(l, wr_id, IBV_WC_SEND, IBV_WC_SUCCESS);
	VERIFY(l->mem + LEN, LEN, wr_id);
}

/* The engine finds the pages of a program, however these follow each other in memory. */
void function_messages(void)
{
	struct loop l;

	make_function();
	attach(&l);
	make_objects(&l);
	for (uint64_t i = 0; i < 3; i++)
		send_one(&l, i);
	post(&l, 7, l.lkey + 1000);
	REQUIRE_ERRNO(kick(&l), 0);
	expect(&l, 7, IBV_WC_RECV, IBV_WC_LOC_PROT_ERR);
	expect(&l, 7, IBV_WC_SEND, IBV_WC_LOC_PROT_ERR);
	destroy_objects(&l);
	detach(&l);
	remove_function();
}

/* It is no link: its place is below the function, and nobody can remove it. */
void function_is_no_link(void)
{
	make_function();
	REQUIRE_EQ(run_command("grep -q 0x11e8 " IBDEV "/device/device"), 0);
	REQUIRE(run_command("rdma link delete " DEVICE " 2>/dev/null"));
	/* Nor does its netdev get a second device of the driver. */
	REQUIRE(run_command("rdma link add other type loop netdev " NETDEV " 2>/dev/null"));
	REQUIRE_EQ(access(IBDEV, F_OK), 0);
	remove_function();
}

/* The netdev changes its MTU, and then goes: the device stays, without it. */
void function_without_netdev(void)
{
	struct loop l;

	make_function();
	attach(&l);
	make_objects(&l);
	REQUIRE_EQ(run_command("ip link set " NETDEV " mtu 1400 && grep -qx 1400 " IBDEV "/fw_ver"), 0);
	REQUIRE_EQ(run_command("rdma link show " DEVICE "/1 | grep -q 'netdev " NETDEV "'"), 0);
	REQUIRE_EQ(run_command("ip link delete " NETDEV), 0);
	REQUIRE_EQ(access(IBDEV, F_OK), 0);
	REQUIRE(run_command("rdma link show " DEVICE "/1 2>/dev/null | grep -q netdev"));
	send_one(&l, 1);
	destroy_objects(&l);
	detach(&l);
	unbind();
}

/* The function is unbound while a program has memory registered and rings mapped. */
void function_unbound(void)
{
	struct ib_uverbs_alloc_pd alloc_pd = { };
	struct ib_uverbs_alloc_pd_resp pd;
	struct loop l;

	make_function();
	for (int i = 0; i < 3; i++) {
		attach(&l);
		make_objects(&l);
		send_one(&l, 1);
		unbind();
		REQUIRE_ERRNO(kick(&l), EIO);
		REQUIRE_ERRNO(COMMAND(&l, ALLOC_PD, &alloc_pd, &pd), EIO);
		close(l.channel);
		close(l.fd);
		REQUIRE_EQ(run_command("echo " PLACE " > " DRIVER "bind"), 0);
		await_gid();
	}
	remove_function();
}

/* The module goes, and with it the function's device, under a program. */
void function_with_module(void)
{
	struct loop l;

	make_function();
	attach(&l);
	make_objects(&l);
	REQUIRE_EQ(run_command("rmmod rdma_loop"), 0);
	REQUIRE_ERRNO(kick(&l), EIO);
	close(l.channel);
	close(l.fd);
	REQUIRE_EQ(run_command("ip link delete " NETDEV " && /run/lab/load /ferrule/module/rdma_loop.ko"), 0);
}
