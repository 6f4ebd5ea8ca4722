#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The module's whole life, again and again: load, a device, traffic, removal under traffic, unload.

usage: lifecycle.py TYPE ROUNDS

Memory after the last round is compared with what it was after the first few, when caches had filled. The figures that
tell most are exact: the rounds run in a control group of their own, and what it is still charged for when all its
programs have ended is what their verbs objects have left behind.
"""

import os
import subprocess
import sys
import time

from guestlib import SLOW, Tap, check, gid_index, must, note, read, run, server_and_client, wait_for

TYPE, ROUNDS = sys.argv[1], int(sys.argv[2])
MODULE = {"ferrule": "/ferrule/module/ferrule.ko"}.get(TYPE)
NAME = "ferrule" if MODULE else f"rdma_{TYPE}"
TESTS = "/ferrule/build/tests"
# rdma_rxe cannot be removed under a program; there the program is killed before.
REMOVALS = ("while_polling", "while_sleeping") if MODULE else ("program_killed",)
WARM = 3

# By how many kilobytes each figure may grow, in all rounds together. The slab's unreclaimable part and vmalloc vary by
# what other parts of the kernel hold at the moment (about 300 kB and 16 kB were seen with rdma_rxe); what is charged
# to the control group varies by 40 kB, and 20 rounds that lose a page each come to 80. The rest is exact.
TOLERANCE = {"SUnreclaim": 600, "VmallocUsed": 64, "Percpu": 0, "pinned": 0, "charged": 60}

GROUP = "/sys/fs/cgroup/lifecycle"

# What the kernel says of any module from outside its tree, and of any device on such a netdev.
EXPECTED = ("loading out-of-tree module taints kernel", "module verification failed",
            # ib_core, of a netdev that does not tell its speed, as dummies do not.
            "speed is unknown, defaulting to")


def loaded():
    return os.path.isdir(f"/sys/module/{NAME}")


def load():
    if MODULE:
        must("insmod", MODULE)
    else:
        must("modprobe", NAME)
    check(loaded(), f"{NAME} is not loaded")


def unload():
    begin = time.monotonic()
    must("rmmod", NAME)
    check(not loaded(), f"{NAME} is still loaded")
    check(time.monotonic() - begin < 5 * SLOW, f"rmmod took {time.monotonic() - begin:.1f} s")


def life():
    load()
    must("rdma", "link", "add", "life0", "type", TYPE, "netdev", "dummy0")
    wait_for(lambda: "0000:ffff:" in "".join(read(f"/sys/class/infiniband/life0/ports/1/gids/{index}")
                                             for index in range(6)), "life0 has its IPv4 GID")
    command = ["ibv_rc_pingpong", "-d", "life0", "-g", gid_index("life0"), "-s", 5000, "-n", 100, "-c"]
    server_and_client(command, command)
    # An open device file does not hold the module: it goes, and the program keeps a file without a device.
    if MODULE:
        holder = subprocess.Popen([f"{TESTS}/holder", "life0"], stdout=subprocess.PIPE)
        holder.stdout.readline()
        unload()
        check(holder.poll() is None, "the program died with the module")
        holder.kill()
        holder.communicate()
        load()
        must("rdma", "link", "add", "life0", "type", TYPE, "netdev", "dummy0")
    must("rdma", "link", "delete", "life0")
    for removal in REMOVALS:
        must(f"{TESTS}/removal", "--type", TYPE, "--only", removal, "none", seconds=60)
    # A device that nobody deleted goes with its module.
    must("rdma", "link", "add", "life1", "type", TYPE, "netdev", "dummy0")
    unload()
    check(not os.path.exists("/sys/class/infiniband/life1"), "life1 is left without its module")


def make_group():
    """The control group of the rounds; False where the kernel has none for memory."""
    if "memory" not in read("/sys/fs/cgroup/cgroup.controllers").split():
        note("this kernel has no control groups for memory: what the programs leave is not counted")
        return False
    with open("/sys/fs/cgroup/cgroup.subtree_control", "w") as file:
        file.write("+memory")
    os.mkdir(GROUP)
    return True


def in_group(function):
    """Run a function in a process of the control group."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            with open(f"{GROUP}/cgroup.procs", "w") as file:
                file.write(str(os.getpid()))
            function()
            status = 0
        except Exception as failure:
            note(str(failure))
        finally:
            os._exit(status)
    check(os.waitpid(pid, 0)[1] == 0, "the round failed")


def memory(grouped):
    """The figures in kilobytes, each at its lowest of several looks: what is deferred takes its time."""
    looks = []
    for _ in range(5):
        time.sleep(0.4)
        looks.append(look(grouped))
    return {key: min(figures[key] for figures in looks) for key in looks[0]}


def look(grouped):
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3\n")
    for cache in os.listdir("/sys/kernel/slab"):
        with open(f"/sys/kernel/slab/{cache}/shrink", "w") as file:
            file.write("1\n")
    figures = {}
    for line in read("/proc/meminfo").splitlines():
        key, value = line.split()[:2]
        if key.rstrip(":") in TOLERANCE:
            figures[key.rstrip(":")] = int(value)
    counts = dict(line.split() for line in read("/proc/vmstat").splitlines())
    figures["pinned"] = 4 * (int(counts["nr_foll_pin_acquired"]) - int(counts["nr_foll_pin_released"]))
    if grouped:
        charged = dict(line.split() for line in read(f"{GROUP}/memory.stat").splitlines())
        figures["charged"] = int(charged["kernel"]) // 1024
    return figures


def compare(before, after):
    grown = []
    for key in before:
        allowed = TOLERANCE[key]
        more = after[key] - before[key]
        note(f"{key}: {before[key]} kB before, {after[key]} kB after, {allowed} kB allowed")
        if more > allowed:
            grown.append(f"{key} has grown by {more} kB")
    check(not grown, "; ".join(grown))


def quiet_log():
    lines = [line for line in must("dmesg", "--level=emerg,alert,crit,err,warn").splitlines()
             if not any(text in line for text in EXPECTED) and line not in LOG_BEFORE]
    check(not lines, "the kernel's log has warnings:\n" + "\n".join(lines[:30]))


LOG_BEFORE = set()


def main():
    tap = Tap()
    must("modprobe", "-a", "ib_uverbs", "rdma_ucm", "ib_umad", "udp_tunnel", "ip6_udp_tunnel")
    LOG_BEFORE.update(must("dmesg").splitlines())
    grouped = make_group()
    before = None
    for number in range(1, ROUNDS + 1):
        tap.case(f"round {number}", in_group if grouped else lambda function: function(), life)
        if tap.failed:
            break
        if number == min(WARM, ROUNDS - 1):
            before = memory(grouped)
    if before:
        tap.case("memory as before", compare, before, memory(grouped))
    tap.case("the kernel's log is quiet", quiet_log)
    tap.end()


if __name__ == "__main__":
    main()
