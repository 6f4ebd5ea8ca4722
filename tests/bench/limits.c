// SPDX-License-Identifier: GPL-2.0
/*
 * The limits of the machine itself, which figures of RDMA are held against: a
 * bare system call, a cache line from one core to another and back, memcpy, and
 * the kernel's copy when a cached file of a tmpfs is read. With an IPv4
 * address, instead of these how long that machine's kernel takes to answer an
 * echo request, for which a program waits without sleeping: what a request and
 * an answer take that both need one small packet. Prints "name value unit", one
 * a line; each value is the median of several runs.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/ip_icmp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { RUNS = 7 };

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double (*run)(void *), void *arg)
{
	double value[RUNS];

	for (int i = 0; i < RUNS; i++)
		value[i] = run(arg);
	qsort(value, RUNS, sizeof(value[0]), compare);
	return value[RUNS / 2];
}

/* Microseconds of a call that does nothing. */
static double system_call(void *arg)
{
	const int calls = 100000;
	double begin = now();

	(void)arg;
	for (int i = 0; i < calls; i++)
		syscall(SYS_getppid);
	return (now() - begin) / calls * 1e6;
}

/* Two words in cache lines of their own. */
static struct {
	_Alignas(128) atomic_uint ping;
	_Alignas(128) atomic_uint pong;
} line;

enum { TRIPS = 200000 };

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set)) {
		perror("sched_setaffinity");
		exit(1);
	}
}

static void *answer(void *arg)
{
	(void)arg;
	pin(1);
	for (unsigned int i = 1; i <= TRIPS; i++) {
		while (atomic_load_explicit(&line.ping, memory_order_acquire) != i)
			;
		atomic_store_explicit(&line.pong, i, memory_order_release);
	}
	return NULL;
}

/* Microseconds of a round trip between two cores. */
static double round_trip(void *arg)
{
	pthread_t thread;
	double begin;

	(void)arg;
	line.ping = line.pong = 0;
	pin(0);
	pthread_create(&thread, NULL, answer, NULL);
	/* The first trip begins when both are there. */
	atomic_store(&line.ping, 1);
	while (atomic_load(&line.pong) != 1)
		;
	begin = now();
	for (unsigned int i = 2; i <= TRIPS; i++) {
		atomic_store_explicit(&line.ping, i, memory_order_release);
		while (atomic_load_explicit(&line.pong, memory_order_acquire) != i)
			;
	}
	begin = now() - begin;
	pthread_join(thread, NULL);
	return begin / (TRIPS - 1) * 1e6;
}

/* MiB a second, copying blocks of so many bytes from one place to another. */
static double copying(void *arg)
{
	size_t len = *(size_t *)arg;
	unsigned int copies = (256u << 20) / len;
	char *from = malloc(len), *to = malloc(len);
	double begin, seconds;

	memset(from, 1, len);
	memset(to, 2, len);
	begin = now();
	for (unsigned int i = 0; i < copies; i++) {
		memcpy(to, from, len);
		/* The compiler must believe that somebody looks. */
		__asm__ volatile("" : : "r"(to) : "memory");
	}
	seconds = now() - begin;
	free(from);
	free(to);
	return (double)copies * len / (1 << 20) / seconds;
}

/* MiB a second, reading so many bytes of a tmpfs file again and again. */
static double reading(void *arg)
{
	size_t len = *(size_t *)arg;
	unsigned int reads = (256u << 20) / len;
	char *buffer = malloc(len);
	/* A file of memfd_create() is one of a tmpfs. */
	int file = memfd_create("limits", 0);
	double begin, seconds;

	memset(buffer, 1, len);
	if (file < 0 || write(file, buffer, len) != (ssize_t)len) {
		perror("memfd_create");
		exit(1);
	}
	begin = now();
	for (unsigned int i = 0; i < reads; i++) {
		if (pread(file, buffer, len, 0) != (ssize_t)len) {
			perror("pread");
			exit(1);
		}
	}
	seconds = now() - begin;
	close(file);
	free(buffer);
	return (double)reads * len / (1 << 20) / seconds;
}

enum { ECHOES = 300 };

/* A socket for echo requests: the kernel fills in their identifier. */
static int echo_socket(const char *address)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	int ping = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, IPPROTO_ICMP);

	if (ping < 0) {
		perror("socket");
		exit(1);
	}
	if (inet_pton(AF_INET, address, &to.sin_addr) != 1) {
		fprintf(stderr, "limits: %s is no IPv4 address\n", address);
		exit(2);
	}
	if (connect(ping, (struct sockaddr *)&to, sizeof(to))) {
		perror("connect");
		exit(1);
	}
	return ping;
}

/* Microseconds from an echo request with 8 bytes to its answer. */
static double echo(void *arg)
{
	int ping = *(int *)arg;
	struct { struct icmphdr header; char data[8]; } request = {
		.header.type = ICMP_ECHO,
	}, reply;
	double begin = now();

	for (unsigned int i = 0; i < ECHOES; i++) {
		double sent = now();
		ssize_t got;

		request.header.un.echo.sequence = htons(i);
		if (send(ping, &request, sizeof(request), 0) < 0) {
			perror("send");
			exit(1);
		}
		while ((got = recv(ping, &reply, sizeof(reply), 0)) < 0) {
			if (errno != EAGAIN || now() - sent > 1) {
				fprintf(stderr, "limits: no answer\n");
				exit(1);
			}
		}
	}
	return (now() - begin) / ECHOES * 1e6;
}

int main(int argc, char **argv)
{
	size_t small = 64 << 10, large = 1 << 20;

	if (argc > 1) {
		int ping = echo_socket(argv[1]);

		printf("echo %.1f us\n", median(echo, &ping));
		return 0;
	}
	printf("system_call %.3f us\n", median(system_call, NULL));
	if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
		printf("core_to_core %.3f us\n", median(round_trip, NULL));
	printf("memcpy_64KiB %.0f MiB/s\n", median(copying, &small));
	printf("memcpy_1MiB %.0f MiB/s\n", median(copying, &large));
	printf("tmpfs_64KiB %.0f MiB/s\n", median(reading, &small));
	printf("tmpfs_1MiB %.0f MiB/s\n", median(reading, &large));
	return 0;
}
