// SPDX-License-Identifier: GPL-2.0
/*
 * Extended reliable connections: nonsense in the rings of an initiator and of
 * shared receive queues, and domains, queues and targets that come and go, also
 * in another process, which has opened the domain by its file.
 */
#define _GNU_SOURCE
#include "hostile.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define RIGHTS (ACCESS_ALL | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* The numbers that the processes of an attack tell each other. */
struct numbers {
	volatile uint32_t target, srq;
};

struct stage {
	struct hostile *h;
	struct ibv_xrcd *xrcd;
	struct ibv_qp *from, *to;
	uint8_t *sq;
	struct ferrule_qp_ctrl *ctrl;
	struct ibv_srq *srq;
	uint8_t *slots;
	size_t len;		/* of the mapping of the slots */
	struct ferrule_srq_ctrl *srq_ctrl;
	struct numbers *numbers;
};

static struct ibv_qp *open_target(struct device *d, struct ibv_xrcd *xrcd,
				  uint32_t number)
{
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
			     IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = number,
		.xrcd = xrcd,
		.qp_type = IBV_QPT_XRC_RECV,
	};

	return ibv_open_qp(d->ctx, &attr);
}

static struct ibv_srq *make_srq(struct device *d, struct ibv_xrcd *xrcd,
				struct ibv_cq *cq)
{
	struct ibv_srq_attr attr = { .max_wr = DEPTH, .max_sge = SGES };

	return xrc_create_srq(d, xrcd, cq, &attr);
}

static void make_initiator(struct stage *s)
{
	struct hostile *h = s->h;
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_XRC_SEND,
		.cap = { .max_send_wr = DEPTH, .max_send_sge = SGES },
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = h->d.pd,
		.send_cq = h->cq,
	};
	struct mapping before[32];
	unsigned int n = device_mappings(before, ARRAY_SIZE(before));

	s->from = ibv_create_qp_ex(h->d.ctx, &init);
	REQUIRE(s->from);
	s->sq = raw_new_mapping(before, n, true, NULL);
	/* It has no receive queue in between. */
	s->ctrl = (void *)(s->sq + DEPTH * h->a.sq_stride);
}

static void make_queue(struct stage *s)
{
	struct hostile *h = s->h;
	struct mapping before[32];
	unsigned int n = device_mappings(before, ARRAY_SIZE(before));
	uint32_t number;

	s->srq = make_srq(&h->d, s->xrcd, h->cq);
	REQUIRE(s->srq);
	REQUIRE_ERRNO(ibv_get_srq_num(s->srq, &number), 0);
	s->numbers->srq = number;
	s->slots = raw_new_mapping(before, n, true, &s->len);
	s->srq_ctrl = (void *)(s->slots + DEPTH * h->b.rq_stride);
}

/* To a state, or not: the other process changes states as well. */
static void change(struct ibv_qp *qp, enum ibv_qp_state state, uint32_t peer,
		   const struct device *d)
{
	bool sends = qp->qp_type == IBV_QPT_XRC_SEND;
	struct ibv_qp_attr attr = {
		.qp_state = state,
		.port_num = 1,
		.qp_access_flags = RIGHTS,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.max_dest_rd_atomic = 4,
		.max_rd_atomic = 4,
		.min_rnr_timer = 1,
		.timeout = 1,
		.retry_cnt = 1,
		.rnr_retry = 1,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = { .dgid = d->gid, .sgid_index = d->gid_index,
				 .hop_limit = 64 },
		},
	};
	int mask = IBV_QP_STATE;

	switch (state) {
	case IBV_QPS_INIT:
		mask |= IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS;
		break;
	case IBV_QPS_RTR:
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			IBV_QP_RQ_PSN;
		if (!sends)
			mask |= IBV_QP_MAX_DEST_RD_ATOMIC |
				IBV_QP_MIN_RNR_TIMER;
		break;
	case IBV_QPS_RTS:
		mask |= IBV_QP_SQ_PSN | IBV_QP_TIMEOUT;
		if (sends)
			mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				IBV_QP_MAX_QP_RD_ATOMIC;
		break;
	default:
		break;
	}
	ibv_modify_qp(qp, &attr, mask);
}

static void connect_to(struct ibv_qp *qp, uint32_t peer, const struct device *d)
{
	change(qp, IBV_QPS_RESET, peer, d);
	change(qp, IBV_QPS_INIT, peer, d);
	change(qp, IBV_QPS_RTR, peer, d);
	change(qp, IBV_QPS_RTS, peer, d);
}

static void replace(struct stage *s)
{
	struct hostile *h = s->h;

	switch (below(h, 4)) {
	case 0:
		/* Messages for it are under way. */
		REQUIRE_ERRNO(ibv_destroy_srq(s->srq), 0);
		make_queue(s);
		break;
	case 1:
		/* The other process may have opened it. */
		REQUIRE_ERRNO(ibv_destroy_qp(s->to), 0);
		s->to = xrc_create_target(&h->d, s->xrcd);
		REQUIRE(s->to);
		s->numbers->target = s->to->qp_num;
		break;
	case 2:
		/* It is in use. */
		if (ibv_close_xrcd(s->xrcd) != EBUSY)
			FAIL("a domain went with a queue and a target in it");
		break;
	default:
		s->srq_ctrl->producer = number(h);
		break;
	}
}

