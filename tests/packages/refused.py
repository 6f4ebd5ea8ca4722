#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Machines and kernels that ferrule cannot be used on: each is told in one line, with what to do (TAP).

This runs on the host. In tests/lab/, test_kbuild.py has kernels without Rust or RDMA for people who compile for their own,
test_tree.py machines without user namespaces, test_backend.py a QEMU that is too old, and test_cache.py a full disk.
packages/install.py has a libibverbs of another version.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT / "qemu"), str(CHECKOUT / "tests/guest")]

from guestlib import Tap, check  # noqa: E402
from labkit import kernel, module  # noqa: E402

SECONDS = 240


def lab(*words, before=(), **environment):
    """Run the lab; returns its status and the lines that it said."""
    done = subprocess.run([*before, CHECKOUT / "qemu/lab", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          errors="replace", timeout=SECONDS, env=os.environ | environment)
    return done.returncode, done.stderr.splitlines()


def no_network():
    """All that a second run needs is there."""
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    status, said = lab("run", "--device", "ferrule", "--", "true", before=("unshare", *user, "--net"))
    check(status == 0, f"status {status}: {said}")


def kernel_without_rust():
    """Debian 13's own is one. Nobody fetches its source to be told."""
    status, said = lab("build", "module", FERRULE_KERNEL="6.12")
    check(status == 126, f"status {status}: {said}")
    check(re.fullmatch(r"lab: Linux 6\.12\S+ is built without Rust \(CONFIG_RUST\); name another with FERRULE_KERNEL", said[-1]),
          f"{said}")
    check(not any("source" in line for line in said), f"{said}")


def kernel_of_another_release():
    made = module.build(kernel.stock()) / "ferrule.ko"
    content, release = made.read_bytes(), kernel.stock().release
    other = release.replace("7.", "8.", 1)
    with tempfile.TemporaryDirectory() as share:
        shutil.copy(made, share)
        Path(share, "other.ko").write_bytes(content.replace(f"vermagic={release}".encode(), f"vermagic={other}".encode()))
        status, said = lab("run", "--device", "none", "--share", share, "--", "/run/lab/load", "/share/other.ko")
    check(status == 1, f"status {status}: {said}")
    check(said[-1] == f"load: /share/other.ko is for Linux {other}, and this is {release}: build it for this kernel", f"{said}")


def kernel_with_lockdown():
    status, said = lab("run", "--append", "lockdown=integrity", "--", "true")
    check(status == 126, f"status {status}: {said}")
    check(any("this kernel is locked down" in line and "sign it" in line for line in said), f"{said}")


def main():
    tap = Tap()
    for case in (no_network, kernel_without_rust, kernel_of_another_release, kernel_with_lockdown):
        tap.case(case.__name__, case)
    tap.end()


main()
