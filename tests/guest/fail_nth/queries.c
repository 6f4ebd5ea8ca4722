// SPDX-License-Identifier: GPL-2.0
/* Verbs that ask. */
#include "stage.h"

static int query_device(void)
{
	struct ibv_device_attr attr;

	return ibv_query_device(st.d.ctx, &attr);
}

static int query_port(void)
{
	struct ibv_port_attr attr;

	return ibv_query_port(st.d.ctx, 1, &attr);
}

static int query_device_ex(void)
{
	struct ibv_device_attr_ex attr;

	return ibv_query_device_ex(st.d.ctx, NULL, &attr);
}

static int query_gid(void)
{
	struct ibv_gid_entry entry;

	return ibv_query_gid_ex(st.d.ctx, 1, st.d.gid_index, &entry, 0);
}

static int query_gid_table(void)
{
	struct ibv_gid_entry entries[16];
	ssize_t n = ibv_query_gid_table(st.d.ctx, entries,
					ARRAY_SIZE(entries), 0);

	return n < 0 ? -n : 0;
}

static int query_qp(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	return ibv_query_qp(st.a.qp, &attr, IBV_QP_STATE, &init);
}

static int query_srq(void)
{
	struct ibv_srq_attr attr;

	return ibv_query_srq(st.srq, &attr);
}

const struct verb query_verbs[] = {
	{ "ibv_query_device", query_device },
	{ "ibv_query_device_ex", query_device_ex },
	{ "ibv_query_port", query_port },
	{ "ibv_query_gid_ex", query_gid },
	{ "ibv_query_gid_table", query_gid_table },
	{ "ibv_query_srq", query_srq },
	{ "ibv_query_qp", query_qp },
	{ }
};
