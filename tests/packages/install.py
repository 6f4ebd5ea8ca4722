#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The Debian packages in a guest: installed, used, upgraded, removed, purged.

usage: install.py EARLIER NEWER

Each is a directory with the packages of one version. The guest has the kernel without its package, so a package without
files stands for that; and the lab's own provider, which goes first.
"""

import glob
import os
import re
import shutil
import struct
import sys
import tempfile

from packagelib import (APT, DRIVER_FILE, MODULES, NAMES, NEWEST, RELEASE, check_nothing_left, field, install, listing, package,
                        remove, traffic)

from guestlib import Skip, Tap, check, must, run

EARLIER, NEWER = sys.argv[1:3]
DEVICE, NETDEV = "ferrule0", "dummy0"
ABI = 2
FERRULE = "/ferrule/module/ferrule.ko"

# The version of the packages, and the suite that they are for, which trixie's do not name.
VERSION, _, SUITE = field(package(NEWER, NAMES[0]), "Version").partition("+")


def prepare():
    """Make space for a module beside the kernel's own, which are read-only, and a package of that kernel. depmod reads all
    modules, which takes a minute for thousands, so there are only those that a device needs."""
    layer = tempfile.mkdtemp()
    must("mount", "-t", "tmpfs", "tmpfs", layer)
    for name in ("ib_uverbs", "rdma_ucm", "ib_umad", *must("modinfo", "--field", "depends", FERRULE).strip().split(",")):
        for line in must("modprobe", "--show-depends", name).splitlines():
            if line.startswith("insmod "):
                file = os.path.realpath(line.split()[1])
                there = layer + file.removeprefix(MODULES)
                os.makedirs(os.path.dirname(there), exist_ok=True)
                shutil.copy(file, there)
    must("mount", "--move", layer, MODULES)
    os.rmdir(layer)
    must("depmod", RELEASE)
    for file in (DRIVER_FILE, *glob.glob("/usr/lib/*/libibverbs/libferrule-*.so")):
        os.unlink(file)

    wanted = field(package(NEWER, NAMES[2]), "Depends")
    image, _, version = wanted.partition(" (= ")
    check(image == f"linux-image-{RELEASE}" and version.endswith(")"), f"it depends on {wanted}")
    with tempfile.TemporaryDirectory() as stage:
        os.mkdir(f"{stage}/DEBIAN")
        with open(f"{stage}/DEBIAN/control", "w") as control:
            control.write(f"Package: {image}\nVersion: {version[:-1]}\nArchitecture: amd64\nMaintainer: none <none@localhost>\n"
                          "Description: in the place of the kernel's package\n")
        must("dpkg-deb", "--root-owner-group", "--build", stage, "/tmp/image.deb")
    must("dpkg", "--install", "/tmp/image.deb")


def link_add():
    must("rdma", "link", "add", DEVICE, "type", "ferrule", "netdev", NETDEV)


def unload():
    run("rdma", "link", "delete", DEVICE)
    must("rmmod", "ferrule")


def install_and_use():
    install(EARLIER)
    path = must("modinfo", "--field", "filename", "ferrule").strip()
    check(os.path.realpath(path) == f"{MODULES}/updates/ferrule.ko", f"the module is {path}")
    must("modprobe", "ferrule")
    link_add()
    traffic(DEVICE)


def module_loaded_by_link_add():
    unload()
    link_add()
    traffic(DEVICE)


def upgrade_under_a_device():
    install(NEWER)
    traffic(DEVICE)
    unload()
    link_add()
    traffic(DEVICE)


def version_of_the_device():
    shown = next(line.split()[1] for line in must("ibv_devinfo", "-d", DEVICE).splitlines() if "fw_ver:" in line)
    check(shown == VERSION, f"the device's version is {shown}")


def library():
    return glob.glob("/usr/lib/*/libibverbs/libferrule-*.so")[0]


def with_abi(content, version):
    """The provider as if its header had another version of the ABI: its struct verbs_device_ops begins with a pointer to the
    name, which is as far into the file as it is into memory, and with the least and the latest version."""
    versions = struct.pack("<II", ABI, ABI)
    places = []
    for at in range(0, len(content) - 16, 8):
        name, = struct.unpack_from("<Q", content, at)
        if content[at + 8:at + 16] == versions and name < len(content) and content[name:name + 8] == b"ferrule\0":
            places.append(at + 8)
    check(len(places) == 1, f"{len(places)} places look like the ABI version")
    return content[:places[0]] + struct.pack("<II", version, version) + content[places[0] + 8:]


def provider_of_another_abi(version):
    """libibverbs tells in one line which versions there are, and the device is not there for programs."""
    with open(library(), "rb") as file:
        content = file.read()
    try:
        with open(library(), "wb") as file:
            file.write(with_abi(content, version))
        _, output = run("ibv_devices")
        # It tries the providers twice, and says the same again.
        told, *more = {line for line in output.splitlines() if line.startswith("libibverbs:")} or {""}
        check(f"ferrule does not support the kernel ABI of {ABI} (supports {version} to {version})" in told and not more,
              f"ibv_devices says:\n{output}")
        check(DEVICE not in output.replace(told, ""), f"the device is shown:\n{output}")
    finally:
        with open(library(), "wb") as file:
            file.write(content)
    traffic(DEVICE)


def package_for_another_libibverbs():
    """It is refused, and the libibverbs that it needs is named."""
    with tempfile.TemporaryDirectory() as stage:
        must("dpkg-deb", "--raw-extract", package(NEWER, NAMES[1]), f"{stage}/tree")
        with open(f"{stage}/tree/DEBIAN/control") as control:
            text, count = re.subn(r"libibverbs1 \(>= [^)]+\), libibverbs1 \(<< [^)]+\)",
                                  "libibverbs1 (>= 99.0), libibverbs1 (<< 100)", control.read())
        check(count == 1, f"it has no bounds of libibverbs:\n{text}")
        with open(f"{stage}/tree/DEBIAN/control", "w") as control:
            control.write(text)
        must("dpkg-deb", "--root-owner-group", "--build", f"{stage}/tree", f"{stage}/other.deb")
        status, output = run(*APT, "install", f"{stage}/other.deb", seconds=60)
    told = [line for line in output.splitlines() if "Depends: libibverbs1 (>= 99.0) but " in line]
    check(status != 0 and len(told) == 1, f"apt-get ends with {status}:\n{output}")


def file_for_another_libibverbs():
    """A provider that was copied by hand is not found by a libibverbs of another version, which says in one line what it
    looked for; that has a place in the manual page."""
    own = library()
    other = re.sub(r"rdmav\d+", "rdmav1", own)
    os.rename(own, other)
    try:
        _, output = run("ibv_devices")
        told, *more = {line for line in output.splitlines() if line.startswith("libibverbs:")} or {""}
        wanted = f"libibverbs: Warning: couldn't load driver '{os.path.basename(own)}'"
        check(told.startswith(wanted) and not more, f"ibv_devices says:\n{output}")
        check(DEVICE not in output.replace(told, ""), f"the device is shown:\n{output}")
    finally:
        os.rename(other, own)
    traffic(DEVICE)


def need_several(kernels):
    """Packages for trixie are for several kernels. A suite that is not released has one."""
    if kernels == 1 and SUITE:
        raise Skip(f"the packages for {SUITE} are for one kernel")
    check(kernels > 1, "there is no package for another kernel")


def kernel_that_is_not_installed():
    """The package of a module is refused without its kernel, and the missing package is named."""
    others = [file for file in glob.glob(f"{NEWER}/ferrule-modules-[0-9]*.deb") if RELEASE not in file]
    need_several(1 + len(others))
    for file in others:
        image = field(file, "Package").replace("ferrule-modules-", "linux-image-")
        status, output = run(*APT, "install", file, seconds=60)
        check(status != 0 and f"Depends: {image} (= " in output, f"apt-get ends with {status}:\n{output}")


def metapackage_of_the_newest():
    """Of the kernels of this flavour, the metapackage names the newest."""
    flavour = RELEASE.partition("-")[2]
    releases = [field(file, "Package") for file in glob.glob(f"{NEWER}/ferrule-modules-[0-9]*.deb")]
    releases = [name for name in releases if re.fullmatch(rf"ferrule-modules-[\d.]+\+deb\d+(?:\+\d+)?-{flavour}", name)]
    newest = max(releases, key=lambda name: [int(part) for part in re.findall(r"\d+", name)])
    need_several(len(releases))
    depends = field(package(NEWER, NEWEST), "Depends")
    check(depends.startswith(f"{newest} (= "), f"it depends on {depends}")


def quiet_without_provider():
    """A device whose provider has gone, and libibverbs has nothing to say."""
    output = must("ibv_devices")
    check("libibverbs:" not in output, f"ibv_devices says:\n{output}")


def remove_and_install_again():
    remove("remove")
    check(not os.path.lexists(DRIVER_FILE), f"{DRIVER_FILE} is left")
    quiet_without_provider()
    unload()
    check(run("modinfo", "ferrule")[0] != 0, "depmod's index has the module still")
    install(NEWER)
    link_add()
    traffic(DEVICE)


def purge(before):
    unload()
    remove("purge")
    quiet_without_provider()
    check_nothing_left(before)


def main():
    tap = Tap()
    tap.case("prepare", prepare)
    before = listing()
    tap.case("kernel_that_is_not_installed", kernel_that_is_not_installed)
    tap.case("metapackage_of_the_newest", metapackage_of_the_newest)
    tap.case("install_and_use", install_and_use)
    tap.case("module_loaded_by_link_add", module_loaded_by_link_add)
    tap.case("upgrade_under_a_device", upgrade_under_a_device)
    tap.case("version_of_the_device", version_of_the_device)
    tap.case("older_provider", provider_of_another_abi, ABI - 1)
    tap.case("newer_provider", provider_of_another_abi, ABI + 1)
    tap.case("package_for_another_libibverbs", package_for_another_libibverbs)
    tap.case("file_for_another_libibverbs", file_for_another_libibverbs)
    tap.case("remove_and_install_again", remove_and_install_again)
    tap.case("purge", purge, before)
    tap.end()


main()
