// SPDX-License-Identifier: GPL-2.0
/*
 * Programs that have nothing to do with each other have engines of their own,
 * and those that are connected have one. Each context here is a program to the
 * driver. Contexts are connected beside streams, beside commands and beside
 * each other, and nothing is lost by that.
 */
#include "shards/shards.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum {
	CONTEXTS = 6,
	BEGINNERS = 16,
	QUERIERS = 16,
	LARGE = 256 << 10,
	DEPTH = 8,
};

/* With one processor there is one shard. */
static bool has_shards(void)
{
	return sysconf(_SC_NPROCESSORS_CONF) > 1;
}

void program_open(struct program *p, enum ibv_qp_type far_type)
{
	const struct end_config config = { .type = IBV_QPT_RC };
	const struct end_config far = { .type = far_type };

	memset(p, 0, sizeof(*p));
	device_open(&p->d);
	ends_make(&p->a, &p->b, &p->d, &config);
	region_make(&p->mine, &p->d, LARGE, 0, ACCESS_ALL);
	region_make(&p->theirs, &p->d, LARGE, 0, ACCESS_ALL);
	fill(p->mine.data, LARGE, 1);
	p->to = end_address(&p->b, &p->theirs);
	end_make(&p->far, &p->d, &far);
	region_make(&p->mail, &p->d, 4096, 0, ACCESS_ALL);
}

void program_close(struct program *p)
{
	end_free(&p->far);
	end_free(&p->a);
	end_free(&p->b);
	region_free(&p->mail);
	region_free(&p->mine);
	region_free(&p->theirs);
	device_close(&p->d);
}

void exchange(struct program *one, struct program *other, uint64_t seed)
{
	struct program *from[2] = { one, other }, *to[2] = { other, one };

	for (int i = 0; i < 2; i++) {
		fill(from[i]->mail.data + 2048, 64, seed + i);
		memset(to[i]->mail.data, 0, 64);
		recv_region(&to[i]->far, seed, &to[i]->mail, 0, 64);
		send_region(&from[i]->far, seed, &from[i]->mail, 2048, 64);
		EXPECT_OK(from[i]->far.scq, seed);
		EXPECT_OK(to[i]->far.rcq, seed);
		VERIFY(to[i]->mail.data, 64, seed + i);
	}
}

/* A stream of WRITEs within a program, large ones and small ones by turns. */
static void *stream(void *arg)
{
	struct program *p = arg;
	unsigned int posted = 0, ended = 0;
	struct ibv_wc wc;

	while (!p->stop || posted != ended) {
		while (!p->stop && posted - ended < DEPTH) {
			size_t len = posted % 4 ? 8 : LARGE;
			struct ibv_sge sge = sge_of(&p->mine, 0, len);

			send_sges(&p->a, posted++, IBV_WR_RDMA_WRITE,
				  IBV_SEND_SIGNALED, &sge, 1, &p->to, 0, 0);
		}
		if (ibv_poll_cq(p->a.scq, 1, &wc) != 1)
			continue;
		REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
		REQUIRE_EQ(wc.wr_id, ended);
		ended++;
		p->done++;
	}
	return NULL;
}

/* Commands within a program: its objects come, change and go. */
static void *commands(void *arg)
{
	struct program *p = arg;

	while (!p->stop) {
		struct region r;
		struct ibv_cq *cq = ibv_create_cq(p->d.ctx, 16, NULL, NULL, 0);

		REQUIRE(cq);
		region_make(&r, &p->d, 4096, 0, ACCESS_ALL);
		REQUIRE_ERRNO(ibv_resize_cq(cq, 64), 0);
		region_free(&r);
		REQUIRE_ERRNO(ibv_destroy_cq(cq), 0);
		end_reset(&p->b);
		end_reset(&p->a);
		ends_connect(&p->a, &p->b);
		p->done++;
	}
	return NULL;
}

static void start(struct program *p, void *(*run)(void *))
{
	p->stop = false;
	p->done = 0;
	REQUIRE_ERRNO(pthread_create(&p->thread, NULL, run, p), 0);
}

