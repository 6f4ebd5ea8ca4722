// SPDX-License-Identifier: GPL-2.0
/*
 * As many objects of each kind as ibv_query_device(3) says that there are. The
 * kernel's own users of the device have some of them.
 */
#define _GNU_SOURCE
#include "common.h"

#include <stddef.h>
#include <stdlib.h>

/* Objects of one kind that the kernel's own users may have, at most. */
enum { OTHERS = 16 };

/* The time of a case. */
enum { SECONDS = 150 };

struct scene {
	struct device d;
	struct ibv_cq *cq;
};

static void scene_make(struct scene *s)
{
	device_open(&s->d);
	s->cq = ibv_create_cq(s->d.ctx, 16, NULL, NULL, 0);
	REQUIRE(s->cq);
}

static void scene_free(struct scene *s)
{
	REQUIRE_EQ(ibv_destroy_cq(s->cq), 0);
	device_close(&s->d);
}

/*
 * Makes objects until there are no more, which has to be at the int in
 * struct ibv_device_attr at `attribute`, counting those of others and `before`
 * in the scene. One that is given back can be made again.
 */
static void exhaust(size_t attribute, unsigned int before,
		    void *(*make)(struct scene *),
		    int (*destroy)(void *object))
{
	unsigned int most, count = 0;
	struct scene s;
	void **made;
	int max;

	scene_make(&s);
	memcpy(&max, (const char *)&s.d.attr + attribute, sizeof(max));
	most = max - before;
	made = calloc(most + 1, sizeof(*made));
	REQUIRE(made);
	while (count <= most) {
		errno = 0;
		made[count] = make(&s);
		if (!made[count])
			break;
		count++;
	}
	test_note("%u of %u", count, most);
	REQUIRE_ERRNO(errno, ENOMEM);
	REQUIRE(count <= most && count + OTHERS >= most);
	REQUIRE_EQ(destroy(made[count - 1]), 0);
	made[count - 1] = make(&s);
	REQUIRE(made[count - 1]);
	while (count)
		REQUIRE_EQ(destroy(made[--count]), 0);
	free(made);
	scene_free(&s);
}

#define EXHAUST(attribute, before, kind)                                   \
	exhaust(offsetof(struct ibv_device_attr, attribute), before,       \
		make_##kind, destroy_##kind)

static void *make_pd(struct scene *s)
{
	return ibv_alloc_pd(s->d.ctx);
}

static int destroy_pd(void *pd)
{
	return ibv_dealloc_pd(pd);
}

static void *make_cq(struct scene *s)
{
	return ibv_create_cq(s->d.ctx, 1, NULL, NULL, 0);
}

static int destroy_cq(void *cq)
{
	return ibv_destroy_cq(cq);
}

static struct ibv_qp *make_qp_of(struct scene *s, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = s->cq,
		.recv_cq = s->cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = type,
	};

	return ibv_create_qp(s->d.pd, &init);
}

static void *make_qp(struct scene *s)
{
	return make_qp_of(s, IBV_QPT_RC);
}

static int destroy_qp(void *qp)
{
	return ibv_destroy_qp(qp);
}

static void *make_srq(struct scene *s)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 1, .max_sge = 1 } };

	return ibv_create_srq(s->d.pd, &init);
}

static int destroy_srq(void *srq)
{
	return ibv_destroy_srq(srq);
}

static uint8_t bytes[8];

static void *make_mr(struct scene *s)
{
	return ibv_reg_mr(s->d.pd, bytes, sizeof(bytes), IBV_ACCESS_LOCAL_WRITE);
}

static int destroy_mr(void *mr)
{
	return ibv_dereg_mr(mr);
}

static void *make_mw(struct scene *s)
{
	return ibv_alloc_mw(s->d.pd, IBV_MW_TYPE_2);
}

static int destroy_mw(void *mw)
{
	return ibv_dealloc_mw(mw);
}

static void *make_ah(struct scene *s)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = { .sgid_index = s->d.gid_index, .dgid = s->d.gid,
			 .hop_limit = 1 },
	};

	return ibv_create_ah(s->d.pd, &attr);
}

static int destroy_ah(void *ah)
{
	return ibv_destroy_ah(ah);
}

static void protection_domains(void)
{
	EXHAUST(max_pd, 1, pd);
}

static void completion_queues(void)
{
	EXHAUST(max_cq, 1, cq);
}

static void queue_pairs(void)
{
	EXHAUST(max_qp, 0, qp);
}

static void shared_receive_queues(void)
{
	EXHAUST(max_srq, 0, srq);
}

static void memory_regions(void)
{
	EXHAUST(max_mr, 0, mr);
}

static void memory_windows(void)
{
	EXHAUST(max_mw, 0, mw);
}

static void address_handles(void)
{
	EXHAUST(max_ah, 0, ah);
}

/* The group of a number: an IPv4 one, as a GID. */
static union ibv_gid group_of(unsigned int number)
{
	union ibv_gid gid = { .raw = { [10] = 0xff, [11] = 0xff, [12] = 239 } };

	gid.raw[13] = number >> 16;
	gid.raw[14] = number >> 8;
	gid.raw[15] = number;
	return gid;
}

static struct ibv_qp *make_ud(struct scene *s)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp *qp = make_qp_of(s, IBV_QPT_UD);

	REQUIRE(qp);
	REQUIRE_EQ(ibv_modify_qp(qp, &attr,
				 IBV_QP_STATE | IBV_QP_PKEY_INDEX |
				 IBV_QP_PORT | IBV_QP_QKEY), 0);
	return qp;
}

