// SPDX-License-Identifier: GPL-2.0
/* A program whose memory is a file of a server that never answers, and its neighbour. */
#define _GNU_SOURCE
#include "odp.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* More than a work queue of Linux has under way by default. */
enum { REGIONS = 1100, FILE_NODE = 2 };

static char where[] = "/tmp/silentXXXXXX";

static struct fuse_attr attributes(uint64_t node)
{
	return (struct fuse_attr){
		.ino = node,
		.nlink = 1,
		.size = REGIONS * PAGE,
		.mode = node == FILE_NODE ? S_IFREG | 0644 : S_IFDIR | 0755,
	};
}

/* A file system with one file, which nobody can read. */
static void *serve(void *arg)
{
	static uint64_t request[FUSE_MIN_READ_BUFFER * 4 / sizeof(uint64_t)];
	const struct fuse_in_header *in = (void *)request;
	int fd = *(int *)arg;

	while (read(fd, request, sizeof(request)) > 0) {
		struct {
			struct fuse_out_header head;
			union {
				struct fuse_init_out init;
				struct fuse_entry_out entry;
				struct fuse_attr_out attr;
				struct fuse_open_out open;
			};
		} out = { .head.unique = in->unique };
		size_t len = 0;

		switch (in->opcode) {
		case FUSE_INIT:
			out.init.major = FUSE_KERNEL_VERSION;
			out.init.minor = FUSE_KERNEL_MINOR_VERSION;
			out.init.max_write = PAGE;
			len = sizeof(out.init);
			break;
		case FUSE_LOOKUP:
			out.entry.nodeid = FILE_NODE;
			out.entry.attr = attributes(FILE_NODE);
			len = sizeof(out.entry);
			break;
		case FUSE_GETATTR:
			out.attr.attr = attributes(in->nodeid);
			len = sizeof(out.attr);
			break;
		case FUSE_OPEN:
			len = sizeof(out.open);
			break;
		case FUSE_READ:
		case FUSE_FORGET:
		case FUSE_BATCH_FORGET:
		case FUSE_INTERRUPT:
			continue;
		default:
			out.head.error = -ENOSYS;
		}
		out.head.len = sizeof(out.head) + len;
		if (write(fd, &out, out.head.len) < 0)
			break;
	}
	return NULL;
}

static void *map_served(void)
{
	char path[sizeof(where) + 8];
	void *map;
	int fd;

	snprintf(path, sizeof(path), "%s/file", where);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		FAIL("%s: %s", path, strerror(errno));
	map = mmap(NULL, REGIONS * PAGE, PROT_READ, MAP_SHARED, fd, 0);
	REQUIRE(map != MAP_FAILED);
	close(fd);
	return map;
}

/* Asks for a page of each of its regions, none of which comes. It still maps and unmaps memory. */
static void ask(void *arg)
{
	const int *go = arg;
	static struct ibv_mr *mrs[REGIONS];
	struct device d;
	uint8_t *map;

	/* It has the server's descriptor, too, which must not outlive the server. */
	REQUIRE_EQ(prctl(PR_SET_PDEATHSIG, SIGKILL), 0);
	map = map_served();
	device_open(&d);
	for (size_t i = 0; i < REGIONS; i++)
		mrs[i] = reg(&d, map + i * PAGE, PAGE, IBV_ACCESS_REMOTE_READ);
	for (size_t i = 0; i < REGIONS; i++) {
		struct ibv_sge sge = { (uintptr_t)mrs[i]->addr, PAGE, mrs[i]->lkey };

		REQUIRE_ERRNO(ibv_advise_mr(d.pd, IBV_ADVISE_MR_ADVICE_PREFETCH,
					    0, &sge, 1), 0);
	}
	REQUIRE_EQ(munmap(map_anonymous(PAGE), PAGE), 0);
	put_bytes(go[1], "", 1);
	pause();
}

/*
 * The faults of one program wait for its server, and those of others do not. When
 * the server has gone, a page of it cannot be had.
 */
void silent_server(void)
{
	char options[80];
	struct ibv_sge sge;
	pthread_t server;
	struct ibv_mr *mr;
	struct device d;
	struct scene s;
	void *map;
	int go[2], fd;
	pid_t asker;
	char byte;

	run_command("modprobe -q fuse");
	fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		test_skip("the guest has no FUSE");
	REQUIRE(mkdtemp(where));
	snprintf(options, sizeof(options),
		 "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
	REQUIRE_EQ(mount("silent", where, "fuse.silent", MS_NOSUID | MS_NODEV,
			 options), 0);
	REQUIRE_ERRNO(pthread_create(&server, NULL, serve, &fd), 0);
	REQUIRE_EQ(pipe(go), 0);
	/* Opening a file waits for its pages, so this comes before a page is asked for. */
	map = map_served();
	asker = fork_process(ask, go);
	get_bytes(go[0], &byte, 1);

	scene_open(&s);
	fill(s.mine, SIZE, 1);
	request(&s, IBV_WR_RDMA_WRITE, SIZE);
	EXPECT_OK(s.p.a.scq, 1);
	VERIFY(s.theirs, SIZE, 1);
	scene_close(&s);

	device_open(&d);
	mr = reg(&d, map, PAGE, IBV_ACCESS_REMOTE_READ);
	/* Forced, it aborts what waits, even where the file is still in use. */
	REQUIRE_EQ(kill(asker, SIGKILL), 0);
	umount2(where, MNT_FORCE);
	REQUIRE_EQ(waitpid(asker, NULL, 0), asker);
	sge = (struct ibv_sge){ (uintptr_t)map, PAGE, mr->lkey };
	REQUIRE_ERRNO(ibv_advise_mr(d.pd, IBV_ADVISE_MR_ADVICE_PREFETCH,
				    IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1), EFAULT);
	REQUIRE_ERRNO(ibv_dereg_mr(mr), 0);
	device_close(&d);
	REQUIRE_EQ(munmap(map, REGIONS * PAGE), 0);
	umount2(where, MNT_DETACH);
	close(fd);
	REQUIRE_ERRNO(pthread_join(server, NULL), 0);
	REQUIRE_EQ(rmdir(where), 0);
}
