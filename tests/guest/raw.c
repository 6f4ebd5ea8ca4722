// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE
#include "raw.h"

#include <sys/ioctl.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

void *raw_new_mapping(const struct mapping *before, unsigned int n,
		      bool writable, size_t *len)
{
	struct mapping now[32];
	unsigned int m = device_mappings(now, ARRAY_SIZE(now));

	for (unsigned int i = 0; i < m; i++) {
		bool old = false;

		for (unsigned int j = 0; j < n; j++)
			old |= before[j].begin == now[i].begin;
		if (old || mapping_writable(&now[i]) != writable)
			continue;
		if (len)
			*len = now[i].end - now[i].begin;
		return (void *)now[i].begin;
	}
	FAIL("the provider has not mapped what was expected");
}

void raw_open(struct raw_context *c, struct device *d)
{
	struct mapping before[32];
	unsigned int n = device_mappings(before, ARRAY_SIZE(before));

	if (strncmp(opt.device, "ferrule", 7))
		test_skip("only ferrule's rings are known here");
	device_open(d);
	c->ctx = d->ctx;
	c->db = raw_new_mapping(before, n, true, NULL);
	c->status = raw_new_mapping(before, n, false, NULL);
	c->leaf = (void *)((char *)c->db + FERRULE_DB_LEAF_OFFSET);
}

int raw_kick(struct raw_context *c)
{
	struct ib_uverbs_ioctl_hdr hdr = {
		.length = sizeof(hdr),
		.object_id = UVERBS_OBJECT_DEVICE,
		.method_id = FERRULE_METHOD_KICK,
		.driver_id = FERRULE_DRIVER_ID,
	};

	return ioctl(c->ctx->cmd_fd, RDMA_VERBS_IOCTL, &hdr);
}

int raw_call(int fd, uint16_t method, uint16_t attr, uint16_t len,
	     uint64_t data)
{
	struct {
		struct ib_uverbs_ioctl_hdr hdr;
		struct ib_uverbs_attr attr;
	} cmd = {
		.hdr = {
			.length = sizeof(cmd),
			.object_id = UVERBS_OBJECT_DEVICE,
			.method_id = method,
			.num_attrs = 1,
			.driver_id = FERRULE_DRIVER_ID,
		},
		.attr = {
			.attr_id = attr,
			.len = len,
			.flags = UVERBS_ATTR_F_MANDATORY,
			.data = data,
		},
	};

	return ioctl(fd, RDMA_VERBS_IOCTL, &cmd) ? errno : 0;
}

int raw_method(int fd, uint16_t method, uint32_t number)
{
	return raw_call(fd, method, FERRULE_ATTR_NUMBER, sizeof(number),
			number);
}

void raw_count(struct raw_context *c)
{
	uint64_t count = (le64toh(c->db->rung) >> FERRULE_RUNG_COUNT_SHIFT) + 1;

	__atomic_store_n(&c->db->rung, htole64(count << FERRULE_RUNG_COUNT_SHIFT), __ATOMIC_SEQ_CST);
}

/* Toggles a bit if the engine has acknowledged all toggles of it. */
static bool toggle(uint64_t *words, const uint64_t *acks, uint32_t position)
{
	uint64_t bit = 1ull << position % 64;
	uint64_t *word = &words[position / 64];

	if ((__atomic_load_n(word, __ATOMIC_SEQ_CST) ^
	     __atomic_load_n(&acks[position / 64], __ATOMIC_SEQ_CST)) & bit)
		return false;
	__atomic_fetch_xor(word, bit, __ATOMIC_SEQ_CST);
	return true;
}

void raw_ring(struct raw_context *c, uint32_t qpn)
{
	const uint64_t *acks = (const void *)((const char *)c->status +
					      FERRULE_DB_LEAF_OFFSET);
	uint32_t d = qpn & FERRULE_DB_INDEX_MASK;

	/* A bit that was rung may have been taken before it was counted. */
	for (int tries = 0; tries < 2; tries++) {
		if (toggle(c->leaf, acks, d))
			toggle((uint64_t *)c->db->top,
			       (const uint64_t *)c->status->top, d / 64);
		raw_count(c);
	}
}

void raw_ring_all(struct raw_context *c)
{
	for (int i = 0; i < FERRULE_DB_LEAF_WORDS; i++)
		c->leaf[i] = ~c->leaf[i];
	for (int i = 0; i < FERRULE_DB_TOP_WORDS; i++)
		c->db->top[i] = ~c->db->top[i];
	raw_count(c);
}