static void stop(struct program *p)
{
	long done = p->done;
	uint64_t end = now_us() + PATIENCE_US;

	/* It goes on after all that has happened. */
	while (p->done < done + 2) {
		REQUIRE(now_us() < end);
		sleep_us(100);
	}
	p->stop = true;
	REQUIRE_ERRNO(pthread_join(p->thread, NULL), 0);
}

static void strangers_are_apart(void)
{
	struct program p[3];
	int shards[3];

	for (int i = 0; i < 3; i++) {
		program_open(&p[i], IBV_QPT_RC);
		shards[i] = shard_of(p[i].a.qp);
		REQUIRE_EQ(shard_of(p[i].b.qp), shards[i]);
		REQUIRE_EQ(shard_of(p[i].far.qp), shards[i]);
		REQUIRE_EQ(shards[i] != 0, has_shards());
		for (int j = 0; j < i; j++)
			REQUIRE_EQ(shards[i] != shards[j], has_shards());
	}
	test_note("shards %d, %d and %d", shards[0], shards[1], shards[2]);
	for (int i = 0; i < 3; i++)
		program_close(&p[i]);
}

static void peers_are_together_of(enum ibv_qp_type type)
{
	struct program p[3];

	for (int i = 0; i < 3; i++)
		program_open(&p[i], type);
	ends_connect(&p[0].far, &p[1].far);
	REQUIRE_EQ(shard_of(p[0].a.qp), shard_of(p[1].a.qp));
	REQUIRE_EQ(shard_of(p[0].far.qp), shard_of(p[1].far.qp));
	REQUIRE_EQ(shard_of(p[2].a.qp) != shard_of(p[0].a.qp), has_shards());
	exchange(&p[0], &p[1], 1);
	/* Over an unreliable connection one side may be connected to another. */
	if (type == IBV_QPT_UC) {
		struct peer to = end_address(&p[0].far, NULL);

		end_connect(&p[2].far, &to);
		REQUIRE_EQ(shard_of(p[2].far.qp), shard_of(p[0].far.qp));
	}
	for (int i = 0; i < 3; i++)
		program_close(&p[i]);
}

static void peers_are_together(void)
{
	peers_are_together_of(IBV_QPT_RC);
}

static void unreliable_peers_are_together(void)
{
	peers_are_together_of(IBV_QPT_UC);
}

/* One that nobody has connected to keeps its shard: a number can be guessed. */
static void only_peers_are_together(void)
{
	struct program p[2];
	struct peer to;

	for (int i = 0; i < 2; i++)
		program_open(&p[i], IBV_QPT_RC);
	to = end_address(&p[1].a, NULL);
	end_connect(&p[0].far, &to);
	REQUIRE_EQ(shard_of(p[0].a.qp) != shard_of(p[1].a.qp), has_shards());
	for (int i = 0; i < 2; i++)
		program_close(&p[i]);
}

