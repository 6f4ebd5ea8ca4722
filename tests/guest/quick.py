#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A quick look at the driver on any kernel: it loads, a device comes up, and programs move data over it (TAP).

usage: quick.py [FILE]

FILE is the module, in place of the one that the lab has compiled. This runs in the lab's own guest without a device, and on
a whole system, where nobody has installed the driver either.
"""

import glob
import os
import shutil
import sys
import sysconfig

from guestlib import Tap, check, gid_index, must, read, run, server_and_client, wait_for

MODULE = sys.argv[1] if len(sys.argv) > 1 else "/ferrule/module/ferrule.ko"
DEVICE = "ferrule0"
TESTS = "/ferrule/build/tests"
PROGRAMS = ("rc_data --rounds 300", "rc_states", "rc_atomic", "rc_read", "rc_errors", "rc_window", "srq --rounds 1000",
            "uc", "ud --rounds 500")
SECONDS = 300


def load():
    must("modprobe", "-a", "rdma_ucm", "ib_umad", seconds=60)
    script = next(path for path in ("/run/lab/load", "/ferrule/lab/load") if os.path.exists(path))
    must(script, MODULE, seconds=60)
    check(read("/sys/module/ferrule/initstate") == "live", "it is not live")


def provider():
    """In its place, as a package would have put it there."""
    library, = glob.glob("/ferrule/provider/libferrule-rdmav*.so")
    for file, directory in (("/ferrule/provider/ferrule.driver", "/etc/libibverbs.d"),
                            (library, f"/usr/lib/{sysconfig.get_config_var('MULTIARCH')}/libibverbs")):
        # A system without Debian's providers does not have it.
        os.makedirs(directory, exist_ok=True)
        shutil.copy(file, directory)
    must("ibv_devices")


def link_add():
    netdev = next(name for name in ("eth0", "dummy0") if os.path.isdir(f"/sys/class/net/{name}"))
    must("ip", "link", "set", netdev, "up")
    must("rdma", "link", "add", DEVICE, "type", "ferrule", "netdev", netdev)
    gids = f"/sys/class/infiniband/{DEVICE}/ports/1/gids"
    wait_for(lambda: any("0000:ffff:" in read(path) for path in glob.glob(f"{gids}/*")), "there is an IPv4 GID", 30)


def pingpong():
    words = ("ibv_rc_pingpong", "-d", DEVICE, "-g", gid_index(DEVICE), "-n", 1000, "-c")
    server_and_client(words, words)


def program(words):
    """A program of the suites; all of its cases."""
    name, *options = words.split()
    status, output = run(f"{TESTS}/{name}", "--type", "ferrule", *options, DEVICE, seconds=SECONDS)
    failed = [line for line in output.splitlines() if line.startswith("not ok")]
    check(status == 0 and not failed, f"status {status}\n" + "\n".join(failed or output.splitlines()[-20:]))


def unload():
    must("rdma", "link", "delete", DEVICE)
    must("rmmod", "ferrule")


def main():
    tap = Tap()
    print(f"# Linux {os.uname().release}", flush=True)
    for case in (load, provider, link_add, pingpong):
        tap.case(case.__name__, case)
        if tap.failed:
            tap.end()
    for words in PROGRAMS:
        tap.case(words.split()[0], program, words)
    tap.case("unload", unload)
    tap.end()


main()
