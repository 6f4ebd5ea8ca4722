// SPDX-License-Identifier: GPL-2.0
/* The control groups of RDMA and of memory: each counts what it has. */
#include "isolation.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define GROUP "/sys/fs/cgroup/isolation"

/* The group's count of what it has of the device. */
static void require_charged(unsigned int handles, unsigned int objects)
{
	REQUIRE_EQ(run_command("grep -qw '%s hca_handle=%u hca_object=%u' "
			       GROUP "/rdma.current",
			       opt.device, handles, objects), 0);
}

static void fill_group(void *arg)
{
	struct ibv_context *other;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct device d;
	char byte;

	(void)arg;
	REQUIRE_EQ(run_command("echo %d > " GROUP "/cgroup.procs", getpid()),
		   0);
	/* A handle and a protection domain. */
	device_open(&d);
	mr = ibv_reg_mr(d.pd, &byte, 1, 0);
	REQUIRE(mr);
	cq = ibv_create_cq(d.ctx, 16, NULL, NULL, 0);
	REQUIRE(cq);
	require_charged(1, 3);
	REQUIRE_NULL_ERRNO(ibv_create_cq(d.ctx, 16, NULL, NULL, 0), EAGAIN);
	REQUIRE_NULL_ERRNO(ibv_alloc_pd(d.ctx), EAGAIN);
	other = ibv_open_device(d.ctx->device);
	REQUIRE(!other);
	/* An import is one more handle. */
	REQUIRE_NULL_ERRNO(ibv_import_device(dup(d.ctx->cmd_fd)), EAGAIN);
	require_charged(1, 3);
	/* Memory that is given back can be had again. */
	REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);
	require_charged(1, 2);
	REQUIRE(ibv_create_cq(d.ctx, 16, NULL, NULL, 0));
	require_charged(1, 3);
	/* The rest goes with the process. */
}

/* Handles and objects are counted, limited, and given back. */
static void rdma_cgroup(void)
{
	run_command("echo +rdma > /sys/fs/cgroup/cgroup.subtree_control");
	REQUIRE_EQ(run_command("mkdir " GROUP), 0);
	REQUIRE_EQ(run_command("echo '%s hca_handle=1 hca_object=3' > " GROUP
			       "/rdma.max", opt.device), 0);
	join_process(fork_process(fill_group, NULL));
	REQUIRE_EQ(run_command("! grep -E '=[1-9]' " GROUP "/rdma.current"), 0);
	REQUIRE_EQ(run_command("rmdir " GROUP), 0);
}

/*
 * Objects of 17 to 32 bytes that are charged to nobody: those which are charged
 * have caches of their own (kmalloc-cg-*). Other sizes do not tell whose they
 * are: for an area of a page vmalloc() has one of 64 bytes and one of 8, which
 * it charges to nobody.
 */
static long uncharged_objects(void)
{
	FILE *file = fopen("/proc/slabinfo", "r");
	char line[512], name[64];
	long all = 0, active;

	if (!file)
		test_skip("there is no /proc/slabinfo");
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "%63s %ld", name, &active) == 2 &&
		    !strncmp(name, "kmalloc-", 8) &&
		    strncmp(name, "kmalloc-cg-", 11) &&
		    atoi(strrchr(name, '-') + 1) == 32)
			all += active;
	fclose(file);
	return all;
}

static void *one_cq(struct device *d)
{
	return ibv_create_cq(d->ctx, 1, NULL, NULL, 0);
}

static void *one_srq(struct device *d)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 1 } };

	return ibv_create_srq(d->pd, &init);
}

static void *one_qp(struct device *d)
{
	static struct ibv_cq *cq;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };

	if (!cq)
		cq = one_cq(d);
	init.send_cq = init.recv_cq = cq;
	return ibv_create_qp(d->pd, &init);
}

/* They stay open, and with them two mappings and two files each. */
static void *one_context(struct device *d)
{
	return ibv_open_device(d->ctx->device);
}

/*
 * Each allocation of the driver for a program, down to the smallest object, is
 * charged to its control group: many objects of each kind leave those that are
 * charged to nobody about as they were. (Caches count by pages of objects.)
 */
static void objects_charged(void)
{
	static const struct {
		const char *name;
		void *(*make)(struct device *d);
		unsigned int count;
		/* Areas of 3 or 4 pages, for which vmalloc() has one. */
		unsigned int areas;
	} kinds[] = {
		{ "completion queues", one_cq, 1000, 0 },
		{ "shared receive queues", one_srq, 1000, 0 },
		{ "queue pairs", one_qp, 1000, 0 },
		{ "contexts", one_context, 400, 2 },
	};
	struct device d;

	device_open(&d);
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		unsigned int count = kinds[i].count;
		long before, more;

		REQUIRE(kinds[i].make(&d));
		before = uncharged_objects();
		for (unsigned int n = 0; n < count; n++)
			if (!kinds[i].make(&d))
				FAIL("%s: number %u: %s", kinds[i].name, n,
				     strerror(errno));
		more = uncharged_objects() - before;
		test_note("%u %s: %ld small objects that nobody is charged for",
			  count, kinds[i].name, more);
		REQUIRE(more < (long)(count * kinds[i].areas + count / 2));
	}
	/* The rest goes with the process. */
}

const struct test_case group_cases[] = {
	{ "rdma_cgroup", rdma_cgroup },
	{ "objects_charged", objects_charged, 60 },
	{ }
};