/* Those with datagrams are apart until one of them may send to the others, and together from then on. */
static void datagrams_meet_by_a_local_handle(void)
{
	const struct end_config ud = { .type = IBV_QPT_UD };
	struct ibv_ah_attr vector = { .is_global = 1, .port_num = 1 };
	const char *device = opt.device;
	struct own_device own;
	struct program p[3];
	struct end ends[3];
	struct peer self;
	struct ibv_ah *ah;

	own_device_make(&own, 0, 1500);
	opt.device = own.device;
	wait_for_gids(own.device);
	for (int i = 0; i < 3; i++)
		program_open(&p[i], IBV_QPT_RC);
	for (int i = 0; i < 2; i++) {
		end_make(&ends[i], &p[i].d, &ud);
		self = end_address(&ends[i], NULL);
		end_connect(&ends[i], &self);
		REQUIRE_EQ(shard_of(ends[i].qp), shard_of(p[i].a.qp));
		REQUIRE_EQ(shard_of(ends[i].qp) != 0, has_shards());
	}
	REQUIRE_EQ(shard_of(ends[0].qp) != shard_of(ends[1].qp), has_shards());
	start(&p[0], stream);
	start(&p[1], stream);

	vector.grh.dgid = p[0].d.gid;
	vector.grh.sgid_index = p[0].d.gid_index;
	ah = ibv_create_ah(p[0].d.pd, &vector);
	REQUIRE(ah);
	for (int i = 0; i < 2; i++)
		REQUIRE_EQ(shard_of(ends[i].qp), 0);
	REQUIRE_EQ(shard_of(p[2].a.qp) != 0, has_shards());
	end_make(&ends[2], &p[2].d, &ud);
	REQUIRE_EQ(shard_of(ends[2].qp), 0);
	recv_region(&ends[1], 2, &p[1].mail, 0, 1024);
	send_datagram(&ends[0], 1, &p[0].mail, (struct datagram){
		      ah, ends[1].qp->qp_num, QKEY, 64 });
	EXPECT_OK(ends[0].scq, 1);
	EXPECT_OK(ends[1].rcq, 2);

	for (int i = 0; i < 2; i++)
		stop(&p[i]);
	REQUIRE_ERRNO(ibv_destroy_ah(ah), 0);
	for (int i = 0; i < 3; i++) {
		end_free(&ends[i]);
		program_close(&p[i]);
	}
	own_device_remove(&own);
	opt.device = device;
}

/*
 * Programs with streams, or commands, are connected one after the other, in
 * another order each time.
 */
static void join_beside(void *(*run)(void *))
{
	unsigned long rounds = opt.rounds ? opt.rounds : 10;

	for (unsigned long round = 0; round < rounds; round++) {
		enum ibv_qp_type type = round % 2 ? IBV_QPT_UC : IBV_QPT_RC;
		struct program p[CONTEXTS];
		unsigned int order[CONTEXTS];

		for (int i = 0; i < CONTEXTS; i++) {
			program_open(&p[i], type);
			order[i] = i;
		}
		for (int i = CONTEXTS - 1; i > 0; i--) {
			unsigned int j = rand() % (i + 1), k = order[i];

			order[i] = order[j];
			order[j] = k;
		}
		for (int i = 0; i < CONTEXTS; i++)
			start(&p[i], i % 3 == 2 ? commands : run);
		/* In pairs, and then pairs with pairs. */
		for (int i = 0; i + 1 < CONTEXTS; i += 2) {
			struct program *one = &p[order[i]];
			struct program *other = &p[order[i + 1]];

			ends_connect(&one->far, &other->far);
			REQUIRE_EQ(shard_of(one->far.qp),
				   shard_of(other->far.qp));
			exchange(one, other, round);
		}
		for (int i = 1; i + 1 < CONTEXTS; i += 2) {
			struct program *one = &p[order[i]];
			struct program *other = &p[order[i + 1]];

			end_reset(&one->far);
			end_reset(&other->far);
			ends_connect(&one->far, &other->far);
			exchange(one, other, round);
		}
		for (int i = 0; i < CONTEXTS; i++)
			REQUIRE_EQ(shard_of(p[i].b.qp), shard_of(p[0].b.qp));
		for (int i = 0; i < CONTEXTS; i++)
			stop(&p[i]);
		for (int i = 0; i < CONTEXTS; i++)
			if (run == stream && i % 3 != 2)
				VERIFY(p[i].theirs.data, LARGE, 1);
		for (int i = 0; i < CONTEXTS; i++)
			program_close(&p[i]);
	}
}

static void joined_beside_streams(void)
{
	join_beside(stream);
}

static void joined_beside_commands(void)
{
	join_beside(commands);
}

static void *queries(void *arg)
{
	struct program *p = arg;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	while (!p->stop)
		REQUIRE_ERRNO(ibv_query_qp(p->a.qp, &attr, IBV_QP_STATE, &init),
			      0);
	return NULL;
}

