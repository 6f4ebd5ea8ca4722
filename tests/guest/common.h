/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The parts that the verbs tests share: cases and their TAP lines, a device,
 * memory with canaries, and one end of a connection.
 *
 * Every case runs in a process of its own with a time limit, so a hang or a
 * crash costs one case and the kernel's clean-up after a dead process is
 * exercised throughout. A case fails by FAIL() or REQUIRE() from any function
 * and any process; nothing here returns an error that a test could overlook.
 */
#ifndef TESTS_COMMON_H
#define TESTS_COMMON_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <infiniband/verbs.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* Cases */

struct test_case {
	const char *name;
	void (*run)(void);
	unsigned int seconds;	/* time limit on the stock kernel; 0: 30 */
};

/* The command line: PROGRAM [--type TYPE] [--rounds N] [--only CASE] DEVICE */
struct test_options {
	const char *device;	/* such as "ferrule0" */
	const char *type;	/* what `rdma link add … type` wants */
	unsigned long rounds;	/* 0: the case's own number */
	unsigned int slow;	/* factor on every time limit */
};

extern struct test_options opt;

/*
 * Runs the cases (the last has no name) and prints TAP. Returns the exit
 * status of the program.
 */
int test_main(int argc, char **argv, const struct test_case *cases);
/* The same, of several tables; the last is NULL. */
int test_main_of(int argc, char **argv,
		 const struct test_case *const *tables);

/* The end of a case, from whatever process of it. */
void test_fail(const char *file, int line, const char *fmt, ...)
	__attribute__((noreturn, format(printf, 3, 4)));
void test_skip(const char *fmt, ...)
	__attribute__((noreturn, format(printf, 1, 2)));
