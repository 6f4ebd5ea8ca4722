#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The Debian packages for dkms: it compiles the module on a machine that has Debian's headers of a kernel, and a guest with
that kernel runs what came out (TAP).

usage: dkms.py EARLIER NEWER [KERNEL]

EARLIER and NEWER are directories with the packages of one version. KERNEL is stock, previous, cloud or rt. The machine is a
tree of Debian's, which has all that the packages need. This runs on the host, after `qemu/lab build tests`.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT / "qemu"), str(CHECKOUT / "tests/guest")]

from guestlib import Tap, check  # noqa: E402
from labkit import cache, debian, kernel, packages, programs, suite, tree  # noqa: E402
from packagelib import APT, check_nothing_left, listing  # noqa: E402

SECONDS = 900
NAME = "ferrule-dkms"
EARLIER = packages.suite_version("0.0.1")

# The kernels that packages are for, each with the lab's words for a guest that boots it if FERRULE_KERNEL has its version.
KERNELS = {"stock": (kernel.stock, ()), "previous": (kernel.previous, ()), "rt": (kernel.rt, ("--kernel", "rt")),
           "cloud": (kernel.cloud, ("--system", "--kernel", "cloud"))}


def tree_with_headers(target):
    """A tree that has a kernel's headers and modules, dkms, and the compilers that the packages ask for."""

    def build(directory, step):
        debian.bootstrap(directory / "root", names, step)

    parts = (f"linux-{part}-{target.release}={target.version}" for part in ("base", "headers", "modules"))
    names = ["dkms", "bindgen", "rustc", "openssl", "kmod", suite.CHOSEN.newest("linux-base"), *parts]
    return cache.entry("headers", {"suite": debian.SUITE, "packages": names, "layout": 1},
                       f"making a tree with the headers of Linux {target.release}", build, keep=1) / "root"


class Machine:
    """A copy of that tree, which packages may change."""

    def __init__(self, directory, earlier, newer, name):
        choose, self.guest = KERNELS[name]
        self.kernel = choose()
        self.root = directory / "root"
        subprocess.run(["cp", "--archive", "--reflink=auto", tree_with_headers(self.kernel), self.root], check=True)
        self.packages = {"earlier": earlier, "newer": newer}
        self.modules = f"/usr/lib/modules/{self.kernel.release}"
        # The first command leaves places in the tree for what it sees of this machine.
        self.must("true")
        self.before = self.listing()

    def listing(self):
        return listing(str(self.root), self.modules)

    def run(self, *words):
        binds = [(directory, f"/packages/{name}") for name, directory in self.packages.items()]
        done = subprocess.run(tree.command(words, binds, root=self.root), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=SECONDS,
                              env=tree.environment({"DEBIAN_FRONTEND": "noninteractive"}))
        return done.returncode, done.stdout

    def must(self, *words):
        status, output = self.run(*words)
        check(status == 0, f"status {status} of {' '.join(words)}\n{output}")
        return output

    def install(self, which, name):
        found = list(self.packages[which].glob(f"{name}_*.deb"))
        check(len(found) == 1, f"{self.packages[which]} has {found or 'nothing'} for {name}")
        return self.must(*APT, "install", f"/packages/{which}/{found[0].name}")

    def module(self):
        """The file of the module that depmod's index has, or None."""
        status, output = self.run("modinfo", "--set-version", self.kernel.release, "--field", "filename", "ferrule")
        return output.strip() if status == 0 else None

    def field(self, name):
        return self.must("modinfo", "--set-version", self.kernel.release, "--field", name, "ferrule").strip()

    def check_status(self, *wanted):
        """dkms has these versions, and no other."""
        told = self.must("dkms", "status").splitlines()
        check(told == list(wanted), f"dkms status: {told}")


def installed(machine, version):
    return f"ferrule/{version}, {machine.kernel.release}, x86_64: installed"


def kernel_without_metadata(machine):
    """It is passed over, and no package fails."""
    machine.install("earlier", NAME)
    machine.check_status(f"ferrule/{EARLIER}: added")
    check(machine.module() is None, f"there is {machine.module()}")


def metadata_comes(machine):
    """The module is compiled, signed and installed by itself."""
    machine.install("newer", f"ferrule-rust-{machine.kernel.release}")
    machine.check_status(installed(machine, EARLIER))
    file = machine.module()
    check(file and "/updates/dkms/ferrule.ko" in file, f"the module is {file}")
    check(machine.field("vermagic").split()[0] == machine.kernel.release, machine.field("vermagic"))
    check(machine.field("signer") == "DKMS module signing key", f"the signer is {machine.field('signer') or 'nobody'}")


def upgrade(machine):
    """The new version is in the place of the old one, in all places."""
    machine.install("newer", NAME)
    machine.check_status(installed(machine, packages.suite_version(packages.driver_version(packages.DRIVER.read_text()))))
    check(not (machine.root / f"usr/src/ferrule-{EARLIER}").exists(), "the source of the earlier version is left")


def quick_look(machine):
    """A guest takes the module, and the suites' programs pass on its device."""
    file = machine.module()
    check(file, "there is no module")
    # A whole system has no other folder of this machine's than those of the checkout.
    with tempfile.TemporaryDirectory(dir=programs.products()) as share:
        shutil.copy(machine.root / file.removeprefix("/"), share)
        module = f"/ferrule/build/{Path(share).name}/{Path(file).name}"
        words = [CHECKOUT / "qemu/lab", "run", *machine.guest, "--device", "none", "--timeout", str(SECONDS - 100), "--",
                 "python3", "/ferrule/tests/guest/quick.py", module]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", timeout=SECONDS, env=os.environ | {"FERRULE_KERNEL": machine.kernel.upstream})
    check(done.returncode == 0, f"status {done.returncode}\n{done.stdout}")
    check(f"# Linux {machine.kernel.release}\n" in done.stdout, f"it was another kernel's guest\n{done.stdout}")


def removed(machine):
    machine.must(*APT, "remove", NAME)
    machine.check_status()
    check(machine.module() is None, f"there is {machine.module()}")


def purged(machine):
    """Nothing is left but the key that dkms has made for itself."""
    machine.must(*APT, "purge", NAME, f"ferrule-rust-{machine.kernel.release}")
    after = machine.listing()
    for key in ("mok.key", "mok.pub"):
        check(after.pop(f"/var/lib/dkms/{key}", None) is not None, f"dkms has no {key}")
    check_nothing_left(machine.before, after)


def main():
    earlier, newer = (Path(word).resolve() for word in sys.argv[1:3])
    tap = Tap()
    directory = Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        machine = Machine(directory, earlier, newer, *(sys.argv[3:4] or ["stock"]))
        print(f"# Linux {machine.kernel.release}", flush=True)
        for case in (kernel_without_metadata, metadata_comes, upgrade, quick_look, removed, purged):
            tap.case(case.__name__, case, machine)
    finally:
        cache.remove(directory)
    tap.end()


main()
