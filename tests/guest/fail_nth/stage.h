/* SPDX-License-Identifier: GPL-2.0 */
/* The objects that the verbs work on. */
#ifndef TESTS_FAIL_NTH_STAGE_H
#define TESTS_FAIL_NTH_STAGE_H

#include "fail_nth.h"

/* Made before each verb, with no injection. */
extern struct stage {
	struct device d;
	struct ibv_comp_channel *channel;
	struct end a;			/* RC, connected with itself */
	struct end b;			/* RC, whose state is changed */
	struct end u;			/* UD */
	struct ibv_qp *raw;		/* for raw packets, or NULL */
	struct region r;
	struct ibv_mr *mr;
	struct ibv_dm *dm;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_xrcd *xrcd;
	struct ibv_mr *on_demand;	/* of memory(); NULL without paging */
	int buffer;			/* of another driver */
	struct ibv_mw *mw1, *mw2;	/* of types 1 and 2 */
	uint32_t key;			/* that mw2 had last */
	struct ibv_ah *ah, *group_ah;	/* the device itself, and a group */
	union ibv_gid group;
	void *made;
} st;

/* Keeps what a verb has made; returns 0, or the errno value if there is none. */
int made(void *object);
/* 4 MiB. */
char *memory(void);
struct ibv_ah *ah_to(const union ibv_gid *gid);
struct ibv_qp *raw_qp(void);

/* objects.c: for the object that was made last. */
void dereg_mr(void);
void destroy_qp(void);
void destroy_srq(void);

/* changes.c: the UD queue pair in the group and out of it; a limit of the SRQ. */
void attached(void);
void detached(void);
int set_srq_limit(uint32_t limit);

#endif /* TESTS_FAIL_NTH_STAGE_H */