static void post_nonsense(struct stage *s, uint32_t index)
{
	struct hostile *h = s->h;
	struct ferrule_send_wqe *wqe =
		(void *)(s->sq + index % DEPTH * h->a.sq_stride);
	uint32_t srq = below(h, 8) ? s->numbers->srq : number(h);

	send_with_nonsense(h, (void *)wqe);
	if (wqe->opcode == FERRULE_WR_ATOMIC_CMP_AND_SWP ||
	    wqe->opcode == FERRULE_WR_ATOMIC_FETCH_AND_ADD) {
		memcpy(wqe->imm_or_inv, &srq, sizeof(srq));
	} else if (below(h, 16)) {
		memset(wqe->zero, 0, sizeof(wqe->zero));
		wqe->xrc.remote_srq = srq;
	}
	receive_with_nonsense(h, s->slots + index % DEPTH * h->b.rq_stride);
	s->srq_ctrl->producer++;
	if (!below(h, 32))
		((uint64_t *)s->slots)[below(h, s->len / 8)] = number(h);
	s->ctrl->sq_producer = index + 1;
	raw_ring(&h->raw, s->from->qp_num);
	raw_kick(&h->raw);
}

/*
 * Opens and changes the target of the other process, and nobody else's queue
 * pair: not one that is no target, and none in another domain.
 */
static void other_process(struct hostile *h, struct numbers *numbers, int fd)
{
	struct ibv_xrcd *xrcd, *private;
	struct ibv_qp *qp;
	struct device d;

	device_open(&d);
	xrcd = xrcd_open(&d, fd, O_CREAT);
	private = xrcd_open(&d, -1, O_CREAT);
	REQUIRE(xrcd && private);
	while (on(h)) {
		uint32_t target = numbers->target + (below(h, 8) ? 0 : 1);
		struct ibv_cq *cq;
		struct ibv_srq *srq;

		if (open_target(&d, xrcd, h->n->peer.qpn) ||
		    open_target(&d, private, target))
			FAIL("a stranger's queue pair was opened");
		qp = open_target(&d, xrcd, target);
		if (qp) {
			if (below(h, 2))
				change(qp, below(h, 7), below(h, 1 << 24), &d);
			ibv_destroy_qp(qp);
		}
		cq = ibv_create_cq(d.ctx, DEPTH, NULL, NULL, 0);
		srq = cq ? make_srq(&d, xrcd, cq) : NULL;
		if (srq && below(h, 2))
			ibv_destroy_srq(srq);
		if (cq)
			ibv_destroy_cq(cq);
	}
	/* It leaves what it has opened. */
	open_target(&d, xrcd, numbers->target);
	_exit(0);
}

/* Neither is a request of an initiator one of a reliable connection. */
static void to_a_stranger(struct stage *s)
{
	struct hostile *h = s->h;
	struct ibv_sge sge = sge_of(&h->r, 0, 64);
	struct ibv_send_wr *bad, wr = {
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.rdma = { h->n->peer.addr, h->n->peer.rkey },
		.qp_type.xrc.remote_srqn = s->numbers->srq,
	};
	struct ibv_wc wc;

	while (ibv_poll_cq(h->cq, 1, &wc) > 0)
		;
	connect_to(s->from, h->n->peer.qpn, &h->d);
	REQUIRE_ERRNO(ibv_post_send(s->from, &wr, &bad), 0);
	next_wc(h->cq, &wc);
	if (wc.status == IBV_WC_SUCCESS)
		FAIL("a reliable connection took a request of XRC");
}

void attack_xrc(struct hostile *h)
{
	struct stage s = { .h = h };
	int fd = memfd_create("xrc", 0);
	pid_t pid;

	REQUIRE(fd >= 0);
	s.numbers = mmap(NULL, sizeof(*s.numbers), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(s.numbers != MAP_FAILED);
	pid = fork();
	REQUIRE(pid >= 0);
	if (pid == 0)
		other_process(h, s.numbers, fd);
	s.xrcd = xrcd_open(&h->d, fd, O_CREAT);
	REQUIRE(s.xrcd);
	make_initiator(&s);
	make_queue(&s);
	s.to = xrc_create_target(&h->d, s.xrcd);
	REQUIRE(s.to);
	s.numbers->target = s.to->qp_num;
	to_a_stranger(&s);
	while (on(h)) {
		struct ibv_wc wc[16];

		connect_to(s.from, s.to->qp_num, &h->d);
		connect_to(s.to, s.from->qp_num, &h->d);
		for (uint32_t i = 0; i < 8; i++)
			post_nonsense(&s, i);
		while (ibv_poll_cq(h->cq, ARRAY_SIZE(wc), wc) > 0)
			;
		replace(&s);
	}
	REQUIRE_EQ(waitpid(pid, NULL, 0), pid);
}