/* Queue pairs that share the groups: uverbs has a list for each, which it searches. */
enum { HOLDERS = 64 };

static unsigned int attach_all(struct ibv_qp **holders, unsigned int most)
{
	unsigned int groups = 0;

	while (groups <= most) {
		union ibv_gid gid = group_of(groups);
		int error = ibv_attach_mcast(holders[groups % HOLDERS], &gid, 0);

		if (error) {
			REQUIRE_ERRNO(error, ENOMEM);
			break;
		}
		groups++;
	}
	return groups;
}

/*
 * Groups, and members of one. The network device may be in some groups itself.
 * Linux programs the filter of the network device anew for each group.
 */
static void multicast_groups(void)
{
	struct ibv_qp *holders[HOLDERS], **members;
	union ibv_gid gid = group_of(0);
	unsigned int groups, most;
	struct scene s;

	scene_make(&s);
	for (unsigned int i = 0; i < HOLDERS; i++)
		holders[i] = make_ud(&s);
	most = s.d.attr.max_mcast_grp;
	groups = attach_all(holders, most);
	test_note("%u of %u groups", groups, most);
	REQUIRE(groups <= most && groups + OTHERS >= most);

	/* One is a member already. */
	most = s.d.attr.max_mcast_qp_attach;
	members = calloc(most, sizeof(*members));
	REQUIRE(members);
	for (unsigned int i = 0; i < most; i++) {
		members[i] = make_ud(&s);
		REQUIRE_ERRNO(ibv_attach_mcast(members[i], &gid, 0),
			      i + 1 < most ? 0 : ENOMEM);
	}
	for (unsigned int i = 0; i < most; i++) {
		if (i + 1 < most)
			REQUIRE_EQ(ibv_detach_mcast(members[i], &gid, 0), 0);
		REQUIRE_EQ(ibv_destroy_qp(members[i]), 0);
	}
	free(members);
	while (groups) {
		gid = group_of(--groups);
		REQUIRE_EQ(ibv_detach_mcast(holders[groups % HOLDERS], &gid, 0),
			   0);
	}
	for (unsigned int i = 0; i < HOLDERS; i++)
		REQUIRE_EQ(ibv_destroy_qp(holders[i]), 0);
	scene_free(&s);
}

/* The longest queues, with the most scatter/gather entries. */
static void depths(void)
{
	struct scene s;

	scene_make(&s);
	struct ibv_qp_init_attr init = {
		.send_cq = s.cq,
		.recv_cq = s.cq,
		.cap = { .max_send_wr = s.d.attr.max_qp_wr,
			 .max_recv_wr = s.d.attr.max_qp_wr,
			 .max_send_sge = s.d.attr.max_sge,
			 .max_recv_sge = s.d.attr.max_sge },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_srq_init_attr shared = {
		.attr = { .max_wr = s.d.attr.max_srq_wr,
			  .max_sge = s.d.attr.max_srq_sge },
	};
	struct ibv_cq *cq = ibv_create_cq(s.d.ctx, s.d.attr.max_cqe, NULL, NULL, 0);
	struct ibv_qp *qp = ibv_create_qp(s.d.pd, &init);
	struct ibv_srq *srq = ibv_create_srq(s.d.pd, &shared);

	REQUIRE(cq && cq->cqe == s.d.attr.max_cqe);
	REQUIRE(qp && (int)init.cap.max_send_wr == s.d.attr.max_qp_wr &&
		(int)init.cap.max_recv_wr == s.d.attr.max_qp_wr);
	REQUIRE(srq);
	REQUIRE_EQ(ibv_destroy_srq(srq), 0);
	REQUIRE_EQ(ibv_destroy_qp(qp), 0);
	REQUIRE_EQ(ibv_destroy_cq(cq), 0);
	REQUIRE(!ibv_create_cq(s.d.ctx, s.d.attr.max_cqe + 1, NULL, NULL, 0));
	REQUIRE_ERRNO(errno, EINVAL);
	init.cap.max_send_wr = s.d.attr.max_qp_wr + 1;
	REQUIRE(!ibv_create_qp(s.d.pd, &init));
	REQUIRE_ERRNO(errno, EINVAL);
	shared.attr.max_wr = s.d.attr.max_srq_wr + 1;
	REQUIRE(!ibv_create_srq(s.d.pd, &shared));
	REQUIRE_ERRNO(errno, EINVAL);
	scene_free(&s);
}

static const struct test_case cases[] = {
	{ "depths", depths },
	{ "protection_domains", protection_domains, SECONDS },
	{ "address_handles", address_handles, SECONDS },
	{ "memory_windows", memory_windows, SECONDS },
	{ "memory_regions", memory_regions, SECONDS },
	{ "completion_queues", completion_queues, SECONDS },
	{ "shared_receive_queues", shared_receive_queues, SECONDS },
	{ "queue_pairs", queue_pairs, SECONDS },
	{ "multicast_groups", multicast_groups, SECONDS },
	{},
};

int main(int argc, char **argv)
{
	/* Each queue is a mapping of its own. */
	if (run_command("sysctl -q -w vm.max_map_count=1000000"))
		return 1;
	return test_main(argc, argv, cases);
}