/* Commands wait for their turn in both shards all the time. */
static void joined_beside_queries(void)
{
	pthread_t threads[2 * QUERIERS];
	struct program p[2];

	for (int i = 0; i < 2; i++)
		program_open(&p[i], IBV_QPT_RC);
	for (int i = 0; i < 2 * QUERIERS; i++)
		REQUIRE_ERRNO(pthread_create(&threads[i], NULL, queries,
					     &p[i % 2]), 0);
	ends_connect(&p[0].far, &p[1].far);
	REQUIRE_EQ(shard_of(p[0].far.qp), shard_of(p[1].far.qp));
	exchange(&p[0], &p[1], 1);
	for (int i = 0; i < 2; i++)
		p[i].stop = true;
	for (int i = 0; i < 2 * QUERIERS; i++)
		REQUIRE_ERRNO(pthread_join(threads[i], NULL), 0);
	for (int i = 0; i < 2; i++)
		program_close(&p[i]);
}

struct ibv_ah *to_itself(struct device *d)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = {
			.dgid = d->gid,
			.sgid_index = d->gid_index,
			.hop_limit = 64,
		},
	};

	return ibv_create_ah(d->pd, &attr);
}

struct joining {
	struct program *p, *peer;
	pthread_barrier_t *barrier;
};

static void *begin_and_join(void *arg)
{
	struct joining *j = arg;
	struct peer peer;

	pthread_barrier_wait(j->barrier);
	program_open(j->p, IBV_QPT_RC);
	pthread_barrier_wait(j->barrier);
	peer = end_address(&j->peer->far, NULL);
	end_connect(&j->p->far, &peer);
	return NULL;
}

/*
 * All begin at one moment, and are connected in pairs at another one, each end
 * by a thread of its own. No pair comes together with another one by that.
 */
static void joined_at_once(void)
{
	unsigned long rounds = opt.rounds ? opt.rounds : 10;

	for (unsigned long round = 0; round < rounds; round++) {
		struct program p[BEGINNERS];
		struct joining joining[BEGINNERS];
		pthread_t threads[BEGINNERS];
		pthread_barrier_t barrier;

		pthread_barrier_init(&barrier, NULL, BEGINNERS);
		for (int i = 0; i < BEGINNERS; i++) {
			joining[i] = (struct joining) {
				.p = &p[i],
				.peer = &p[i ^ 1],
				.barrier = &barrier,
			};
			REQUIRE_ERRNO(pthread_create(&threads[i], NULL,
						     begin_and_join,
						     &joining[i]), 0);
		}
		for (int i = 0; i < BEGINNERS; i++)
			REQUIRE_ERRNO(pthread_join(threads[i], NULL), 0);
		for (int i = 0; i < BEGINNERS; i += 2) {
			int shard = shard_of(p[i].far.qp);

			REQUIRE_EQ(shard_of(p[i + 1].far.qp), shard);
			for (int j = 0; j < i; j++)
				REQUIRE_EQ(shard_of(p[j].far.qp) != shard,
					   has_shards());
			exchange(&p[i], &p[i + 1], round);
		}
		for (int i = 0; i < BEGINNERS; i++)
			program_close(&p[i]);
		pthread_barrier_destroy(&barrier);
	}
}

static const struct test_case cases[] = {
	{ "strangers_are_apart", strangers_are_apart },
	{ "peers_are_together", peers_are_together },
	{ "unreliable_peers_are_together", unreliable_peers_are_together },
	{ "only_peers_are_together", only_peers_are_together },
	{ "datagrams_meet_by_a_local_handle", datagrams_meet_by_a_local_handle },
	{ "joined_beside_streams", joined_beside_streams, 120 },
	{ "joined_beside_commands", joined_beside_commands, 120 },
	{ "joined_beside_queries", joined_beside_queries, 60 },
	{ "joined_at_once", joined_at_once, 120 },
	{ "one_of_each_in_all", one_of_each_in_all },
	{ "numbers_are_for_everybody", numbers_are_for_everybody, 120 },
	{ "numbers_are_used_again", numbers_are_used_again, 120 },
	{ },
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, cases);
}
