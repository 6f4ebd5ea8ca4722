// SPDX-License-Identifier: GPL-2.0
/*
 * Data that go with a connection's request and with its answer (librdmacm), as
 * libfabric's fi_connect() and fi_accept() send them: both sides get the
 * other's bytes, and learn that they are connected before they learn that the
 * other has left.
 */
#include "common.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

enum { PORT = 7600, ASKED = 56, ANSWERED = 196 };

/* One side: its queue pair needs a completion queue, which nothing uses. */
struct side {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
};

static struct rdma_cm_event *next_event(struct side *s,
					enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	REQUIRE_EQ(rdma_get_cm_event(s->channel, &event), 0);
	if (event->event != type)
		FAIL("%s of status %d in the place of %s",
		     rdma_event_str(event->event), event->status,
		     rdma_event_str(type));
	return event;
}

static void expect_event(struct side *s, enum rdma_cm_event_type type)
{
	REQUIRE_EQ(rdma_ack_cm_event(next_event(s, type)), 0);
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 },
	};

	REQUIRE_EQ(rdma_create_qp(id, NULL, &init), 0);
}

static struct rdma_conn_param parameters(void *data, uint8_t len)
{
	return (struct rdma_conn_param){
		.private_data = data, .private_data_len = len,
		.retry_count = 7, .rnr_retry_count = 7,
	};
}

/* The fields behind the bytes that were sent are padding of the message. */
static void expect_data(const struct rdma_cm_event *event, uint8_t len,
			uint64_t seed)
{
	REQUIRE(event->param.conn.private_data_len >= len);
	VERIFY(event->param.conn.private_data, len, seed);
}

static void connect_once(struct sockaddr_in *address, unsigned int round)
{
	struct rdma_conn_param param;
	struct rdma_cm_event *event;
	uint8_t data[ASKED];
	struct side s;

	s.channel = rdma_create_event_channel();
	REQUIRE(s.channel);
	REQUIRE_EQ(rdma_create_id(s.channel, &s.id, NULL, RDMA_PS_TCP), 0);
	REQUIRE_EQ(rdma_resolve_addr(s.id, NULL, (void *)address, 2000), 0);
	expect_event(&s, RDMA_CM_EVENT_ADDR_RESOLVED);
	REQUIRE_EQ(rdma_resolve_route(s.id, 2000), 0);
	expect_event(&s, RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_qp(s.id);
	fill(data, sizeof(data), round);
	param = parameters(data, sizeof(data));
	REQUIRE_EQ(rdma_connect(s.id, &param), 0);
	event = next_event(&s, RDMA_CM_EVENT_ESTABLISHED);
	expect_data(event, ANSWERED, round + 1000);
	REQUIRE_EQ(rdma_ack_cm_event(event), 0);
	/* At once: word of the connection and of its end are close together. */
	REQUIRE_EQ(rdma_disconnect(s.id), 0);
	expect_event(&s, RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(s.id);
	REQUIRE_EQ(rdma_destroy_id(s.id), 0);
	rdma_destroy_event_channel(s.channel);
}

static void *connect_all(void *address)
{
	for (unsigned int round = 0; round < opt.rounds; round++)
		connect_once(address, round);
	return NULL;
}

static void serve_once(struct side *listener, unsigned int round)
{
	struct rdma_conn_param param;
	struct rdma_cm_event *event;
	uint8_t data[ANSWERED];
	struct side s;

	event = next_event(listener, RDMA_CM_EVENT_CONNECT_REQUEST);
	expect_data(event, ASKED, round);
	s.channel = rdma_create_event_channel();
	REQUIRE(s.channel);
	s.id = event->id;
	REQUIRE_EQ(rdma_ack_cm_event(event), 0);
	REQUIRE_EQ(rdma_migrate_id(s.id, s.channel), 0);
	make_qp(s.id);
	fill(data, sizeof(data), round + 1000);
	param = parameters(data, sizeof(data));
	REQUIRE_EQ(rdma_accept(s.id, &param), 0);
	expect_event(&s, RDMA_CM_EVENT_ESTABLISHED);
	expect_event(&s, RDMA_CM_EVENT_DISCONNECTED);
	rdma_disconnect(s.id);
	rdma_destroy_qp(s.id);
	REQUIRE_EQ(rdma_destroy_id(s.id), 0);
	rdma_destroy_event_channel(s.channel);
}

static void connected_before_left(void)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_port = htons(PORT),
	};
	struct side listener;
	pthread_t client;
	struct device d;

	/* Its GID that is an IPv4 address ends in that. */
	device_open(&d);
	memcpy(&address.sin_addr, d.gid.raw + 12, 4);
	listener.channel = rdma_create_event_channel();
	REQUIRE(listener.channel);
	REQUIRE_EQ(rdma_create_id(listener.channel, &listener.id, NULL,
				  RDMA_PS_TCP), 0);
	REQUIRE_EQ(rdma_bind_addr(listener.id, (void *)&address), 0);
	REQUIRE_EQ(rdma_listen(listener.id, 16), 0);
	REQUIRE_EQ(pthread_create(&client, NULL, connect_all, &address), 0);
	for (unsigned int round = 0; round < opt.rounds; round++)
		serve_once(&listener, round);
	REQUIRE_EQ(pthread_join(client, NULL), 0);
	REQUIRE_EQ(rdma_destroy_id(listener.id), 0);
	rdma_destroy_event_channel(listener.channel);
	device_close(&d);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "connected_before_left", connected_before_left, 60 },
		{}
	};

	return test_main(argc, argv, cases);
}
