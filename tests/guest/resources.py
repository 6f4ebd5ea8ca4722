#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The objects of `rdma resource show`, with the driver's details (-dd).

usage: resources.py DEVICE
"""

import ctypes
import json
import mmap
import os
import sys

import pyverbs.enums as e
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr

from guestlib import Tap, check, huge_pages, must


# `rdma` puts this before the names of a driver's details.
DETAIL = "drv_"


def shown(kind, device, *options, as_user=()):
    of = "link" if kind == "qp" else "dev"
    found = json.loads(must(*as_user, "rdma", "-j", *options, "resource", "show", kind, of, device))
    return [{name.removeprefix(DETAIL): value for name, value in one.items()} for one in found]


class Objects:
    """One of each, of sizes that nobody else's has."""

    def __init__(self, device):
        self.ctx = Context(name=device)
        self.pd = PD(self.ctx)
        self.cq = CQ(self.ctx, 500)
        self.srq = SRQ(self.pd, SrqInitAttr(SrqAttr(max_wr=77, max_sge=5)))
        self.mr = MR(self.pd, 12345, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ)
        cap = QPCap(max_send_wr=33, max_recv_wr=17, max_send_sge=3, max_recv_sge=2)
        self.qp = QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap))

    def close(self):
        for one in (self.qp, self.mr, self.srq, self.cq, self.pd, self.ctx):
            one.close()


def only(found, what):
    check(len(found) == 1, f"{what}: {found}")
    return found[0]


def details(device):
    objects = Objects(device)
    try:
        qp = only([qp for qp in shown("qp", device, "-dd") if qp["lqpn"] == objects.qp.qp_num], "queue pair")
        check(qp["max_send_wr"] == 64 and qp["max_recv_wr"] == 32, f"{qp}")
        check(qp["max_send_sge"] >= 3 and qp["max_recv_sge"] >= 2, f"{qp}")
        check(qp["sq_consumer"] == 0 and qp["rq_consumer"] == 0 and qp["retry_cnt"] == 0, f"{qp}")

        cq = only([cq for cq in shown("cq", device, "-dd") if cq.get("depth") == 512], "completion queue")
        check(cq["producer"] == 0 and cq["consumer"] == 0 and cq["overrun"] == 0, f"{cq}")

        mr = only([mr for mr in shown("mr", device, "-dd") if mr["mrlen"] == 12345], "region")
        check(int(str(mr["access"]), 0) == e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ, f"{mr}")
        check(mr["writable"] == 1 and mr["has_windows"] == 0, f"{mr}")

        srq = only([srq for srq in shown("srq", device, "-dd") if srq.get("max_wr") == 128], "shared receive queue")
        check(srq["max_sge"] >= 5 and srq["limit"] == 0, f"{srq}")
    finally:
        objects.close()


def without(device):
    """Without -dd there are no details."""
    objects = Objects(device)
    try:
        for kind, name in (("qp", "max_send_wr"), ("cq", "depth"), ("mr", "extents"), ("srq", "max_wr")):
            check(not any(name in one for one in shown(kind, device)), kind)
    finally:
        objects.close()


def no_addresses(device):
    """Nobody is told an address: anybody may list the objects of others, and the kernel's."""
    objects = Objects(device)
    try:
        for kind in ("qp", "cq", "mr", "srq"):
            for one in shown(kind, device, "-dd"):
                check("iova" not in one, f"{kind}: {one}")
        found = shown("mr", device, "-dd", as_user=("setpriv", "--reuid", "65534", "--clear-groups"))
        check(any("extents" in mr for mr in found), f"no details: {found}")
    finally:
        objects.close()


def many(device):
    """More than one message of netlink has a place for."""
    ctx = Context(name=device)
    cqs = [CQ(ctx, 300) for _ in range(1000)]
    try:
        found = [cq for cq in shown("cq", device, "-dd") if cq.get("depth") == 512]
        check(len(found) == len(cqs), f"{len(found)} of {len(cqs)}")
    finally:
        for cq in cqs:
            cq.close()
        ctx.close()


PAGE, HUGE = 4096, 2 << 20
MAP_HUGETLB = 0x40000


def extents(device, memory):
    """Registers a mapping, and returns the number of its pieces."""
    ctx = Context(name=device)
    pd = PD(ctx)
    view = (ctypes.c_char * len(memory)).from_buffer(memory)
    mr = MR(pd, len(memory), e.IBV_ACCESS_LOCAL_WRITE, address=ctypes.addressof(view))
    try:
        return only([mr for mr in shown("mr", device, "-dd") if mr["mrlen"] == len(memory)], "region")["extents"]
    finally:
        for one in (mr, pd, ctx):
            one.close()
        del view


def pieces(device):
    """A huge page is one piece, and a region of such pages takes no more than that; single pages take as many as lie apart."""
    count = 8
    with huge_pages(count):
        memory = mmap.mmap(-1, count * HUGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_HUGETLB)
        found = extents(device, memory)
        memory.close()
    check(1 <= found <= count, f"{found} pieces of {count} huge pages")

    pages = 512
    memory = mmap.mmap(-1, pages * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # A kernel that has no huge pages unasked, as with PREEMPT_RT, does not know the advice.
    if os.path.exists("/sys/kernel/mm/transparent_hugepage"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    # Brought in by one pass over the even pages and one over the odd ones, neighbours have been taken apart.
    for first in (0, 1):
        for page in range(first, pages, 2):
            memory[page * PAGE] = 1
    found = extents(device, memory)
    check(8 <= found <= pages, f"{found} pieces of {pages} pages")
    memory.close()


def kernel_users(device):
    """Those of the kernel have details, too: the queue pair for general services, its queue and its region."""
    gsi = only([qp for qp in shown("qp", device, "-dd") if qp["lqpn"] == 1], "GSI")
    check(gsi["max_send_wr"] > 0, f"{gsi}")
    check(any(cq.get("depth") for cq in shown("cq", device, "-dd")), "completion queues")


def main(device):
    tap = Tap()
    for case in (details, without, no_addresses, many, pieces, kernel_users):
        tap.case(case.__name__, case, device)
    tap.end()


if __name__ == "__main__":
    main(sys.argv[1])
