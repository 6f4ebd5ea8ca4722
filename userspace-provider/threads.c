// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The doorbells of a context: the first ones, and those of threads.
 *
 * Queues that are made with the doorbells of a thread go on beside those of
 * other threads, on a processor of their own. The first thread that makes
 * completion queues or shared receive queues has the context's first doorbells.
 * Each other one is given doorbells of its own, as long as the device has some,
 * and a queue pair has those of its completion queue for sends. So a program
 * whose queues are all made by one thread is as without.
 */

#define _GNU_SOURCE
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <infiniband/cmd_ioctl.h>
#include <util/util.h>

#include "abi.h"
#include "ferrule.h"

#define CACHE_LINE 64 /* bytes */

/* NULL with errno. */
struct ferrule_doorbell *
ferrule_map_doorbells(int cmd_fd,
		      const struct ferrule_alloc_ucontext_resp *resp)
{
	struct ferrule_doorbell *db;
	void *mine, *theirs;
	int err;

	/* In cache lines of their own, which one thread writes. */
	err = posix_memalign((void **)&db, CACHE_LINE,
			     align(sizeof(*db), CACHE_LINE));
	if (err)
		goto err;

	mine = mmap(NULL, FERRULE_DB_AREA_SIZE, PROT_READ | PROT_WRITE,
		    MAP_SHARED, cmd_fd, resp->db_offset);
	if (mine == MAP_FAILED) {
		err = errno;
		goto err_free;
	}

	theirs = mmap(NULL, FERRULE_DB_AREA_SIZE, PROT_READ, MAP_SHARED, cmd_fd,
		      resp->status_offset);
	if (theirs == MAP_FAILED) {
		err = errno;
		goto err_unmap;
	}

	memset(db, 0, sizeof(*db));
	db->db = mine;
	db->leaf = mine + FERRULE_DB_LEAF_OFFSET;
	db->status = theirs;
	db->leaf_ack = theirs + FERRULE_DB_LEAF_OFFSET;
	db->number = resp->number;
	atomic_init(&db->unkicked, 0);
	ferrule_lock_init(&db->lock, false);

	return db;

err_unmap:
	munmap(mine, FERRULE_DB_AREA_SIZE);
err_free:
	free(db);
err:
	errno = err;
	return NULL;
}

void ferrule_unmap_doorbells(struct ferrule_doorbell *db)
{
	munmap((void *)db->status, FERRULE_DB_AREA_SIZE);
	munmap(db->db, FERRULE_DB_AREA_SIZE);
	free(db);
}

void ferrule_threads_init(struct ferrule_context *ctx)
{
	pthread_mutex_init(&ctx->threads.lock, NULL);
	/* A device that has none to give is asked once. */
	ctx->threads.may_add = !ctx->db->number;
}

void ferrule_threads_free(struct ferrule_context *ctx)
{
	struct ferrule_doorbell *db, *next;

	for (db = ctx->db; db; db = next) {
		next = db->next;
		ferrule_unmap_doorbells(db);
	}
	pthread_mutex_destroy(&ctx->threads.lock);
}

/* NULL: there are no more to be had. The caller holds the lock. */
static struct ferrule_doorbell *add_thread(struct ferrule_context *ctx)
{
	DECLARE_COMMAND_BUFFER(cmd, UVERBS_OBJECT_DEVICE,
			       FERRULE_METHOD_ADD_THREAD, 1);
	struct ibv_context *context = &ctx->verbs.context;
	struct ferrule_alloc_ucontext_resp resp = {};
	struct ferrule_doorbell *db;

	fill_attr_out(cmd, FERRULE_ATTR_DOORBELLS, &resp, sizeof(resp));
	if (execute_ioctl(context, cmd))
		return NULL;

	db = ferrule_map_doorbells(context->cmd_fd, &resp);
	if (!db)
		return NULL;

	db->next = ctx->db->next;
	/* Release: polls go through the list without the lock. */
	atomic_store_explicit(&ctx->db->next, db, memory_order_release);

	return db;
}

static bool is_mine(const struct ferrule_doorbell *db)
{
	return db->queues && pthread_equal(db->thread, pthread_self());
}

/*
 * When there are no more: all queues of a thread are to have the same, or a
 * queue pair with two of them would bring the threads together. So the thread
 * is not given others that come free later.
 */
static struct ferrule_doorbell *shared(struct ferrule_context *ctx)
{
	struct ferrule_doorbell *db;
	unsigned int count = 0;

	for (db = ctx->db; db; db = db->next)
		count++;
	count = gettid() % count;
	for (db = ctx->db; count; db = db->next)
		count--;

	return db;
}

/* Those of the calling thread; or else those of nobody, or new ones. */
static struct ferrule_doorbell *find(struct ferrule_context *ctx)
{
	struct ferrule_doorbell *free = NULL;
	struct ferrule_doorbell *db;

	for (db = ctx->db; db; db = db->next) {
		if (is_mine(db))
			return db;
		if (!db->queues)
			free = db;
	}

	if (ctx->threads.may_add) {
		db = free ?: add_thread(ctx);
		if (db)
			return db;
		ctx->threads.may_add = false;
	}

	return shared(ctx);
}

struct ferrule_doorbell *ferrule_take_doorbells(struct ferrule_context *ctx)
{
	struct ferrule_doorbell *db;

	pthread_mutex_lock(&ctx->threads.lock);
	db = find(ctx);
	if (!db->queues++)
		db->thread = pthread_self();
	pthread_mutex_unlock(&ctx->threads.lock);

	return db;
}

void ferrule_leave_doorbells(struct ferrule_context *ctx,
			     struct ferrule_doorbell *db)
{
	pthread_mutex_lock(&ctx->threads.lock);
	db->queues--;
	pthread_mutex_unlock(&ctx->threads.lock);
}
