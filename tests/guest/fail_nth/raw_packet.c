// SPDX-License-Identifier: GPL-2.0
/* Raw packet queue pairs and their flows, where the device has them. */
#include "stage.h"

static int create_qp(void)
{
	return made(raw_qp());
}

/* Of each type, since the network device takes part in other ways. */
static int create_flow(enum ibv_flow_attr_type type)
{
	struct ibv_flow_attr attr = {
		.type = type, .size = sizeof(attr), .port = 1,
	};

	return made(ibv_create_flow(st.raw, &attr));
}

static int create_flow_normal(void)
{
	return create_flow(IBV_FLOW_ATTR_NORMAL);
}

static int create_flow_sniffer(void)
{
	return create_flow(IBV_FLOW_ATTR_SNIFFER);
}

static void destroy_flow(void)
{
	REQUIRE_ERRNO(ibv_destroy_flow(st.made), 0);
}

const struct verb raw_packet_verbs[] = {
	{ "ibv_create_qp, raw packets", create_qp, destroy_qp },
	{ "ibv_create_flow, normal", create_flow_normal, destroy_flow },
	{ "ibv_create_flow, sniffer", create_flow_sniffer, destroy_flow },
	{ }
};

const struct destroyed raw_packet_destroyed[] = {
	{ "ibv_destroy_flow", create_flow_sniffer,
	  (int (*)(void *))ibv_destroy_flow },
	{ }
};