/* Skips the case in short runs if the guest is slow. */
void test_skip_if_slow(const char *reason);
/* So many rounds; in short runs as many times fewer as the guest is slower. */
unsigned int test_rounds(unsigned int count);
/* A line of explanation in the output. */
void test_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#define FAIL(...) test_fail(__FILE__, __LINE__, __VA_ARGS__)
#define REQUIRE(cond) \
	do { \
		if (!(cond)) \
			FAIL("not true: %s", #cond); \
	} while (0)
#define REQUIRE_EQ(got, want) \
	do { \
		long long got_ = (long long)(got), want_ = (long long)(want); \
		if (got_ != want_) \
			FAIL("%s is %lld (%#llx), expected %s = %lld (%#llx)", \
			     #got, got_, got_, #want, want_, want_); \
	} while (0)
/* For calls that answer 0 or an errno value. */
#define REQUIRE_ERRNO(got, want) \
	do { \
		int got_ = (got), want_ = (want); \
		if (got_ != want_) \
			FAIL("%s answered %d (%s), expected %d (%s)", #got, \
			     got_, strerror(got_), want_, strerror(want_)); \
	} while (0)
/* For calls that answer NULL and set errno. */
#define REQUIRE_NULL_ERRNO(call, want) \
	do { \
		int want_ = (want); \
		errno = 0; \
		if ((call) != NULL) \
			FAIL("%s succeeded, expected %s", #call, \
			     strerror(want_)); \
		if (errno != want_) \
			FAIL("%s set errno %d (%s), expected %d (%s)", #call, \
			     errno, strerror(errno), want_, strerror(want_)); \
	} while (0)

/* A second process of the case. */
pid_t fork_process(void (*run)(void *), void *arg);
/* Waits for it and fails the case if it failed. */
void join_process(pid_t pid);
/* Whole transfers over a pipe or socket; a closed peer fails the case. */
void put_bytes(int fd, const void *data, size_t len);
void get_bytes(int fd, void *data, size_t len);

/* Gives up root for good, with so many bytes that may be pinned. */
void become_nobody(rlim_t memlock);

/* Gives this thread a priority of SCHED_FIFO. */
void be_real_time(int priority);

/* Time, in microseconds of CLOCK_MONOTONIC. */
uint64_t now_us(void);
void sleep_us(uint64_t us);
/* How long to wait for an event that must come: 10 s times the slowness. */
#define PATIENCE_US (10000000ull * opt.slow)

/* A device and a protection domain on it. */
struct device {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	union ibv_gid gid;
	int gid_index;		/* the first RoCEv2 GID, IPv4 if there is one */
};

void device_open(struct device *d);
void device_close(struct device *d);
/* The same device with another protection domain. */
struct device device_other_pd(const struct device *d);
void device_free_pd(struct device *other);
struct ibv_context *open_by_name(const char *name);

/*
 * A device that a case has for itself, on a dummy netdev of its own, made with
 * `rdma link add` (needs --type). The number tells several apart. If the guest
 * has a PCI function, it is that, on the function's netdev, with this MTU.
 */
struct own_device {
	char netdev[16];	/* such as "test0" */
	char device[32];	/* such as "ferrule_test0" */
	char function[16];	/* its PCI address, or empty */
};

/* Whether the guest has a PCI function of ferrule-nic. */
bool has_function(void);
void own_device_make(struct own_device *o, unsigned int number, int mtu);
/* The device goes, whoever uses it; its netdev stays. */
void own_device_delete(const struct own_device *o);
/* After that: the netdev goes, too; or the function comes back. */
void own_device_clean(const struct own_device *o);
/* Both. */
void own_device_remove(const struct own_device *o);
/* The core fills the GID table of a new device from a work queue. */
void wait_for_gids(const char *device);
/* Runs a shell command; returns its exit status. */
int run_command(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A counter of the port, such as "hw_counters/dropped". */
uint64_t port_counter(const char *name);

/*
 * One of uverbs' write commands, as old programs give them; returns 0 or an
 * errno value. It begins with the address of its answer, if it has one.
 */
int uverbs_command(int fd, uint32_t number, void *cmd, size_t in, void *resp,
		   size_t out);
#define UVERBS_COMMAND(fd, name, cmd, resp)                                  \
	uverbs_command(fd, IB_USER_VERBS_CMD_##name, cmd, sizeof(*(cmd)), resp, \
		       sizeof(*(resp)))

/* The file in debugfs about the engine; NULL where that is elsewhere. */
FILE *engine_file(void);

/* The shard of a queue pair; -1 where the engine is elsewhere. */
int shard_of(const struct ibv_qp *qp);

/* Takes the next asynchronous event, if one comes within so many ms. */
bool next_async(struct ibv_context *ctx, struct ibv_async_event *event, int ms);
/* Fails unless this asynchronous event is the next, and takes it. */
void expect_async(struct ibv_context *ctx, enum ibv_event_type type,
		  const void *element);
/* Fails if an asynchronous event is waiting; waits a little for it. */
void expect_no_async(struct ibv_context *ctx);

/* Memory that is registered to the byte, with canaries around it. */
struct region {
	uint8_t *data;		/* the registered bytes */
	size_t len;
	struct ibv_mr *mr;
	uint8_t *map;
	size_t map_len;
	size_t head;		/* bytes of canary before data */
};

#define ACCESS_ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

/* misalign is the offset of data within its page, 0 to 4095. */
void region_make(struct region *r, struct device *d, size_t len,
		 size_t misalign, int access);
void region_check(const struct region *r, const char *file, int line);
void region_free(struct region *r);
#define REGION_CHECK(r) region_check(r, __FILE__, __LINE__)

/*
 * Memory of zeros that a process shares with those that it forks. An access
 * that runs over the end of other memory does not reach it.
 */
void *shared_map(size_t len);
void shared_unmap(void *at, size_t len);

/*
 * A buffer of another driver, Linux's udmabuf, over the pages of a memfd; maps
 * them at `data`, unless that is NULL. Its length is whole pages. -1 and errno
 * where the kernel has no such driver.
 */
int udmabuf_make(size_t len, uint8_t **data);

/* A stream of bytes given by its seed; byte i does not depend on the length. */
void fill(void *buf, size_t len, uint64_t seed);
void verify_at(const void *buf, size_t len, uint64_t seed, const char *file,
	       int line);
#define VERIFY(buf, len, seed) verify_at(buf, len, seed, __FILE__, __LINE__)
void verify_byte_at(const void *buf, size_t len, uint8_t byte,
		    const char *file, int line);
#define VERIFY_BYTE(buf, len, byte) \
	verify_byte_at(buf, len, byte, __FILE__, __LINE__)

/*
 * Opens the device so many times, each with a few queue pairs that wait for
 * receivers without end, by a timer of 10 us.
 */
void wait_in_contexts(unsigned int contexts);

/* The memory that this process has pinned, in KiB. */
long pinned_kib(void);

/* The mappings of uverbs files in this process: rings and doorbells. */
struct mapping {
	uintptr_t begin, end;
	off_t offset;
	char rights[5];
};

unsigned int device_mappings(struct mapping *m, unsigned int max);
bool mapping_writable(const struct mapping *m);

/* One end of a connection, or of datagrams with this Q_Key. */
#define QKEY 0x11111111
struct end_config {		/* 0 means the value behind it */
	enum ibv_qp_type type;	/* RC; UC and UD go, too */
	uint32_t send_wr;	/* 64 */
	uint32_t recv_wr;	/* 64 */
	uint32_t send_sge;	/* 1 */
	uint32_t recv_sge;	/* 1 */
	uint32_t inline_data;
	int cqe;		/* send_wr + recv_wr */
	bool signal_all;
	struct ibv_cq *cq;	/* one of the caller's for both directions;
				 * else one for each is made */
	struct ibv_srq *srq;	/* to receive from; none */
	uint64_t send_ops;	/* enum ibv_qp_create_send_ops_flags; none */
	struct ibv_comp_channel *channel;
	int access;		/* of the QP; local and remote write */
	uint8_t timeout;	/* local ACK timeout; 14: 67 ms, more
				 * where the guest is slow */
	uint8_t retry;		/* 7 */
	bool rnr_none;		/* RNR retry count 0, which 0 cannot ask for */
	uint8_t rnr_retry;	/* 7: without end */
	uint8_t rnr_timer;	/* 12: 0.64 ms */
};

struct end {
	struct device *d;
	struct ibv_cq *scq, *rcq;
	bool own_cq;
	struct ibv_qp *qp;
	struct ibv_qp_cap cap;	/* as granted */
	struct end_config config;
	uint32_t psn;
};

/* The names of one end that the other one needs. */
struct peer {
	uint32_t qpn, psn;
	union ibv_gid gid;
	uint64_t addr;
	uint32_t rkey;
};

void end_make(struct end *e, struct device *d, const struct end_config *c);
void end_free(struct end *e);
struct peer end_address(const struct end *e, const struct region *r);
void end_to_init(struct end *e);
void end_to_rtr(struct end *e, const struct peer *peer);
void end_to_rts(struct end *e);
void end_connect(struct end *e, const struct peer *peer);
void end_reset(struct end *e);
void end_to_state(struct end *e, enum ibv_qp_state state);
enum ibv_qp_state end_state(struct end *e);
/* Waits until the QP is in this state. */
void end_await_state(struct end *e, enum ibv_qp_state state);

/* Two ends of one process, connected to each other. */
void ends_make(struct end *a, struct end *b, struct device *d,
	       const struct end_config *c);
void ends_connect(struct end *a, struct end *b);

/*
 * Such ends with a device of their own. Mostly a asks and b answers; mine is
 * a's memory and theirs is b's, if the case makes them.
 */
struct pair {
	struct device d;
	struct end a, b;
	struct region mine, theirs;
	struct peer to;		/* b and its memory */
};

void pair_make(struct pair *p, const struct end_config *c);
/* The same, connected. */
void pair_open(struct pair *p, const struct end_config *c);
/* Memory of these lengths: mine filled with stream 1, theirs with this access. */
void pair_memory(struct pair *p, size_t mine, size_t theirs, int access);
/* Both ends back to RESET. */
void pair_reset(struct pair *p);
/*
 * b refuses a WRITE of a to bytes from an offset of 'to' on. Connects the ends
 * anew, and tries again if the wire has lost the refusal.
 */
void pair_refuses(struct pair *p, const struct peer *to, uint64_t offset,
		  uint32_t length);
/* The same for bytes around the 'length' ones of 'to'. */
void pair_refuses_outside(struct pair *p, const struct peer *to,
			  size_t length);
/* Frees all of it, and looks at the canaries. */
void pair_close(struct pair *p);

/*
 * XRC. The domain of a file, with -1 one of its own; and in a domain a shared
 * receive queue, which changes `attr` to the granted values, and a target. Each
 * is NULL where libibverbs has none.
 */
struct ibv_xrcd *xrcd_open(struct device *d, int fd, int oflags);
struct ibv_srq *xrc_create_srq(struct device *d, struct ibv_xrcd *xrcd,
			       struct ibv_cq *cq, struct ibv_srq_attr *attr);
struct ibv_qp *xrc_create_target(struct device *d, struct ibv_xrcd *xrcd);
/* From RESET to RTS; `qp` is an initiator and its peer a target, or reversed. */
void xrc_connect(struct device *d, struct ibv_qp *qp,
		 const struct ibv_qp *peer, int access);

struct ibv_sge sge_of(const struct region *r, size_t offset, size_t len);
int try_send(struct end *e, uint64_t wr_id, enum ibv_wr_opcode opcode,
	     unsigned int flags, struct ibv_sge *sge, int num_sge,
	     const struct peer *to, uint64_t offset, uint32_t imm);
void send_sges(struct end *e, uint64_t wr_id, enum ibv_wr_opcode opcode,
	       unsigned int flags, struct ibv_sge *sge, int num_sge,
	       const struct peer *to, uint64_t offset, uint32_t imm);
/* An atomic operation, whose answer goes to the one entry. */
void send_atomic(struct end *e, uint64_t wr_id, enum ibv_wr_opcode opcode,
		 unsigned int flags, struct ibv_sge sge, const struct peer *to,
		 uint64_t offset, uint64_t compare_add, uint64_t swap);
/* By ibv_wr_atomic_write() and ibv_wr_flush(), for which send_ops has to ask. */
void send_atomic_write(struct end *e, uint64_t wr_id, unsigned int flags,
		       const struct peer *to, uint64_t offset, uint64_t value);
void send_flush(struct end *e, uint64_t wr_id, unsigned int flags,
		const struct peer *to, uint64_t offset, size_t length,
		uint8_t type, uint8_t level);
/*
 * Requests that give a memory window of type 2 a key, and take one away;
 * signalled.
 */
void send_bind(struct end *e, uint64_t wr_id, struct ibv_mw *mw, uint32_t key,
	       struct ibv_mw_bind_info info);
void send_local_inv(struct end *e, uint64_t wr_id, uint32_t key);
/* A datagram, and where it goes; without an opcode it is a SEND. */
struct datagram {
	struct ibv_ah *ah;
	uint32_t qpn, qkey;
	size_t len;
	enum ibv_wr_opcode opcode;
	unsigned int flags;
	uint32_t imm;
};
/* Sends it, signalled, from the start of a region. */
void send_datagram(struct end *e, uint64_t wr_id, const struct region *r,
		   struct datagram d);
/* A signalled SEND of part of a region. */
void send_region(struct end *e, uint64_t wr_id, const struct region *r,
		 size_t offset, size_t len);
int try_recv(struct end *e, uint64_t wr_id, struct ibv_sge *sge, int num_sge);
void recv_region(struct end *e, uint64_t wr_id, const struct region *r,
		 size_t offset, size_t len);

/* Completions. */
/* Looks for a completion before the processor is offered to others; 100. */
extern unsigned int looks_before_rest;
void next_wc(struct ibv_cq *cq, struct ibv_wc *wc);
bool next_wc_within(struct ibv_cq *cq, struct ibv_wc *wc, uint64_t us);
/* Fails unless the next completion has this request and status. */
struct ibv_wc expect_wc_at(struct ibv_cq *cq, uint64_t wr_id,
			   enum ibv_wc_status status, const char *file,
			   int line);
#define EXPECT_WC(cq, wr_id, status) \
	expect_wc_at(cq, wr_id, status, __FILE__, __LINE__)
#define EXPECT_OK(cq, wr_id) EXPECT_WC(cq, wr_id, IBV_WC_SUCCESS)
/*
 * The same for a request that the responder refuses. False if the wire has lost
 * the refusal, which only a wire that loses packets may: the responder is in
 * error then and answers no more, so the requester's retries run out.
 */
bool expect_refusal_at(struct ibv_cq *cq, uint64_t wr_id,
		       enum ibv_wc_status status, const char *file, int line);
#define EXPECT_REFUSAL(cq, wr_id, status) \
	expect_refusal_at(cq, wr_id, status, __FILE__, __LINE__)
/* Fails if a completion is there, or comes within a moment. */
void expect_no_wc_at(struct ibv_cq *cq, const char *file, int line);
#define EXPECT_NO_WC(cq) expect_no_wc_at(cq, __FILE__, __LINE__)

#endif /* TESTS_COMMON_H */
